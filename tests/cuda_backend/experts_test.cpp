// Mixtures of experts on the device against the reference, and law 1: rows that share experts and rows that do not.

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/divided_ops.h"
#include "tests/cuda_backend/device_runs.h"
#include "tests/kernels/packed_case.h"

namespace foresay::test {
namespace {

using namespace kernels;

// With three experts a row: more slots than the router takes in one launch.
constexpr std::int32_t kRows = 183;

// The weights of one mixture, and a table that rows begin with.
struct Mixture {
    ModelShape shape;
    Tensor table, norm, norm_bias, router, router_bias, choice_bias, factor, gate_bias, up_bias, down_bias, post,
        router_norm;
    std::vector<Tensor> gate, up, down;

    // Widths that are a whole number of blocks of the type, and of units of the kernels or not.
    explicit Mixture(QuantType type, std::int32_t width = 0, std::int32_t ff = 0) {
        Random random(17);
        const bool k = is_k_quant(type);
        shape = {.layers = 1,
                 .d_model = width != 0 ? width
                            : k        ? 512
                                       : 352,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 32,
                 .d_ff = 256,
                 .vocab = 64,
                 .experts = 12,
                 .experts_used = 3,
                 .expert_ff = ff != 0 ? ff
                              : k     ? 256
                                      : 160};
        const auto vector = [&](std::int64_t n, float centre) {
            return Tensor::random(random, QuantType::f32, 1, n, 0.3f, centre);
        };
        const std::int64_t d = shape.d_model, f = shape.expert_ff, e = shape.experts;
        table = Tensor::random(random, QuantType::f32, 64, d, 1.0f);
        norm = vector(d, 1.0f);
        norm_bias = vector(d, 0.0f);
        router_norm = vector(d, 1.0f);
        post = vector(d, 1.0f);
        router = Tensor::random(random, QuantType::f32, e, d);
        router_bias = vector(e, 0.0f);
        choice_bias = vector(e, 0.0f);
        factor = vector(e, 1.0f);
        gate_bias = Tensor::random(random, QuantType::f32, e, f, 0.3f);
        up_bias = Tensor::random(random, QuantType::f32, e, f, 0.3f);
        down_bias = Tensor::random(random, QuantType::f32, e, d, 0.3f);
        for (std::int64_t i = 0; i < e; ++i) {
            gate.push_back(Tensor::random(random, type, f, d));
            up.push_back(Tensor::random(random, type, f, d));
            down.push_back(Tensor::random(random, type, d, f));
        }
    }

    MoeSpec spec() const {
        MoeSpec spec{.shape = shape, .norm = {.weight = norm.view()}};
        spec.router.weight = router.view();
        for (const Tensor& t : gate) spec.gate.push_back(t.view());
        for (const Tensor& t : up) spec.up.push_back(t.view());
        for (const Tensor& t : down) spec.down.push_back(t.view());
        return spec;
    }

    // The residual streams after the ops that `stages` calls, of rows in forwards of `width`, each forward `times`
    // times over: the second is captured into a graph, the third replays it.
    using Stages = std::function<void(Ops&, Workspace&)>;
    std::vector<std::vector<float>> run(Ops& ops, std::int32_t width, const Stages& stages,
                                        RowClass row_class = RowClass::decode, int times = 1) const {
        const auto embed = ops.prepare(EmbedSpec{table.view(), 1.0f});
        // Room for specs whose rows use all experts.
        ModelShape most = shape;
        most.experts_used = most.experts;
        const auto workspace = ops.allocate_workspace(most, kRows, 1);
        const std::vector<std::int32_t> pages = {0, 1, 2};
        std::vector<std::vector<float>> out;
        for (std::int32_t first = 0; first < kRows; first += width) {
            std::vector<Row> rows;
            for (std::int32_t t = first; t < std::min(first + width, kRows); ++t) {
                rows.push_back({TokenRef::id(t * 29 % 64), t});
            }
            const SequenceView view = {pages, first};
            for (int time = 0; time < times; ++time) {
                ops.begin(*workspace, {row_class, false, rows, {&view, 1}, {}});
                ops.embed(*embed, *workspace);
                stages(ops, *workspace);
                if (time + 1 < times) ops.residual(*workspace, 0);
            }
            for (std::size_t t = 0; t < rows.size(); ++t) {
                const auto x = ops.residual(*workspace, static_cast<std::int32_t>(t));
                out.emplace_back(x.begin(), x.end());
            }
        }
        return out;
    }
};

void expect_same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                      const std::string& what) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t t = 0; t < a.size(); ++t) {
        ASSERT_EQ(std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)), 0) << what << ", row " << t;
    }
}

