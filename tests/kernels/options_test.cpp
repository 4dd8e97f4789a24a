// The options of ops that only some families have, on every fast backend: against the reference, and law 1.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "kernels/op_checks.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr QuantType kMatrixTypes[] = {QuantType::f32, QuantType::q8_0};

// What stages do to the residual stream, on a backend.
using Stages = std::function<void(Workspace&, KvPages&)>;
// Prepares the ops of some stages.
using Prepare = std::function<Stages(Ops&)>;

// What is prepared must outlive the stages.
std::shared_ptr<PreparedOp> shared(std::unique_ptr<PreparedOp> op) { return op; }

class DenseOptions : public testing::TestWithParam<std::string> {
protected:
    static constexpr std::int32_t kRows = 150, kPages = 3, kVocab = 64;

    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam()); }

    ModelShape shape_ = {.layers = 2,
                         .d_model = 128,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 32,
                         .d_ff = 192,
                         .vocab = kVocab,
                         .per_layer = 32};
    KvShape kv_shape_ = shape_;
    Random random_{3};
    Tensor table_ = Tensor::random(random_, QuantType::f32, kVocab, 128, 1.0f);

    Tensor matrix(std::int64_t rows, std::int64_t cols, QuantType type = QuantType::f32) {
        return Tensor::random(random_, type, rows, cols);
    }
    Tensor vector(std::int64_t n, float centre = 0.0f) {
        return Tensor::random(random_, QuantType::f32, 1, n, 0.3f, centre);
    }
    static NormSpec norm(const Tensor& weight, NormKind kind = NormKind::rms, const Tensor* bias = nullptr) {
        return {
            .weight = weight.view(), .eps = 1e-5f, .kind = kind, .bias = bias != nullptr ? bias->view() : TensorView{}};
    }

    // A backend with the stages on it.
    struct Run {
        Ops& ops;
        std::unique_ptr<PreparedOp> embed;
        std::unique_ptr<KvPages> kv;
        std::unique_ptr<Workspace> workspace;
        Stages stages;

        Run(const DenseOptions& test, Ops& on, const Prepare& prepare, KvFormat format)
            : ops(on),
              embed(on.prepare(EmbedSpec{test.table_.view(), 1.0f})),
              kv(on.allocate_kv(test.kv_shape_, kPages, format)),
              workspace(on.allocate_workspace(test.shape_, kRows, 1)),
              stages(prepare(on)) {}

        std::vector<std::vector<float>> forward(const Batch& batch) {
            ops.begin(*workspace, batch);
            ops.embed(*embed, *workspace);
            stages(*workspace, *kv);
            std::vector<std::vector<float>> out;
            for (std::size_t t = 0; t < batch.rows.size(); ++t) {
                const auto x = ops.residual(*workspace, static_cast<std::int32_t>(t));
                out.emplace_back(x.begin(), x.end());
            }
            return out;
        }
    };
    const std::vector<std::int32_t> pages_ = {2, 0, 1};
    static std::int32_t token_at(std::int32_t position) { return position * 29 % kVocab; }

    // The residual stream of `count` rows from the beginning, in forwards of `width`.
    std::vector<std::vector<float>> feed(Run& run, RowClass row_class, std::int32_t width,
                                         std::int32_t count = kRows) const {
        std::vector<std::vector<float>> out;
        for (std::int32_t first = 0; first < count; first += width) {
            std::vector<Row> rows;
            for (std::int32_t p = first; p < std::min(first + width, count); ++p) {
                rows.push_back({TokenRef::id(token_at(p)), p});
            }
            const SequenceView view = {pages_, first};
            for (auto& row : run.forward({row_class, false, rows, {&view, 1}, {}})) out.push_back(std::move(row));
        }
        return out;
    }

    // Like the text of its path, each node of a tree after 70 positions.
    void check_tree(Run& run) const {
        const std::vector<std::int32_t> parents = {-1, 0, 0, 1, 3, 2, -1, 6, 4}, depths = {0, 1, 1, 2, 3, 2, 0, 1, 4};
        constexpr std::int32_t kPrefix = 70;
        const auto token = [](std::int32_t node) { return TokenRef::id(node * 7 % kVocab); };
        const auto count = static_cast<std::int32_t>(parents.size());
        feed(run, RowClass::decode, 16, kPrefix);
        std::vector<std::vector<float>> expected;
        const SequenceView view = {pages_, kPrefix};
        for (std::int32_t node = 0; node < count; ++node) {
            std::vector<Row> path;
            for (std::int32_t n = node; n >= 0; n = parents[static_cast<std::size_t>(n)]) {
                path.insert(path.begin(), {token(n), kPrefix + depths[static_cast<std::size_t>(n)]});
            }
            expected.push_back(run.forward({RowClass::decode, false, path, {&view, 1}, {}}).back());
        }
        std::vector<Row> rows;
        for (std::int32_t node = 0; node < count; ++node) {
            const auto i = static_cast<std::size_t>(node);
            rows.push_back({token(node), kPrefix + depths[i], 0, kPrefix + (5 * node + 3) % (count + 2), parents[i]});
        }
        const auto found = run.forward({RowClass::decode, true, rows, {&view, 1}, {}});
        for (std::size_t node = 0; node < found.size(); ++node) {
            ASSERT_EQ(std::memcmp(expected[node].data(), found[node].data(), found[node].size() * sizeof(float)), 0)
                << "node " << node;
        }
    }

    // The portable kernels are slow: one width stands for the others, which the other instruction sets have.
    std::vector<std::int32_t> widths() const {
        if (GetParam() == "portable") return {17};
        return {1, 5, 17, 100};
    }

    // Each row class agrees with the reference, and its own bits depend neither on the width nor on a tree.
    void check_stages(const Prepare& prepare, double tolerance, KvFormat format = KvFormat::f16) {
        Run reference(*this, reference_ops(), prepare, format);
        Run run(*this, backend_ops(GetParam(), 2), prepare, format);
        const auto expected = feed(reference, RowClass::decode, kRows);
        for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
            SCOPED_TRACE(row_class == RowClass::decode ? "decode rows" : "prefill rows");
            const auto found = feed(run, row_class, kRows);
            for (std::size_t t = 0; t < expected.size(); ++t) {
                std::vector<float> before(expected[t].size());
                dequantize_row(table_.view(), token_at(static_cast<std::int32_t>(t)), before);
                double error = 0.0, size = 0.0;
                for (std::size_t i = 0; i < before.size(); ++i) {
                    ASSERT_TRUE(std::isfinite(found[t][i])) << "row " << t;
                    error += std::pow(static_cast<double>(found[t][i]) - expected[t][i], 2);
                    size += std::pow(static_cast<double>(expected[t][i]) - before[i], 2);
                }
                ASSERT_LE(std::sqrt(error / size), tolerance) << "row " << t;
            }
            for (const std::int32_t width : widths()) {
                const auto again = feed(run, row_class, width);
                for (std::size_t t = 0; t < found.size(); ++t) {
                    ASSERT_EQ(std::memcmp(found[t].data(), again[t].data(), found[t].size() * sizeof(float)), 0)
                        << "width " << width << ", row " << t;
                }
            }
        }
        ASSERT_NO_FATAL_FAILURE(check_tree(run));
    }
    double tolerance(QuantType type, KvFormat format, bool reads_cache = true) const {
        // Two or three matrices with int8 inputs after one another.
        const double noise = GetParam() == "cuda" ? 1.0 : 1.5;
        return noise * op_tolerance(GetParam(), type, reads_cache) +
               (!reads_cache || format == KvFormat::f16 ? 0.0
                : has_low_bits(format)                  ? kLowCodeCacheOp + (type == QuantType::f32 ? 0.0 : 0.06)
                                                        : kCodeCacheOp + (type == QuantType::f32 ? 0.0 : 0.01));
    }
};

