// Families, or parts of them, that no golden of transformers covers: Command R, Command R+ (norms of Q and K by head),
// OLMo 3 (windows, and yarn where there are none), Granite with shared experts, StarCoder2 with a window. Their logits
// are computed here in float64, one token after the other, by code that has nothing in common with the program: no op,
// no rope table, no reader. It follows what transformers' modeling files say, those of OLMo 3 before their rope was one
// for all layers. All weights are multiples of 1/256 that bfloat16 holds exactly.
//
// For each property of a family there is a wrong model that lacks it, which must be far away.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/models/backends.h"
#include "tests/models/by_hand.h"

namespace foresay::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using namespace by_hand;

constexpr int kTokens = 28;
constexpr int kWindow = 8;
constexpr std::size_t kExperts = 4, kSharedFf = 32;

// A model by hand: its folder, and the logits after each of some tokens. `wrong` names the property that is left out.
struct ByHand {
    std::string name;
    json config;
    Weights weights;
    std::vector<std::string> properties;
    std::function<std::vector<Row>(const Weights&, const std::vector<std::int32_t>&, const std::string& wrong)> run;
};

// ---- Command R: attention and the feed-forward network read one LayerNorm, and both are added to what it read. Pairs
// of neighbours rotate. R+ norms every head of Q and of K, with weights of its own for each head, before rope.
ByHand command_r(bool plus_model) {
    constexpr std::size_t kLayers = 2;
    ByHand made{.name = plus_model ? "CommandRPlus" : "CommandR",
                .config = config_of("CohereForCausalLM", kLayers,
                                    {{"model_type", "cohere"},
                                     {"layer_norm_eps", 1e-5},
                                     {"rope_theta", 5000.0},
                                     {"logit_scale", 0.0625},
                                     {"tie_word_embeddings", true},
                                     {"use_qk_norm", plus_model}}),
                .weights = {},
                .properties = {"neighbours", "parallel", "mean", "logit_scale"},
                .run = {}};
    if (plus_model) made.properties.insert(made.properties.end(), {"head_norms", "norm_before_rope", "own_weights"});
    Weights& w = made.weights;
    w.matrix("model.embed_tokens.weight", {kVocab, kWidth});
    w.norm("model.norm.weight", {kWidth});
    for (std::size_t i = 0; i < kLayers; ++i) {
        w.norm(layer_name(i) + "input_layernorm.weight", {kWidth});
        add_attention(w, layer_name(i));
        add_gated_mlp(w, layer_name(i));
        if (!plus_model) continue;
        w.norm(layer_name(i) + "self_attn.q_norm.weight", {kHeads, kHead});
        w.norm(layer_name(i) + "self_attn.k_norm.weight", {kKvHeads, kHead});
    }
    made.run = [plus_model](const Weights& w, const std::vector<std::int32_t>& tokens, const std::string& wrong) {
        const auto norm = [&](const Row& x, const std::string& name) {
            return wrong == "mean" ? rms_normed(x, w.values(name)) : layer_normed(x, w.values(name));
        };
        std::vector<Row> logits;
        std::vector<Memory> memory(kLayers);
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            const int position = static_cast<int>(t);
            Row x = embedded(w, tokens[t]);
            for (std::size_t i = 0; i < kLayers; ++i) {
                const std::string layer = layer_name(i);
                const Row h = norm(x, layer + "input_layernorm.weight");
                Row q = w.times(layer + "self_attn.q_proj.weight", h);
                Row k = w.times(layer + "self_attn.k_proj.weight", h);
                const auto norm_heads = [&](Row& rows, const std::string& name) {
                    Row weight = w.values(layer + name);
                    if (wrong == "own_weights") weight.resize(kHead);
                    for (std::size_t at = 0; at < rows.size(); at += kHead) layer_norm(rows, at, kHead, weight);
                };
                const auto turn = [&](Row& rows) {
                    rotate(rows, position, frequencies(5000.0), wrong != "neighbours");
                };
                const bool late = wrong == "norm_before_rope";
                if (late) turn(q), turn(k);
                if (plus_model && wrong != "head_norms") {
                    norm_heads(q, "self_attn.q_norm.weight");
                    norm_heads(k, "self_attn.k_norm.weight");
                }
                if (!late) turn(q), turn(k);
                memory[i].keys.push_back(k);
                memory[i].values.push_back(w.times(layer + "self_attn.v_proj.weight", h));
                const Row attended = w.times(layer + "self_attn.o_proj.weight", memory[i].attend(q, kUsualScale, 0));
                Row between = plus(x, attended);
                const Row& read = wrong == "parallel" ? between = norm(between, layer + "input_layernorm.weight") : h;
                x = plus(plus(x, attended), gated_mlp(w, layer, read));
            }
            Row row = w.times("model.embed_tokens.weight", norm(x, "model.norm.weight"));
            for (double& value : row) value *= wrong == "logit_scale" ? 1.0 : 0.0625;
            logits.push_back(std::move(row));
        }
        return logits;
    };
    return made;
}

