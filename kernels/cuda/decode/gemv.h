// kernels/cuda/decode/gemv.h: the parameters of the decode kernel (gemv.cuh): the steps of a launch, what they have in
// common, and the layout of shared memory.
//
// Terms:    a step is one matrix stack or one attention of one layer. An op is what steps of all layers share, so that
//           660 steps fit into the 32,764 bytes of kernel parameters: a step has addresses, its op has everything else.
//           A part is a piece of K (the inputs) where K is split between CTAs.
// Errors:   plan_gemv returns false where shared memory does not suffice. launch_gemv throws Error.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/decode/rank_link.h"
#include "kernels/cuda/weights/panels.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// Multiplying warps of a CTA; each has its own slice of K. K-quants have fewer: their products want more registers, and
// their blocks are so large that a chunk with one block for each of 16 warps would leave room for hardly any.
constexpr int gemv_warps(QuantType quant_type) {
    switch (quant_type) {
        case QuantType::q4_k:
        case QuantType::q5_k:
        case QuantType::q6_k:
            return 8;
        default:
            return 16;
    }
}
// Types of which several may be steps of one launch: they are multiplied by the same number of warps, in blocks and
// chunks of the same number of inputs.
inline constexpr QuantType kSmallestOfMix = QuantType::q4_k, kMiddleOfMix = QuantType::q5_k,
                           kLargestOfMix = QuantType::q6_k;
constexpr bool share_launch(QuantType a, QuantType b) {
    const auto mixes = [](QuantType e) { return e == kSmallestOfMix || e == kMiddleOfMix || e == kLargestOfMix; };
    return a == b || (mixes(a) && mixes(b));
}
// Threads of a CTA: the multiplying warps, one producer warp and the epilogue warps.
inline constexpr int kEpilogueWarps = 3;
constexpr int gemv_threads(QuantType quant_type) { return 32 * (gemv_warps(quant_type) + 1 + kEpilogueWarps); }
// Whether multiprocessors have 100 KiB of shared memory and not 164 or 228, by the architecture that code is compiled
// for. Kernels know theirs, hosts ask (GemvScratch). FORESAY_LITTLE_SHARED: as if they all had, to test that elsewhere.
inline constexpr std::size_t kLittleSharedBytes = 99 * 1024;  // of which a CTA can have this
constexpr bool has_little_shared(int architecture) {
#ifdef FORESAY_LITTLE_SHARED
    return architecture > 0;
#else
    return architecture == 86 || architecture == 89 || (architecture >= 120 && architecture < 130);
#endif
}
#ifdef __CUDA_ARCH__
inline constexpr bool kLittleShared = has_little_shared(__CUDA_ARCH__ / 10);
#else
inline constexpr bool kLittleShared = false;  // unused on the host, which plans with GemvScratch::little_shared
#endif
// Blocks of a panel that are one copy (a chunk). A multiple of the number of warps, or a divisor of it. In the second
// case only some warps have a block in a chunk, but all of them wait for it, so it is for blocks so large that few
// chunks of the first kind would fit.
constexpr int chunk_blocks(QuantType quant_type, int row_tiles, bool little_shared) {
    switch (quant_type) {
        case QuantType::q4_0:
        case QuantType::mxfp4:
            return row_tiles == 1 && !little_shared ? 32 : 16;
        case QuantType::q8_0:
            return little_shared ? 8 : 16;
        case QuantType::f16:
        case QuantType::bf16:
            return row_tiles == 1 && !little_shared ? 8 : 4;
        default:
            return little_shared ? 4 : 8;
    }
}
inline constexpr int kMaxRingSlots = 16;  // of the ring
inline constexpr int kMaxSumBuffers = 8;  // of panel sums
// What shared memory begins with. The slots of the ring follow, then what GemvPlan places.
struct alignas(128) GemvHeader {
    std::uint64_t slot_barriers[kMaxRingSlots][2];  // mbarriers of each slot of the ring: full, empty
    std::uint64_t sum_barriers[kMaxSumBuffers][2];  // of each buffer of panel sums: full, read
    std::uint32_t ring_states[16][2];               // where each multiplying warp is in the ring, between steps
    std::uint32_t step_state[16];                   // StepState
    float norm_factors[16];                         // of each row, for the epilogue warps
    std::uint8_t attend_calls[512];                 // GemvArgs::attends, for code that takes any of them
    std::uint8_t attend_units[1920];                // what attention knows of its units (UnitDescriptors of each group)
    std::uint8_t cta_shares[512];                   // CtaShare of each of GemvArgs::ops
};
inline constexpr int kCopyBarrierBytes = offsetof(GemvHeader, sum_barriers);
inline constexpr int kRingStatesAt = offsetof(GemvHeader, ring_states);
inline constexpr int kStepStateAt = offsetof(GemvHeader, step_state);
inline constexpr int kNormFactorsAt = offsetof(GemvHeader, norm_factors);
inline constexpr int kAttendCallsAt = offsetof(GemvHeader, attend_calls);
inline constexpr int kAttendUnitsAt = offsetof(GemvHeader, attend_units);
inline constexpr int kCtaSharesAt = offsetof(GemvHeader, cta_shares);
inline constexpr int kGemvHeaderBytes = sizeof(GemvHeader);
static_assert(kStepStateAt == 512 && kAttendCallsAt == 640 && kGemvHeaderBytes == 3584);
static_assert(kGemvHeaderBytes % 128 == 0, "copies to elsewhere in a line of shared memory take a fifth longer");
// The most inputs that one CTA takes; wider matrices are split between CTAs (split K). Changing it changes the order of
// sums, and so the bits of every text.
inline constexpr int kSplitInputs = 4096;
inline constexpr int kScratchCounters = 4;  // of a device, by GridCounter

