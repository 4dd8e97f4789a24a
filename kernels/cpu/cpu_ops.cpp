#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/cpu/stages.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/stage_checks.h"

namespace foresay::kernels {
namespace cpu {
namespace {

using std::int32_t;
using std::int64_t;

// Values up to which the caller prepares inputs alone: starting the team would cost more.
constexpr int64_t kSerialValues = 2048;
// Panels that a thread takes at a time when there are many rows: their weights stay in the cache while tiles pass.
constexpr int kPanelGrain = 4;
// Inputs times rows of a unit of panels otherwise: a few tenths of a microsecond.
constexpr int64_t kUnitInputs = 4096;
constexpr int kMaxHeadDim = 1024;
// Pages of one sequence that a thread's list has room for from the start: 131,072 positions. It grows beyond them, but
// decoding up to there must not allocate.
constexpr std::size_t kPagesReserved = 2048;

struct RopeTable {
    RopePairs pairs;
    std::vector<float> inverse_frequency;
    float magnitude;
};

std::vector<float> decode(const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (!tensor.empty()) decode_row(tensor, 0, values);
    return values;
}

Norm prepare_norm(const NormSpec& spec) {
    Norm norm{decode(spec.weight), spec.eps};
    if (spec.plus_one) {
        for (float& w : norm.weight) w += 1.0f;
    }
    return norm;
}

PanelRange range(const PanelMatrix& m, int begin, int end) {
    return {m.encoding, m.panel(0), m.panel_bytes, is_float(m.encoding) ? static_cast<int>(m.inputs) : m.blocks,
            begin,      end};
}

void note_inputs(const PanelMatrix& m, bool& codes, bool& floats) { (is_float(m.encoding) ? floats : codes) = true; }

class CpuOps final : public Ops {
public:
    CpuOps(int threads, const IsaKernels& isa) : pool_(threads), isa_(isa) {}

    BackendInfo describe() const override {
        return {"cpu",
                std::string(isa_.name) + ", " + std::to_string(pool_.threads()) +
                    (pool_.threads() == 1 ? " thread" : " threads"),
                pool_.threads()};
    }

    std::unique_ptr<Prepared> prepare(const EmbedSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<EmbedStage>();
        stage->spec = spec;
        return stage;
    }

    std::unique_ptr<Prepared> prepare(const AttentionInSpec& spec) override {
        check_stage(spec);
        if (spec.shape.head_dim > kMaxHeadDim) {
            throw Error("heads of " + std::to_string(spec.shape.head_dim) +
                        " values are wider than the cpu backend's " + std::to_string(kMaxHeadDim));
        }
        auto stage = std::make_unique<AttentionInStage>();
        stage->shape = spec.shape;
        stage->norm = prepare_norm(spec.norm);
        stage->q_norm = prepare_norm(spec.q_norm);
        stage->k_norm = prepare_norm(spec.k_norm);
        stage->q = pack(spec.q, arena_, pool_);
        stage->k = pack(spec.k, arena_, pool_);
        stage->v = pack(spec.v, arena_, pool_);
        stage->q_bias = decode(spec.q_bias);
        stage->k_bias = decode(spec.k_bias);
        stage->v_bias = decode(spec.v_bias);
        stage->rope = rope_table(spec.rope);
        for (const PanelMatrix* m : {&stage->q, &stage->k, &stage->v}) note_inputs(*m, stage->codes, stage->floats);
        count_work(spec, *stage);
        return stage;
    }

    std::unique_ptr<Prepared> prepare(const AttendSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<AttendStage>();
        stage->spec = spec;
        return stage;
    }

    std::unique_ptr<Prepared> prepare(const AttentionOutSpec& spec) override {
        check_stage(spec);
        return prepare_out(spec, spec.o, spec.bias, spec.post_norm);
    }

    std::unique_ptr<Prepared> prepare(const MlpInSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<MlpInStage>();
        stage->norm = prepare_norm(spec.norm);
        stage->gate = pack(spec.gate, arena_, pool_);
        stage->up = pack(spec.up, arena_, pool_);
        stage->activation = spec.activation;
        for (const PanelMatrix* m : {&stage->gate, &stage->up}) note_inputs(*m, stage->codes, stage->floats);
        count_work(spec, *stage);
        return stage;
    }

