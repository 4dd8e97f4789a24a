// kernels/cpu/cpu_ops.h: the CPU backend's Ops. prepare.cpp packs the weights, attention.cpp has attention_in and
// attend, moe.cpp experts, per_layer.cpp per-layer embeddings, share.cpp what layers shared by several backends need,
// and cpu_ops.cpp every other op.
//
// Data flow: a linear op first quantises (or copies) the rows that it reads into ActivationTiles, then multiplies
//           panels of weights (panels.h) with the tiles through the kernels of the chosen instruction set
//           (isa_kernels.h). Where one op's output is the next op's input, the thread that finishes a part of it
//           quantises it at once (run_parts); attended_coded and ff_coded record that.
// Threads:  as in kernels/ops.h; an op runs on the backend's own thread pool.
// Cost:     an op is one or two parallel loops. A forward allocates nothing, except for contexts beyond kPagesReserved
//           pages.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/packed_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/layer_share.h"

namespace foresay::kernels::cpu {

using std::int32_t;
using std::int64_t;

// Up to this many values, the caller fills the tiles alone: waking the pool would cost more.
constexpr int64_t kSerialValues = 2048;
// Panels that a thread takes at a time when there are several tiles of rows: the weights stay in its cache from one
// tile to the next.
constexpr int kPanelGrain = 4;
// With one tile: inputs times rows that a thread takes at a time, a few tenths of a microsecond of work.
constexpr int64_t kUnitInputs = 4096;
// The widest attention head.
constexpr int kMaxHeadDim = 1024;

struct RopeTable {
    RopePairs pairs;
    std::vector<float> inverse_frequency;
    float attention_factor;
};

// Panels [begin, end) of a matrix.
inline PanelRange range(const PanelMatrix& m, int begin, int end) {
    PanelRange range{m.type, m.panel(0), m.panel_bytes, is_float(m.quant_type) ? static_cast<int>(m.inputs) : m.blocks,
                     begin,  end,        m.packed};
    range.packed.kinds = m.kinds_of_groups.data();
    return range;
}

// The order in which those of an op's matrices that have one read their inputs. CpuOps::pack() sees to it that they
// agree.
inline std::span<const int32_t> order_of(std::initializer_list<const PanelMatrix*> matrices) {
    for (const PanelMatrix* m : matrices) {
        if (!m->order.empty()) return m->order;
    }
    return {};
}

class CpuOps final : public Ops, public LayerShare {
public:
    CpuOps(int threads, const IsaKernels& isa) : pool_(threads), isa_(isa) {}
    ThreadPool& pool() { return pool_; }

    BackendInfo describe() const override;
    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override;
    // A sum does not depend on how many there are.
    std::unique_ptr<PreparedOp> prepare_part(const AttentionInSpec& spec, Whole) override { return prepare(spec); }
    std::unique_ptr<PreparedOp> prepare_part(const MlpInSpec& spec, Whole) override { return prepare(spec); }
    std::unique_ptr<PreparedOp> prepare_part(const MlpOutSpec& spec, Whole) override { return prepare(spec); }
    std::unique_ptr<PreparedOp> prepare_finish(const MlpOutSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare_experts(const MoeSpec& spec, Part experts) override;
    std::unique_ptr<PreparedOp> prepare_expert_sum(const MoeSpec& spec) override;
    int64_t kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const override;
    std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) override;
    std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                  int32_t max_logit_rows) override;
    void copy_page(KvPages& pages, int32_t from, int32_t to) override;
    void read_page(KvPages& pages, int32_t page, std::span<std::byte> to) override;
    void write_page(KvPages& pages, int32_t page, std::span<const std::byte> from) override;
    void begin(Workspace& workspace, const Batch& batch) override;
    void embed(const PreparedOp& prepared, Workspace& workspace) override;
    void attention_in(const PreparedOp& prepared, Workspace& workspace, KvPages& pages, int32_t layer) override;
    void attend(const PreparedOp& prepared, Workspace& workspace, const KvPages& pages, int32_t layer) override;
    void attention_out(const PreparedOp& prepared, Workspace& workspace) override;
    void mlp_in(const PreparedOp& prepared, Workspace& workspace) override;
    void mlp_out(const PreparedOp& prepared, Workspace& workspace) override;
    void moe(const PreparedOp& prepared, Workspace& workspace) override;
    void read_values(Workspace& workspace, Values values, int64_t width, std::span<float> to) override;
    void write_values(Workspace& workspace, Values values, int64_t width, std::span<const float> from) override;
    void clear_rows(Workspace& workspace) override;
    void per_layer_embed(const PreparedOp& prepared, Workspace& workspace) override;
    void per_layer(const PreparedOp& prepared, Workspace& workspace) override;
    void lm_head(const PreparedOp& prepared, Workspace& workspace) override;
    void sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) override;
    SampledToken sampled(Workspace& workspace, int32_t slot) override { return self(workspace).slots[slot]; }
    Candidates candidates(Workspace& workspace, int32_t slot) override;

    std::span<float> logits(Workspace& workspace, int32_t i) override;
    std::span<const float> residual(Workspace& workspace, int32_t t) override;
    void read_rows(Workspace& workspace, std::span<float> to) override;
    void write_rows(Workspace& workspace, std::span<const float> from) override;

