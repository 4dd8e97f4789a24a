// kernels/reference/reference_ops.cpp: the specification of every stage in plain loops. Weights are decoded to float32,
// activations are float32, sums run in double precision in eight interleaved partial sums (index modulo 8). Slow on
// purpose; every other backend is compared with this one.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/draw.h"
#include "kernels/kv_code.h"
#include "kernels/ops.h"
#include "kernels/stage_checks.h"

namespace foresay::kernels {
namespace {

using std::int32_t;
using std::int64_t;
using Floats = std::vector<float>;

Floats decode(const TensorView& tensor) {
    Floats values(static_cast<std::size_t>(tensor.elements()));
    for (int64_t row = 0; row < tensor.rows; ++row) {
        decode_row(tensor, row,
                   std::span(values).subspan(static_cast<std::size_t>(row * tensor.cols),
                                             static_cast<std::size_t>(tensor.cols)));
    }
    return values;
}

float dot(const float* a, const float* b, int64_t n) {
    double partial[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) partial[j] += static_cast<double>(a[i + j]) * b[i + j];
    }
    for (int j = 0; i < n; ++i, ++j) partial[j] += static_cast<double>(a[i]) * b[i];
    double sum = 0;
    for (double p : partial) sum += p;
    return static_cast<float>(sum);
}

struct Matrix {
    Floats values;  // [outputs, inputs]
    int64_t outputs = 0, inputs = 0;

    explicit Matrix(const TensorView& view) : values(decode(view)), outputs(view.rows), inputs(view.cols) {}
    // y[outputs] = W x[inputs]
    void apply(const float* x, float* y) const {
        for (int64_t o = 0; o < outputs; ++o) y[o] = dot(values.data() + o * inputs, x, inputs);
    }
};

struct Norm {
    Floats weight;
    float eps = 0;

    explicit Norm(const NormSpec& spec) : weight(decode(spec.weight)), eps(spec.eps) {
        if (spec.plus_one) {
            for (float& w : weight) w += 1.0f;
        }
    }
    bool empty() const { return weight.empty(); }
    void apply(const float* x, float* y) const {
        double squares = 0;
        for (std::size_t i = 0; i < weight.size(); ++i) squares += static_cast<double>(x[i]) * x[i];
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
        for (std::size_t i = 0; i < weight.size(); ++i) y[i] = static_cast<float>(x[i] * scale) * weight[i];
    }
};

void add(float* x, const float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

float soft_cap(float value, float cap) { return cap > 0 ? cap * std::tanh(value / cap) : value; }

float activate(Activation kind, float x) {
    if (kind == Activation::silu) return static_cast<float>(x / (1.0 + std::exp(-static_cast<double>(x))));
    const double cube = 0.7978845608028654 * (x + 0.044715 * x * static_cast<double>(x) * x);
    return static_cast<float>(0.5 * x * (1.0 + std::tanh(cube)));
}

void rotate(const RopePairs pairs, const Floats& inverse_frequency, float magnitude, int32_t position, float* head) {
    if (pairs == RopePairs::none) return;
    const std::size_t half = inverse_frequency.size();
    for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * inverse_frequency[i];
        const double c = std::cos(angle) * magnitude, s = std::sin(angle) * magnitude;
        float& a = pairs == RopePairs::adjacent ? head[2 * i] : head[i];
        float& b = pairs == RopePairs::adjacent ? head[2 * i + 1] : head[i + half];
        const double x = a, y = b;
        a = static_cast<float>(x * c - y * s);
        b = static_cast<float>(x * s + y * c);
    }
}

struct EmbedStage : Prepared {
    EmbedSpec spec;
};
struct AttentionInStage : Prepared {
    ModelShape shape;
    Norm norm, q_norm, k_norm;
    Matrix q, k, v;
    Floats q_bias, k_bias, v_bias, inverse_frequency;
    RopePairs pairs;
    float magnitude;

    explicit AttentionInStage(const AttentionInSpec& s)
        : shape(s.shape),
          norm(s.norm),
          q_norm(s.q_norm),
          k_norm(s.k_norm),
          q(s.q),
          k(s.k),
          v(s.v),
          q_bias(decode(s.q_bias)),
          k_bias(decode(s.k_bias)),
          v_bias(decode(s.v_bias)),
          inverse_frequency(s.rope.inverse_frequency.begin(), s.rope.inverse_frequency.end()),
          pairs(s.rope.pairs),
          magnitude(s.rope.magnitude) {}
};
struct AttendStage : Prepared {
    AttendSpec spec;
};
struct OutStage : Prepared {  // attention_out and mlp_out
    Matrix matrix;
    Floats bias;
    Norm post_norm;