    std::unique_ptr<Prepared> prepare(const MlpOutSpec& spec) override {
        check_stage(spec);
        return prepare_out(spec, spec.down, {}, spec.post_norm);
    }

    std::unique_ptr<Prepared> prepare(const HeadSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<HeadStage>();
        stage->norm = prepare_norm(spec.norm);
        stage->matrix = pack(spec.weight, arena_, pool_);
        stage->scale = spec.scale;
        stage->soft_cap = spec.soft_cap;
        count_work(spec, *stage);
        return stage;
    }

    int64_t kv_bytes(const ModelShape& shape, int32_t pages) const override {
        return 2 * CpuKv::page_halves(shape) * shape.layers * pages;
    }

    std::unique_ptr<KvPages> allocate_kv(const ModelShape& shape, int32_t pages) override {
        auto kv = std::make_unique<CpuKv>();
        kv->shape = shape;
        kv->pages = pages;
        kv->bytes = kv_bytes(shape, pages);
        kv->memory = Arena::allocate_alone(kv->bytes);
        return kv;
    }

    std::unique_ptr<Activations> allocate_activations(const ModelShape& shape, int32_t max_rows,
                                                      int32_t max_logit_rows) override;

    void copy_page(KvPages& pages, int32_t from, int32_t to) override {
        auto& kv = static_cast<CpuKv&>(pages);
        std::memcpy(kv.page(0, to), kv.page(0, from),
                    static_cast<std::size_t>(2 * CpuKv::page_halves(kv.shape) * kv.shape.layers));
    }

    void begin(Activations& act, const Batch& batch) override {
        check_batch(act, batch);
        auto& a = self(act);
        a.batch = batch;
        a.angles.resize(ropes_.size());
        for (RowAngles& angles : a.angles) angles.valid = false;
        a.tiles.set_rows(rows(a), isa_);
        a.ff_tiles.set_rows(rows(a), isa_);
        a.attended_coded = a.ff_coded = false;
    }

    void embed(const Prepared& prepared, Activations& act) override {
        const EmbedSpec& spec = static_cast<const EmbedStage&>(prepared).spec;
        auto& a = self(act);
        check(spec.table.cols == a.shape.d_model, "the embedding is as wide as the model");
        pool_.run(rows(a), 8, [&](int begin, int end, int) {
            for (int t = begin; t < end; ++t) {
                const TokenRef token = a.batch.rows[t].token;
                const int64_t id = token.is_slot() ? a.slots[token.slot_index()].token : token.value;
                float* x = a.x + t * a.d_stride;
                decode_row(spec.table, std::clamp<int64_t>(id, 0, spec.table.rows - 1),
                           {x, static_cast<std::size_t>(spec.table.cols)});
                if (spec.scale != 1.0f) {
                    for (int64_t i = 0; i < spec.table.cols; ++i) x[i] *= spec.scale;
                }
            }
        });
    }

    void attention_in(const Prepared& prepared, Activations& act, KvPages& pages, int32_t layer) override;
    void attend(const Prepared& prepared, Activations& act, const KvPages& pages, int32_t layer) override;

    void attention_out(const Prepared& prepared, Activations& act) override {
        auto& a = self(act);
        const auto& s = static_cast<const OutStage&>(prepared);
        if (!a.attended_coded || is_float(s.matrix.encoding)) prepare_projection(s, a, a.tiles, a.attended, a.q_stride);
        add_projection(s, a, a.tiles);
    }

