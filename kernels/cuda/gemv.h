// kernels/cuda/gemv.h: what the decode kernels take: one stacked matrix times up to 16 rows, and how its pairs of packed
// rows are finished.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/panels.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

inline constexpr int kGemvWarps = 8;  // warps of a block; each has its own slice of the inputs
inline constexpr int kMaxSplit = 8;   // blocks of a cluster, which share the inputs of the same panels

// What happens to a pair of sums (packed rows 2i, 2i + 1) of a row of the batch.
enum class Finish : std::uint8_t { attention_in, out, mlp_in, head };

struct FinishArgs {
    Finish kind = Finish::out;
    Activation activation = Activation::silu;  // mlp_in
    std::int64_t first_row = 0;                // of the stack: where this part begins
    std::int64_t rows = 0;                     // of this part, without padding
    const float* bias = nullptr;               // [rows of the stack]
    float* out = nullptr;                      // x (added to), ff, logits, or q
    float* raw = nullptr;         // attention_in, out: sums with their biases, row by row; nothing else is written then
    std::int64_t out_stride = 0;  // elements between rows of the batch; of raw when that is set
    float scale = 1.0f, soft_cap = 0.0f;  // head
    // attention_in
    std::int32_t query_rows = 0, kv_rows = 0;  // of the stack
    std::int32_t head_dim = 1, rotated = 0;
    bool half_split = false;       // which rows of a head are neighbours
    const float2* rope = nullptr;  // [T, rotated / 2]
    __half* kv = nullptr;
    const std::int64_t* cell = nullptr;    // [T]
    const std::int64_t* v_cell = nullptr;  // [T]
    std::int64_t head_stride = 0, v_stride = 1;
};

struct GemvArgs {
    const std::uint8_t* panels = nullptr;
    std::int32_t panel_count = 0;
    std::int32_t blocks = 0;  // per panel
    std::int32_t inputs = 0;
    const float* x = nullptr;           // [T, inputs]
    const std::int32_t* row = nullptr;  // which row of x; null: row i
    const float* norm = nullptr;        // [inputs]; null: none
    float eps = 0;
    std::int32_t rows = 0;   // T, at most 16
    std::int32_t split = 1;  // blocks of a cluster
    // Shared memory, in bytes from its start (a multiple of 128); set by plan_gemv.
    std::int32_t stages = 0;        // of each warp's ring
    std::int32_t stage_blocks = 0;  // panel blocks per stage
    std::int32_t slice_blocks = 0;  // most blocks of one warp
    std::int32_t x_stride = 0;      // between rows of the batch within a warp's slice
    std::int32_t flush_panels = 0;  // panels between two exchanges of a cluster
    std::int32_t x_at = 0, sums_at = 0, parts_at = 0, exchange_at = 0, stats_at = 0, shared_bytes = 0;
    std::int32_t x_bytes = 0, sums_bytes = 0;  // of one warp
    FinishArgs finish;
};

// What the micro-benchmark varies. The defaults are what it found best.
struct GemvTuning {
    int split = 0;           // blocks of a cluster; 0: by the shape
    int stage_bytes = 2400;  // of a ring's stage, about
    int flush_panels = 8;
    int shared_half = 104 * 1024;  // shared memory of a block, where that leaves least_ring for weights
    int least_ring = 40 * 1024;
};
GemvTuning& gemv_tuning();

// How many blocks share the inputs of a panel: by the shape alone, so that sums have one order.
int gemv_split(Encoding encoding, std::int64_t rows, std::int64_t inputs, int processors);

// Fills in the plan for args.rows rows. `shared_budget` is what a block may take; false: not even one stage fits.
bool plan_gemv(Encoding encoding, std::size_t shared_budget, GemvArgs& args);

// Enqueues the kernel on as many blocks as there are multiprocessors.
void launch_gemv(Encoding encoding, const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);

}  // namespace foresay::kernels::cuda