    OutStage(const TensorView& m, const TensorView& b, const NormSpec& n) : matrix(m), bias(decode(b)), post_norm(n) {}
};
struct MlpInStage : Prepared {
    Norm norm;
    Matrix gate, up;
    Activation activation;

    explicit MlpInStage(const MlpInSpec& s) : norm(s.norm), gate(s.gate), up(s.up), activation(s.activation) {}
};
struct HeadStage : Prepared {
    Norm norm;
    Matrix matrix;
    float scale, cap;

    explicit HeadStage(const HeadSpec& s) : norm(s.norm), matrix(s.weight), scale(s.scale), cap(s.soft_cap) {}
};

// What KvFormat::q8 keeps of a head's key or value.
void round_to_codes(float* x, int32_t n) {
    float largest = 0;
    for (int32_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
    for (int32_t i = 0; i < n; ++i) x[i] = kv_code(x[i], kv_code_scale(largest)) * (largest / kLargestKvCode);
}

struct ReferenceKv : KvPages {
    Floats k, v;  // [layers, pages, kPagePositions, Hkv, Dh]

    int64_t offset(int32_t layer, int32_t page, int32_t position, int32_t head) const {
        return (((static_cast<int64_t>(layer) * pages + page) * kPagePositions + position) * shape.kv_heads + head) *
               shape.head_dim;
    }
};

struct ReferenceActivations : Activations {
    Batch batch;
    Floats x, q, attended, ff, scratch, logits;  // [T, D], [T, H*Dh], [T, H*Dh], [T, F], one row, [logit rows, V]
    std::vector<Drawn> slots;
    KeptCandidates kept;
    DrawScratch draw_scratch;
};

class ReferenceOps final : public Ops {
public:
    BackendInfo describe() const override { return {"reference", "plain loops, double sums", 1}; }

    std::unique_ptr<Prepared> prepare(const EmbedSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<EmbedStage>();
        stage->spec = spec;
        return stage;
    }
    std::unique_ptr<Prepared> prepare(const AttentionInSpec& spec) override { return make<AttentionInStage>(spec); }
    std::unique_ptr<Prepared> prepare(const AttendSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<AttendStage>();
        stage->spec = spec;
        return stage;
    }
    std::unique_ptr<Prepared> prepare(const AttentionOutSpec& spec) override {
        check_stage(spec);
        return count(std::make_unique<OutStage>(spec.o, spec.bias, spec.post_norm), spec);
    }
    std::unique_ptr<Prepared> prepare(const MlpInSpec& spec) override { return make<MlpInStage>(spec); }
    std::unique_ptr<Prepared> prepare(const MlpOutSpec& spec) override {
        check_stage(spec);
        return count(std::make_unique<OutStage>(spec.down, TensorView{}, spec.post_norm), spec);
    }
    std::unique_ptr<Prepared> prepare(const HeadSpec& spec) override { return make<HeadStage>(spec); }

    int64_t kv_bytes(const ModelShape& shape, int32_t pages, KvFormat) const override {
        return static_cast<int64_t>(2) * sizeof(float) * shape.layers * pages * kPagePositions * shape.kv_heads *
               shape.head_dim;
    }

    std::unique_ptr<KvPages> allocate_kv(const ModelShape& shape, int32_t pages, KvFormat format) override {
        auto kv = std::make_unique<ReferenceKv>();
        kv->shape = shape;
        kv->pages = pages;
        kv->format = format;
        kv->bytes = kv_bytes(shape, pages, format);
        kv->k.resize(static_cast<std::size_t>(kv->bytes / 8));
        kv->v.resize(kv->k.size());
        return kv;
    }

    std::unique_ptr<Activations> allocate_activations(const ModelShape& shape, int32_t max_rows,
                                                      int32_t max_logit_rows) override {
        auto act = std::make_unique<ReferenceActivations>();
        act->shape = shape;
        act->max_rows = max_rows;
        act->max_logit_rows = max_logit_rows;
        const auto rows = static_cast<std::size_t>(max_rows);
        const auto attention = static_cast<std::size_t>(shape.heads) * shape.head_dim;
        act->x.resize(rows * shape.d_model);
        act->q.resize(rows * attention);
        act->attended.resize(rows * attention);
        act->ff.resize(rows * shape.d_ff);
        act->scratch.resize(2 * std::max<std::size_t>({static_cast<std::size_t>(shape.d_model), attention,
                                                       static_cast<std::size_t>(shape.d_ff)}));
        act->logits.resize(static_cast<std::size_t>(max_logit_rows) * shape.vocab);
        act->slots.resize(kDrawSlots);
        act->bytes = static_cast<int64_t>(sizeof(float) * (act->x.size() + act->q.size() * 2 + act->ff.size() +
                                                           act->scratch.size() + act->logits.size()));
        return act;
    }

    void copy_page(KvPages& pages, int32_t from, int32_t to) override {
        auto& kv = static_cast<ReferenceKv&>(pages);
        const int64_t n = static_cast<int64_t>(kPagePositions) * kv.shape.kv_heads * kv.shape.head_dim;
        for (int32_t layer = 0; layer < kv.shape.layers; ++layer) {
            for (Floats* values : {&kv.k, &kv.v}) {
                std::copy_n(values->data() + kv.offset(layer, from, 0, 0), n,
                            values->data() + kv.offset(layer, to, 0, 0));
            }
        }
    }

    void begin(Activations& act, const Batch& batch) override {
        check_batch(act, batch);
        self(act).batch = batch;
    }

    void embed(const Prepared& prepared, Activations& act) override {
        const auto& spec = static_cast<const EmbedStage&>(prepared).spec;
        auto& a = self(act);
        check(spec.table.cols == a.shape.d_model, "the embedding is as wide as the model");
        const auto& drawer = a.batch.drawer != nullptr ? self(*a.batch.drawer) : a;
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            const TokenRef token = a.batch.rows[t].token;
            const int32_t id = token.is_slot() ? drawer.slots[token.slot_index()].token : token.value;
            const std::span<float> x(row(a.x, t, a.shape.d_model), static_cast<std::size_t>(a.shape.d_model));
            decode_row(spec.table, std::clamp<int64_t>(id, 0, spec.table.rows - 1), x);
            for (float& value : x) value *= spec.scale;
        }
    }

    void attention_in(const Prepared& prepared, Activations& act, KvPages& pages, int32_t layer) override {
        const auto& s = static_cast<const AttentionInStage&>(prepared);
        auto& a = self(act);
        auto& kv = static_cast<ReferenceKv&>(pages);
        const int32_t dh = s.shape.head_dim;
        Floats k(static_cast<std::size_t>(s.k.outputs)), v(k.size());
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            const Row& r = a.batch.rows[t];
            float* normed = a.scratch.data();
            float* q = row(a.q, t, s.q.outputs);
            s.norm.apply(row(a.x, t, s.shape.d_model), normed);
            s.q.apply(normed, q);
            s.k.apply(normed, k.data());
            s.v.apply(normed, v.data());
            add(q, s.q_bias.data(), static_cast<int64_t>(s.q_bias.size()));
            add(k.data(), s.k_bias.data(), static_cast<int64_t>(s.k_bias.size()));
            add(v.data(), s.v_bias.data(), static_cast<int64_t>(s.v_bias.size()));
            for (int32_t h = 0; h < s.shape.heads; ++h) finish_head(s, s.q_norm, r.position, q + h * dh);
            for (int32_t h = 0; h < s.shape.kv_heads; ++h) finish_head(s, s.k_norm, r.position, k.data() + h * dh);
            if (kv.format == KvFormat::q8) {
                for (int32_t h = 0; h < s.shape.kv_heads; ++h) {
                    round_to_codes(k.data() + h * dh, dh);
                    round_to_codes(v.data() + h * dh, dh);
                }
            }
            const int32_t cell = r.cell < 0 ? r.position : r.cell;
            const int32_t page = a.batch.sequences[r.sequence].pages[cell / kPagePositions];
            const int64_t at = kv.offset(layer, page, cell % kPagePositions, 0);
            std::copy(k.begin(), k.end(), kv.k.begin() + at);
            std::copy(v.begin(), v.end(), kv.v.begin() + at);
        }
    }

