// The safetensors reader on damaged and lying files: each throws Error or opens, none crashes, hangs or allocates
// without bound.

#include <gtest/gtest.h>

#include <vector>

#include "core/weights/safetensors.h"
#include "tests/support/allocated.h"
#include "tests/weights/exercise.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/safetensors_image.h"

namespace foresay::core {
namespace {

using test::bytes_allocated_by;
using testing::bytes_of;
using testing::exercise;
using testing::expect_error;
using testing::raw;
using testing::safetensors_image;
using testing::sample_safetensors;
using testing::succeeds;

bool opens(const std::string& image) {
    // A copy of exactly that size, so that a read past the end is seen by the address sanitizer.
    const std::vector<char> copy(image.begin(), image.end());
    return succeeds([&] {
        exercise(SafetensorsDir::from_memory("{}", bytes_of({copy.data(), copy.size()}), "hostile"));
    });
}

void expect_refused(const std::string& image, const std::string& part) {
    // Nothing is allocated because a header says so.
    const std::size_t bytes = bytes_allocated_by(
        [&] { expect_error([&] { SafetensorsDir::from_memory("{}", bytes_of(image), "hostile"); }, part); });
    EXPECT_LE(bytes, 100'000 + 100 * image.size()) << part;
}

void expect_header_refused(const std::string& header, const std::string& part) {
    SCOPED_TRACE(header.substr(0, 200));
    expect_refused(safetensors_image(header, std::string(64, 'x')), part);
}

std::string tensor(const std::string& fields) { return R"({"t":{)" + fields + "}}"; }

TEST(SafetensorsHostile, TruncationAtEveryByteIsAnError) {
    const std::string image = sample_safetensors();
    ASSERT_TRUE(opens(image));
    for (std::size_t size = 0; size < image.size(); ++size) EXPECT_FALSE(opens(image.substr(0, size))) << size;
}

TEST(SafetensorsHostile, EverySingleBitFlipIsHandled) {
    const std::string image = sample_safetensors();
    int opened = 0, refused = 0;
    for (std::size_t i = 0; i < image.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            std::string flipped = image;
            flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
            ++(opens(flipped) ? opened : refused);
        }
    }
    EXPECT_GT(opened, 0);
    EXPECT_GT(refused, 0);
}

TEST(SafetensorsHostile, HeaderLengths) {
    expect_refused("", "the file is empty");
    expect_refused("1234567", "ends inside its first number");
    const std::string header = "{}";
    EXPECT_TRUE(opens(safetensors_image(header, "")));
    for (std::uint64_t length :
         {std::uint64_t{3}, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
        expect_refused(raw(length) + header, "ends inside its header");
    }
    expect_refused(raw(std::uint64_t{0}) + header, "no JSON header");
    expect_refused(raw(std::uint64_t{100'000'001}) + "{" + std::string(100'000'001, ' '), "is too long");
    expect_refused(safetensors_image("[]", ""), "no JSON header");
}

TEST(SafetensorsHostile, HeadersOfTheWrongForm) {
    for (const char* header :
         {R"({"t":5})", R"({"t":-5})", R"({"t":1.5})", R"({"t":null})", R"({"t":true})", R"({"t":"x"})", R"({"t":[1]})",
          R"({"__metadata__":{"a":{"b":"c"}}})", R"({"__metadata__":{"a":5}})", R"({"__metadata__":{"a":["b"]}})"}) {
        expect_header_refused(header, "where none belongs");
    }
    for (const char* fields :
         {R"("dtype":5)", R"("dtype":["F32"])", R"("shape":4)", R"("shape":"4")", R"("shape":[[4]])", R"("shape":[{}])",
          R"("shape":[-4])", R"("shape":[1.5])", R"("shape":["4"])", R"("shape":[null])", R"("data_offsets":{"a":1})",
          R"("data_offsets":[-1,4])"}) {
        expect_header_refused(tensor(fields), "where none belongs");
    }
    for (const char* header : {"{", R"({"t")", R"({"t":{"dtype")", "{}}", "{} x", "{\"\xff\":{}}",
                               R"({"t":{"shape":[1e999]}})", "{'t':{}}"}) {
        expect_header_refused(header, "is not valid JSON");
    }
    for (const char* fields :
         {"", R"("dtype":"F32")", R"("dtype":"F32","shape":[1])", R"("shape":[1],"data_offsets":[0,4])",
          R"("dtype":"F32","shape":[1],"data_offsets":[0])", R"("dtype":"F32","shape":[1],"data_offsets":[])",
          R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"}) {
        expect_header_refused(tensor(fields), "does not give dtype, shape and two data_offsets");
    }
    expect_header_refused(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":"x")"),
                          "gives tensor 't' an unknown field 'extra'");
    expect_header_refused(tensor(R"("dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4])"), "'shape' twice");
    const std::string one = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    expect_header_refused("{" + one + "," + one + "}", "tensor 't' occurs twice");
}

TEST(SafetensorsHostile, DeepNestingDoesNotExhaustTheStack) {
    for (const char* bracket : {"[", R"({"a":)"}) {
        std::string deep;
        for (int i = 0; i < 1'000'000; ++i) deep += bracket;
        expect_header_refused(R"({"t":)" + deep,
                              deep[0] == '[' ? "an array where none belongs" : "an unknown field 'a'");
        expect_header_refused(R"({"__metadata__":)" + deep, "where none belongs");
        expect_error([&] { JsonConfig::parse(deep, "config.json"); },
                     deep.size() > kMaxJsonConfigBytes ? "too many" : "nests");
    }
}

TEST(SafetensorsHostile, ImpossibleSizesAndOffsets) {
    const auto with = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
        return tensor(R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets);
    };
    expect_header_refused(with("[17]", "[0,68]"), "ends beyond the end of the file");
    expect_header_refused(with("[1]", "[64,68]"), "ends beyond the end of the file");
    expect_header_refused(with("[1]", "[9223372036854775807,9223372036854775807]"), "ends beyond the end of the file");
    expect_header_refused(with("[1]", "[0,9223372036854775807]"), "ends beyond the end of the file");
    expect_header_refused(with("[1]", "[0,9223372036854775808]"), "impossible size");
    expect_header_refused(with("[1]", "[0,18446744073709551616]"), "");
    expect_header_refused(with("[1]", "[8,4]"), "reversed data_offsets");
    expect_header_refused(with("[2]", "[0,4]"), "do not explain");
    expect_header_refused(with("[1]", "[0,4]", "F16"), "do not explain");
    expect_header_refused(with("[1]", "[0,1]", "F4"), "do not explain");
    expect_header_refused(with("[4294967296,4294967296]", "[0,0]"), "impossible size");
    expect_header_refused(with("[4611686018427387904]", "[0,0]"), "do not explain");  // bytes wrap to 0
    expect_header_refused(with("[4294967296,4294967296]", "[0,0]", "X9"), "impossible size");
    expect_header_refused(with("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), "impossible size");
    EXPECT_TRUE(opens(safetensors_image(with("[4294967296,4294967296,0]", "[0,0]"), "")));
    EXPECT_TRUE(opens(safetensors_image(with("[3]", "[1,13]"), std::string(13, 'x'))));
    const auto two = [](const std::string& second) {
        return R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]},)"
               R"("b":{"dtype":"F32","shape":[4],"data_offsets":)" +
               second + "}}";
    };
    EXPECT_TRUE(opens(safetensors_image(two("[0,16]"), std::string(64, 'x'))));
    expect_header_refused(two("[4,20]"), "tensors 'b' and 'a' lie on the same bytes");
    expect_header_refused(two("[16,32]"), "lie on the same bytes");
}

}  // namespace
}  // namespace foresay::core
