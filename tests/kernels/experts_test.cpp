// Experts: routing by hand, the CPU against the reference, and law 1.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/op_checks.h"
#include "kernels/routing.h"
#include "tests/kernels/tensors.h"
#include "tests/kernels/tiny_model.h"

namespace foresay::test {
namespace {

using namespace kernels;

// --------------------------------------------------------------------------------------------------------- routing

struct Router {
    RouterSpec spec;
    std::vector<float> choice_bias, factor;

    std::vector<ExpertChoice> route(std::vector<float> scores, std::int32_t used) {
        const auto view = [](const std::vector<float>& values) {
            return values.empty() ? TensorView{}
                                  : TensorView{QuantType::f32, 1, static_cast<std::int64_t>(values.size()),
                                               reinterpret_cast<const std::byte*>(values.data())};
        };
        spec.choice_bias = view(choice_bias);
        spec.factor = view(factor);
        ModelShape shape;
        shape.experts = static_cast<std::int32_t>(scores.size());
        shape.experts_used = used;
        const RoutingRules rules(spec, shape);
        std::vector<float> scratch(rules.scratch());
        std::vector<ExpertChoice> chosen(static_cast<std::size_t>(used));
        rules.route(scores, scratch, chosen);
        return chosen;
    }
};

void expect_choice(const std::vector<ExpertChoice>& found, const std::vector<ExpertChoice>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].expert, expected[i].expert) << i;
        EXPECT_NEAR(found[i].weight, expected[i].weight, 1e-6f) << i;
    }
}

const float kLn2 = std::log(2.0f), kLn4 = std::log(4.0f);

// Scores 0, ln 2, ln 4, 0: the softmax is 1/8, 2/8, 4/8, 1/8.
TEST(Routing, SoftmaxOfAll) {
    Router router;
    expect_choice(router.route({0.0f, kLn2, kLn4, 0.0f}, 2), {{1, 0.25f}, {2, 0.5f}});
    router.spec.renormalize = true;
    expect_choice(router.route({0.0f, kLn2, kLn4, 0.0f}, 2), {{1, 1.0f / 3}, {2, 2.0f / 3}});
    router.spec.scale = 1.5f;
    router.factor = {1.0f, 2.0f, 4.0f, 8.0f};
    expect_choice(router.route({0.0f, kLn2, kLn4, 0.0f}, 2), {{1, 1.0f}, {2, 4.0f}});
}

TEST(Routing, SoftmaxOfTheChosen) {
    Router router;
    router.spec.gating = Gating::softmax_chosen;
    expect_choice(router.route({kLn4, 0.0f, kLn2, kLn2}, 2), {{0, 2.0f / 3}, {2, 1.0f / 3}});
}

TEST(Routing, TiesGoToTheLowestId) {
    Router router;
    expect_choice(router.route({1.0f, 1.0f, 1.0f, 1.0f}, 3), {{0, 0.25f}, {1, 0.25f}, {2, 0.25f}});
}

// The correction changes which experts are chosen, not their weights.
TEST(Routing, TheCorrectionBiasChangesTheChoiceOnly) {
    Router router;
    router.spec.gating = Gating::sigmoid;
    router.choice_bias = {0.0f, 0.0f, 1.0f, 0.0f};
    expect_choice(router.route({0.0f, std::log(3.0f), -std::log(3.0f), 0.0f}, 2), {{1, 0.75f}, {2, 0.25f}});
}

// Groups {0, 1}, {2, 3}, {4, 5}: sums 0.9 + 0.5, 0.8 + 0.75, 0.1 + 0.1. The best single expert, 0, is in the second
// best group, so with one group it loses.
TEST(Routing, OnlyTheBestGroupsTakePart) {
    const auto logit = [](float p) { return std::log(p / (1.0f - p)); };
    const std::vector<float> scores = {logit(0.9f), logit(0.5f), logit(0.8f), logit(0.75f), logit(0.1f), logit(0.1f)};
    Router router;
    router.spec.gating = Gating::sigmoid;
    router.spec.groups = 3;
    router.spec.groups_used = 1;
    expect_choice(router.route(scores, 2), {{2, 0.8f}, {3, 0.75f}});
    router.spec.groups_used = 2;
    expect_choice(router.route(scores, 2), {{0, 0.9f}, {2, 0.8f}});
}