// ---- OLMo 3: no norm before a branch, one after it; norms over all heads of Q and of K; three layers with a window
// and plain rope, then one that sees all, with yarn.

// Yarn's frequencies: those of pairs that turn 32 times and more within the original context stay, those below one turn
// are divided by the factor, those in between are mixed.
Row yarn(double theta, double factor, double original) {
    const auto pair_of = [&](double turns) {
        return static_cast<double>(kHead) * std::log(original / (turns * 2.0 * M_PI)) / (2.0 * std::log(theta));
    };
    const double low = std::max(0.0, std::floor(pair_of(32.0)));
    const double high = std::min(static_cast<double>(kHead) - 1.0, std::ceil(pair_of(1.0)));
    Row all = frequencies(theta);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        all[i] = all[i] / factor * ramp + all[i] * (1.0 - ramp);
    }
    return all;
}

ByHand olmo3() {
    constexpr std::size_t kLayers = 4;
    constexpr double kTheta = 10000.0, kFactor = 8.0, kOriginal = 64.0, kMagnitude = 1.2079441541679836;
    ByHand made{.name = "Olmo3",
                .config = config_of(
                    "Olmo3ForCausalLM", kLayers,
                    {{"model_type", "olmo3"},
                     {"rms_norm_eps", 1e-5},
                     {"rope_theta", kTheta},
                     {"rope_scaling",
                      {{"rope_type", "yarn"},
                       {"factor", kFactor},
                       {"original_max_position_embeddings", kOriginal},
                       {"beta_fast", 32.0},
                       {"beta_slow", 1.0},
                       {"attention_factor", kMagnitude}}},
                     {"sliding_window", kWindow},
                     {"layer_types", {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention"}},
                     {"attention_bias", false},
                     {"tie_word_embeddings", false}}),
                .weights = {},
                .properties = {"halves", "norm_after", "norm_over_heads", "window", "yarn", "yarn_in_one_layer"},
                .run = {}};
    Weights& w = made.weights;
    w.matrix("model.embed_tokens.weight", {kVocab, kWidth});
    w.matrix("lm_head.weight", {kVocab, kWidth});
    w.norm("model.norm.weight", {kWidth});
    for (std::size_t i = 0; i < kLayers; ++i) {
        add_attention(w, layer_name(i));
        add_gated_mlp(w, layer_name(i));
        w.norm(layer_name(i) + "self_attn.q_norm.weight", {kHeads * kHead});
        w.norm(layer_name(i) + "self_attn.k_norm.weight", {kKvHeads * kHead});
        w.norm(layer_name(i) + "post_attention_layernorm.weight", {kWidth});
        w.norm(layer_name(i) + "post_feedforward_layernorm.weight", {kWidth});
    }
    made.run = [](const Weights& w, const std::vector<std::int32_t>& tokens, const std::string& wrong) {
        std::vector<Row> logits;
        std::vector<Memory> memory(kLayers);
        const Row plain = frequencies(kTheta), stretched = yarn(kTheta, kFactor, kOriginal);
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            Row x = embedded(w, tokens[t]);
            for (std::size_t i = 0; i < kLayers; ++i) {
                const std::string layer = layer_name(i);
                const bool sees_all = i == 3;
                const auto norm_all = [&](Row rows, const std::string& name) {
                    const Row& weight = w.values(layer + name);
                    if (wrong != "norm_over_heads") return rms_normed(std::move(rows), weight);
                    for (std::size_t at = 0; at < rows.size(); at += kHead) {
                        const auto from = static_cast<std::ptrdiff_t>(at), to = static_cast<std::ptrdiff_t>(at + kHead);
                        const Row head = rms_normed({rows.begin() + from, rows.begin() + to},
                                                    {weight.begin() + from, weight.begin() + to});
                        std::ranges::copy(head, rows.begin() + from);
                    }
                    return rows;
                };
                const auto after = [&](Row branch, const std::string& name) {
                    return wrong == "norm_after" ? branch : rms_normed(std::move(branch), w.values(layer + name));
                };
                Row q = norm_all(w.times(layer + "self_attn.q_proj.weight", x), "self_attn.q_norm.weight");
                Row k = norm_all(w.times(layer + "self_attn.k_proj.weight", x), "self_attn.k_norm.weight");
                const bool stretch = wrong != "yarn" && (sees_all || wrong == "yarn_in_one_layer");
                for (Row* rows : {&q, &k}) {
                    rotate(*rows, static_cast<int>(t), stretch ? stretched : plain, wrong == "halves",
                           stretch ? kMagnitude : 1.0);
                }
                memory[i].keys.push_back(k);
                memory[i].values.push_back(w.times(layer + "self_attn.v_proj.weight", x));
                const Row attended = memory[i].attend(q, kUsualScale, sees_all || wrong == "window" ? 0 : kWindow);
                x = plus(
                    x, after(w.times(layer + "self_attn.o_proj.weight", attended), "post_attention_layernorm.weight"));
                x = plus(x, after(gated_mlp(w, layer, x), "post_feedforward_layernorm.weight"));
            }
            logits.push_back(w.times("lm_head.weight", rms_normed(x, w.values("model.norm.weight"))));
        }
        return logits;
    };
    return made;
}

// ---- Granite with shared experts: Llama's layout and four multipliers; beside the two best of four experts, whose
// weights are the softmax of their scores alone, one that all tokens take. Gate and up are halves of one matrix.
ByHand granite_shared() {
    constexpr std::size_t kLayers = 2;
    constexpr double kTheta = 10000.0;
    ByHand made{.name = "GraniteMoeShared",
                .config = config_of("GraniteMoeSharedForCausalLM", kLayers,
                                    {{"model_type", "granitemoeshared"},
                                     {"rms_norm_eps", 1e-5},
                                     {"rope_theta", kTheta},
                                     {"num_local_experts", kExperts},
                                     {"num_experts_per_tok", 2},
                                     {"shared_intermediate_size", kSharedFf},
                                     {"embedding_multiplier", 3.0},
                                     {"residual_multiplier", 0.375},
                                     {"attention_multiplier", 0.125},
                                     {"logits_scaling", 4.0},
                                     {"attention_bias", false},
                                     {"tie_word_embeddings", true}}),
                .weights = {},
                .properties = {"shared", "softmax_of_chosen", "embedding", "residual", "scale"},
                .run = {}};
    Weights& w = made.weights;
    w.matrix("model.embed_tokens.weight", {kVocab, kWidth});
    w.norm("model.norm.weight", {kWidth});
    for (std::size_t i = 0; i < kLayers; ++i) {
        const std::string layer = layer_name(i);
        w.norm(layer + "input_layernorm.weight", {kWidth});
        w.norm(layer + "post_attention_layernorm.weight", {kWidth});
        add_attention(w, layer);
        w.matrix(layer + "block_sparse_moe.router.layer.weight", {kExperts, kWidth});
        w.matrix(layer + "block_sparse_moe.input_linear.weight", {kExperts, 2 * kFf, kWidth});
        w.matrix(layer + "block_sparse_moe.output_linear.weight", {kExperts, kWidth, kFf});
        w.matrix(layer + "shared_mlp.input_linear.weight", {2 * kSharedFf, kWidth});
        w.matrix(layer + "shared_mlp.output_linear.weight", {kWidth, kSharedFf});
    }
    made.run = [](const Weights& w, const std::vector<std::int32_t>& tokens, const std::string& wrong) {
        // The n-th of several networks of `ff` inner values, in one tensor.
        const auto network = [&](const std::string& in, const std::string& out, std::size_t n, std::size_t ff,
                                 const Row& x) {
            Row gate = w.times(in, x, n * 2 * ff, ff);
            const Row up = w.times(in, x, n * 2 * ff + ff, ff);
            for (std::size_t i = 0; i < ff; ++i) gate[i] = silu(gate[i]) * up[i];
            return w.times(out, gate, n * kWidth, kWidth);
        };
        const double residual = wrong == "residual" ? 1.0 : 0.375;
        std::vector<Row> logits;
        std::vector<Memory> memory(kLayers);
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            Row x = embedded(w, tokens[t]);
            for (double& value : x) value *= wrong == "embedding" ? 1.0 : 3.0;
            for (std::size_t i = 0; i < kLayers; ++i) {
                const std::string layer = layer_name(i);
                Row h = rms_normed(x, w.values(layer + "input_layernorm.weight"));
                Row q = w.times(layer + "self_attn.q_proj.weight", h);
                Row k = w.times(layer + "self_attn.k_proj.weight", h);
                for (Row* rows : {&q, &k}) rotate(*rows, static_cast<int>(t), frequencies(kTheta), false);
                memory[i].keys.push_back(k);
                memory[i].values.push_back(w.times(layer + "self_attn.v_proj.weight", h));
                const Row attended = memory[i].attend(q, wrong == "scale" ? kUsualScale : 0.125, 0);
                x = plus(x, w.times(layer + "self_attn.o_proj.weight", attended), residual);
                h = rms_normed(x, w.values(layer + "post_attention_layernorm.weight"));
                const Row scores = w.times(layer + "block_sparse_moe.router.layer.weight", h);
                std::vector<std::size_t> order = {0, 1, 2, 3};
                std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
                if (wrong.empty()) check(scores[order[1]] - scores[order[2]] > 0.01, "experts that nearly tie");
                double total = 0.0;
                for (std::size_t n = 0; n < (wrong == "softmax_of_chosen" ? kExperts : 2); ++n)
                    total += std::exp(scores[order[n]]);
                Row sum(kWidth);
                for (std::size_t n = 0; n < 2; ++n) {
                    sum = plus(sum,
                               network(layer + "block_sparse_moe.input_linear.weight",
                                       layer + "block_sparse_moe.output_linear.weight", order[n], kFf, h),
                               std::exp(scores[order[n]]) / total);
                }
                if (wrong != "shared") {
                    sum = plus(sum, network(layer + "shared_mlp.input_linear.weight",
                                            layer + "shared_mlp.output_linear.weight", 0, kSharedFf, h));
                }
                x = plus(x, sum, residual);
            }
            Row row = w.times("model.embed_tokens.weight", rms_normed(x, w.values("model.norm.weight")));
            for (double& value : row) value /= 4.0;
            logits.push_back(std::move(row));
        }
        return logits;
    };
    return made;
}

