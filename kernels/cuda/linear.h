// kernels/cuda/linear.h: everything that reads weight matrices on the device: one class per fused op.
//
// Layout:   activations are float32, row-major, one row per row of the batch, without padding: x [T, D],
//           q and attended [T, H*Dh], ff [T, F], logits [T, V]. K and V go to the cache as float16, as Io
//           says. Weights are in panels (kernels/cuda/weights/panels.h), packed once by the constructor of an op.
// Precision: activations of quantised matrices become float16 after scaling by a power of two per row and slice of
//           inputs; products are exact and are summed in float32.
// Law 1:    for one op and one row class, what is computed for a row depends on that row alone, bit for bit: never on
//           `rows` or on the neighbours. Prefill rows have a path of their own
//           (kernels/cuda/prefill/prefill_matrix.h) where there is cuBLASLt and a workspace; else, and in the LM head,
//           which has few rows, they run through the decode kernels.
// Threads:  launch() enqueues on the stream and may be captured into a graph: every parameter of a launch is a fixed
//           address or a constant of the capture.
// Overlap:  every kernel lets its successor start early (programmatic dependent launch) and begins with the loading of
//           weights, before it waits for its predecessor. So no kernel before it on the stream may write weights, norms
//           or biases; and each kernel between two of these, if launched as a dependent, must itself call
//           griddepcontrol.wait before it reads or writes what others share.
//           Its CTAs wait for each other, so launches of one device are on one stream at a time.
// Cost:     constructors copy and repack the weights and wait. launch() of decode rows reads the weights once per 16
//           rows (packed rows: 8), or per 8 or 4 where activations would leave no room for weights; with
//           LinearCall::mixed, once for 17 rows and more (packed rows: 9), by kernels/cuda/mixed_gemm/mixed_gemm.h.
// Errors:   constructors throw Error (no memory, shapes that panels cannot hold). launch() throws Error when a kernel
//           cannot be launched.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <memory>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.h"
#include "kernels/cuda/prefill/prefill_matrix.h"
#include "kernels/cuda/rowwise/norms.h"
#include "kernels/cuda/weights/panels.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// Rows of one launch of the decode kernel that share one reading of the weights.
inline constexpr int kDecodeTile = 16;

// Memory for prefill; empty where there is no cuBLASLt. One op at a time uses it.
class PrefillWorkspace {
public:
    struct State;

    PrefillWorkspace();
    // Large enough for `max_rows` rows of every op of `shape`.
    PrefillWorkspace(const ModelShape& shape, std::int32_t max_rows);
    // The same, in memory that the workspaces of one stream share: `shared`, which grows, is made where there is none,
    // and goes with the last of them.
    PrefillWorkspace(const ModelShape& shape, std::int32_t max_rows, std::weak_ptr<State>& shared);
    ~PrefillWorkspace();
    PrefillWorkspace(PrefillWorkspace&&) noexcept;
    PrefillWorkspace& operator=(PrefillWorkspace&&) noexcept;
    static std::int64_t bytes(const ModelShape& shape, std::int32_t max_rows);
    // Forgets what an op has left for the next one of a forward that was given up.
    void discard() noexcept;

    State* state() const { return state_.get(); }

private:
    std::shared_ptr<State> state_;
};

// Decode ops that follow one another without anything in between run as one kernel, up to a whole forward: launches
// given a sequence wait in it until flush(), which is due before anything else is enqueued on the stream. They flush by
// themselves when they cannot join what is waiting.
class LinearSequence {
public:
    LinearSequence();
    ~LinearSequence();
    LinearSequence(LinearSequence&&) noexcept;
    LinearSequence& operator=(LinearSequence&&) noexcept;
    void flush();
    // Forgets what waits.
    void discard() noexcept;
    // Attention of decode rows, after the ops that wait. False: it must be launched on its own, after a flush().
    bool attend(const AttendCall& call);
    // The sum of a branch and the residual stream, likewise.
    bool add_rows(const AddRowsCall& call);

    struct State;
    State* state() const { return state_.get(); }

private:
    std::unique_ptr<State> state_;
};

// What every launch needs.
struct LinearCall {
    cudaStream_t stream = nullptr;
    std::int32_t rows = 0;
    RowClass row_class = RowClass::decode;
    PrefillWorkspace* workspace = nullptr;  // for prefill rows
    bool overlap = true;                    // launch as a programmatic dependent of what was enqueued before
    LinearSequence* sequence = nullptr;     // null: launch at once
    const MixedScratch* mixed = nullptr;    // for many decode rows; null: the decode kernel takes them
};

// A norm's weights as the kernels want them: float32, plus_one already added.
struct DeviceNorm {
    DeviceBuffer<float> weight;  // [n]; empty: absent
    DeviceBuffer<float> bias;    // [n] or empty
    float eps = 0;
    bool centered = false;  // LayerNorm
    DeviceNorm() = default;
    explicit DeviceNorm(const NormSpec& spec);
    bool empty() const { return weight.empty(); }
    RowNorm row_norm() const { return {weight.data(), bias.data(), eps, centered}; }
};

