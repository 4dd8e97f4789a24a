// What a model's configuration file may hold, and what is refused, in one sentence that names the file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"
#include "core/models/shapes.h"
#include "tests/models/backends.h"
#include "tests/models/family_models.h"

namespace foresay::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A copy of a tiny model whose config.json can be changed.
class ChangedModel : public testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::path(testing::TempDir()) / ("foresay_config_" + std::to_string(::getpid()));
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    static fs::path golden(const std::string& model) {
        return fs::path(FORESAY_SOURCE_DIR) / "tests/golden/tiny" / model;
    }
    static json golden_config(const std::string& model) {
        std::ifstream in(golden(model) / "config.json");
        return json::parse(in);
    }
    std::unique_ptr<core::ModelSource> open(const std::string& model, const json& patch) {
        fs::copy(golden(model) / "model.safetensors", folder_, fs::copy_options::overwrite_existing);
        json config = golden_config(model);
        if (!patch.is_null()) config.merge_patch(patch);  // a null inside removes a key
        std::ofstream(folder_ / "config.json") << config;
        return core::ModelSource::open(folder_);
    }
    std::string refusal(const std::string& model, const json& patch) {
        try {
            std::unique_ptr<core::ModelSource> source = open(model, patch);
            core::Model::load(std::move(source), backends().front().ops());
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find(folder_.filename().string()), std::string::npos) << error.what();
            return error.what();
        }
        return "accepted";
    }

    fs::path folder_;
};

TEST_F(ChangedModel, ReadsBothSpellingsOfRope) {
    const core::ModelConfig now = open("llama3", {})->config();
    EXPECT_EQ(now.rope.scaling, core::RopeScaling::llama3);
    const core::ModelConfig before = open("llama3", {{"rope_parameters", nullptr},
                                                     {"rope_theta", 500000.0},
                                                     {"rope_scaling",
                                                      {{"type", "llama3"},
                                                       {"factor", 8.0},
                                                       {"low_freq_factor", 1.0},
                                                       {"high_freq_factor", 4.0},
                                                       {"original_max_position_embeddings", 64}}}})
                                         ->config();
    EXPECT_EQ(core::rope_table(now.rope, 32, 0).inverse_frequency,
              core::rope_table(before.rope, 32, 0).inverse_frequency);
    const core::ModelConfig linear =
        open("llama2", {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}}}})->config();
    const core::ModelConfig plain = open("llama2", {})->config();
    const auto scaled = core::rope_table(linear.rope, 32, 0).inverse_frequency;
    const auto unscaled = core::rope_table(plain.rope, 32, 0).inverse_frequency;
    for (std::size_t i = 0; i < scaled.size(); ++i) EXPECT_FLOAT_EQ(scaled[i] * 4.0f, unscaled[i]);
}

TEST_F(ChangedModel, FillsInWhatFilesLeaveOut) {
    const json patch = {{"rope_parameters", nullptr}, {"rms_norm_eps", nullptr}, {"hidden_act", nullptr}};
    EXPECT_EQ(open("qwen2", patch)->config().file_type, "bf16");
    json text = golden_config("qwen2");
    text.merge_patch(patch);
    text.erase("num_key_value_heads");
    const core::ModelConfig config = config_of(text.dump());
    EXPECT_EQ(config.shape.kv_heads, 4);
    EXPECT_EQ(config.shape.head_dim, 16);
    EXPECT_FLOAT_EQ(config.rope.theta, 10000.0f);
    EXPECT_TRUE(config.qkv_bias);
    EXPECT_TRUE(config.tied_head);
}