    void mlp_in(const Prepared& prepared, Activations& act) override {
        const auto& s = static_cast<const MlpInStage&>(prepared);
        auto& a = self(act);
        const auto ff = static_cast<int>(s.gate.outputs);
        prepare_inputs(a, a.tiles, a.x, a.d_stride, static_cast<int>(s.gate.inputs), &s.norm, s.codes, s.floats);
        a.ff_coded = s.codes;
        const auto project = [&](int begin, int end) {
            for (int i = 0; i < a.tiles.tiles(); ++i) {
                isa_.gated(range(s.gate, begin, end), range(s.up, begin, end), a.tiles.tile(i),
                           a.ff + a.tiles.first_row(i) * a.ff_stride, a.ff_stride,
                           s.activation == Activation::gelu_tanh);
            }
        };
        if (!s.codes) return run_panels(a, s.gate.panels, s.gate.inputs, project);
        run_parts(a, s.gate.panels, s.gate.inputs, kScaleInputs / kPanelOutputs, project, [&](int part) {
            const int begin = part * kScaleInputs, end = std::min(begin + kScaleInputs, ff);
            for (int t = 0; t < rows(a); ++t) a.ff_tiles.fill_codes(isa_, t, a.ff + t * a.ff_stride, ff, begin, end);
        });
    }

    void mlp_out(const Prepared& prepared, Activations& act) override {
        auto& a = self(act);
        const auto& s = static_cast<const OutStage&>(prepared);
        if (!a.ff_coded || is_float(s.matrix.encoding)) prepare_projection(s, a, a.ff_tiles, a.ff, a.ff_stride);
        add_projection(s, a, a.ff_tiles);
    }

    void head(const Prepared& prepared, Activations& act) override;

    void draw(Activations& act, std::span<const DrawPlan> plans, std::span<const int32_t> slots) override {
        auto& a = self(act);
        pool_.run(static_cast<int>(plans.size()), 1, [&](int begin, int end, int thread) {
            for (int i = begin; i < end; ++i) {
                a.slots[slots[i]] = draw_row(logits(a, i), plans[i], a.scratch[static_cast<std::size_t>(thread)].draw);
            }
        });
    }
    Drawn drawn(Activations& act, int32_t slot) override { return self(act).slots[slot]; }

    std::span<float> logits(Activations& act, int32_t i) override {
        return {self(act).logits + i * self(act).vocab_stride, static_cast<std::size_t>(act.shape.vocab)};
    }
    std::span<const float> residual(Activations& act, int32_t t) override {
        return {self(act).x + t * self(act).d_stride, static_cast<std::size_t>(act.shape.d_model)};
    }

private:
    static CpuActivations& self(Activations& act) { return static_cast<CpuActivations&>(act); }
    static int rows(const CpuActivations& a) { return static_cast<int>(a.batch.rows.size()); }

    int rope_table(const RopeSpec& spec) {
        if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return -1;
        RopeTable table{spec.pairs, {spec.inverse_frequency.begin(), spec.inverse_frequency.end()}, spec.magnitude};
        for (std::size_t i = 0; i < ropes_.size(); ++i) {
            if (ropes_[i].pairs == table.pairs && ropes_[i].magnitude == table.magnitude &&
                ropes_[i].inverse_frequency == table.inverse_frequency) {
                return static_cast<int>(i);
            }
        }
        ropes_.push_back(std::move(table));
        return static_cast<int>(ropes_.size()) - 1;
    }

    template <class Spec>
    std::unique_ptr<Prepared> prepare_out(const Spec& spec, const TensorView& matrix, const TensorView& bias,
                                          const NormSpec& norm) {
        auto stage = std::make_unique<OutStage>();
        stage->matrix = pack(matrix, arena_, pool_);
        stage->bias = decode(bias);
        stage->post_norm = prepare_norm(norm);
        count_work(spec, *stage);
        return stage;
    }

    static int serial_grain(int rows, int64_t values_per_row) {
        return rows * values_per_row <= kSerialValues ? rows : 1;
    }

    // Runs body(begin, end) over the panels of matrices with `inputs` inputs, in units small enough to share out evenly
    // and large enough to be worth taking.
    template <class Body>
    void run_panels(const CpuActivations& a, int panels, int64_t inputs, const Body& body) {
        const int share = std::max(1, panels / (pool_.threads() * 8));
        const auto wanted = static_cast<int>(kUnitInputs / (inputs * a.tiles.tile(0).rows));
        const int grain = a.tiles.tiles() > 1 ? kPanelGrain : std::clamp(wanted, 1, share);
        pool_.run(panels, grain, [&](int begin, int end, int) { body(begin, end); });
    }

