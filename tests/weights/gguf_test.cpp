// GgufFile on honest files: every value type, shapes, quantisation types, split models, and the bundled pair.

#include "core/weights/gguf.h"
#include "core/weights/ggml_types.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/weights/exercise.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::core {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::GgufImageBuilder;
using testing::raw;
using testing::sample_gguf;

TEST(Gguf, ReadsEveryScalarTypeInVersions2And3) {
    for (std::uint32_t version : {2u, 3u}) {
        const std::string image = sample_gguf(version);
        const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
        EXPECT_EQ(file.version(), version);
        EXPECT_EQ(file.get_string("general.architecture"), "llama");
        EXPECT_EQ(file.get_string("empty"), "");
        EXPECT_EQ(file.get_int("u8"), 200);
        EXPECT_EQ(file.get_int("i8"), -100);
        EXPECT_EQ(file.get_int("u16"), 60000);
        EXPECT_EQ(file.get_int("i16"), -30000);
        EXPECT_EQ(file.get_int("u32"), 4000000000);
        EXPECT_EQ(file.get_int("i32"), -2000000000);
        EXPECT_EQ(file.get_int("i64"), -5);
        EXPECT_EQ(file.get_float("f32"), 1e-5f);
        EXPECT_EQ(file.get_float("f64"), 2.5);
        EXPECT_EQ(file.get_float("u8"), 200.0);
        EXPECT_TRUE(file.get_bool("yes"));
        EXPECT_FALSE(file.get_bool("no"));
    }
}

TEST(Gguf, ReadsArraysWithoutCopyingStrings) {
    const std::string image = sample_gguf();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
    const auto tokens = file.get_strings("tokens");
    EXPECT_THAT(tokens, ElementsAre("a", "", "bcd", "\xc4\xa0x"));
    EXPECT_GE(tokens[2].data(), image.data());
    EXPECT_LT(tokens[2].data(), image.data() + image.size());
    EXPECT_TRUE(file.get_strings("no tokens").empty());
    EXPECT_THAT(file.get_floats("scores"), ElementsAre(0.5f, -1.0f));
    EXPECT_THAT(file.get_ints("types"), ElementsAre(1, 3, -6));
    EXPECT_THAT(file.get_bools("flags"), ElementsAre(true, false, true));
}

TEST(Gguf, MissingKeysAndOtherTypesAreNamed) {
    const std::string image = sample_gguf();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
    EXPECT_EQ(file.find("llama.block_count"), nullptr);
    EXPECT_EQ(file.get_int_or("llama.block_count", 7), 7);
    EXPECT_EQ(file.get_string_or("x", "y"), "y");
    EXPECT_EQ(file.get_float_or("x", 0.25), 0.25);
    EXPECT_TRUE(file.get_bool_or("x", true));
    expect_error([&] { file.get_int("llama.block_count"); },
                 "sample.gguf: metadata key 'llama.block_count' is missing");
    expect_error([&] { file.get_int("f32"); }, "'f32' is 9.99999975e-06 (f32), not an integer");
    expect_error([&] { file.get_int_or("empty", 1); }, "'empty' is '' (string), not an integer");
    expect_error([&] { file.get_int("u64"); }, "'u64' is 18446744073709551615 (u64), not an integer");
    expect_error([&] { file.get_float("yes"); }, "not a number");
    expect_error([&] { file.get_bool("u8"); }, "not a boolean");
    expect_error([&] { file.get_bool("maybe"); }, "not a boolean");
    expect_error([&] { file.get_string("tokens"); }, "(array of string), not a string");
    expect_error([&] { file.get_strings("scores"); }, "(array of f32), not an array of strings");
    expect_error([&] { file.get_ints("scores"); }, "not an array of integers");
    expect_error([&] { file.get_floats("types"); }, "not an array of floats");
    expect_error([&] { file.get_ints("u8"); }, "not an array");
}

TEST(Gguf, DescribesValuesForPeople) {
    const std::string image = sample_gguf();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
    const auto text = [&](const char* key, std::size_t length = 80) { return file.describe(*file.find(key), length); };
    EXPECT_EQ(text("general.architecture"), "'llama'");
    EXPECT_EQ(text("general.architecture", 2), "'ll...'");
    EXPECT_EQ(text("i8"), "-100");
    EXPECT_EQ(text("u64"), "18446744073709551615");
    EXPECT_EQ(text("yes"), "true");
    EXPECT_EQ(text("types"), "[1, 3, -6]");
    EXPECT_EQ(text("types", 3), "[1, ... 3 in all]");
    EXPECT_EQ(text("tokens"), "['a', '', 'bcd', '\\xc4\\xa0x']");
}

