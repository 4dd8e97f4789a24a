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
// What a warp needs of shared memory: its slice of the rows, and sums of that.
constexpr int packed_operand_bytes(int rows) { return rows * kPackedRowBytes + kPackedSumBytes; }
// Rows whose inputs change places together, of those that a launch may have (PackedOperand), and the bytes from one to
// the next. They lie in the memory of the operands, which are made of them, and in that of the panel sums after it.
constexpr int packed_rows_together(int rows) { return rows < 4 ? rows : 4; }
inline constexpr int kPackedPassageBytes = kSplitInputs * 4;
// Headers of matrices before the operands of all warps: the producer's own copy, and those of the steps that its chunks
// are of. It is ahead by as many steps as the ring has slots, and by one.
inline constexpr int kPackedRingSlots = 10;  // at most
constexpr int packed_headers(int ring_slots) { return ring_slots + 2; }
// Then the places of each warp's blocks (PackedPlaces).
inline constexpr int kPackedSliceBlocks = kPackedSlice / 64, kPackedPlaceBytes = (kPackedSliceBlocks + 1) * 16;
inline constexpr int kPackedHeaderBytes =
    (packed_headers(kPackedRingSlots) + 1) * static_cast<int>(sizeof(PackedHeader)) + kPackedWarps * kPackedPlaceBytes;
static_assert(kPackedHeaderBytes % 128 == 0);

}  // namespace foresay::kernels::cuda