// What becomes of a pair of sums (packed rows 2i, 2i + 1) of a row of the batch. attention_in_new_kv: K and V go to
// EpilogueArgs::new_kv, for a cache of codes, which needs whole heads. mlp_up: a feed-forward network without a gate.
enum class Epilogue : std::uint8_t { attention_in, attention_in_new_kv, out, mlp_in, mlp_up, head };

struct EpilogueArgs {
    Epilogue kind = Epilogue::out;
    Activation activation = Activation::silu;  // mlp_in, mlp_up
    std::int32_t first_row = 0;                // of the stack: where this part begins
    std::int32_t rows = 0;                     // of this part, without padding
    std::int32_t first_output = 0;             // of a rank's part: which value of the whole row is its first
    float* out = nullptr;                      // x (added to), ff, logits, or q
    const float* residual = nullptr;           // out: what is added to
    float* raw = nullptr;         // attention_in, out: sums with their biases, row by row; nothing else is written then
    std::int64_t out_stride = 0;  // elements between rows of the batch; of raw when that is set
    float scale = 1.0f;           // out, head: multiplies the sums with their biases; add_rows
    float stream_scale = 1.0f;    // add_rows
    float soft_cap = 0.0f;        // head
    float limit = 0.0f;           // mlp_in: of clamped_swiglu
    // attention_in
    std::int32_t query_rows = 0, kv_rows = 0;  // of the stack
    std::int32_t head_dim = 1, rotated = 0;
    std::uint32_t head_inverse = 0;        // quotient_by() head_dim
    bool half_split = false;               // which rows of a head are neighbours
    const float2* rope = nullptr;          // [T, rotated / 2]
    const std::int64_t* cell = nullptr;    // [T]
    const std::int64_t* v_cell = nullptr;  // [T]
    std::int64_t head_stride = 0;
    float* new_kv = nullptr;  // [T, K | V of all heads]: where K and V go instead of into the cache

    FORESAY_HOST_DEVICE float* target() const { return raw != nullptr ? raw : out; }
    bool operator==(const EpilogueArgs&) const = default;
};

// Attention (kernels/cuda/attention/decode_attention.cuh) runs between matrices, so that a launch can be a whole
// forward.
// add_rows is AddRowsCall (kernels/cuda/rowwise/norms.h): x is y, epilogue.residual and epilogue.out are x, the step's
// norm is the post norm.
enum class OpKind : std::uint8_t { matrix, attend, add_rows };

