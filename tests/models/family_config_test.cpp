// What configurations of the families may say, in both dialects of config.json, and what is refused in one sentence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/models/op_maker.h"
#include "core/weights/mxfp4.h"
#include "tests/models/family_models.h"

namespace foresay::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

core::ModelConfig config_with(const std::string& family, const json& patch) {
    json config = json::parse(family_json(family));
    if (!patch.is_null()) config.merge_patch(patch);  // a null inside removes a key
    return config_of(config.dump());
}

std::string refusal(const std::string& family, const json& patch) {
    try {
        config_with(family, patch);
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("config.json")) << "names the file";
        return error.what();
    }
    return "accepted";
}

TEST(FamilyConfigs, EveryFamilyHasStages) {
    for (const std::string& family : family_names()) {
        const core::ModelConfig config = config_of(family_json(family));
        EXPECT_GT(core::tensors_of(config).size(), 5u) << family;
        EXPECT_EQ(core::kv_shape(config).layers.empty(), false) << family;
    }
}

TEST(FamilyConfigs, RefuseBadInput) {
    EXPECT_EQ(refusal("qwen3", {}), "accepted");
    EXPECT_THAT(refusal("qwen3", {{"num_hidden_layers", nullptr}}), HasSubstr("'num_hidden_layers' is missing"));
    EXPECT_THAT(refusal("qwen3", {{"attention_magic", 2}}), HasSubstr("'attention_magic' is not known"));
    EXPECT_EQ(refusal("qwen3", {{"attention_magic", false}}), "accepted") << "what is off changes nothing";
    EXPECT_THAT(refusal("qwen3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"bend", 1}}}}),
                HasSubstr("rope_scaling.bend is not known"));
    EXPECT_THAT(refusal("qwen3", {{"use_sliding_window", true}}), HasSubstr("use_sliding_window"));
    EXPECT_THAT(refusal("qwen3_moe", {{"num_experts", 1}}), HasSubstr("two experts or more"));
    EXPECT_THAT(refusal("qwen3_moe", {{"num_experts_per_tok", 9}}), HasSubstr("is 9 of 8 experts"));
    EXPECT_THAT(refusal("qwen3_moe", {{"num_experts_per_tok", 0}}), HasSubstr("is 0 of 8 experts"));
    EXPECT_THAT(refusal("qwen3_moe", {{"mlp_only_layers", {2}}}), HasSubstr("mlp_only_layers names a layer"));
    EXPECT_THAT(refusal("qwen3_moe", {{"decoder_sparse_step", 0}}), HasSubstr("decoder_sparse_step is 0"));
    EXPECT_THAT(refusal("gemma2", {{"sliding_window", 0}}), HasSubstr("sliding_window is 0"));
    EXPECT_THAT(refusal("gemma2", {{"layer_types", {"sliding_attention"}}}),
                HasSubstr("layer_types has 1 entries, the model needs 3"));
    EXPECT_THAT(refusal("gemma2", {{"layer_types", {"linear_attention", "full_attention", "full_attention"}}}),
                HasSubstr("'linear_attention', which is not supported"));
    EXPECT_THAT(refusal("gemma2", {{"query_pre_attn_scalar", -1}}), HasSubstr("query_pre_attn_scalar is not positive"));
    EXPECT_THAT(refusal("gemma3", {{"sliding_window_pattern", 0}}), HasSubstr("sliding_window_pattern is 0"));
    EXPECT_THAT(refusal("phi3", {{"rope_scaling", {{"long_factor", {1.0, 2.0}}}}}),
                HasSubstr("long_factor has 2 entries, the model needs 12"));
    EXPECT_THAT(refusal("phi3", {{"rope_scaling", {{"short_factor", std::vector<double>(12, 0.0)}}}}),
                HasSubstr("factor that is not positive"));
    EXPECT_THAT(refusal("phi3", {{"rope_scaling", {{"short_factor", std::vector<double>(12, 1e39)}}}}),
                HasSubstr("not finite"));
    EXPECT_THAT(refusal("glm4", {{"partial_rotary_factor", 0.3}}), HasSubstr("rope over 9 of 32 values"));
    EXPECT_THAT(refusal("glm4", {{"partial_rotary_factor", 1.5}}), HasSubstr("partial_rotary_factor"));
    EXPECT_THAT(refusal("glm4_moe", {{"n_group", 3}}), HasSubstr("n_group is 3, which does not divide 4 experts"));
    EXPECT_THAT(refusal("glm4_moe", {{"topk_group", 2}}), HasSubstr("topk_group is 2 of 1 groups of 4 experts"));
    EXPECT_THAT(refusal("glm4_moe", {{"n_group", 4}}), HasSubstr("topk_group is 1 of 4 groups of 1 experts, and each"));
    EXPECT_THAT(refusal("glm4_moe", {{"n_shared_experts", 2147483647}}), HasSubstr("n_shared_experts is 2147483647"));
    EXPECT_THAT(refusal("qwen3", {{"num_hidden_layers", 2147483647}}), HasSubstr("num_hidden_layers is 2147483647"));
    EXPECT_THAT(refusal("qwen3", {{"head_dim", 2147483647}}), HasSubstr("head_dim is 2147483647"));
    EXPECT_THAT(refusal("gemma4-e", {{"text_config", {{"per_layer_config", {{"0", {{"head_dim", 2147483647}}}}}}}}),
                HasSubstr("head_dim is 2147483647"));
    EXPECT_THAT(refusal("gemma4-e", {{"text_config", {{"hidden_size_per_layer_input", 1 << 30}}}}),
                HasSubstr("hidden_size_per_layer_input is 1073741824"));
    EXPECT_THAT(refusal("smollm3", {{"no_rope_layers", {1, 1}}}), HasSubstr("no_rope_layers has 2 entries"));
    EXPECT_THAT(refusal("cohere2", {{"use_parallel_block", false}}), HasSubstr("use_parallel_block"));
    EXPECT_THAT(refusal("granite", {{"logits_scaling", 0.0}}), HasSubstr("logits_scaling is 0"));
    EXPECT_THAT(refusal("gemma4-e", {{"text_config", {{"num_kv_shared_layers", 4}}}}),
                HasSubstr("leaves no layer with keys and values"));
    EXPECT_THAT(refusal("mistral3", {{"text_config", {{"rope_parameters", {{"beta_fast", 0.5}}}}}}),
                HasSubstr("0 < beta_slow < beta_fast"));
    std::string twice = family_json("qwen3");
    twice.insert(twice.find('{') + 1, "\"hidden_size\": 64,");
    EXPECT_THROW(config_of(twice), Error);
}

// In one sentence that names what is missing, before any key of theirs is.
TEST(FamilyConfigs, GraniteWithMambaLayersIsRefused) {
    const json config = {{"architectures", {"GraniteMoeHybridForCausalLM"}},
                         {"model_type", "granitemoehybrid"},
                         {"layer_types", {"mamba", "mamba", "attention"}},
                         {"mamba_d_state", 128},
                         {"num_hidden_layers", 3}};
    const std::string reason = ", because Mamba layers are not; Granite 4 models without such layers run as GGUF files";
    try {
        config_of(config.dump());
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.what(),
                  "config.json: the architecture 'GraniteMoeHybridForCausalLM' is not supported" + reason);
    }
    try {
        core::architecture_for_gguf("granitehybrid", "granite.gguf");
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.what(), "granite.gguf: the architecture 'granitehybrid' is not supported" + reason);
    }
}