TEST_P(DenseOptions, FeedForward) {
    for (const QuantType type : kMatrixTypes) {
        const Tensor up = matrix(192, 128, type), gate = matrix(192, 128, type), down = matrix(128, 192, type);
        const Tensor up_bias = vector(192), gate_bias = vector(192), down_bias = vector(128);
        const Tensor weight = vector(128, 1.0f), bias = vector(128), inner = vector(128, 1.0f);
        for (const Activation activation :
             {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::clamped_swiglu}) {
            for (const bool gated : {false, true}) {
                for (const int kind : {0, 1, 2, 3}) {
                    // All kinds with one activation, and each activation with one kind.
                    const bool usual = activation == Activation::silu && gated;
                    if (!usual && kind != (static_cast<int>(activation) + (gated ? 1 : 0)) % 4) continue;
                    SCOPED_TRACE(testing::Message()
                                 << info(type).name << ", activation " << static_cast<int>(activation)
                                 << (gated ? ", gated" : "") << ", kind " << kind);
                    MlpInSpec in{.shape = shape_, .norm = norm(weight), .up = up.view()};
                    in.activation = activation;
                    in.limit = 0.5f;
                    if (gated) in.gate = gate.view();
                    if (activation == Activation::clamped_swiglu && !gated) {
                        EXPECT_THROW(check_op(in), Error);
                        continue;
                    }
                    MlpOutSpec out{.shape = shape_, .down = down.view()};
                    if (kind > 0) {
                        in.up_bias = up_bias.view();
                        if (gated && kind < 3) in.gate_bias = gate_bias.view();
                        out.bias = down_bias.view();
                        out.scale = 0.3f;
                    }
                    if (kind == 1) in.norm = norm(weight, NormKind::layer, &bias);
                    if (kind == 2) {
                        in.norm = {};
                        out.post_norm = norm(weight, NormKind::layer, &bias);
                        out.stream_scale = 0.7f;
                    }
                    if (kind == 3) {
                        out.inner_norm = norm(inner);
                        out.post_norm = norm(weight);
                    }
                    check_stages(
                        [=](Ops& ops) -> Stages {
                            const auto first = shared(ops.prepare(in)), second = shared(ops.prepare(out));
                            return [=, &ops](Workspace& w, KvPages&) {
                                ops.mlp_in(*first, w);
                                ops.mlp_out(*second, w);
                            };
                        },
                        tolerance(type, KvFormat::f16, false));
                    if (HasFatalFailure()) return;
                }
            }
        }
    }
}