// ---- StarCoder2 with its window, which the golden leaves out: LayerNorm with a bias, biases everywhere, and a
// feed-forward network without a gate.
ByHand starcoder2() {
    constexpr std::size_t kLayers = 2;
    constexpr double kTheta = 10000.0;
    ByHand made{.name = "Starcoder2Window",
                .config = config_of("Starcoder2ForCausalLM", kLayers,
                                    {{"model_type", "starcoder2"},
                                     {"norm_epsilon", 1e-5},
                                     {"rope_theta", kTheta},
                                     {"hidden_act", "gelu_pytorch_tanh"},
                                     {"sliding_window", kWindow},
                                     {"use_bias", true},
                                     {"tie_word_embeddings", true}}),
                .weights = {},
                .properties = {"window", "biases", "norm_bias"},
                .run = {}};
    Weights& w = made.weights;
    w.matrix("model.embed_tokens.weight", {kVocab, kWidth});
    const auto add_norm = [&](const std::string& name) {
        w.norm(name + ".weight", {kWidth});
        w.matrix(name + ".bias", {kWidth});
    };
    add_norm("model.norm");
    for (std::size_t i = 0; i < kLayers; ++i) {
        const std::string layer = layer_name(i);
        add_norm(layer + "input_layernorm");
        add_norm(layer + "post_attention_layernorm");
        add_attention(w, layer);
        w.matrix(layer + "self_attn.q_proj.bias", {kHeads * kHead});
        w.matrix(layer + "self_attn.k_proj.bias", {kKvHeads * kHead});
        w.matrix(layer + "self_attn.v_proj.bias", {kKvHeads * kHead});
        w.matrix(layer + "self_attn.o_proj.bias", {kWidth});
        w.matrix(layer + "mlp.c_fc.weight", {kFf, kWidth});
        w.matrix(layer + "mlp.c_fc.bias", {kFf});
        w.matrix(layer + "mlp.c_proj.weight", {kWidth, kFf});
        w.matrix(layer + "mlp.c_proj.bias", {kWidth});
    }
    made.run = [](const Weights& w, const std::vector<std::int32_t>& tokens, const std::string& wrong) {
        const auto norm = [&](const Row& x, const std::string& name) {
            return layer_normed(x, w.values(name + ".weight"),
                                wrong == "norm_bias" ? nullptr : &w.values(name + ".bias"));
        };
        const auto linear = [&](const std::string& name, const Row& x) {
            const Row y = w.times(name + ".weight", x);
            return wrong == "biases" ? y : plus(y, w.values(name + ".bias"));
        };
        std::vector<Row> logits;
        std::vector<Memory> memory(kLayers);
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            Row x = embedded(w, tokens[t]);
            for (std::size_t i = 0; i < kLayers; ++i) {
                const std::string layer = layer_name(i);
                const Row h = norm(x, layer + "input_layernorm");
                Row q = linear(layer + "self_attn.q_proj", h), k = linear(layer + "self_attn.k_proj", h);
                for (Row* rows : {&q, &k}) rotate(*rows, static_cast<int>(t), frequencies(kTheta), false);
                memory[i].keys.push_back(k);
                memory[i].values.push_back(linear(layer + "self_attn.v_proj", h));
                const Row attended = memory[i].attend(q, kUsualScale, wrong == "window" ? 0 : kWindow);
                x = plus(x, linear(layer + "self_attn.o_proj", attended));
                Row inner = linear(layer + "mlp.c_fc", norm(x, layer + "post_attention_layernorm"));
                for (double& value : inner) value = gelu_tanh(value);
                x = plus(x, linear(layer + "mlp.c_proj", inner));
            }
            logits.push_back(w.times("model.embed_tokens.weight", norm(x, "model.norm")));
        }
        return logits;
    };
    return made;
}