    // The same, and finish(i) as soon as the panels of part i, which has `part` of them, are done, by the thread that did
    // the last: what follows for those outputs then needs no loop of its own.
    template <class Body, class Finish>
    void run_parts(CpuActivations& a, int panels, int64_t inputs, int part, const Body& body, const Finish& finish) {
        for (int i = 0; i * part < panels; ++i)
            a.finished[static_cast<std::size_t>(i)].store(0, std::memory_order_relaxed);
        run_panels(a, panels, inputs, [&](int begin, int end) {
            body(begin, end);
            for (int i = begin / part; i * part < end; ++i) {
                const int first = i * part, last = std::min(first + part, panels);
                const int own = std::min(last, end) - std::max(first, begin);
                const int before = a.finished[static_cast<std::size_t>(i)].fetch_add(own, std::memory_order_acq_rel);
                if (before + own == last - first) finish(i);
            }
        });
    }

    // The inputs of the next linear stage: rows of `source`, normed when `norm` is given, in the forms asked for.
    void prepare_inputs(CpuActivations& a, InputTiles& tiles, const float* source, int64_t stride, int inputs,
                        const Norm* norm, bool codes, bool floats) {
        const int count = rows(a);
        pool_.run(count, serial_grain(count, inputs), [&](int begin, int end, int thread) {
            float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
            for (int t = begin; t < end; ++t) {
                const float* x = source + t * stride;
                if (norm) {
                    isa_.rms_norm(x, norm->weight.data(), norm->eps, inputs, normed);
                    x = normed;
                }
                tiles.fill(isa_, t, x, inputs, codes, floats);
            }
        });
    }

    void prepare_projection(const OutStage& s, CpuActivations& a, InputTiles& tiles, const float* input,
                            int64_t stride) {
        const bool floats = is_float(s.matrix.encoding);
        prepare_inputs(a, tiles, input, stride, static_cast<int>(s.matrix.inputs), nullptr, !floats, floats);
    }

    void add_projection(const OutStage& s, CpuActivations& a, const InputTiles& tiles) {
        const bool direct = s.bias.empty() && s.post_norm.empty();
        float* out = direct ? a.x : a.projected;
        run_panels(a, s.matrix.panels, s.matrix.inputs, [&](int begin, int end) {
            for (int i = 0; i < tiles.tiles(); ++i) {
                isa_.linear(range(s.matrix, begin, end), tiles.tile(i), out + tiles.first_row(i) * a.d_stride,
                            a.d_stride, direct ? Store::add : Store::set);
            }
        });
        if (direct) return;
        pool_.run(rows(a), 4, [&](int begin, int end, int) {
            for (int t = begin; t < end; ++t) {
                float* y = a.projected + t * a.d_stride;
                for (std::size_t i = 0; i < s.bias.size(); ++i) y[i] += s.bias[i];
                if (!s.post_norm.empty())
                    isa_.rms_norm(y, s.post_norm.weight.data(), s.post_norm.eps, static_cast<int>(s.matrix.outputs), y);
                float* x = a.x + t * a.d_stride;
                for (int64_t i = 0; i < s.matrix.outputs; ++i) x[i] += y[i];
            }
        });
    }