// One layer of attention, by name.
struct AttentionCase {
    const char* name;
    std::function<void(AttentionInSpec&, AttendSpec&, AttentionOutSpec&)> change;
};

TEST_P(DenseOptions, Attention) {
    const Tensor weight = vector(128, 1.0f), whole_q = vector(128, 1.0f), whole_k = vector(64, 1.0f);
    const Tensor head = vector(32, 1.0f), sinks = vector(4), bias = vector(128), k_bias = vector(64);
    const std::vector<float> frequencies = {1.0f, 0.3f, 0.1f};
    const std::vector<AttentionCase> cases = {
        {"sinks", [&](AttentionInSpec&, AttendSpec& attend, AttentionOutSpec&) { attend.sinks = sinks.view(); }},
        {"norms over all heads",
         [&](AttentionInSpec& in, AttendSpec& attend, AttentionOutSpec& out) {
             in.norm = {};
             in.whole_norms = true;
             in.q_norm = norm(whole_q);
             in.k_norm = norm(whole_k);
             in.q_bias = bias.view();
             in.k_bias = k_bias.view();
             attend.window = 7;
             out.scale = 0.5f;
         }},
        {"LayerNorm of heads with weights of their own, norm of V, temperature, sinks",
         [&](AttentionInSpec& in, AttendSpec& attend, AttentionOutSpec&) {
             in.q_norm = norm(whole_q, NormKind::layer);
             in.k_norm = norm(whole_k, NormKind::layer);
             in.v_norm = norm(head);
             in.temperature = {0.5f, 4};
             attend.sinks = sinks.view();
         }},
        {"no rope, sinks, a window and a cap",
         [&](AttentionInSpec& in, AttendSpec& attend, AttentionOutSpec&) {
             in.rope.pairs = RopePairs::none;
             attend.sinks = sinks.view();
             attend.window = 3;
             attend.soft_cap = 2.0f;
         }},
        {"LayerNorm before and after",
         [&](AttentionInSpec& in, AttendSpec&, AttentionOutSpec& out) {
             in.norm = norm(weight, NormKind::layer, &bias);
             out.post_norm = norm(weight, NormKind::layer, &bias);
             out.bias = bias.view();
             out.scale = 0.4f;
         }},
        {"a temperature alone",
         [&](AttentionInSpec& in, AttendSpec& attend, AttentionOutSpec&) {
             in.temperature = {0.1f, 16};
             attend.window = 90;
         }},
        {"norms of heads and adjacent pairs",
         [&](AttentionInSpec& in, AttendSpec&, AttentionOutSpec&) {
             in.q_norm = norm(head);
             in.k_norm = norm(head);
             in.rope.pairs = RopePairs::adjacent;
         }},
    };
    for (const QuantType type : kMatrixTypes) {
        const Tensor q = matrix(128, 128, type), k = matrix(64, 128, type), v = matrix(64, 128, type),
                     o = matrix(128, 128, type);
        for (const AttentionCase& c : cases) {
            AttentionInSpec in{.shape = shape_, .norm = norm(weight), .q = q.view(), .k = k.view(), .v = v.view()};
            in.rope = {RopePairs::half_split, frequencies, 1.0f};
            AttendSpec attend{.shape = shape_, .scale = 0.2f};
            AttentionOutSpec out{.shape = shape_, .o = o.view()};
            c.change(in, attend, out);
            for (const KvFormat format : kCacheFormats) {
                SCOPED_TRACE(testing::Message() << c.name << ", " << info(type).name << cache_suffix(format));
                check_stages(
                    [=](Ops& ops) -> Stages {
                        const auto first = shared(ops.prepare(in)), second = shared(ops.prepare(attend)),
                                   third = shared(ops.prepare(out));
                        return [=, &ops](Workspace& w, KvPages& kv) {
                            ops.attention_in(*first, w, kv, 0);
                            ops.attend(*second, w, kv, 0);
                            ops.attention_out(*third, w);
                        };
                    },
                    tolerance(type, format), format);
                if (HasFatalFailure()) return;
            }
        }
    }
}