const std::vector<ByHand>& models() {
    static const std::vector<ByHand> all = {command_r(false), command_r(true), olmo3(), granite_shared(), starcoder2()};
    return all;
}

// --------------------------------------------------------------------------------------------------------- tests

std::vector<std::int32_t> tokens() {
    std::vector<std::int32_t> all;
    for (int i = 0; i < kTokens; ++i) all.push_back((i * 53 + 11) % static_cast<int>(kVocab));
    return all;
}

double range_of(const std::vector<Row>& logits) {
    double low = 0.0, high = 0.0;
    for (const Row& row : logits) {
        low = std::min(low, std::ranges::min(row));
        high = std::max(high, std::ranges::max(row));
    }
    return high - low;
}

class FamilyByHand : public testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

TEST_P(FamilyByHand, HasTheLogitsOfDoublePrecision) {
    const Backend& backend = backends()[std::get<0>(GetParam())];
    FORESAY_SKIP_WITHOUT_DEVICE(backend.name);
    const ByHand& model = models()[std::get<1>(GetParam())];
    const fs::path folder =
        fs::path(testing::TempDir()) / ("foresay_by_hand_" + std::to_string(::getpid()) + "_" + model.name);
    model.weights.write(folder, model.config);
    core::Context context(core::Model::load(core::ModelSource::open(folder), backend.ops()),
                          {.length = 64, .prefill_rows = 32, .decode_rows = kTokens});
    const std::vector<Row> wanted = model.run(model.weights, tokens(), "");
    const double range = range_of(wanted);
    EXPECT_GT(range, 0.5);
    const double allowed = range * (backend.name == "reference" ? 2e-6 : backend.range_tolerance);
    double most = 0.0;
    const auto compare = [&](std::span<const float> found, std::size_t t) {
        ASSERT_EQ(found.size(), kVocab);
        for (std::size_t i = 0; i < kVocab; ++i) {
            ASSERT_NEAR(found[i], wanted[t][i], allowed) << "token " << t << ", logit " << i;
            most = std::max(most, std::abs(static_cast<double>(found[i]) - wanted[t][i]));
        }
    };
    ASSERT_TRUE(context.decode(tokens()));
    for (int t = 0; t < kTokens; ++t) compare(context.logits(t), static_cast<std::size_t>(t));
    context.truncate(0);
    ASSERT_TRUE(context.prefill(tokens()));
    compare(context.logits(0), kTokens - 1);
    RecordProperty("largest_difference_of_range", std::to_string(most / range));
    fs::remove_all(folder);
}

std::string test_name(const testing::TestParamInfo<std::tuple<std::size_t, std::size_t>>& info) {
    return models()[std::get<1>(info.param)].name + "_" + backends()[std::get<0>(info.param)].name;
}

INSTANTIATE_TEST_SUITE_P(All, FamilyByHand,
                         testing::Combine(testing::Range<std::size_t>(0, backends().size()),
                                          testing::Range<std::size_t>(0, models().size())),
                         test_name);

TEST(FamiliesByHand, NoPropertyCouldBeMissing) {
    for (const ByHand& model : models()) {
        const std::vector<Row> right = model.run(model.weights, tokens(), "");
        for (const std::string& property : model.properties) {
            const std::vector<Row> other = model.run(model.weights, tokens(), property);
            double most = 0.0;
            for (std::size_t t = 0; t < right.size(); ++t) {
                for (std::size_t i = 0; i < kVocab; ++i) most = std::max(most, std::abs(right[t][i] - other[t][i]));
            }
            EXPECT_GT(most / range_of(right), 0.01) << model.name << " without " << property;
        }
    }
}

}  // namespace
}  // namespace foresay::test