// The length of the difference over that of what the experts add.
double error_of(const Mixture& mixture, const std::vector<std::vector<float>>& found,
                const std::vector<std::vector<float>>& expected) {
    const std::vector<float> table = mixture.table.values();
    const auto width = static_cast<std::size_t>(mixture.shape.d_model);
    double error = 0.0, size = 0.0;
    for (std::size_t t = 0; t < expected.size(); ++t) {
        for (std::size_t i = 0; i < width; ++i) {
            if (!std::isfinite(found[t][i])) return 1e30;
            error += std::pow(static_cast<double>(found[t][i]) - expected[t][i], 2);
            size += std::pow(static_cast<double>(expected[t][i]) - table[t * 29 % 64 * width + i], 2);
        }
    }
    return std::sqrt(error / size);
}

// Of decode rows: float weights see inputs with twice the digits of float16.
double tolerance_of(QuantType type) { return is_float(type) ? 1e-5 : 1e-3; }

void check_spec(const Mixture& mixture, const MoeSpec& spec, double tolerance, const std::string& what) {
    SCOPED_TRACE(what);
    Ops& ops = cuda_ops();
    const auto with = [&](Ops& on) {
        return [op = std::shared_ptr<PreparedOp>(on.prepare(spec))](Ops& run_on, Workspace& w) { run_on.moe(*op, w); };
    };
    const auto expected = mixture.run(reference_ops(), kRows, with(reference_ops()));
    const auto stages = with(ops);
    const auto found = mixture.run(ops, kRows, stages);
    EXPECT_LE(error_of(mixture, found, expected), tolerance);
    for (const std::int32_t width : {1, 2, 5, 17, 64}) {
        expect_same_bits(found, mixture.run(ops, width, stages), "width " + std::to_string(width));
    }
    expect_same_bits(found, mixture.run(ops, 16, stages, RowClass::decode, 3), "graph");
    // Groups of rows see inputs as float16, whatever the weights, and scales and minima of weights, too.
    const double prefill_tolerance = spec.gate[0].quant_type == QuantType::f32 ? 0.0 : 2e-3;
    const auto prefill = mixture.run(ops, kRows, stages, RowClass::prefill);
    EXPECT_LE(error_of(mixture, prefill, expected), std::max(tolerance, prefill_tolerance));
    for (const std::int32_t width : {1, 9, 170}) {
        expect_same_bits(prefill, mixture.run(ops, width, stages, RowClass::prefill),
                         "prefill width " + std::to_string(width));
    }
}

TEST(Experts, cuda_EveryQuantisationType) {
    SKIP_WITHOUT_CUDA();
    for (const QuantType type : kAllQuantTypes) {
        const Mixture mixture(type);
        check_spec(mixture, mixture.spec(), tolerance_of(type), std::string(info(type).name));
    }
}

// Experts in packed rows: all alike but for factors and orders of inputs, which gate and up of an expert share.
struct PackedExperts {
    Mixture mixture;
    std::vector<packed::Packed> gate, up, down;