TEST(Gguf, TensorsFoldIntoRowsAndColumns) {
    const std::string image = sample_gguf();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
    const TensorTable& tensors = file.tensors();
    ASSERT_EQ(tensors.list().size(), 7u);
    EXPECT_EQ(tensors.list()[1].name, "matrix");
    EXPECT_THAT(tensors.list()[1].shape, ElementsAre(3, 2));
    const kernels::TensorView vector = tensors.get("vector");
    EXPECT_EQ(vector.rows, 1);
    EXPECT_EQ(vector.cols, 3);
    const kernels::TensorView matrix = tensors.get("matrix");
    EXPECT_EQ(matrix.rows, 3);
    EXPECT_EQ(matrix.cols, 2);
    std::vector<float> row(2);
    kernels::dequantize_row(matrix, 2, row);
    EXPECT_THAT(row, ElementsAre(4.0f, 5.0f));
    const kernels::TensorView cube = tensors.get("cube");
    EXPECT_EQ(cube.quant_type, kernels::QuantType::f16);
    EXPECT_EQ(cube.rows, 6);
    EXPECT_EQ(cube.cols, 2);
    EXPECT_EQ(tensors.get("codes").bytes(), 68);
    EXPECT_TRUE(tensors.get_optional("absent").empty());
    expect_error([&] { tensors.get("absent"); }, "sample.gguf: tensor 'absent' is missing");
}

TEST(Gguf, TypesBeyondOurReachAreListedAndRefusedByName) {
    const std::string image = sample_gguf();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "sample.gguf");
    const TensorInfo* exotic = file.tensors().find("exotic");
    ASSERT_NE(exotic, nullptr);
    EXPECT_EQ(exotic->type, "IQ2_XXS");
    EXPECT_EQ(exotic->bytes, 66);
    EXPECT_EQ(file.tensors().find("unknown")->type, "type 97");
    EXPECT_EQ(ggml_type(31).name, "type 31 (repacked by an old llama.cpp)");
    EXPECT_EQ(ggml_type(36).name, "type 36 (I2_S of bitnet.cpp)");
    EXPECT_EQ(ggml_type(140).name, "IQ5_K (type 140, of ik_llama.cpp)");
    EXPECT_EQ(ggml_type(144).name, "IQ4_KS (type 144, of ik_llama.cpp)");
    EXPECT_EQ(ggml_type(144).block_bytes, 136);
    EXPECT_EQ(ggml_type(144).row_bytes, 4);
    EXPECT_EQ(ggml_type(212).name, "Q4_K with interleaved rows (type 212, of ik_llama.cpp)");
    EXPECT_FALSE(ggml_type(212).quant_type);
    EXPECT_EQ(ggml_type(212).block_bytes, 144);
    EXPECT_EQ(ggml_type(223).name, "IQ4_XS with interleaved rows (type 223, of ik_llama.cpp)");
    EXPECT_EQ(ggml_type(223).stored, nullptr);
    EXPECT_EQ(ggml_type(233).name, "Q6_0 with interleaved rows (type 233, of ik_llama.cpp)");
    EXPECT_EQ(ggml_type(344).name, "IQ4_KS with interleaved rows (type 344, of ik_llama.cpp)");
    EXPECT_EQ(ggml_type(399).name, "type 399 (of ik_llama.cpp)");
    expect_error([&] { file.tensors().get("exotic"); }, "'exotic' is stored as IQ2_XXS, which is for matrices");
    expect_error([&] { file.tensors().get_optional("unknown"); }, "stored as type 97");
    expect_error([&] { file.tensors().get("hollow"); }, "has no values");
}

TEST(Gguf, HonoursGeneralAlignment) {
    GgufImageBuilder b;
    b.alignment = 256;
    b.scalar<std::uint32_t>("general.alignment", GgufType::u32, 256);
    b.tensor("a", {1}, 0, raw(4.5f)).tensor("b", {1}, 0, raw(-0.5f));
    const std::string image = b.build();
    const GgufFile file = GgufFile::from_memory(bytes_of(image), "aligned.gguf");
    EXPECT_EQ(file.tensors().find("b")->offset % 256, 0);
    std::vector<float> value(1);
    kernels::dequantize_row(file.tensors().get("b"), 0, value);
    EXPECT_EQ(value[0], -0.5f);
}

TEST(Gguf, MovingKeepsViewsValid) {
    testing::TemporaryDirectory directory;
    const auto path = directory.write("sample.gguf", sample_gguf());
    GgufFile first = GgufFile::open(path);
    const kernels::TensorView view = first.tensors().get("matrix");
    const std::string_view architecture = first.get_string("general.architecture");
    const GgufFile second = std::move(first);
    EXPECT_EQ(second.tensors().get("matrix").data, view.data);
    EXPECT_EQ(architecture, "llama");
    EXPECT_EQ(second.get_int("i64"), -5);
}