// The norm of the inputs as the matrix kernels can apply it; empty where they cannot (LayerNorm): then the caller norms
// the rows first (launch_norm).
inline NormSpec fused_norm(const NormSpec& spec) { return spec.kind == NormKind::rms ? spec : NormSpec{}; }
inline NormSpec row_norm(const NormSpec& spec) { return spec.kind == NormKind::rms ? NormSpec{} : spec; }

// A vector of a model file as float32; empty when the view is.
DeviceBuffer<float> device_vector(const TensorView& view);

class AttentionInLinear {
public:
    // `whole`, here and below: what the op is a part of, for prefill rows (PrefillMatrix).
    explicit AttentionInLinear(const AttentionInSpec& spec, WholeStack whole = {});

    struct Io {
        const float* x = nullptr;  // [T, D]
        // Without per-head norms the op writes its final results: rotated queries, and K and V into the cache.
        float* q = nullptr;    // [T, H*Dh]
        __half* kv = nullptr;  // of this layer; row t, head h, value d of K at cell[t] + h * head_stride + key_value(d)
        const std::int64_t* cell = nullptr;    // [T] on the device, in elements
        const std::int64_t* v_cell = nullptr;  // likewise of V, with value_value(d) (KvLayout)
        std::int64_t head_stride = 0;          // elements from a head to the next
        const float2* rope = nullptr;          // [T, pairs]: cos and sin, times the attention factor; null without rope
        // When set, K and V go here instead of into the cache, rotated.
        float* new_kv = nullptr;  // [T, 2 Hkv * Dh]: k, v
        // When set, the projections with their biases go here instead, and nothing else is written.
        float* raw = nullptr;  // [T, (H + 2 Hkv) * Dh]: q, k, v
    };
    void launch(const LinearCall& call, const Io& io) const;
    bool has_head_norms() const { return head_norms_; }  // of q, k or v: then `raw` must be set
    bool has_kv() const { return shape_.kv_heads > 0; }
    std::int64_t bytes() const;

private:
    ModelShape shape_;  // without key-value heads where the layer has none of its own
    DeviceNorm norm_;
    Panels panels_;
    PrefillMatrix input_;
    DeviceBuffer<float> bias_;  // [(H + 2 Hkv) * Dh] or empty
    bool head_norms_ = false;
    RopePairs pairs_ = RopePairs::none;
    std::int32_t rotated_ = 0;  // values per head that rope rotates
};

// One matrix: those of attention_out and mlp_out, and any other one by its raw sums.
class OutLinear {
public:
    OutLinear() = default;  // no matrix
    explicit OutLinear(const AttentionOutSpec& spec);
    explicit OutLinear(const MlpOutSpec& spec, WholeStack whole = {});
    explicit OutLinear(const TensorView& matrix, const TensorView& bias = {}, float scale = 1.0f,
                       WholeStack whole = {});

    struct Io {
        const float* input = nullptr;  // [T, inputs]
        float* x = nullptr;            // [T, outputs]: x += scale * (W input + bias)
        float* raw = nullptr;    // [T, outputs]: when set, W input + bias goes here and x is untouched (post norms)
        std::int32_t first = 0;  // of linked ranks: which value of the whole row the first output is
    };
    void launch(const LinearCall& call, const Io& io) const;
    std::int64_t bytes() const;
    const PrefillMatrix& input() const { return input_; }

private:
    Panels panels_;
    PrefillMatrix input_;
    DeviceBuffer<float> bias_;
    float scale_ = 1.0f;
};

class MlpInLinear {
public:
    explicit MlpInLinear(const MlpInSpec& spec, WholeStack whole = {});

    struct Io {
        const float* x = nullptr;  // [T, D]
        float* ff = nullptr;       // [T, F]
        // The next op of the same workspace, if it alone reads ff: prefill rows may then go to it in the form that it
        // multiplies, and `ff` is not written.
        const OutLinear* reader = nullptr;
        std::int32_t first = 0;  // as in OutLinear
    };
    void launch(const LinearCall& call, const Io& io) const;
    std::int64_t bytes() const;

private:
    DeviceNorm norm_;
    Panels panels_;
    PrefillMatrix input_;
    DeviceBuffer<float> bias_;  // [packed rows] or empty
    Activation activation_ = Activation::silu;
    float limit_ = 0.0f;
    bool gated_ = true;
};

class LmHeadLinear {
public:
    explicit LmHeadLinear(const LmHeadSpec& spec);

    struct Io {
        const float* x = nullptr;           // [T, D]
        const std::int32_t* row = nullptr;  // [rows] on the device: which row of x; null: row i
        float* logits = nullptr;            // [rows, logit_stride]
        std::int64_t logit_stride = 0;      // elements
    };
    void launch(const LinearCall& call, const Io& io) const;
    std::int64_t bytes() const;

private:
    DeviceNorm norm_;
    Panels panels_;
    float scale_ = 1, soft_cap_ = 0;
};

}  // namespace foresay::kernels::cuda