    PackedExperts(const packed::Kind& kind, std::int32_t width, std::int32_t ff)
        : mixture(QuantType::f32, rounded_up(width, kind), rounded_up(ff, kind)) {
        Random random(23);
        const auto matrix = [&](std::int64_t rows, std::int64_t inputs, const packed::Packed* like) {
            packed::Kind wide = kind;
            wide.inputs = inputs;
            packed::Packed one(wide, rows, random);
            one.packing.table = (gate.empty() ? one : gate[0]).packing.table;
            if (like != nullptr) one.packing.order = like->packing.order;
            if (kind.factor != 1.0f) one.packing.factor = 0.2f + 0.1f * static_cast<float>(random() % 8);
            return one;
        };
        for (std::int32_t e = 0; e < mixture.shape.experts; ++e) {
            gate.push_back(matrix(mixture.shape.expert_ff, mixture.shape.d_model, nullptr));
            up.push_back(matrix(mixture.shape.expert_ff, mixture.shape.d_model, &gate.back()));
            down.push_back(matrix(mixture.shape.d_model, mixture.shape.expert_ff, nullptr));
        }
    }
    static std::int32_t rounded_up(std::int32_t value, const packed::Kind& kind) {
        const auto step = static_cast<std::int32_t>(kind.inputs);
        return (value + step - 1) / step * step;
    }
    MoeSpec spec() const {
        MoeSpec spec = mixture.spec();
        const auto views = [](const std::vector<packed::Packed>& from) {
            std::vector<TensorView> to;
            for (const packed::Packed& one : from) to.push_back(one.view());
            return to;
        };
        spec.gate = views(gate), spec.up = views(up), spec.down = views(down);
        return spec;
    }
};

// Inputs are float16 in units of 128, whatever the class of rows.
constexpr double kPackedTolerance = 2e-3;

TEST(Experts, cuda_EveryPacking) {
    SKIP_WITHOUT_CUDA();
    for (const packed::Kind& kind : packed::kinds()) {
        const PackedExperts experts(kind, 352, 160);
        check_spec(experts.mixture, experts.spec(), kPackedTolerance, kind.name);
    }
}

// Widths of codes that change, in more units than a CTA has warps; biases, norms and clamp.
TEST(Experts, cuda_WidePackedMatrices) {
    SKIP_WITHOUT_CUDA();
    packed::Kind kind{"exl2", ScaleForm::f16_zero, {}, 2304, 1.0f, true};
    for (int g = 0; g < 72; ++g) {
        const int bits = g < 10 ? 6 : g < 31 ? 5 : g < 60 ? 4 : 3;
        kind.kinds.push_back(static_cast<std::uint8_t>(g % 4 == 0 || g == 10 || g == 31 ? bits | kHead : bits));
    }
    for (const auto& [width, ff] : {std::pair{2304, 2304}, {4608, 2304}}) {
        PackedExperts experts(kind, width, ff);
        check_spec(experts.mixture, experts.spec(), kPackedTolerance, std::to_string(width));
        // Up has other widths than gate.
        packed::Kind other = kind;
        other.inputs = width;
        for (std::uint8_t& of : other.kinds) of = static_cast<std::uint8_t>((of & kHead) | ((of & 7) == 6 ? 5 : 4));
        Random random(31);
        for (std::size_t e = 0; e < experts.up.size(); ++e) {
            packed::Packed up(other, ff, random);
            up.packing.order = experts.gate[e].packing.order;
            experts.up[e] = std::move(up);
        }
        MoeSpec spec = experts.spec();
        spec.gate_bias = experts.mixture.gate_bias.view();
        spec.up_bias = experts.mixture.up_bias.view();
        spec.down_bias = experts.mixture.down_bias.view();
        spec.norm.kind = NormKind::layer;
        spec.norm.bias = experts.mixture.norm_bias.view();
        check_spec(experts.mixture, spec, kPackedTolerance, std::to_string(width) + ", up in other widths");
    }
}

// More units of inputs than a CTA has warps, in one matrix or the other.
TEST(Experts, cuda_WideMatrices) {
    SKIP_WITHOUT_CUDA();
    const auto check = [](QuantType type, std::int32_t width, std::int32_t ff) {
        const Mixture mixture(type, width, ff);
        check_spec(mixture, mixture.spec(), tolerance_of(type),
                   std::string(info(type).name) + ", " + std::to_string(width) + " x " + std::to_string(ff));
    };
    check(QuantType::q4_k, 2304, 256);
    check(QuantType::q4_k, 256, 2560);
    check(QuantType::q8_0, 1184, 96);
    check(QuantType::q8_0, 96, 2080);
    check(QuantType::f16, 1184, 96);
}