    const RowAngles& angles(CpuActivations& a, int table) {
        RowAngles& out = a.angles[static_cast<std::size_t>(table)];
        if (out.valid) return out;
        const RopeTable& rope = ropes_[static_cast<std::size_t>(table)];
        const std::size_t pairs = rope.inverse_frequency.size();
        const auto most = static_cast<std::size_t>(a.max_rows) * pairs;
        if (out.cos.size() < most) {
            out.cos.resize(most);
            out.sin.resize(most);
        }
        for (int t = 0; t < rows(a); ++t) {
            for (std::size_t i = 0; i < pairs; ++i) {
                const double angle = static_cast<double>(a.batch.rows[t].position) * rope.inverse_frequency[i];
                out.cos[static_cast<std::size_t>(t) * pairs + i] = static_cast<float>(std::cos(angle) * rope.magnitude);
                out.sin[static_cast<std::size_t>(t) * pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
            }
        }
        out.valid = true;
        return out;
    }

    void rotate(const CpuActivations& a, int table, int t, float* head) const {
        const RopeTable& rope = ropes_[static_cast<std::size_t>(table)];
        const RowAngles& angles = a.angles[static_cast<std::size_t>(table)];
        const std::size_t pairs = rope.inverse_frequency.size(), at = static_cast<std::size_t>(t) * pairs;
        isa_.rotate(head, angles.cos.data() + at, angles.sin.data() + at, static_cast<int>(pairs),
                    rope.pairs == RopePairs::adjacent);
    }

    void group_rows(CpuActivations& a, int heads_per_kv, const AttendSpec& spec) const;
    void finish_head(const AttentionInStage& s, CpuActivations& a, CpuKv& kv, int32_t layer, int head, int t);
    void gather_tree_tile(const CpuActivations& a, const CpuKv& kv, int32_t layer, int head, int t, int tile,
                          int gathered, ThreadScratch& scratch);

    ThreadPool pool_;
    const IsaKernels& isa_;
    Arena arena_;
    std::vector<RopeTable> ropes_;
};

std::unique_ptr<Activations> CpuOps::allocate_activations(const ModelShape& shape, int32_t max_rows,
                                                          int32_t max_logit_rows) {
    auto act = std::make_unique<CpuActivations>();
    act->shape = shape;
    act->max_rows = max_rows;
    act->max_logit_rows = max_logit_rows;
    const int64_t attention = static_cast<int64_t>(shape.heads) * shape.head_dim;
    act->d_stride = round_up(shape.d_model, 16);
    act->q_stride = round_up(attention, 16);
    act->kv_stride = round_up(static_cast<int64_t>(shape.kv_heads) * shape.head_dim, 16);
    act->ff_stride = round_up(shape.d_ff, 16);
    act->vocab_stride = round_up(shape.vocab, 16);
    const int64_t per_row = 2 * act->d_stride + act->qkv_stride() + act->q_stride + act->ff_stride;
    act->memory = Arena::allocate_alone(static_cast<int64_t>(sizeof(float)) *
                                        (per_row * max_rows + act->vocab_stride * max_logit_rows));
    auto* at = reinterpret_cast<float*>(act->memory.data);
    const auto take = [&](int64_t stride, int64_t count) {
        float* p = at;
        at += stride * count;
        return p;
    };
    act->x = take(act->d_stride, max_rows);
    act->projected = take(act->d_stride, max_rows);
    act->qkv = take(act->qkv_stride(), max_rows);
    act->attended = take(act->q_stride, max_rows);
    act->ff = take(act->ff_stride, max_rows);
    act->logits = take(act->vocab_stride, max_logit_rows);
    const int64_t widest = std::max({act->d_stride, act->q_stride, act->ff_stride});
    act->tiles.reserve(std::max(max_rows, max_logit_rows), widest);
    act->ff_tiles.reserve(max_rows, act->ff_stride);
    const int parts = std::max(shape.heads + 2 * shape.kv_heads, shape.d_ff / kScaleInputs + 1);
    act->finished = std::vector<std::atomic<int>>(static_cast<std::size_t>(parts));
    act->slots.resize(kDrawSlots);
    act->groups.reserve(static_cast<std::size_t>(max_rows) + 1);
    act->scratch.resize(static_cast<std::size_t>(pool_.threads()));
    for (ThreadScratch& scratch : act->scratch) {
        scratch.row.resize(static_cast<std::size_t>(widest));
        scratch.attend.resize(static_cast<std::size_t>(attend_scratch_floats(shape.head_dim)));
        scratch.k_tiles.reserve(kPagesReserved);
        scratch.v_tiles.reserve(kPagesReserved);
        scratch.draw.reserve(shape.vocab);
    }
    act->bytes = act->memory.bytes + act->tiles.bytes() + act->ff_tiles.bytes();
    return act;
}

// What follows the projections for one head of one row, numbered over query, key and value heads: bias, norm, rotation,
// and keys and values into the cache.
void CpuOps::finish_head(const AttentionInStage& s, CpuActivations& a, CpuKv& kv, int32_t layer, int head, int t) {
    const int32_t dh = s.shape.head_dim, heads = s.shape.heads, kv_heads = s.shape.kv_heads;
    const Row& row = a.batch.rows[t];
    const auto finish = [&](float* x, int h, const std::vector<float>& bias, const Norm* norm) {
        float* y = x + h * dh;
        if (!bias.empty()) {
            for (int32_t i = 0; i < dh; ++i) y[i] += bias[static_cast<std::size_t>(h * dh + i)];
        }
        if (norm && !norm->empty()) isa_.rms_norm(y, norm->weight.data(), norm->eps, dh, y);
        if (norm && s.rope >= 0) rotate(a, s.rope, t, y);
        return y;
    };
    float* q = a.qkv + t * a.qkv_stride();
    if (head < heads) {
        finish(q, head, s.q_bias, &s.q_norm);
        return;
    }
    const int32_t cell = row.cell < 0 ? row.position : row.cell;
    const int32_t page = a.batch.sequences[row.sequence].pages[cell / kPagePositions];
    const int32_t place = cell % kPagePositions;
    float* k = q + a.q_stride;
    if (const int h = head - heads; h < kv_heads) {
        std::uint16_t halves[kMaxHeadDim];
        isa_.to_half(finish(k, h, s.k_bias, &s.k_norm), dh, halves);
        std::uint16_t* at = kv.k(layer, page, h) + static_cast<int64_t>(place / 16) * 16 * dh + place % 16;
        for (int32_t d = 0; d < dh; ++d) at[16 * d] = halves[d];
        return;
    }
    const int h = head - heads - kv_heads;
    isa_.to_half(finish(k + a.kv_stride, h, s.v_bias, nullptr), dh,
                 kv.v(layer, page, h) + place * CpuKv::v_stride(s.shape));
}

void CpuOps::attention_in(const Prepared& prepared, Activations& act, KvPages& pages, int32_t layer) {
    const auto& s = static_cast<const AttentionInStage&>(prepared);
    auto& a = self(act);
    auto& kv = static_cast<CpuKv&>(pages);
    prepare_inputs(a, a.tiles, a.x, a.d_stride, s.shape.d_model, &s.norm, s.codes, s.floats);
    if (s.rope >= 0) angles(a, s.rope);
    const int total = s.q.panels + s.k.panels + s.v.panels;
    const auto project = [&](int begin, int end) {
        int first = 0;
        int64_t column = 0;
        for (const PanelMatrix* m : {&s.q, &s.k, &s.v}) {
            const int from = std::max(begin - first, 0), to = std::min(end - first, m->panels);
            for (int i = 0; i < a.tiles.tiles() && from < to; ++i) {
                isa_.linear(range(*m, from, to), a.tiles.tile(i),
                            a.qkv + a.tiles.first_row(i) * a.qkv_stride() + column, a.qkv_stride(), Store::set);
            }
            first += m->panels;
            column += m == &s.q ? a.q_stride : a.kv_stride;
        }
    };
    const auto finish = [&](int head) {
        for (int t = 0; t < rows(a); ++t) finish_head(s, a, kv, layer, head, t);
    };
    const int heads = s.shape.heads + 2 * s.shape.kv_heads;
    if (s.shape.head_dim % kPanelOutputs == 0) {
        run_parts(a, total, s.q.inputs, s.shape.head_dim / kPanelOutputs, project, finish);
        return;
    }
    run_panels(a, total, s.q.inputs, project);
    pool_.run(heads, 1, [&](int begin, int end, int) {
        for (int head = begin; head < end; ++head) finish(head);
    });
}

// Copies K and V of the positions of one tile of a tree row, which may lie in any cells, into the scratch, as its tile
// number `gathered`.
void CpuOps::gather_tree_tile(const CpuActivations& a, const CpuKv& kv, int32_t layer, int head, int t, int tile,
                              int gathered, ThreadScratch& scratch) {
    const ModelShape& s = kv.shape;
    const auto& pages = a.batch.sequences[a.batch.rows[t].sequence].pages;
    const int64_t v_stride = CpuKv::v_stride(s);
    std::uint16_t* tile_k = scratch.tree_k.data() + gathered * CpuKv::k_halves(s);
    std::uint16_t* tile_v = scratch.tree_v.data() + gathered * CpuKv::v_halves(s);
    for (int32_t i = 0; i < kPagePositions; ++i) {
        const int32_t position = tile * kPagePositions + i;
        if (position > a.batch.rows[t].position) break;
        const int32_t cell = scratch.cells[static_cast<std::size_t>(position)];
        const int32_t page = pages[cell / kPagePositions], place = cell % kPagePositions;
        const std::uint16_t* k =
            kv.k(layer, page, head) + static_cast<int64_t>(place / 16) * 16 * s.head_dim + place % 16;
        std::uint16_t* to = tile_k + static_cast<int64_t>(i / 16) * 16 * s.head_dim + i % 16;
        for (int32_t d = 0; d < s.head_dim; ++d) to[16 * d] = k[16 * d];
        std::memcpy(tile_v + i * v_stride, kv.v(layer, page, head) + place * v_stride,
                    static_cast<std::size_t>(2 * v_stride));
    }
}

// Cuts the batch's rows into groups that attend together: consecutive positions of one sequence in the same page, as
// many as one call takes, but not so many that threads go without work.
void CpuOps::group_rows(CpuActivations& a, int heads_per_kv, const AttendSpec& spec) const {
    const int count = rows(a);
    const int spread = std::max(1, count * spec.shape.kv_heads / pool_.threads());
    const bool alone = a.batch.tree || spec.window > 0;
    const int most = alone ? 1 : std::min(std::max(1, 2 * kAttendQueries / heads_per_kv), spread);
    a.groups.clear();
    for (int t = 0; t < count; ++t) {
        const Row& row = a.batch.rows[t];
        if (t > 0 && t - a.groups.back() < most) {
            const Row& before = a.batch.rows[t - 1];
            if (row.sequence == before.sequence && row.position == before.position + 1 &&
                row.position % kPagePositions != 0) {
                continue;
            }
        }
        a.groups.push_back(t);
    }
    a.groups.push_back(count);
}

void CpuOps::attend(const Prepared& prepared, Activations& act, const KvPages& pages, int32_t layer) {
    const AttendSpec& spec = static_cast<const AttendStage&>(prepared).spec;
    auto& a = self(act);
    const auto& kv = static_cast<const CpuKv&>(pages);
    const int32_t dh = spec.shape.head_dim, group = spec.shape.heads / spec.shape.kv_heads;
    group_rows(a, group, spec);
    const int groups = static_cast<int>(a.groups.size()) - 1;
    // The heads of a task are whole stretches of inputs with a scale of their own: the task codes them for attention_out.
    a.attended_coded = group * dh % kScaleInputs == 0;
    // A task is one group of rows and one key-value head; consecutive tasks share the head, whose pages then stay in the
    // cache.
    pool_.run(groups * spec.shape.kv_heads, groups > 8 ? 4 : 1, [&](int begin, int end, int thread) {
        ThreadScratch& scratch = a.scratch[static_cast<std::size_t>(thread)];
        for (int task = begin; task < end; ++task) {
            const int head = task / groups, t = a.groups[static_cast<std::size_t>(task % groups)];
            const Row& row = a.batch.rows[t];
            const SequenceView& sequence = a.batch.sequences[row.sequence];
            AttendTask work;
            work.q = a.qkv + t * a.qkv_stride() + static_cast<int64_t>(head) * group * dh;
            work.out = a.attended + t * a.q_stride + static_cast<int64_t>(head) * group * dh;
            work.q_stride = a.qkv_stride();
            work.out_stride = a.q_stride;
            work.rows = a.groups[static_cast<std::size_t>(task % groups) + 1] - t;
            work.heads = group;
            work.head_dim = dh;
            work.first = spec.window > 0 ? std::max(0, row.position - spec.window + 1) : 0;
            work.last = row.position;
            work.scale = spec.scale;
            work.soft_cap = spec.soft_cap;
            scratch.k_tiles.clear();
            scratch.v_tiles.clear();
            // Positions before the batch lie in their own cells even for tree rows.
            const int tiles = work.last / kPagePositions + 1;
            const int in_place = a.batch.tree ? std::min(sequence.length / kPagePositions, tiles) : tiles;
            if (in_place < tiles) {
                attended_cells(a.batch, t, 0, scratch.cells);
                const auto more = static_cast<std::size_t>(tiles - in_place);
                scratch.tree_k.resize(more * static_cast<std::size_t>(CpuKv::k_halves(kv.shape)));
                scratch.tree_v.resize(more * static_cast<std::size_t>(CpuKv::v_halves(kv.shape)));
            }
            for (int tile = work.first / kPagePositions; tile < tiles; ++tile) {
                if (tile < in_place) {
                    const int32_t page = sequence.pages[tile];
                    scratch.k_tiles.push_back(kv.k(layer, page, head));
                    scratch.v_tiles.push_back(kv.v(layer, page, head));
                    continue;
                }
                const int gathered = tile - in_place;
                gather_tree_tile(a, kv, layer, head, t, tile, gathered, scratch);
                scratch.k_tiles.push_back(scratch.tree_k.data() + gathered * CpuKv::k_halves(kv.shape));
                scratch.v_tiles.push_back(scratch.tree_v.data() + gathered * CpuKv::v_halves(kv.shape));
            }
            work.k_tiles = scratch.k_tiles.data();
            work.v_tiles = scratch.v_tiles.data();
            work.scratch = scratch.attend.data();
            isa_.attend(work);
            for (int r = t; r < t + work.rows && a.attended_coded; ++r) {
                a.tiles.fill_codes(isa_, r, a.attended + r * a.q_stride, spec.shape.heads * dh, head * group * dh,
                                   (head + 1) * group * dh);
            }
        }
    });
}

void CpuOps::head(const Prepared& prepared, Activations& act) {
    const auto& s = static_cast<const HeadStage&>(prepared);
    auto& a = self(act);
    const auto count = static_cast<int>(a.batch.logit_rows.size());
    if (count == 0) return;
    const bool floats = is_float(s.matrix.encoding);
    a.tiles.set_rows(count, isa_);
    pool_.run(count, serial_grain(count, a.shape.d_model), [&](int begin, int end, int thread) {
        float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int i = begin; i < end; ++i) {
            isa_.rms_norm(a.x + a.batch.logit_rows[i] * a.d_stride, s.norm.weight.data(), s.norm.eps, a.shape.d_model,
                          normed);
            a.tiles.fill(isa_, i, normed, a.shape.d_model, !floats, floats);
        }
    });
    run_panels(a, s.matrix.panels, s.matrix.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.matrix, begin, end), a.tiles.tile(i), a.logits + a.tiles.first_row(i) * a.vocab_stride,
                        a.vocab_stride, Store::set);
        }
    });
    if (s.scale == 1.0f && s.soft_cap <= 0) return;
    for (int i = 0; i < count; ++i) {
        for (float& logit : logits(a, i)) {
            logit *= s.scale;
            if (s.soft_cap > 0) logit = s.soft_cap * std::tanh(logit / s.soft_cap);
        }
    }
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
    std::string isa = options.isa;
    if (isa.empty()) {
        if (const char* forced = std::getenv("FORESAY_CPU_ISA")) isa = forced;
    }
    const int threads = options.threads > 0 ? options.threads : cpu::usable_cores();
    return std::make_unique<cpu::CpuOps>(threads, cpu::select_isa(isa));
}

}  // namespace foresay::kernels