TEST(Work, RowsOfExpertsAreNotFree) {
    PreparedOp op;
    op.weight_bytes = 100;
    op.expert_bytes = 10;
    op.experts = 4;
    op.experts_used = 1;
    EXPECT_DOUBLE_EQ(op.bytes_read(1), 110.0);
    EXPECT_DOUBLE_EQ(op.bytes_read(2), 100.0 + 40.0 * (1.0 - 0.75 * 0.75));
}

// ------------------------------------------------------------------------------------------------- ops by backend

constexpr ModelShape kShape = {.layers = 1,
                               .d_model = 128,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 32,
                               .d_ff = 192,
                               .vocab = 64,
                               .experts = 6,
                               .experts_used = 2,
                               .expert_ff = 64,
                               .per_layer = 32};

class Options : public testing::TestWithParam<std::string> {
protected:
    static constexpr std::int32_t kRows = 21;

    ModelShape shape_ = kShape;
    Random random_{3};
    Tensor table_ = Tensor::random(random_, QuantType::f32, 64, 128, 1.0f);

    Tensor matrix(std::int64_t rows, std::int64_t cols, QuantType type = QuantType::f32) {
        return Tensor::random(random_, type, rows, cols);
    }
    Tensor vector(std::int64_t n, float centre = 0.0f) {
        return Tensor::random(random_, QuantType::f32, 1, n, 0.3f, centre);
    }

    // The residual stream after `stages`, which prepares its ops and runs them, of rows fed in forwards of `width`.
    using Run = std::function<void(Ops&, Workspace&, KvPages&)>;
    std::vector<std::vector<float>> run(Ops& ops, std::int32_t width, const Run& stages) {
        const auto embed = ops.prepare(EmbedSpec{table_.view(), 1.0f});
        const auto kv = ops.allocate_kv(shape_, 1, KvFormat::f16);
        const auto workspace = ops.allocate_workspace(shape_, kRows, 1);
        const std::vector<std::int32_t> pages = {0};
        std::vector<std::vector<float>> out;
        for (std::int32_t first = 0; first < kRows; first += width) {
            std::vector<Row> rows;
            for (std::int32_t t = first; t < std::min(first + width, kRows); ++t) {
                rows.push_back({TokenRef::id(t * 29 % 64), t});
            }
            const SequenceView view = {pages, first};
            ops.begin(*workspace, {RowClass::decode, false, rows, {&view, 1}, {}});
            ops.embed(*embed, *workspace);
            stages(ops, *workspace, *kv);
            for (std::size_t t = 0; t < rows.size(); ++t) {
                const auto x = ops.residual(*workspace, static_cast<std::int32_t>(t));
                out.emplace_back(x.begin(), x.end());
            }
        }
        return out;
    }

    // The backend agrees with the reference, and its own bits do not depend on the width.
    void check_options(const Run& stages, double tolerance = 2e-3) {
        const auto expected = run(reference_ops(), kRows, stages);
        Ops& ops = cpu_ops(GetParam(), 2);
        const auto found = run(ops, kRows, stages);
        double error = 0.0, size = 0.0;
        for (std::size_t t = 0; t < expected.size(); ++t) {
            for (std::size_t i = 0; i < expected[t].size(); ++i) {
                ASSERT_TRUE(std::isfinite(found[t][i]));
                error += std::pow(static_cast<double>(found[t][i]) - expected[t][i], 2);
                size += std::pow(static_cast<double>(expected[t][i]), 2);
            }
        }
        EXPECT_LE(std::sqrt(error / size), tolerance);
        for (const std::int32_t width : {1, 2, 5, 17}) {
            const auto again = run(ops, width, stages);
            for (std::size_t t = 0; t < found.size(); ++t) {
                ASSERT_EQ(std::memcmp(found[t].data(), again[t].data(), found[t].size() * sizeof(float)), 0)
                    << "width " << width << ", row " << t;
            }
        }
    }

    NormSpec norm(const Tensor& weight, NormKind kind = NormKind::rms, const Tensor* bias = nullptr) {
        return {
            .weight = weight.view(), .eps = 1e-5f, .kind = kind, .bias = bias != nullptr ? bias->view() : TensorView{}};
    }
};