private:
    static CpuWorkspace& self(Workspace& workspace) { return static_cast<CpuWorkspace&>(workspace); }
    static int rows(const CpuWorkspace& a) { return static_cast<int>(a.batch.rows.size()); }

    static int serial_grain(int rows, int64_t values_per_row) {
        return rows * values_per_row <= kSerialValues ? rows : 1;
    }

    // Runs body(begin, end) over ranges of `panels` panels with `inputs` inputs: small enough to balance the threads,
    // large enough to be worth taking.
    template <class Body>
    void run_panels(const CpuWorkspace& a, int panels, int64_t inputs, const Body& body) {
        const int share = std::max(1, panels / (pool_.threads() * 8));
        const auto wanted = static_cast<int>(kUnitInputs / (inputs * a.tiles.tile(0).rows));
        const int grain = a.tiles.tiles() > 1 ? kPanelGrain : std::clamp(wanted, 1, share);
        pool_.run(panels, grain, [&](int begin, int end, int) { body(begin, end); });
    }

    // The same with an epilogue per part of `part` panels (an attention head, or the kScaleInputs outputs that share a
    // scale). The thread that finishes the last panel of part i runs epilogue(i) at once, which saves a second loop and
    // its barrier.
    template <class Body, class Epilogue>
    void run_parts(CpuWorkspace& a, int panels, int64_t inputs, int part, const Body& body, const Epilogue& epilogue) {
        for (int i = 0; i * part < panels; ++i)
            a.finished[static_cast<std::size_t>(i)].store(0, std::memory_order_relaxed);
        run_panels(a, panels, inputs, [&](int begin, int end) {
            body(begin, end);
            for (int i = begin / part; i * part < end; ++i) {
                const int first = i * part, last = std::min(first + part, panels);
                const int own = std::min(last, end) - std::max(first, begin);
                const int before = a.finished[static_cast<std::size_t>(i)].fetch_add(own, std::memory_order_acq_rel);
                if (before + own == last - first) epilogue(i);
            }
        });
    }

    // Fills `tiles` with the activations of the next linear op: rows of `source`, normed if `norm` is not empty, as
    // int8 codes, float32, or both.
    void fill_tiles(CpuWorkspace& a, ActivationTiles& tiles, const float* source, int64_t stride, int inputs,
                    const Norm& norm, bool codes, bool floats, std::span<const int32_t> order = {});
    // y[n] = norm of x[n] with the weights from `first` on. In place where x == y.
    void apply_norm(const Norm& norm, const float* x, int n, float* y, int first = 0) const;
    // The id of row t's token, clamped to a table of `rows` rows.
    static int64_t token_of(const CpuWorkspace& a, int t, int64_t rows);
    void mlp_in_apart(const MlpInOp& s, CpuWorkspace& a);
    void fill_projection_tiles(const ProjectionOp& s, CpuWorkspace& a, ActivationTiles& tiles, const float* input,
                               int64_t stride);
    void add_projection(const ProjectionOp& s, CpuWorkspace& a, const ActivationTiles& tiles);
    // The rest of it, where the products do not go to x as they are.
    void finish_projection(const ProjectionOp& s, CpuWorkspace& a);
    std::unique_ptr<MoeOp> prepare_mixture(const MoeSpec& spec);
    // x = stream_scale * (x + scale * y) for row t.
    static void add_row(CpuWorkspace& a, int t, const float* y, float scale, float stream_scale);
    void route(const MoeOp& s, CpuWorkspace& a);
    void group_slots(const MoeOp& s, CpuWorkspace& a) const;
    template <class Body>
    void run_experts(const CpuWorkspace& a, const PanelMatrix& matrix, const Body& body);
    void multiply_experts(const MoeOp& s, CpuWorkspace& a);
    void add_experts(const MoeOp& s, CpuWorkspace& a);
    PanelMatrix pack(const TensorView& tensor) {
        return tensor.empty() ? PanelMatrix{} : cpu::pack(tensor, arena_, pool_);
    }
    // A matrix that reads the same tiles as `others`. If one of them wants their codes in another order, a matrix that
    // has an order becomes float32.
    PanelMatrix pack(const TensorView& tensor, std::initializer_list<const TensorView*> others);
    int rope_table(const RopeSpec& spec);
    const RowAngles& angles(CpuWorkspace& a, int table);
    void rotate(const CpuWorkspace& a, int table, int t, float* head) const;
    void group_rows(CpuWorkspace& a, int heads_per_kv, const AttendSpec& spec) const;
    void finish_head(const AttentionInOp& s, CpuWorkspace& a, const CpuKvLayer& kv, int head, int t);
    void norm_projections(const AttentionInOp& s, CpuWorkspace& a);
    void store_key(const CpuKvLayer& kv, std::uint8_t* keys, int32_t place, float* x) const;
    void store_value(const CpuKvLayer& kv, std::uint8_t* values, int32_t place, float* x) const;
    void gather_tree_tile(const CpuWorkspace& a, const CpuKvLayer& kv, int head, int t, int tile, int gathered,
                          ThreadScratch& scratch);

    ThreadPool pool_;
    const IsaKernels& isa_;
    Arena arena_;
    std::vector<RopeTable> ropes_;
};

}  // namespace foresay::kernels::cpu