TEST(FamilyConfigs, OnlyDescribeWhatTheirLayersAre) {
    const core::ModelConfig gemma3 = config_of(family_json("gemma3"));
    for (std::int32_t i = 0; i < 8; ++i) {
        const core::LayerConfig layer = core::layer_config(gemma3, i);
        EXPECT_EQ(layer.window, i == 5 ? 0 : 16);
        EXPECT_EQ(layer.rope.theta, i == 5 ? 1000000.0f : 10000.0f);
    }
    EXPECT_EQ(gemma3.embedding_scale, 16.0f);
    const core::ModelConfig e2b = config_of(family_json("gemma4-e"));
    EXPECT_EQ(core::kv_shape(e2b).layers, (std::vector<kernels::KvLayer>{{2, 32}, {2, 64}}));
    EXPECT_EQ(core::layer_config(e2b, 2).kv, 0);
    EXPECT_EQ(core::layer_config(e2b, 3).kv, 1);
    const core::ModelConfig smollm3 = config_of(family_json("smollm3"));
    for (std::int32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(core::layer_config(smollm3, i).rope.pairs == kernels::RopePairs::none, i == 3);
    }
    // OLMo 3 stretches only the layers that see everything.
    const core::ModelConfig olmo3 = config_of(family_json("olmo3"));
    for (std::int32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(core::layer_config(olmo3, i).rope.scaling,
                  i == 3 ? core::RopeScaling::yarn : core::RopeScaling::none);
    }
}