// What steps of a launch can have in common: everything but the addresses of a layer.
struct GemvOp {
    OpKind kind = OpKind::matrix;
    QuantType quant_type = QuantType::f32;  // of the matrix, in a launch of several types (share_launch())
    std::int32_t attend = 0;                // which of GemvArgs::attends
    // Whether what the step reads (x, epilogue.residual) and writes (epilogue.target(), or the out of an attention) are
    // flagged words. Then the pointers are those into buffer 0 (GemvPlan::flagged).
    bool x_flagged = false, residual_flagged = false, out_flagged = false;
    bool resets_buffers = false;  // resets words of buffers that all CTAs are through with
    std::int32_t panel_count = 0;
    std::int32_t blocks = 0;  // per panel
    std::int32_t inputs = 0;
    const float* x = nullptr;           // [T, inputs]
    const std::int32_t* row = nullptr;  // which row of x; null: row i
    float eps = 0;
    float inputs_inverse = 0;  // 1 / inputs
    EpilogueArgs epilogue;
    // Set by the plan. Division is slow on the device, so the shares of CTAs come as quotient and remainder.
    std::int32_t split = 1;                         // parts that K is split into
    std::int32_t members = 0;                       // CTAs of each part
    std::int32_t panels_each = 0, panels_more = 0;  // of a member
    std::int32_t blocks_each = 0, blocks_more = 0;  // of a part
    std::int64_t partials_at = 0;                   // where its sums lie in GemvPlan::partials

    bool operator==(const GemvOp&) const = default;
};

// What a step has of its own: the addresses of its layer.
struct GemvStep {
    const std::uint8_t* panels = nullptr;  // attend: AttendLayer::k_norm
    const float* norm = nullptr;           // [inputs]; null: none. attend: AttendLayer::q_norm
    const float* bias = nullptr;           // [rows of the stack]; null: none. attend: AttendLayer::sinks
    __half* kv = nullptr;                  // attention_in, attend: of the layer
    std::uint8_t op = 0;                   // which of GemvArgs::ops
    std::uint8_t x_buffer = 0, residual_buffer = 0, out_buffer = 0;

    // A step of attention: as small as that of a matrix, whose members it uses.
    static GemvStep attend(const AttendCall& call) {
        return {.panels = reinterpret_cast<const std::uint8_t*>(call.k_norm),
                .norm = call.q_norm,
                .bias = call.sinks,
                .kv = const_cast<__half*>(call.kv)};
    }
    FORESAY_HOST_DEVICE AttendLayer attend_layer(float* out) const {
        return {kv, out, bias, norm, reinterpret_cast<const float*>(panels)};
    }
};

// Activations that the steps of whole layers pass on lie in kFlaggedBuffers buffers of flagged words
// (flagged_words.cuh). Layer l uses buffer l % 3: [x after mlp_out | attended | x after attention_out | ff], and where
// there are post norms [branch of attention_out | branch of mlp_out].
// Who resets: the attention_out of layer l + 1 resets what layer l left, because a CTA that is there knows that all
//           CTAs have passed the projections of layer l + 1 (attention waits for their counter), and so have read all
//           that came before. What attention_out adds to, the x after mlp_out, is read later than that, so it is reset
//           one layer later still.
// Who waits: the attention_in after that arrives with a release, and every CTA waits for every attention_in. So the
//           words are kNotReady again before the buffer is used again, two layers on. With two buffers a fast CTA could
//           write a word that a slow one has yet to reset.
inline constexpr int kFlaggedBuffers = 3;

// Set by the plan. Offsets and sizes of shared memory are in bytes, from its start.
struct GemvPlan {
    std::int32_t ring_slots = 0;                           // of the copy ring
    std::int32_t upper_rows_at = 0, upper_rows_bytes = 0;  // rows 8 to 15 of the activations; bytes: of one warp
    std::int32_t sums_at = 0, sum_buffers = 1, row_stats_at = 0, shared_bytes = 0;  // attention uses the sums' memory
    // Worked out here, because in the kernel it would take registers.
    std::uint32_t sum_buffer_mask = 0;  // sum_buffers - 1
    std::int32_t warp_sum_stride = 0;   // floats from one warp's sum buffers to the next warp's
    std::uint32_t rows_inverse = 0;     // quotient_by() the rows
    bool splits = false;                // some matrix is split
    bool apart = true;                  // and the split sums of each have a place of their own
    std::uint32_t shared_start = 0;     // the address of its start
    std::uint32_t* counters = nullptr;  // by GridCounter
    const float* zeros = nullptr;       // four of them
    float* partials = nullptr;
    float* flagged = nullptr;         // kFlaggedBuffers times [x after mlp_out | the others]; null: nothing is flagged
    std::int32_t buffer_floats = 0;   // of one buffer
    std::int32_t mlp_out_floats = 0;  // of mlp_out's outputs, which come first
};