// Of kShape. Only the norm, the router and the matrices are in spec().
struct Experts {
    explicit Experts(Random& random, QuantType type = QuantType::f32) {
        const auto vector = [&](std::int64_t n, float centre) {
            return Tensor::random(random, QuantType::f32, 1, n, 0.3f, centre);
        };
        const auto biases = [&](std::int64_t n) { return Tensor::random(random, QuantType::f32, 6, n, 0.3f); };
        norm = vector(128, 1.0f);
        router = Tensor::random(random, QuantType::f32, 6, 128);
        router_bias = vector(6, 0.0f);
        choice_bias = vector(6, 0.0f);
        factor = vector(6, 1.0f);
        post = vector(128, 1.0f);
        router_norm = vector(128, 1.0f);
        gate_bias = biases(64);
        up_bias = biases(64);
        down_bias = biases(128);
        for (int i = 0; i < 6; ++i) {
            gate.push_back(Tensor::random(random, type, 64, 128));
            up.push_back(Tensor::random(random, type, 64, 128));
            down.push_back(Tensor::random(random, type, 128, 64));
        }
    }

    Tensor norm, router, router_bias, choice_bias, factor, gate_bias, up_bias, down_bias, post, router_norm;
    std::vector<Tensor> gate, up, down;

    MoeSpec spec(const ModelShape& shape) const {
        MoeSpec spec{.shape = shape, .norm = {.weight = norm.view()}};
        spec.router.weight = router.view();
        for (const Tensor& t : gate) spec.gate.push_back(t.view());
        for (const Tensor& t : up) spec.up.push_back(t.view());
        for (const Tensor& t : down) spec.down.push_back(t.view());
        return spec;
    }
};

class RefusedExperts : public testing::Test {
protected:
    ModelShape shape_ = kShape;
    Random random_{9};
    Experts experts_{random_};
};

TEST_P(Options, Experts) {
    for (const QuantType type : {QuantType::f32, QuantType::q8_0}) {
        const Experts e(random_, type);
        const double tolerance = type == QuantType::f32 ? 1e-5 : 0.02;
        const auto with = [&](const std::function<void(MoeSpec&)>& change) {
            MoeSpec spec = e.spec(shape_);
            change(spec);
            check_options(
                [spec](Ops& ops, Workspace& w, KvPages&) {
                    const auto op = ops.prepare(spec);
                    ops.moe(*op, w);
                },
                tolerance);
        };
        with([](MoeSpec&) {});
        with([&](MoeSpec& s) {
            s.router.gating = Gating::softmax_chosen;
            s.router.bias = e.router_bias.view();
            s.gate_bias = e.gate_bias.view();
            s.up_bias = e.up_bias.view();
            s.down_bias = e.down_bias.view();
            s.activation = Activation::clamped_swiglu;
            s.limit = 0.5f;
            s.scale = 0.7f;
        });
        with([&](MoeSpec& s) {
            s.router.gating = Gating::sigmoid;
            s.router.choice_bias = e.choice_bias.view();
            s.router.renormalize = true;
            s.router.scale = 1.5f;
            s.router.factor = e.factor.view();
            s.router.norm = {.weight = e.router_norm.view()};
            s.router.groups = 3;
            s.router.groups_used = 2;
            s.activation = Activation::gelu_tanh;
            s.post_norm = {.weight = e.post.view()};
            s.stream_scale = 0.5f;
        });
        // A dense network beside the experts, each with a norm of its own.
        const Tensor gate = matrix(192, 128, type), up = matrix(192, 128, type), down = matrix(128, 192, type);
        MoeSpec kept = e.spec(shape_);
        kept.keep_branch = true;
        const MlpInSpec in{shape_, norm(e.norm), gate.view(), up.view()};
        MlpOutSpec out{shape_, down.view(), norm(e.post)};
        out.inner_norm = norm(e.router_norm);
        out.add_branch = true;
        check_options(
            [=](Ops& ops, Workspace& w, KvPages&) {
                const auto moe = ops.prepare(kept), first = ops.prepare(in), second = ops.prepare(out);
                ops.moe(*moe, w);
                ops.mlp_in(*first, w);
                ops.mlp_out(*second, w);
            },
            tolerance);
    }
}