// A row needs no position before the widest window, where every layer has one.
TEST(FamilyConfigs, HaveAWidestWindowWhereEveryLayerHasOne) {
    EXPECT_EQ(core::widest_window(config_with("mixtral", {{"sliding_window", 16}})), 16);
    EXPECT_EQ(core::widest_window(config_with("mixtral", {{"sliding_window", nullptr}})), 0);
    for (const char* family : {"gemma3", "cohere2", "olmo3", "qwen3"}) {
        EXPECT_EQ(core::widest_window(config_of(family_json(family))), 0) << family;
    }
    core::ModelConfig two = config_of(family_json("gemma3"));
    two.layers[5].window = 48;
    EXPECT_EQ(core::widest_window(two), 48);
}

// Yarn by hand: head width 8, base 10,000, factor 4, from 64 positions, ramp between 2 turns and 1/2 turn without
// rounding. Pair of n turns: 8 ln(64 / (2 pi n)) / (2 ln 10000): 0.7070 for 2, 1.3090 for 1/2.
TEST(Rope, YarnByHand) {
    core::RopeConfig rope;
    rope.scaling = core::RopeScaling::yarn;
    rope.factor = 4.0f;
    rope.original_context = 64;
    rope.beta_fast = 2.0f;
    rope.beta_slow = 0.5f;
    rope.truncate = false;
    const core::RopeTable table = core::rope_table(rope, 8, 0);
    ASSERT_EQ(table.inverse_frequency.size(), 4u);
    const double low = 4.0 * std::log(64.0 / (2.0 * M_PI * 2.0)) / std::log(10000.0);
    const double high = 4.0 * std::log(64.0 / (2.0 * M_PI * 0.5)) / std::log(10000.0);
    EXPECT_NEAR(low, 0.7070, 1e-4);
    EXPECT_NEAR(high, 1.3090, 1e-4);
    const double ramp = (1.0 - low) / (high - low);
    EXPECT_FLOAT_EQ(table.inverse_frequency[0], 1.0f);
    EXPECT_NEAR(table.inverse_frequency[1], 0.1 * (1.0 - ramp) + 0.025 * ramp, 1e-7);
    EXPECT_FLOAT_EQ(table.inverse_frequency[2], 0.0025f);
    EXPECT_FLOAT_EQ(table.inverse_frequency[3], 0.00025f);
    EXPECT_NEAR(table.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
    rope.truncate = true;  // the ramp begins at pair 0 and ends at pair 2
    EXPECT_NEAR(core::rope_table(rope, 8, 0).inverse_frequency[1], 0.1 * 0.5 + 0.025 * 0.5, 1e-7);
}

// The 16 numbers times 2^(130 - 127), neighbours in safetensors and halves of the group in GGUF.
TEST(Mxfp4, SafetensorsBecomeBlocksOfGguf) {
    const float numbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    // Two rows of 64 values; all codes of a row alike but for those of group 1.
    std::vector<std::byte> codes(64, std::byte{0}),
        exponents = {std::byte{0}, std::byte{0}, std::byte{100}, std::byte{130}};
    for (unsigned j = 0; j < 16; ++j) codes[48 + j] = static_cast<std::byte>(j | (15 - j) << 4);
    std::vector<std::byte> bytes;
    std::vector<float> row(64);
    const kernels::TensorView view = core::join_mxfp4(codes.data(), exponents.data(), 1, 2, 1, 64, bytes);
    ASSERT_EQ(view.quant_type, kernels::QuantType::mxfp4);
    ASSERT_EQ(view.rows, 1);
    kernels::dequantize_row(view, 0, row);
    for (std::size_t j = 0; j < 16; ++j) {
        EXPECT_EQ(row[32 + 2 * j], 8.0f * numbers[j]);
        EXPECT_EQ(row[32 + 2 * j + 1], 8.0f * numbers[15 - j]);
    }
}

TEST(Rope, LongropeChoosesByTheContext) {
    core::RopeConfig rope;
    rope.scaling = core::RopeScaling::longrope;
    rope.original_context = 256;
    rope.factor = 16.0f;
    rope.short_factors = {1.0f, 2.0f};
    rope.long_factors = {4.0f, 8.0f};
    EXPECT_FLOAT_EQ(core::rope_table(rope, 4, 256).inverse_frequency[0], 1.0f);
    EXPECT_FLOAT_EQ(core::rope_table(rope, 4, 257).inverse_frequency[0], 0.25f);
    // The square root of 1 + ln 16 / ln 256
    EXPECT_FLOAT_EQ(core::rope_table(rope, 4, 257).attention_factor, std::sqrt(1.5f));
}

}  // namespace
}  // namespace foresay::test