    void attend(const Prepared& prepared, Activations& act, const KvPages& pages, int32_t layer) override {
        const AttendSpec& spec = static_cast<const AttendStage&>(prepared).spec;
        auto& a = self(act);
        const auto& kv = static_cast<const ReferenceKv&>(pages);
        const int32_t dh = spec.shape.head_dim, group = spec.shape.heads / spec.shape.kv_heads;
        std::vector<int32_t> cells;
        std::vector<double> weights;
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            attended_cells(a.batch, static_cast<int32_t>(t), spec.window, cells);
            const auto& table = a.batch.sequences[a.batch.rows[t].sequence].pages;
            for (int32_t h = 0; h < spec.shape.heads; ++h) {
                const float* q = row(a.q, t, spec.shape.heads * dh) + h * dh;
                weights.assign(cells.size(), 0);
                double peak = -std::numeric_limits<double>::infinity();
                for (std::size_t i = 0; i < cells.size(); ++i) {
                    const int64_t at =
                        kv.offset(layer, table[cells[i] / kPagePositions], cells[i] % kPagePositions, h / group);
                    weights[i] = soft_cap(dot(q, kv.k.data() + at, dh) * spec.scale, spec.soft_cap);
                    peak = std::max(peak, weights[i]);
                }
                double total = 0;
                for (double& w : weights) total += w = std::exp(w - peak);
                std::vector<double> sum(static_cast<std::size_t>(dh));
                for (std::size_t i = 0; i < cells.size(); ++i) {
                    const int64_t at =
                        kv.offset(layer, table[cells[i] / kPagePositions], cells[i] % kPagePositions, h / group);
                    for (int32_t d = 0; d < dh; ++d) sum[d] += weights[i] * kv.v[at + d];
                }
                float* out = row(a.attended, t, spec.shape.heads * dh) + h * dh;
                for (int32_t d = 0; d < dh; ++d) out[d] = static_cast<float>(sum[d] / total);
            }
        }
    }

    void attention_out(const Prepared& prepared, Activations& act) override {
        add_projection(static_cast<const OutStage&>(prepared), self(act), self(act).attended);
    }

    void mlp_in(const Prepared& prepared, Activations& act) override {
        const auto& s = static_cast<const MlpInStage&>(prepared);
        auto& a = self(act);
        Floats up(static_cast<std::size_t>(s.up.outputs));
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            float* normed = a.scratch.data();
            float* gate = row(a.ff, t, s.gate.outputs);
            s.norm.apply(row(a.x, t, a.shape.d_model), normed);
            s.gate.apply(normed, gate);
            s.up.apply(normed, up.data());
            for (std::size_t i = 0; i < up.size(); ++i) gate[i] = activate(s.activation, gate[i]) * up[i];
        }
    }

    void mlp_out(const Prepared& prepared, Activations& act) override {
        add_projection(static_cast<const OutStage&>(prepared), self(act), self(act).ff);
    }

    void head(const Prepared& prepared, Activations& act) override {
        const auto& s = static_cast<const HeadStage&>(prepared);
        auto& a = self(act);
        for (std::size_t i = 0; i < a.batch.logit_rows.size(); ++i) {
            float* logits = row(a.logits, i, s.matrix.outputs);
            s.norm.apply(row(a.x, static_cast<std::size_t>(a.batch.logit_rows[i]), a.shape.d_model), a.scratch.data());
            s.matrix.apply(a.scratch.data(), logits);
            for (int64_t v = 0; v < s.matrix.outputs; ++v) logits[v] = soft_cap(logits[v] * s.scale, s.cap);
        }
    }

    void draw(Activations& act, std::span<const DrawPlan> plans, std::span<const int32_t> slots) override {
        auto& a = self(act);
        a.kept.reserve(plans);
        for (std::size_t i = 0; i < plans.size(); ++i) {
            a.slots[slots[i]] = a.kept.draw(logits(act, static_cast<int32_t>(i)), plans[i], a.draw_scratch, slots[i]);
        }
    }
    Drawn drawn(Activations& act, int32_t slot) override { return self(act).slots[slot]; }
    Candidates candidates(Activations& act, int32_t slot) override { return self(act).kept.at(slot); }

    std::span<float> logits(Activations& act, int32_t i) override {
        return {row(self(act).logits, static_cast<std::size_t>(i), act.shape.vocab),
                static_cast<std::size_t>(act.shape.vocab)};
    }
    std::span<const float> residual(Activations& act, int32_t t) override {
        return {row(self(act).x, static_cast<std::size_t>(t), act.shape.d_model),
                static_cast<std::size_t>(act.shape.d_model)};
    }