// Two layers whose heads differ in number and width; then a third one that attends to the keys and values of the first,
// and a fourth one to those of the second.
TEST_P(DenseOptions, LayersDifferAndShare) {
    struct Heads {
        std::int32_t heads, kv_heads, head_dim;
    };
    struct Shapes {
        Heads layers[2];
        bool head_norms;
    };
    for (const Shapes& shapes : {Shapes{{{4, 2, 32}, {8, 1, 64}}, true}, Shapes{{{4, 2, 64}, {4, 1, 32}}, false},
                                 Shapes{{{2, 2, 128}, {2, 1, 512}}, true}, Shapes{{{3, 1, 320}, {4, 4, 20}}, true},
                                 Shapes{{{4, 2, 32}, {4, 2, 32}}, false}}) {
        ModelShape of[2];
        shape_.heads = shape_.kv_heads = shape_.head_dim = 0;
        kv_shape_.layers.clear();
        for (int i = 0; i < 2; ++i) {
            const Heads& heads = shapes.layers[i];
            of[i] = shape_;
            of[i].heads = heads.heads;
            of[i].kv_heads = heads.kv_heads;
            of[i].head_dim = heads.head_dim;
            kv_shape_.layers.push_back({heads.kv_heads, heads.head_dim});
        }
        for (const Heads& heads : shapes.layers) {
            shape_.heads = std::max(shape_.heads, heads.heads);
            shape_.kv_heads = std::max(shape_.kv_heads, heads.kv_heads);
            shape_.head_dim = std::max(shape_.head_dim, heads.head_dim);
        }
        for (const QuantType type : kMatrixTypes) {
            if (type == QuantType::q8_0 && shapes.layers[1].head_dim % 32 != 0) continue;
            const Tensor weight = vector(128, 1.0f);
            const std::vector<float> frequencies = {1.0f, 0.3f, 0.1f};
            struct Layer {
                Tensor q, k, v, o, head, sinks;
            };
            std::vector<Layer> weights;
            for (int i = 0; i < 4; ++i) {
                const Heads& heads = shapes.layers[i % 2];
                const std::int64_t width = heads.heads * heads.head_dim, kv = heads.kv_heads * heads.head_dim;
                weights.push_back({matrix(width, 128, type), matrix(kv, 128, type), matrix(kv, 128, type),
                                   matrix(128, width, type), vector(heads.head_dim, 1.0f), vector(heads.heads)});
            }
            for (const KvFormat format : kCacheFormats) {
                SCOPED_TRACE(testing::Message()
                             << shapes.layers[1].heads << " heads of " << shapes.layers[1].head_dim << " beside "
                             << shapes.layers[0].heads << " of " << shapes.layers[0].head_dim << ", " << info(type).name
                             << cache_suffix(format));
                check_stages(
                    [&](Ops& ops) -> Stages {
                        std::vector<std::shared_ptr<PreparedOp>> prepared;
                        for (int i = 0; i < 4; ++i) {
                            const Layer& layer = weights[static_cast<std::size_t>(i)];
                            AttentionInSpec in{.shape = of[i % 2], .norm = norm(weight), .q = layer.q.view()};
                            in.rope = {RopePairs::half_split, frequencies, 1.0f};
                            if (i < 2) in.k = layer.k.view(), in.v = layer.v.view();
                            if (shapes.head_norms) {
                                in.q_norm = norm(layer.head);
                                if (i < 2) in.k_norm = norm(layer.head);
                            }
                            AttendSpec attend{.shape = of[i % 2], .scale = 0.1f};
                            attend.window = i % 2 == 0 ? 40 : 0;
                            attend.sinks = layer.sinks.view();
                            prepared.push_back(shared(ops.prepare(in)));
                            prepared.push_back(shared(ops.prepare(attend)));
                            prepared.push_back(
                                shared(ops.prepare(AttentionOutSpec{.shape = of[i % 2], .o = layer.o.view()})));
                        }
                        return [prepared, &ops](Workspace& w, KvPages& kv) {
                            for (std::size_t i = 0; i < 4; ++i) {
                                const auto layer = static_cast<std::int32_t>(i % 2);
                                ops.attention_in(*prepared[3 * i], w, kv, layer);
                                ops.attend(*prepared[3 * i + 1], w, kv, layer);
                                ops.attention_out(*prepared[3 * i + 2], w);
                            }
                        };
                    },
                    4 * tolerance(type, format), format);
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST_P(DenseOptions, PerLayerEmbeddings) {
    for (const QuantType type : kMatrixTypes) {
        const Tensor table = matrix(kVocab, 64, type), projection = matrix(64, 128, type), gate = matrix(32, 128, type),
                     out = matrix(128, 32, type);
        const Tensor weight = vector(32, 1.0f), post = vector(128, 1.0f);
        const PerLayerEmbedSpec embed{.shape = shape_,
                                      .table = table.view(),
                                      .projection = projection.view(),
                                      .norm = norm(weight),
                                      .table_scale = 5.0f,
                                      .projection_scale = 0.3f,
                                      .scale = 0.7f};
        SCOPED_TRACE(info(type).name);
        check_stages(
            [&](Ops& ops) -> Stages {
                const auto first = shared(ops.prepare(embed));
                std::vector<std::shared_ptr<PreparedOp>> layers;
                for (std::int32_t i = 0; i < 2; ++i) {
                    layers.push_back(shared(ops.prepare(PerLayerSpec{.shape = shape_,
                                                                     .layer = i,
                                                                     .gate = gate.view(),
                                                                     .projection = out.view(),
                                                                     .post_norm = norm(post),
                                                                     .stream_scale = 0.6f})));
                }
                return [=, &ops](Workspace& w, KvPages&) {
                    ops.per_layer_embed(*first, w);
                    for (const auto& layer : layers) ops.per_layer(*layer, w);
                };
            },
            2 * tolerance(type, KvFormat::f16, false));
        if (HasFatalFailure()) return;
    }
}

// Attention and feed-forward network read the same x, by one LayerNorm, as in Command R.
TEST_P(DenseOptions, ParallelBranches) {
    const Tensor weight = vector(128, 1.0f);
    const std::vector<float> frequencies = {1.0f, 0.3f, 0.1f};
    for (const QuantType type : kMatrixTypes) {
        const Tensor q = matrix(128, 128, type), k = matrix(64, 128, type), v = matrix(64, 128, type),
                     o = matrix(128, 128, type), gate = matrix(192, 128, type), up = matrix(192, 128, type),
                     down = matrix(128, 192, type);
        for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
            for (const KvFormat format : kCacheFormats) {
                SCOPED_TRACE(testing::Message() << info(type).name << cache_suffix(format));
                check_stages(
                    [&](Ops& ops) -> Stages {
                        AttentionInSpec in{
                            .shape = shape_, .norm = norm(weight, kind), .q = q.view(), .k = k.view(), .v = v.view()};
                        in.rope = {RopePairs::adjacent, frequencies, 1.0f};
                        const auto attention_in = shared(ops.prepare(in)),
                                   attend = shared(ops.prepare(AttendSpec{.shape = shape_, .scale = 0.2f})),
                                   attention_out =
                                       shared(ops.prepare(AttentionOutSpec{.shape = shape_, .o = o.view()})),
                                   mlp_in = shared(ops.prepare(MlpInSpec{.shape = shape_,
                                                                         .norm = norm(weight, kind),
                                                                         .gate = gate.view(),
                                                                         .up = up.view()})),
                                   mlp_out = shared(ops.prepare(MlpOutSpec{.shape = shape_, .down = down.view()}));
                        return [=, &ops](Workspace& w, KvPages& kv) {
                            ops.attention_in(*attention_in, w, kv, 0);
                            ops.mlp_in(*mlp_in, w);
                            ops.attend(*attend, w, kv, 0);
                            ops.attention_out(*attention_out, w);
                            ops.mlp_out(*mlp_out, w);
                        };
                    },
                    2 * tolerance(type, format), format);
                if (HasFatalFailure()) return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, DenseOptions, testing::ValuesIn(fast_backends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
