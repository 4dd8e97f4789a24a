// GgufFile on damaged and lying files: each throws Error or opens, none crashes, hangs or allocates without bound.

#include <gtest/gtest.h>

#include "core/weights/gguf.h"
#include "tests/support/allocated.h"
#include "tests/weights/exercise.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/gguf_image.h"

namespace foresay::core {
namespace {

using test::bytes_allocated_by;
using testing::bytes_of;
using testing::exercise;
using testing::expect_error;
using testing::GgufImageBuilder;
using testing::raw;
using testing::sample_gguf;
using testing::succeeds;

bool opens(const std::string& image) {
    // A copy of exactly that size, so that a read past the end is seen by the address sanitizer.
    const std::vector<char> copy(image.begin(), image.end());
    return succeeds([&] { exercise(GgufFile::from_memory(bytes_of({copy.data(), copy.size()}), "hostile.gguf")); });
}

void expect_refused(const std::string& image, const std::string& part) {
    // Nothing is allocated because a header says so.
    const std::size_t bytes = bytes_allocated_by(
        [&] { expect_error([&] { GgufFile::from_memory(bytes_of(image), "hostile.gguf"); }, part); });
    EXPECT_LE(bytes, 100'000 + 100 * image.size()) << part;
}

TEST(GgufHostile, TruncationAtEveryByteIsAnError) {
    const std::string image = sample_gguf();
    ASSERT_TRUE(opens(image));
    // The last tensor with data ends before the padding that follows it, which nothing needs.
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "whole.gguf");
    std::size_t needed = 0;
    for (const TensorInfo& tensor : file.tensors().list()) {
        needed = std::max(needed, static_cast<std::size_t>(tensor.offset + tensor.bytes));
    }
    for (std::size_t size = 0; size < image.size(); ++size) {
        EXPECT_EQ(opens(image.substr(0, size)), size >= needed) << size;
    }
}

TEST(GgufHostile, EverySingleBitFlipIsHandled) {
    const std::string image = sample_gguf();
    int opened = 0, refused = 0;
    for (std::size_t i = 0; i < image.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
            std::string flipped = image;
            flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
            ++(opens(flipped) ? opened : refused);
        }
    }
    EXPECT_GT(opened, 0);   // in names and data
    EXPECT_GT(refused, 0);  // in lengths
}

TEST(GgufHostile, ForeignAndOldFiles) {
    expect_refused("", "the file is empty");
    expect_refused("GGU", "not a GGUF file");
    expect_refused("PK\x03\x04 and more", "not a GGUF file");
    expect_refused(GgufImageBuilder(1).build(), "GGUF version 1 is not supported");
    expect_refused(GgufImageBuilder(4).build(), "GGUF version 4 is not supported");
    expect_refused(GgufImageBuilder(0x03000000u).build(), "big-endian");
    EXPECT_TRUE(opens(GgufImageBuilder(3).build()));  // empty but valid
}

TEST(GgufHostile, HugeCounts) {
    for (std::uint64_t count :
         {std::uint64_t{1} << 20, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        GgufImageBuilder tensors;
        tensors.tensor_count = count;
        expect_refused(tensors.build(), "the header promises");
        GgufImageBuilder entries;
        entries.entry_count = count;
        expect_refused(entries.build(), "the header promises");
        for (GgufType element : {GgufType::u8, GgufType::u64, GgufType::string}) {
            GgufImageBuilder array;
            array.raw_entry("array", 9, raw(static_cast<std::uint32_t>(element)) + raw(count));
            expect_refused(array.build(), "more than the file can hold");
        }
    }
}

TEST(GgufHostile, HugeStrings) {
    for (std::uint64_t length :
         {std::uint64_t{100}, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
        expect_refused(GgufImageBuilder().raw_entry("text", 8, raw(length) + "abc").build(),
                       "the file ends inside a metadata string");
        GgufImageBuilder key;
        key.entry_count = 1;
        expect_refused(key.build() + raw(length) + "some key and a value", "the file ends inside a metadata key");
        const std::string strings =
            raw(std::uint32_t{8}) + raw(std::uint64_t{2}) + raw(std::uint64_t{1}) + "a" + raw(length);
        expect_refused(GgufImageBuilder().raw_entry("array", 9, strings).build(), "the file ends inside");
    }
}

TEST(GgufHostile, UnknownTypesAndNestedArrays) {
    expect_refused(GgufImageBuilder().raw_entry("x", 13, "12345678").build(), "unknown type 13");
    expect_refused(GgufImageBuilder().raw_entry("x", 0xffffffffu, "12345678").build(), "unknown type 4294967295");
    std::string nested;
    for (int i = 0; i < 100'000; ++i) nested += raw(std::uint32_t{9}) + raw(std::uint64_t{1});
    expect_refused(GgufImageBuilder().raw_entry("deep", 9, nested).build(), "nests arrays");
}

TEST(GgufHostile, Duplicates) {
    expect_refused(GgufImageBuilder().text("a", "1").text("b", "2").text("a", "3").build(), "key 'a' occurs twice");
    expect_refused(GgufImageBuilder().text("", "1").build(), "without a key");
    expect_refused(GgufImageBuilder().tensor("t", {1}, 0, raw(1.0f)).tensor("t", {1}, 0, raw(1.0f)).build(),
                   "tensor 't' occurs twice");
}

TEST(GgufHostile, ImpossibleShapes) {
    const std::uint64_t big = std::uint64_t{1} << 62;
    const auto with = [](const std::vector<std::uint64_t>& dimensions, std::uint32_t type) {
        return GgufImageBuilder().tensor("t", dimensions, type, std::string(64, 'x')).build();
    };
    expect_refused(with({~std::uint64_t{0}}, 0), "impossible size");  // -1
    expect_refused(with({std::uint64_t{1} << 63, 2}, 0), "impossible size");
    expect_refused(with({big, big}, 0), "impossible size");
    expect_refused(with({1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0), "impossible size");  // 2^64: 0 after wrapping
    expect_refused(with({big}, 0), "impossible size");                                 // bytes overflow
    expect_refused(with({big, 2}, 97), "impossible size");
    expect_refused(with({1, 1, 1, 1, 1}, 0), "at most 4");
    expect_refused(with({31}, 8), "not whole Q8_0 blocks");
    expect_refused(with({255, 256}, 12), "not whole Q4_K blocks");
    expect_refused(with({17}, 0), "ends beyond the end of the file");  // 68 bytes of 64
    expect_refused(with({std::uint64_t{1} << 40}, 0), "ends beyond the end of the file");
    EXPECT_TRUE(opens(with({0, big, big}, 0)));                 // nothing at all, however large
    expect_refused(with({big, big, 0}, 0), "impossible size");  // overflows before it meets the zero
    EXPECT_TRUE(opens(with({}, 0)));                            // a single number
}

TEST(GgufHostile, OffsetsAndAlignment) {
    const auto at = [](std::uint64_t offset) {
        return GgufImageBuilder().tensor("t", {16}, 0, std::string(64, 'x'), offset).build();
    };
    EXPECT_TRUE(opens(at(0)));
    expect_refused(at(32), "ends beyond the end of the file");
    expect_refused(at(64), "ends beyond the end of the file");
    expect_refused(at(4), "not aligned");
    expect_refused(at(1 << 20), "begins beyond the end of the file");
    expect_refused(at(~std::uint64_t{31}), "begins beyond the end of the file");
    expect_refused(at(std::uint64_t{1} << 63), "begins beyond the end of the file");
    const auto two = [](std::uint64_t second) {
        return GgufImageBuilder()
            .tensor("a", {16}, 0, std::string(64, 'x'), 64)
            .tensor("b", {16}, 0, std::string(64, 'x'), second)
            .build();
    };
    EXPECT_TRUE(opens(two(0)));
    expect_refused(two(32), "tensors 'b' and 'a' lie on the same bytes");
    expect_refused(two(64), "lie on the same bytes");
    for (std::uint32_t alignment : {0u, 3u, 48u}) {
        expect_refused(GgufImageBuilder().scalar("general.alignment", GgufType::u32, alignment).build(),
                       "power of two");
    }
    expect_refused(GgufImageBuilder().scalar("general.alignment", GgufType::f32, 32.0f).build(), "power of two");
    expect_refused(GgufImageBuilder().text("general.alignment", "32").build(), "power of two");
    expect_refused(GgufImageBuilder().scalar("general.alignment", GgufType::u64, std::uint64_t{1} << 40).build(),
                   "power of two");
    expect_refused(GgufImageBuilder()
                       .scalar("general.alignment", GgufType::u32, std::uint32_t{1} << 31)
                       .tensor("t", {1}, 0, raw(1.0f))
                       .build(),
                   "ends before its tensor data");
}

TEST(GgufHostile, NamesAreEscapedInMessages) {
    expect_refused(GgufImageBuilder().text("\x1b[2J\n", "1").text("\x1b[2J\n", "2").build(),
                   "'\\x1b[2J\\x0a' occurs twice");
}

}  // namespace
}  // namespace foresay::core