TEST_F(ChangedModel, RefusesWhatItCannotRun) {
    using testing::HasSubstr;
    EXPECT_THAT(refusal("llama2", {{"architectures", {"MambaForCausalLM"}}}),
                HasSubstr("'MambaForCausalLM' is not supported"));
    EXPECT_THAT(refusal("llama2", {{"rope_parameters", {{"rope_type", "dynamic"}}}}),
                HasSubstr("'dynamic', which is not supported"));
    EXPECT_THAT(refusal("llama2", {{"hidden_act", "relu"}}), HasSubstr("'relu' is not supported"));
    EXPECT_THAT(refusal("llama2", {{"mlp_bias", true}}), HasSubstr("gate_proj.bias"));
    EXPECT_THAT(refusal("llama2", {{"attention_bias", true}}), HasSubstr("q_proj.bias"));
    EXPECT_THAT(refusal("qwen2", {{"use_sliding_window", true}}), HasSubstr("sliding-window"));
    EXPECT_THAT(refusal("llama2", {{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantised"));
    EXPECT_THAT(refusal("llama2", {{"hidden_size", 128}}), HasSubstr("should be 256 x 128 but is 256 x 64"));
    EXPECT_THAT(refusal("llama2", {{"vocab_size", 300}}),
                HasSubstr("vocab_size is 300, but the embedding table has 256 rows"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 3}}), HasSubstr("model.layers.2"));
    EXPECT_THAT(refusal("llama2", {{"num_key_value_heads", 3}}), HasSubstr("cannot share"));
    EXPECT_THAT(refusal("llama2", {{"head_dim", 31}}), HasSubstr("head width of 31"));
    EXPECT_THAT(refusal("llama2", {{"num_attention_heads", 0}}), HasSubstr("num_attention_heads is 0"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", -1}}), HasSubstr("num_hidden_layers is -1"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 4294967298}}), HasSubstr("out of range"));
    EXPECT_THAT(refusal("llama2", {{"intermediate_size", 1073741824}}), HasSubstr("not possible"));
    EXPECT_THAT(refusal("llama3", {{"rope_parameters", {{"high_freq_factor", 0.5}}}}), HasSubstr("low_freq_factor"));
    EXPECT_THAT(refusal("qwen2", {{"tie_word_embeddings", false}}), HasSubstr("lm_head.weight"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 1}}), HasSubstr("'model.layers.1."));
    EXPECT_THAT(refusal("qwen2", {{"architectures", {"LlamaForCausalLM"}}, {"layer_types", nullptr}}),
                HasSubstr("_proj.bias' is not known for the architecture llama"));
    EXPECT_THAT(refusal("llama2", {{"attention_sparsity", 3}}), HasSubstr("'attention_sparsity' is not known"));
    EXPECT_EQ(refusal("llama2", {}), "accepted");
}

TEST_F(ChangedModel, RefusesNumbersThatNoModelMeans) {
    using testing::HasSubstr;
    for (const double epsilon : {0.0, -1e-6, 0.11, 2147483648.0, 9223372036854775808.0, 1e-60}) {
        EXPECT_THAT(refusal("llama2", {{"rms_norm_eps", epsilon}}), HasSubstr("rms_norm_eps is ")) << epsilon;
    }
    for (const double epsilon : {1e-12, 1e-8, 1e-5, 0.1}) {
        EXPECT_EQ(refusal("llama2", {{"rms_norm_eps", epsilon}}), "accepted") << epsilon;
    }
    for (const double theta : {0.0, -1.0, 1e60}) {
        EXPECT_THAT(refusal("llama2", {{"rope_parameters", {{"rope_theta", theta}}}}),
                    HasSubstr("rope_parameters.rope_theta is "));
        EXPECT_THAT(refusal("llama2", {{"rope_parameters", nullptr}, {"rope_theta", theta}}),
                    HasSubstr("config.json: rope_theta is "));
    }
    for (const json& wrong : {json("x"), json(5), json::array({1, 2}), json(true)}) {
        EXPECT_THAT(refusal("llama2", {{"rope_parameters", wrong}}), HasSubstr("rope_parameters is not an object"));
        EXPECT_THAT(refusal("llama2", {{"rope_parameters", nullptr}, {"rope_scaling", wrong}}),
                    HasSubstr("rope_scaling is not an object"));
    }
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
        EXPECT_THAT(refusal("llama3", {{"rope_parameters", {{key, 0.0}}}}),
                    HasSubstr(std::string("rope_parameters.") + key + " is 0, but it must be a positive number"));
    }
    EXPECT_THAT(refusal("llama2", {{"rope_parameters", {{"rope_theta", "many"}}}}),
                HasSubstr("'rope_parameters.rope_theta' is a string, not a number"));
}

// The bundled draft, with one number of its metadata changed.
TEST(GgufNumbers, AreRefusedByTheNameOfTheirKey) {
    std::ifstream in(fs::path(FORESAY_SOURCE_DIR) / "models/python-coder/draft-q8_0.gguf", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const fs::path path = fs::path(testing::TempDir()) / ("foresay_numbers_" + std::to_string(::getpid()) + ".gguf");
    const auto refusal = [&](const std::string& key, auto value) -> std::string {
        std::string changed = bytes;
        const std::size_t at = changed.find(key);
        EXPECT_NE(at, std::string::npos) << key;
        changed.replace(at + key.size() + 4, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
        std::ofstream(path, std::ios::binary) << changed;
        try {
            core::ModelSource::open(path);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float epsilon : {0.0f, -1.0f, 0.5f, 2147483648.0f, infinity, std::nanf("")}) {
        EXPECT_THAT(refusal("llama.attention.layer_norm_rms_epsilon", epsilon),
                    testing::HasSubstr("llama.attention.layer_norm_rms_epsilon is "));
    }
    for (const float theta : {0.0f, -1.0f, infinity, std::nanf("")}) {
        EXPECT_THAT(refusal("llama.rope.freq_base", theta), testing::HasSubstr("llama.rope.freq_base is "));
    }
    for (const std::uint32_t size : {0u, 5u, 16383u, 4294967295u}) {
        EXPECT_THAT(refusal("llama.vocab_size", size),
                    testing::HasSubstr("llama.vocab_size is " + std::to_string(size) +
                                       ", but the embedding table has 16384 rows"));
    }
    EXPECT_EQ(refusal("llama.attention.layer_norm_rms_epsilon", 1e-5f), "accepted");
    EXPECT_EQ(refusal("llama.vocab_size", std::uint32_t{16384}), "accepted");
    fs::remove(path);
}

}  // namespace
}  // namespace foresay::test