// Every option of MoeSpec.
TEST(Experts, cuda_EveryOption) {
    SKIP_WITHOUT_CUDA();
    for (const QuantType type : {QuantType::f32, QuantType::q8_0, QuantType::q4_k}) {
        const Mixture m(type);
        const auto with = [&](const char* what, const std::function<void(MoeSpec&)>& change) {
            MoeSpec spec = m.spec();
            change(spec);
            check_spec(m, spec, tolerance_of(type), std::string(info(type).name) + ", " + what);
        };
        with("softmax of the chosen, biases, clamp", [&](MoeSpec& s) {
            s.router.gating = Gating::softmax_chosen;
            s.router.bias = m.router_bias.view();
            s.gate_bias = m.gate_bias.view();
            s.up_bias = m.up_bias.view();
            s.down_bias = m.down_bias.view();
            s.activation = Activation::clamped_swiglu;
            s.limit = 0.5f;
            s.scale = 0.7f;
        });
        with("sigmoid, correction, groups, factors, post norm", [&](MoeSpec& s) {
            s.router.gating = Gating::sigmoid;
            s.router.choice_bias = m.choice_bias.view();
            s.router.renormalize = true;
            s.router.scale = 1.5f;
            s.router.factor = m.factor.view();
            s.router.norm = {.weight = m.router_norm.view()};
            s.router.groups = 4;
            s.router.groups_used = 2;
            s.activation = Activation::gelu_tanh;
            s.post_norm = {.weight = m.post.view(), .plus_one = true};
            s.stream_scale = 0.5f;
        });
        with("softmax renormalised, LayerNorm, gelu, one bias", [&](MoeSpec& s) {
            s.router.renormalize = true;
            s.norm.kind = NormKind::layer;
            s.norm.bias = m.norm_bias.view();
            s.up_bias = m.up_bias.view();
            s.activation = Activation::gelu;
            s.post_norm = {.weight = m.post.view(), .kind = NormKind::layer};
        });
        with("no norm", [&](MoeSpec& s) { s.norm = {}; });
        with("one expert", [&](MoeSpec& s) { s.shape.experts_used = 1; });
        with("all experts", [&](MoeSpec& s) {
            s.shape.experts_used = 12;
            s.router.renormalize = true;
        });
    }
}

// Experts divided over ranks of one device, of whom one may have none: the bits of one, by either hand-over.
TEST(Experts, cuda_PartsHaveTheBitsOfTheWhole) {
    SKIP_WITHOUT_CUDA();
    for (const QuantType type : kAllQuantTypes) {
        Mixture m(type);
        for (const std::vector<std::int32_t>& shares : {std::vector<std::int32_t>{1, 1}, {1, 2}, {60, 1, 20}}) {
            m.shape.devices = (1u << shares.size()) - 1;
            MoeSpec spec = m.spec();
            spec.router.renormalize = true;
            spec.gate_bias = m.gate_bias.view();
            spec.down_bias = m.down_bias.view();
            if (shares.back() != 1) spec.post_norm = {.weight = m.post.view()};
            const auto with = [&](Ops& on) {
                return [op = std::shared_ptr<PreparedOp>(on.prepare(spec))](Ops& run_on, Workspace& w) {
                    run_on.moe(*op, w);
                };
            };
            const auto whole = with(cuda_ops());
            for (const bool through_host : {false, true}) {
                DividedOps ops(std::vector(shares.size(), std::shared_ptr<Ops>(std::shared_ptr<Ops>(), &cuda_ops())),
                               {.shares = shares, .through_host = through_host});
                const auto parts = with(ops);
                for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
                    const auto expected = m.run(cuda_ops(), kRows, whole, row_class);
                    for (const std::int32_t width : {1, 2, 17, kRows}) {
                        expect_same_bits(expected, m.run(ops, width, parts, row_class),
                                         std::string(info(type).name) + (through_host ? " through the host, " : ", ") +
                                             std::to_string(shares.size()) + " ranks, width " + std::to_string(width) +
                                             (row_class == RowClass::prefill ? ", prefill" : ""));
                    }
                }
            }
        }
    }
}