private:
    static ReferenceActivations& self(Activations& act) { return static_cast<ReferenceActivations&>(act); }
    static float* row(Floats& values, std::size_t t, int64_t width) {
        return values.data() + static_cast<int64_t>(t) * width;
    }

    template <class Stage, class Spec>
    static std::unique_ptr<Prepared> make(const Spec& spec) {
        check_stage(spec);
        return count(std::make_unique<Stage>(spec), spec);
    }
    template <class Spec>
    static std::unique_ptr<Prepared> count(std::unique_ptr<Prepared> stage, const Spec& spec) {
        count_work(spec, *stage);
        return stage;
    }

    static void finish_head(const AttentionInStage& s, const Norm& norm, int32_t position, float* head) {
        if (!norm.empty()) norm.apply(head, head);
        rotate(s.pairs, s.inverse_frequency, s.magnitude, position, head);
    }

    static void add_projection(const OutStage& s, ReferenceActivations& a, Floats& input) {
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            float* y = a.scratch.data();
            s.matrix.apply(row(input, t, s.matrix.inputs), y);
            add(y, s.bias.data(), static_cast<int64_t>(s.bias.size()));
            if (!s.post_norm.empty()) s.post_norm.apply(y, y);
            add(row(a.x, t, s.matrix.outputs), y, s.matrix.outputs);
        }
    }
};

}  // namespace

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace foresay::kernels
