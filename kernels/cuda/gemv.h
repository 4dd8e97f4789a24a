// kernels/cuda/gemv.h: what the decode kernel takes: stacks of matrices times up to 16 rows, one after the other in one
// launch, and how their pairs of packed rows are finished.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/panels.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// Warps of a block; each has its own slice of the inputs. Encodings with large blocks have fewer, so that each warp's ring
// holds a few blocks.
constexpr int gemv_warps(Encoding encoding) {
    return encoding == Encoding::q6_k || encoding == Encoding::q5_k ? 8 : 16;
}
inline constexpr int kSplitInputs = 4096;       // most inputs of a block; wider matrices are split between blocks
inline constexpr int kMaxGemvOps = 6;           // of one launch
inline constexpr int kScratchCounters = 32768;  // of a device: two for the grid, then one per panel

// What happens to a pair of sums (packed rows 2i, 2i + 1) of a row of the batch.
enum class Finish : std::uint8_t { attention_in, out, mlp_in, head };

struct FinishArgs {
    Finish kind = Finish::out;
    Activation activation = Activation::silu;  // mlp_in
    std::int32_t first_row = 0;                // of the stack: where this part begins
    std::int32_t rows = 0;                     // of this part, without padding
    const float* bias = nullptr;               // [rows of the stack]
    float* out = nullptr;                      // x (added to), ff, logits, or q
    float* raw = nullptr;         // attention_in, out: sums with their biases, row by row; nothing else is written then
    std::int64_t out_stride = 0;  // elements between rows of the batch; of raw when that is set
    float scale = 1.0f, soft_cap = 0.0f;  // head
    // attention_in
    std::int32_t query_rows = 0, kv_rows = 0;  // of the stack
    std::int32_t head_dim = 1, rotated = 0;
    std::uint32_t head_inverse = 0;  // 2^32 / head_dim rounded up, because division is slow
    bool half_split = false;         // which rows of a head are neighbours
    const float2* rope = nullptr;    // [T, rotated / 2]
    __half* kv = nullptr;
    const std::int64_t* cell = nullptr;    // [T]
    const std::int64_t* v_cell = nullptr;  // [T]
    std::int64_t head_stride = 0, v_stride = 1;
};

struct GemvOp {
    const std::uint8_t* panels = nullptr;
    std::int32_t panel_count = 0;
    std::int32_t blocks = 0;  // per panel
    std::int32_t inputs = 0;
    const float* x = nullptr;           // [T, inputs]
    const std::int32_t* row = nullptr;  // which row of x; null: row i
    const float* norm = nullptr;        // [inputs]; null: none
    float eps = 0;
    FinishArgs finish;
    // Set by the plan. Division is slow on the device, so shares come as quotient and remainder.
    std::int32_t split = 1;                         // blocks that share the inputs of the same panels
    std::int32_t members = 0;                       // blocks of each of the `split` parts
    std::int32_t panels_each = 0, panels_more = 0;  // of a member
    std::int32_t blocks_each = 0, blocks_more = 0;  // of a part
    std::int32_t stage_blocks = 0;                  // panel blocks per stage of the ring
    std::int32_t x_stride = 0;                      // between rows of the batch within a warp's slice, bytes
};

struct GemvArgs {
    GemvOp ops[kMaxGemvOps];
    std::int32_t count = 0;
    std::int32_t rows = 0;  // T, at most 16
    // Set by the plan. Shared memory in bytes, from its start.
    std::int32_t stages = 0, stage_bytes = 0;  // of each warp's ring
    std::int32_t x_at = 0, x_bytes = 0;        // of one warp
    std::int32_t sums_at = 0, sums_bytes = 0;  // of one warp
    std::int32_t parts_at = 0, part_buffers = 1, stats_at = 0, shared_bytes = 0;
    std::uint32_t* counters = nullptr;  // zero between launches
    float* partials = nullptr;
};

// What the micro-benchmark varies. The defaults are what it found best.
struct GemvTuning {
    int stage_bytes = 4700;        // of a ring's stage, about; less where two stages would not fit
    int shared_most = 200 * 1024;  // of a block, so that an attention kernel fits beside it
    int least_ring = 48 * 1024;    // below that the block takes all there is
    int balance = 0;               // percent of the multiprocessors that must have work before more splits are made
};
GemvTuning& gemv_tuning();

// Memory that launches of one device share: counters and the sums of split matrices. Made at the first call for a device.
struct GemvScratch {
    std::uint32_t* counters = nullptr;
    float* partials = nullptr;
    std::size_t partial_floats = 0;
};
const GemvScratch& gemv_scratch();

// Fills in the plan for args.rows rows on `processors` multiprocessors whose blocks may take `shared_budget` bytes; false:
// not even `least_stages` stages fit. Ops of which each fits with two stages fit together with one.
bool plan_gemv(Encoding encoding, std::size_t shared_budget, int processors, int least_stages, GemvArgs& args);

// Enqueues the kernel, one block per multiprocessor.
void launch_gemv(Encoding encoding, const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);

}  // namespace foresay::kernels::cuda