// Whether zeros are the middle of their codes is found from the experts of all ranks.
TEST(Experts, cuda_PartsOfPackedExpertsHaveTheBitsOfTheWhole) {
    SKIP_WITHOUT_CUDA();
    for (const packed::Kind& kind : packed::kinds()) {
        PackedExperts experts(kind, 352, 160);
        Mixture& m = experts.mixture;
        if (kind.centred) {  // in one expert they are not
            packed::Kind other = kind;
            other.centred = false;
            other.inputs = m.shape.expert_ff;
            Random random(5);
            experts.down[11] = packed::Packed(other, m.shape.d_model, random);
        }
        m.shape.devices = 3;
        MoeSpec spec = experts.spec();
        const auto with = [&](Ops& on) {
            return
                [op = std::shared_ptr<PreparedOp>(on.prepare(spec))](Ops& run_on, Workspace& w) { run_on.moe(*op, w); };
        };
        DividedOps ops(std::vector(2, std::shared_ptr<Ops>(std::shared_ptr<Ops>(), &cuda_ops())), {.shares = {1, 2}});
        const auto expected = m.run(cuda_ops(), kRows, with(cuda_ops()));
        const auto parts = with(ops);
        for (const std::int32_t width : {1, 17}) {
            expect_same_bits(expected, m.run(ops, width, parts), std::string(kind.name) + " " + std::to_string(width));
        }
    }
}

// All scores are equal: the lowest ids are chosen, as the reference does.
TEST(Experts, cuda_TiesGoToTheLowestId) {
    SKIP_WITHOUT_CUDA();
    Mixture m(QuantType::q8_0);
    m.router = Tensor::of(QuantType::f32, m.shape.experts, m.shape.d_model,
                          std::vector<float>(static_cast<std::size_t>(m.shape.experts) * m.shape.d_model, 0.0f));
    check_spec(m, m.spec(), 1e-3, "zeros");
}

// Inputs that are not numbers must not choose an expert twice or one that does not exist: the device still answers.
TEST(Experts, cuda_ScoresThatAreNoNumbers) {
    SKIP_WITHOUT_CUDA();
    Mixture m(QuantType::q8_0);
    std::vector<float> values = m.table.values();
    for (int i = 0; i < m.shape.d_model; ++i) values[static_cast<std::size_t>(i)] = std::nanf("");
    values[static_cast<std::size_t>(m.shape.d_model)] = INFINITY;
    const Tensor clean = m.table;
    Ops& ops = cuda_ops();
    const auto op = ops.prepare(m.spec());
    const auto stages = [&](Ops& on, Workspace& w) { on.moe(*op, w); };
    const auto expected = m.run(ops, kRows, stages);
    m.table = Tensor::of(QuantType::f32, 64, m.shape.d_model, values);
    const auto found = m.run(ops, kRows, stages);
    for (std::size_t t = 0; t < found.size(); ++t) {
        if (t * 29 % 64 < 2) continue;  // the rows with such inputs
        EXPECT_EQ(std::memcmp(found[t].data(), expected[t].data(), found[t].size() * sizeof(float)), 0) << t;
    }
}

TEST(Experts, cuda_TooManyAreRefused) {
    SKIP_WITHOUT_CUDA();
    const Mixture m(QuantType::f32);
    MoeSpec spec = m.spec();
    spec.shape.experts = 2048;
    spec.router.weight = {QuantType::f32, 2048, m.shape.d_model, nullptr};
    for (std::vector<TensorView>* views : {&spec.gate, &spec.up, &spec.down}) views->resize(2048, views->front());
    try {
        cuda_ops().prepare(spec);
        FAIL() << "taken";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "this model has 2048 experts, of which a row uses 3, and the cuda backend supports at most 1024 "
                     "and 32; use --device cpu");
    }
}

}  // namespace
}  // namespace foresay::test