inline constexpr int kAttendShared = 22 * 1024;  // of a CTA, for attention
inline constexpr int kMaxGemvOps = 16;           // different ones of a launch
inline constexpr int kMaxAttendKinds = 2;        // likewise
inline constexpr int kFewSteps = 4;              // what most launches take
inline constexpr int kManySteps = 660;           // a whole forward; parameters of a kernel are 32,764 bytes at most

// The parameters of a launch, with room for `Steps` steps.
template <int Steps>
struct GemvArgs {
    static_assert(kMaxAttendKinds * sizeof(AttendCall) <= kAttendUnitsAt - kAttendCallsAt);
    static constexpr bool kAttends = Steps > kFewSteps;  // has the code for attention
    static constexpr bool kLinked = false;               // values go to other GPUs as well
    GemvOp ops[kMaxGemvOps];
    AttendCall attends[kMaxAttendKinds];
    GemvPlan plan;
    std::int32_t op_count = 0, attend_count = 0;
    std::int32_t steps = 0;
    std::int32_t rows = 0;  // T, at most 16
    GemvStep step[Steps];

    FORESAY_HOST_DEVICE const GemvOp& op(int i) const { return ops[step[i].op]; }
    // Floats from buffer 0 to the buffer of a step.
    FORESAY_HOST_DEVICE std::int64_t flagged_offset(bool flagged, std::uint8_t buffer) const {
        return flagged ? std::int64_t{plan.buffer_floats} * buffer : 0;
    }
};
inline GemvArgs<kFewSteps> few_steps(const GemvArgs<kManySteps>& many) {
    GemvArgs<kFewSteps> few;
    std::copy(std::begin(many.ops), std::end(many.ops), few.ops);
    std::copy(std::begin(many.attends), std::end(many.attends), few.attends);
    few.plan = many.plan;
    few.op_count = many.op_count;
    few.attend_count = many.attend_count;
    few.steps = many.steps;
    few.rows = many.rows;
    std::copy_n(many.step, many.steps, few.step);
    return few;
}

// For a rank's part of all layers (rank_link.h).
struct LinkedArgs : GemvArgs<kManySteps> {
    static constexpr bool kLinked = true;
    LinkTable* link = nullptr;
};
static_assert(sizeof(LinkedArgs) <= 32764);

// Memory that the launches of one device share: counters, zeros, sums of split matrices, flagged words.
struct GemvScratch {
    std::uint32_t shared_start = 0;  // of a CTA: what the system keeps lies before it
    bool little_shared = false;      // what the device's code was compiled for
    std::uint32_t* counters = nullptr;
    const float* zeros = nullptr;
    float* partials = nullptr;
    std::size_t partial_floats = 0;
    float* flagged = nullptr;
    std::size_t flagged_floats = 0;
};
// That of the current device; allocated at the first call, which must not be within a capture.
const GemvScratch& gemv_scratch();

// Fills in the plan for `rows` rows on `processors` multiprocessors whose CTAs may take `shared_budget` bytes; false:
// not even `least_slots` ring slots fit. Ops of which each fits with two slots fit together with one. Reads nothing of
// `scratch`'s memory.
bool plan_gemv(QuantType quant_type, const GemvScratch& scratch, std::size_t shared_budget, int processors,
               int least_slots, std::span<GemvOp> ops, int rows, GemvPlan& plan);

// Enqueues the kernel, one CTA per multiprocessor.
void launch_gemv(QuantType quant_type, const GemvArgs<kManySteps>& args, int processors, bool overlap,
                 cudaStream_t stream);
// The same for steps of several types that share_launch(), which their ops name. The plan is that of kLargestOfMix.
void launch_gemv_mix(const GemvArgs<kManySteps>& args, int processors, bool overlap, cudaStream_t stream);

// The types whose launches can be linked: those for which kernels are compiled (gemv_linked_*.cu).
constexpr bool can_link(QuantType type) {
    return type == QuantType::q4_0 || type == QuantType::q8_0 || share_launch(type, kLargestOfMix);
}
// The same for a rank's part of all layers.
void launch_gemv_linked(QuantType quant_type, const LinkedArgs& args, int processors, bool overlap,
                        cudaStream_t stream);

}  // namespace foresay::kernels::cuda
