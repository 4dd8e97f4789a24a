// Published shapes: what their keys give, their parameters, and their families' layers with random weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"
#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using core::LayerConfig;
using core::ModelConfig;

// The shape with everything that does not decide what its layers do made small, and windows that a short text leaves.
ModelConfig small(ModelConfig config) {
    kernels::ModelShape& s = config.shape;
    const auto narrow = [](std::int32_t& heads, std::int32_t& kv_heads) {
        kv_heads = kv_heads == heads ? 4 : std::min(kv_heads, 2);
        heads = 4;
    };
    if (std::ranges::all_of(config.layers, &LayerConfig::own_kv)) s.layers = std::min(s.layers, 8);
    if (!config.layers.empty()) config.layers.resize(static_cast<std::size_t>(s.layers));
    s.d_model = 128;
    s.d_ff = 96;
    s.vocab = 256;
    s.per_layer = std::min(s.per_layer, 32);
    narrow(s.heads, s.kv_heads);
    core::ExpertConfig& e = config.experts;
    s.experts = e.count = std::min(e.count, 8);
    s.experts_used = e.used = std::min(e.used, 4);
    s.expert_ff = e.d_ff = std::min(e.d_ff, 64);
    e.shared_ff = std::min(e.shared_ff, 64);
    config.window = std::min(config.window, 8);
    for (LayerConfig& layer : config.layers) {
        narrow(layer.heads, layer.kv_heads);
        layer.d_ff = 96;
        layer.window = std::min(layer.window, 8);
    }
    return config;
}

std::vector<float> last_logits(const ModelConfig& config, kernels::Ops& ops) {
    const auto model = random_model(config, kernels::QuantType::f32, kernels::QuantType::f32, ops);
    core::Context context(model, {.length = 64});
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < 24; ++i) tokens.push_back((7 * i + 3) % config.shape.vocab);
    if (!context.prefill(tokens)) return {};
    const std::span<const float> logits = context.logits(0);
    return {logits.begin(), logits.end()};
}

class PublishedShapes : public testing::TestWithParam<std::string> {
protected:
    const core::PublishedShape& published() const {
        for (const core::Architecture* family : core::architectures()) {
            for (const core::PublishedShape& shape : family->shapes) {
                if (shape.name == GetParam()) return shape;
            }
        }
        throw Error("no such shape");
    }
};

// Opens the shape without making a weight.
TEST_P(PublishedShapes, HaveThePublishedParameters) {
    const ModelConfig config = core::published_shape(GetParam());
    EXPECT_NO_THROW(core::check_config(config, GetParam()));
    const double counted = static_cast<double>(core::parameter_count(config)) * 1e-9;
    EXPECT_NEAR(counted / published().billions, 1.0, 0.02) << counted << " billion parameters";
    EXPECT_LE(core::active_parameter_count(config), core::parameter_count(config));
    const auto source = core::ModelSource::random(GetParam(), kernels::QuantType::q8_0, true);
    EXPECT_NEAR(static_cast<double>(source->weight_bytes()) / (counted * 1e9), 34.0 / 32.0, 0.05);
    EXPECT_FALSE(published().repository.empty());
}

// With random weights the family's own layers compute, and as the reference does. Values stay as large as they are.
TEST_P(PublishedShapes, ComputeWithRandomWeights) {
    const ModelConfig config = small(core::published_shape(GetParam()));
    const std::vector<float> expected = last_logits(config, backends().front().ops());
    const std::vector<float> found = last_logits(config, fast_backend().ops());
    ASSERT_EQ(expected.size(), 256u);
    ASSERT_EQ(found.size(), expected.size());
    const auto [low, high] = std::ranges::minmax(expected);
    ASSERT_TRUE(std::ranges::all_of(expected, [](float logit) { return std::isfinite(logit); }));
    EXPECT_GT(high - low, 0.01f);
    EXPECT_LT(high - low, 1000.0f);
    // Gemma 4 does not divide its scores, so that the rounding of cached keys weighs more.
    const float tolerance = config.architecture == "gemma4" ? 0.05f : 0.01f;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], tolerance * (high - low)) << "token " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedShapes, testing::ValuesIn(core::published_shape_names()), [](const auto& info) {
    std::string name = info.param;
    std::ranges::replace_if(
        name, [](char c) { return c == '-' || c == '.'; }, '_');
    return name;
});

TEST(Shapes, ThereAreSomeOfEveryFamily) {
    for (const core::Architecture* family : core::architectures()) {
        EXPECT_FALSE(family->shapes.empty()) << family->name;
        for (const core::PublishedShape& shape : family->shapes) {
            EXPECT_EQ(core::published_shape(shape.name).architecture, family->name);
        }
    }
}

std::vector<std::int32_t> layers_with(const ModelConfig& config, bool (*has)(const LayerConfig&)) {
    std::vector<std::int32_t> found;
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        if (has(core::layer_config(config, i))) found.push_back(i);
    }
    return found;
}

// What a table of widths would lose.
TEST(Shapes, LayersAreThoseOfTheFamily) {
    const auto sees_all = [](const LayerConfig& layer) { return layer.window == 0; };
    const ModelConfig gemma = core::published_shape("gemma-3-12b");
    EXPECT_EQ(layers_with(gemma, sees_all), (std::vector<std::int32_t>{5, 11, 17, 23, 29, 35, 41, 47}));
    EXPECT_EQ(gemma.layers[0].window, 1024);
    EXPECT_EQ(gemma.layers[5].rope.factor, 8.0f);
    EXPECT_EQ(gemma.layers[0].rope.factor, 1.0f);
    EXPECT_NEAR(core::published_shape("gemma-3-27b").attention_scale, 1.0 / std::sqrt(168.0), 1e-7);
    const ModelConfig small_gemma = core::published_shape("gemma-4-e2b");
    EXPECT_EQ(layers_with(small_gemma, sees_all), (std::vector<std::int32_t>{4, 9, 14, 19, 24, 29, 34}));
    EXPECT_EQ(core::kv_shape(small_gemma).layers.size(), 15u);
    EXPECT_EQ(small_gemma.layers[20].d_ff, 12288);
    const auto dense = [](const LayerConfig& layer) { return !layer.experts; };
    EXPECT_EQ(layers_with(core::published_shape("glm-4.5-air"), dense), std::vector<std::int32_t>{0});
    const auto no_rope = [](const LayerConfig& layer) { return layer.rope.pairs == kernels::RopePairs::none; };
    EXPECT_EQ(layers_with(core::published_shape("smollm3-3b"), no_rope).size(), 9u);
    EXPECT_EQ(core::published_shape("gpt-oss-20b").layers[0].window, 128);
    EXPECT_EQ(core::published_shape("qwen3-30b-a3b").experts.used, 8);
    // 3.3 billion of 30.5 are used per token, less those of the embedding table.
    EXPECT_NEAR(static_cast<double>(core::active_parameter_count(core::published_shape("qwen3-30b-a3b"))) * 1e-9, 3.04,
                0.05);
}

TEST(Shapes, UnknownNamesAreRefused) {
    EXPECT_THROW(core::published_shape("llama-5"), Error);
    EXPECT_THROW(core::quant_type_by_name("q9"), Error);
}

TEST(Shapes, BytesPerToken) {
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
