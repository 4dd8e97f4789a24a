// What a model's configuration file may hold, and what is refused, in one sentence that names the file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/shapes.h"
#include "core/models/stages.h"
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
    EXPECT_THAT(refusal("llama2", {{"vocab_size", 300}}), HasSubstr("should be 300 x 64 but is 256 x 64"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 3}}), HasSubstr("model.layers.2"));
    EXPECT_THAT(refusal("llama2", {{"num_key_value_heads", 3}}), HasSubstr("cannot share"));
    EXPECT_THAT(refusal("llama2", {{"head_dim", 31}}), HasSubstr("head width of 31"));
    EXPECT_THAT(refusal("llama2", {{"num_attention_heads", 0}}), HasSubstr("num_attention_heads is 0"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", -1}}), HasSubstr("num_hidden_layers is -1"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 4294967298}}), HasSubstr("out of range"));
    EXPECT_THAT(refusal("llama2", {{"intermediate_size", 1073741824}}), HasSubstr("not possible"));
    EXPECT_THAT(refusal("llama2", {{"rope_parameters", {{"rope_theta", -1.0}}}}), HasSubstr("rope base"));
    EXPECT_THAT(refusal("llama3", {{"rope_parameters", {{"high_freq_factor", 0.5}}}}), HasSubstr("low_freq_factor"));
    EXPECT_THAT(refusal("qwen2", {{"tie_word_embeddings", false}}), HasSubstr("lm_head.weight"));
    EXPECT_THAT(refusal("llama2", {{"num_hidden_layers", 1}}), HasSubstr("'model.layers.1."));
    EXPECT_THAT(refusal("qwen2", {{"architectures", {"LlamaForCausalLM"}}, {"layer_types", nullptr}}),
                HasSubstr("_proj.bias' is not known for the architecture llama"));
    EXPECT_THAT(refusal("llama2", {{"attention_sparsity", 3}}), HasSubstr("'attention_sparsity' is not known"));
    EXPECT_EQ(refusal("llama2", {}), "accepted");
}

TEST(Shapes, AreWhatWasPublished) {
    for (const std::string& name : core::published_shape_names()) {
        const core::ModelConfig config = core::published_shape(name);
        EXPECT_NO_THROW(core::check_config(config, name));
        EXPECT_EQ(config.shape.heads % config.shape.kv_heads, 0);
    }
    EXPECT_THROW(core::published_shape("llama-5"), Error);
    EXPECT_THROW(core::quant_type_by_name("q9"), Error);
    // 0.763 GB per token: layers in Q4_0, the head in Q6_K.
    const core::ModelConfig one = core::published_shape("llama-3.2-1b");
    std::int64_t total = 0;
    for (const core::TensorUse& use : core::tensors_of(one)) {
        if (use.shape.rows == 1 || use.name.is_table()) continue;
        const auto quant_type = use.name.is_head() ? kernels::QuantType::q6_k : kernels::QuantType::q4_0;
        total += use.shape.rows * kernels::row_bytes(quant_type, use.shape.cols);
    }
    EXPECT_NEAR(static_cast<double>(total) * 1e-9, 0.763, 0.003);
}

// Random weights in every quantisation type: finite logits that differ between tokens.
TEST(Shapes, RandomModelsCompute) {
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<kernels::QuantType>(i);
        const auto model = random_model(small_config(i % 2 == 1, i % 3 == 0), quant_type,
                                        core::head_quant_type(quant_type), fast_backend().ops());
        core::Context context(model, {.length = 64});
        const std::vector<std::int32_t> tokens = {1, 2, 3, 500};
        ASSERT_TRUE(context.prefill(tokens));
        const std::span<const float> logits = context.logits(0);
        float low = logits[0];
        float high = logits[0];
        for (const float logit : logits) {
            ASSERT_TRUE(std::isfinite(logit)) << kernels::info(quant_type).name;
            low = std::min(low, logit);
            high = std::max(high, logit);
        }
        EXPECT_GT(high - low, 1.0f) << kernels::info(quant_type).name;
        EXPECT_LT(high - low, 100.0f) << kernels::info(quant_type).name;
    }
    EXPECT_THROW(core::ModelSource::random("qwen2.5-coder-0.5b", kernels::QuantType::q4_k), Error);
}

}  // namespace
}  // namespace foresay::test
