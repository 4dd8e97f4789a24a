// kernels/cuda/decode/packed_plan.cuh: what launches of packed rows (packed.cuh) take of shared memory.
#pragma once

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/weights/packed_format.h"

namespace foresay::kernels::cuda {

static_assert(kPackedWarps == gemv_warps(QuantType::packed));
inline constexpr int kPackedRows = 8;  // of a launch, at most
inline constexpr int kPackedSlice = kSplitInputs / kPackedWarps;
inline constexpr int kPackedRowBytes = upper_row_bytes(QuantType::q4_0);  // of a row's slice
inline constexpr int kPackedSumBytes = kPackedSlice / 16 * kPackedRows * 4;
static_assert(kPackedWarps == gemv_warps(QuantType::q4_0));
// What a warp needs of shared memory: its slice of the rows, sums of that, and the header of the matrix. The producer
// has a copy of the header after the last warp's.
constexpr int packed_operand_bytes(int rows) {
    return rows * kPackedRowBytes + kPackedSumBytes + static_cast<int>(sizeof(PackedHeader));
}

}  // namespace foresay::kernels::cuda
