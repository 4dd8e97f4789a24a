// kernels/reference/reference_ops.h: the specification of every op in plain loops. Tests compare each backend with it.
// Each op has a file in this folder, with its prepare() and its forward.
//
// Layout:   weights and KV cache in float32; the cache holds what its format would give back.
// Precision: float32 activations, sums in double precision (kernels/reference/arrays.h).
// Threads:  one.
// Cost:     slow on purpose.
#pragma once

#include <memory>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/reference/arrays.h"
#include "kernels/sampling.h"

namespace foresay::kernels::reference {

struct ReferenceKv : KvPages {
    std::vector<Floats> k, v;  // of each layer: [pages, kPagePositions, Hkv, Dh]

    // Where the key and the value of a head lie in their layer.
    int64_t offset(int32_t layer, int32_t page, int32_t position, int32_t head) const {
        const KvLayer& of = shape.layers[static_cast<std::size_t>(layer)];
        return ((static_cast<int64_t>(page) * kPagePositions + position) * of.heads + head) * of.head_dim;
    }
};

struct ReferenceWorkspace : Workspace {
    Batch batch;
    Floats x, q, attended, ff, scratch, logits;  // [T, D], [T, H*Dh], [T, H*Dh], [T, F], one row, [logit rows, V]
    Floats branch, per_layer;                    // [T, D] that moe kept, [T, L*P]
    HostSlots slots;
};

// Row t of an array whose rows have `width` values.
inline float* row(Floats& values, std::size_t t, int64_t width) {
    return values.data() + static_cast<int64_t>(t) * width;
}

class ReferenceOps final : public Ops {
public:
    BackendInfo describe() const override { return {"reference", "plain loops, double sums", 1}; }

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
    void per_layer_embed(const PreparedOp& prepared, Workspace& workspace) override;
    void per_layer(const PreparedOp& prepared, Workspace& workspace) override;
    void lm_head(const PreparedOp& prepared, Workspace& workspace) override;

    void sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) override;
    SampledToken sampled(Workspace& workspace, int32_t slot) override;
    Candidates candidates(Workspace& workspace, int32_t slot) override;
    std::span<float> logits(Workspace& workspace, int32_t i) override;
    std::span<const float> residual(Workspace& workspace, int32_t t) override;
    void read_rows(Workspace& workspace, std::span<float> to) override;
    void write_rows(Workspace& workspace, std::span<const float> from) override;

private:
    // The token of row t, clamped to a table of `rows` rows.
    static int64_t token_of(ReferenceWorkspace& a, std::size_t t, int64_t rows);
    static ReferenceWorkspace& self(Workspace& workspace) { return static_cast<ReferenceWorkspace&>(workspace); }

    template <class Op, class Spec>
    static std::unique_ptr<PreparedOp> make(const Spec& spec) {
        check_op(spec);
        auto op = std::make_unique<Op>(spec);
        count_work(spec, *op);
        return op;
    }
};

}  // namespace foresay::kernels::reference
