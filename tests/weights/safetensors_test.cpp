// SafetensorsDir on honest directories: single files, shards, and the tiny golden models.

#include "core/weights/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/weights/exercise.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/safetensors_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::core {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::safetensors_image;
using testing::sample_safetensors;
using testing::TemporaryDirectory;

std::vector<float> row_of(const SafetensorsDir& model, const char* name, std::int64_t row) {
    const kernels::TensorView view = model.tensors().get(name);
    std::vector<float> values(static_cast<std::size_t>(view.cols));
    kernels::dequantize_row(view, row, values);
    return values;
}

TEST(Safetensors, ReadsTypesShapesAndUnalignedData) {
    const std::string image = sample_safetensors();
    const SafetensorsDir model =
        SafetensorsDir::from_memory(R"({"model_type":"llama"})", bytes_of(image), "m.safetensors");
    EXPECT_EQ(model.config().get_string("model_type"), "llama");
    ASSERT_EQ(model.tensors().list().size(), 7u);
    EXPECT_THAT(row_of(model, "matrix", 1), ElementsAre(3.0f, 4.0f, 5.0f));
    EXPECT_EQ(model.tensors().get("half").rows, 2);
    EXPECT_THAT(row_of(model, "half", 1), ElementsAre(3.0f, 4.0f));
    EXPECT_THAT(row_of(model, "brain", 0), ElementsAre(1.0f, -2.5f, 0.0f));
    EXPECT_THAT(row_of(model, "scalar", 0), ElementsAre(7.0f));
    EXPECT_EQ(model.tensors().find("ids")->type, "I64");
    expect_error([&] { model.tensors().get("ids"); }, "'ids' is stored as I64, which foresay cannot compute with");
    expect_error([&] { model.tensors().get("odd"); }, "stored as 'X9'");
    expect_error([&] { model.tensors().get("hollow"); }, "has no values");
}

TEST(Safetensors, OpensTheTinyGoldenModels) {
    const std::filesystem::path tiny = std::filesystem::path(FORESAY_SOURCE_DIR) / "tests/golden/tiny";
    for (const char* name : {"llama2", "llama3", "qwen2"}) {
        const SafetensorsDir model = SafetensorsDir::open(tiny / name);
        const std::int64_t width = model.config().get_int("hidden_size");
        const kernels::TensorView embedding = model.tensors().get("model.embed_tokens.weight");
        EXPECT_EQ(embedding.rows, model.config().get_int("vocab_size")) << name;
        EXPECT_EQ(embedding.cols, width) << name;
        EXPECT_EQ(model.tensors().get("model.norm.weight").cols, width) << name;
        EXPECT_EQ(model.directory(), tiny / name);
        EXPECT_GT(testing::exercise(model), 0u);
    }
}

TEST(Safetensors, OpensOneFileBesideItsConfig) {
    TemporaryDirectory directory;
    directory.write("config.json", R"({"model_type":"llama"})");
    const auto file = directory.write("other.safetensors", sample_safetensors());
    const SafetensorsDir model = SafetensorsDir::open(file);
    EXPECT_TRUE(model.tensors().has("matrix"));
    EXPECT_EQ(model.config().get_string("model_type"), "llama");
    EXPECT_EQ(model.directory(), directory.path());
}

std::string one_tensor(const std::string& name, float value) {
    std::string data(sizeof(value), '\0');
    std::memcpy(data.data(), &value, sizeof(value));
    return safetensors_image(R"({")" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", data);
}

class Sharded : public ::testing::Test {
protected:
    Sharded() {
        directory_.write("config.json", "{}");
        directory_.write("model-00001-of-00002.safetensors", one_tensor("a", 1.0f));
        directory_.write("model-00002-of-00002.safetensors", one_tensor("b", 2.0f));
        index(R"({"metadata":{"total_size":8,"nested":[[1.5,null,true,-1]]},"weight_map":{)"
              R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
    }
    void index(std::string_view text) { directory_.write("model.safetensors.index.json", text); }
    void expect_refused(const std::string& part) {
        expect_error([&] { SafetensorsDir::open(directory_.path()); }, part);
    }

    TemporaryDirectory directory_;
};

TEST_F(Sharded, OpensAllShards) {
    const SafetensorsDir model = SafetensorsDir::open(directory_.path());
    EXPECT_THAT(row_of(model, "a", 0), ElementsAre(1.0f));
    EXPECT_THAT(row_of(model, "b", 0), ElementsAre(2.0f));
    EXPECT_EQ(model.tensors().find("b")->file, "model-00002-of-00002.safetensors");
}

TEST_F(Sharded, ShardsMustExistAndHoldWhatTheIndexSays) {
    expect_error([&] { SafetensorsDir::open(directory_.path() / "model-00001-of-00002.safetensors"); },
                 "one shard of a larger model");
    index(R"({"weight_map":{"a":"model-00002-of-00002.safetensors","b":"model-00001-of-00002.safetensors"}})");
    expect_refused("tensor 'a' should be in 'model-00002-of-00002.safetensors' but is not");
    index(R"({"weight_map":{"c":"model-00002-of-00002.safetensors"}})");
    expect_refused("tensor 'c' should be in");
    index(R"({"weight_map":{"a":"gone.safetensors"}})");
    expect_refused("the shard 'gone.safetensors' is missing");
    directory_.write("model-00002-of-00002.safetensors", one_tensor("a", 2.0f));
    index(R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
    expect_refused("tensor 'a' occurs twice");
}

TEST_F(Sharded, ShardsMayNotLeaveTheDirectory) {
    for (const char* name : {"../evil.safetensors", "/etc/evil.safetensors", "sub/evil.safetensors", "..", "",
                             "/etc/passwd", "a\\\\b.safetensors", "a\\u0000b.safetensors", "config.json"}) {
        index(std::string(R"({"weight_map":{"a":")") + name + R"("}})");
        expect_refused("not the plain name of a .safetensors file");
    }
}

TEST_F(Sharded, TheIndexMustBeWellFormed) {
    for (const char* text : {"{}", R"({"weight_map":{}})"}) {
        index(text);
        expect_refused("no 'weight_map'");
    }
    for (const char* text : {"[]", "7", R"({"weight_map":"x"})", R"({"weight_map":["x"]})", R"({"weight_map":{"a":5}})",
                             R"({"weight_map":{"a":{"b":"c"}}})", R"({"weight_map":{"a":null}})"}) {
        index(text);
        expect_refused("where none belongs");
    }
    index(R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})");
    expect_refused("lists tensor 'a' twice");
    for (const char* text : {"", "{", R"({"weight_map":{"a":"x)", "{}x", "\xff"}) {
        index(text);
        expect_refused("not valid JSON");
    }
    index(R"({"x":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
    expect_refused("nests too deeply");
}

}  // namespace
}  // namespace foresay::core