std::string split_part(std::uint16_t number, std::uint16_t count, std::string_view tensor, float value) {
    GgufImageBuilder b;
    if (number == 0) b.text("general.architecture", "llama");
    b.scalar<std::uint16_t>("split.no", GgufType::u16, number)
        .scalar<std::uint16_t>("split.count", GgufType::u16, count);
    b.tensor(tensor, {1}, 0, raw(value));
    return b.build();
}

TEST(Gguf, OpensASplitModelFromAnyPart) {
    testing::TemporaryDirectory directory;
    directory.write("m-00001-of-00003.gguf", split_part(0, 3, "a", 1.0f));
    directory.write("m-00002-of-00003.gguf", split_part(1, 3, "b", 2.0f));
    directory.write("m-00003-of-00003.gguf", split_part(2, 3, "c", 3.0f));
    for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
        const GgufFile file = GgufFile::open(directory.path() / name);
        EXPECT_EQ(file.get_string("general.architecture"), "llama");
        ASSERT_EQ(file.tensors().list().size(), 3u);
        EXPECT_EQ(file.tensors().find("b")->file, "m-00002-of-00003.gguf");
        std::vector<float> value(1);
        kernels::dequantize_row(file.tensors().get("c"), 0, value);
        EXPECT_EQ(value[0], 3.0f);
    }
}

TEST(Gguf, SplitModelsMustBeWhole) {
    testing::TemporaryDirectory directory;
    directory.write("m-00001-of-00002.gguf", split_part(0, 2, "a", 1.0f));
    const auto open = [&](const char* name) { return [path = directory.path() / name] { GgufFile::open(path); }; };
    expect_error(open("m-00001-of-00002.gguf"), "m-00002-of-00002.gguf: cannot open the file: No such file");
    directory.write("m-00002-of-00002.gguf", split_part(0, 2, "b", 1.0f));
    expect_error(open("m-00001-of-00002.gguf"), "not part 2 of 2");
    directory.write("m-00002-of-00002.gguf", split_part(1, 2, "a", 1.0f));
    expect_error(open("m-00001-of-00002.gguf"), "tensor 'a' occurs twice");
    directory.write("renamed.gguf", split_part(0, 2, "a", 1.0f));
    expect_error(open("renamed.gguf"), "one of 2 parts of a split model");
    directory.write("m-00001-of-09999.gguf", split_part(0, 9999, "a", 1.0f));
    expect_error(open("m-00001-of-09999.gguf"), "split.count is 9999");
    const std::string image = split_part(0, 2, "a", 1.0f);
    expect_error([&] { GgufFile::from_memory(bytes_of(image), "x"); }, "one part of a split model");
}

TEST(Gguf, OpensTheBundledPair) {
    const std::filesystem::path models = std::filesystem::path(FORESAY_SOURCE_DIR) / "models/python-coder";
    const auto start = std::chrono::steady_clock::now();
    const GgufFile target = GgufFile::open(models / "target-q4_k_m.gguf");
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    RecordProperty("open_ms", std::to_string(elapsed.count()));
    EXPECT_LT(elapsed.count(), 500.0);  // a few ms in practice; more means that opening reads the weights
    EXPECT_EQ(target.get_string("general.architecture"), "llama");
    EXPECT_EQ(target.get_int("llama.block_count"), 12);
    EXPECT_EQ(target.get_int("llama.embedding_length"), 512);
    EXPECT_EQ(target.get_strings("tokenizer.ggml.tokens").size(), 16384u);
    const kernels::TensorView embedding = target.tensors().get("token_embd.weight");
    EXPECT_EQ(embedding.rows, 16384);
    EXPECT_EQ(embedding.cols, 512);
    const kernels::TensorView down = target.tensors().get("blk.11.ffn_down.weight");
    EXPECT_EQ(down.rows, 512);
    EXPECT_EQ(down.cols, 1536);
    EXPECT_GT(testing::exercise(target), 0u);

    const GgufFile draft = GgufFile::open(models / "draft-q8_0.gguf");
    EXPECT_EQ(draft.get_int("llama.block_count"), 3);
    EXPECT_EQ(draft.tensors().get("token_embd.weight").quant_type, kernels::QuantType::q8_0);
    EXPECT_EQ(draft.get_strings("tokenizer.ggml.tokens"), target.get_strings("tokenizer.ggml.tokens"));
}

}  // namespace
}  // namespace foresay::core