// Each contradiction in one sentence, before anything is packed.
TEST_F(RefusedExperts, InOneSentence) {
    const auto refusal = [&](const std::function<void(MoeSpec&)>& change) -> std::string {
        MoeSpec spec = experts_.spec(shape_);
        change(spec);
        try {
            check_op(spec);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(refusal([](MoeSpec&) {}), "");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.shape.experts = 1; }), "a mixture of 1 experts is not possible");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.shape.experts_used = 7; }), "a row cannot use 7 of 6 experts");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.shape.experts_used = 0; }), "a row cannot use 0 of 6 experts");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.router.groups = 4; }), "1 of 4 groups of 6 experts cannot provide 2");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.router.groups = 6; }), "1 of 6 groups of 6 experts cannot provide 2");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.gate.pop_back(); }),
              "there are 5 of the experts' gate projections for 6 experts");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.router.weight = {}; }), "the weights lack the router");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.down.back() = s.up.back(); }),
              "the experts' down projections has the shape 64 x 128, the model needs 128 x 64");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.router.scale = std::nanf(""); }),
              "the scale of the router is not a finite number");
    EXPECT_EQ(refusal([](MoeSpec& s) { s.activation = Activation::clamped_swiglu; }),
              "the limit of the clamped activation is not a positive number");
    AttendSpec attend{.shape = shape_, .window = -1};
    EXPECT_THROW(check_op(attend), Error);
    attend.window = 0;
    attend.sinks = experts_.norm.view();
    EXPECT_THROW(check_op(attend), Error);
}

// A sink takes exp(sink) of the sum: with one position, score s and sink z, the value counts e^s / (e^s + e^z).
TEST(Sinks, TakeTheirShareOfOnePosition) {
    const ModelShape shape = {
        .layers = 1, .d_model = 2, .heads = 1, .kv_heads = 1, .head_dim = 2, .d_ff = 2, .vocab = 1};
    const auto of = [](std::int64_t rows, std::int64_t cols, std::vector<float> values) {
        return Tensor::of(QuantType::f32, rows, cols, values);
    };
    const Tensor table = of(1, 2, {1.0f, 0.0f}), identity = of(2, 2, {1.0f, 0.0f, 0.0f, 1.0f}),
                 sinks = of(1, 1, {0.5f});
    Ops& ops = reference_ops();
    const auto embed = ops.prepare(EmbedSpec{table.view(), 1.0f});
    AttentionInSpec in{.shape = shape, .norm = {}, .q = identity.view(), .k = identity.view(), .v = identity.view()};
    AttendSpec attend{.shape = shape, .scale = 2.0f};
    attend.sinks = sinks.view();
    const AttentionOutSpec out{.shape = shape, .o = identity.view()};
    const auto first = ops.prepare(in), second = ops.prepare(attend), third = ops.prepare(out);
    const auto kv = ops.allocate_kv(shape, 1, KvFormat::f16);
    const auto workspace = ops.allocate_workspace(shape, 1, 1);
    const std::vector<Row> rows = {{TokenRef::id(0), 0}};
    const std::vector<std::int32_t> pages = {0};
    const SequenceView view = {pages, 0};
    ops.begin(*workspace, {RowClass::decode, false, rows, {&view, 1}, {}});
    ops.embed(*embed, *workspace);
    ops.attention_in(*first, *workspace, *kv, 0);
    ops.attend(*second, *workspace, *kv, 0);
    ops.attention_out(*third, *workspace);
    const double share = std::exp(2.0) / (std::exp(2.0) + std::exp(0.5));
    EXPECT_NEAR(ops.residual(*workspace, 0)[0], 1.0 + share, 1e-6);
}

// queries times 1 + beta ln(1 + floor(position / length))
TEST(Temperature, GrowsWithTheLogarithmOfWholeLengths) {
    EXPECT_EQ(query_factor({0.0f, 1}, 1000), 1.0f);
    EXPECT_EQ(query_factor({0.1f, 32}, 31), 1.0f);
    EXPECT_FLOAT_EQ(query_factor({0.1f, 32}, 32), 1.0f + 0.1f * std::log(2.0f));
    EXPECT_FLOAT_EQ(query_factor({0.1f, 32}, 95), 1.0f + 0.1f * std::log(3.0f));
}

INSTANTIATE_TEST_SUITE_P(Sets, Options, testing::ValuesIn(cpu::usable_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
