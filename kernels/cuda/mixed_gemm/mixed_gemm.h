// kernels/cuda/mixed_gemm/mixed_gemm.h: a stack of weights times 17 rows and more, of packed weights 9 and more, with
// one reading of the weights and the bits of the decode kernel.
//
// The decode kernel (kernels/cuda/decode/gemv.cuh) gives each of 8 or 16 warps a slice of K and adds the slices' sums
// at the end. Here a warp has all slices, one after the other, for some packed rows and many rows of the batch, and the
// same numbers come in the same order:
//
//   part    blocks of a panel, kSplitInputs inputs at most: GemvOp::split parts, the first blocks_more of them one
//           block longer than blocks_each
//   slice   blocks w, w + W, w + 2 W .. of a part, W = gemv_warps(): those of warp w there
//   operand a row's inputs of a slice times the norm's weights, times a power of two that brings the slice's largest to
//           2^13 .. 2^14, as float16 (plain numbers: and what that leaves, as a second one)
//   block   of a slice: first the offsets or minima times the sums of the inputs, then the groups of 16 or 32 inputs in
//           order, each summed from 0 by the tensor cores and added by one fma with its scale (decode/multiply.cuh).
//           Packed rows: each group is summed from minus the middle of its codes times the sum of its inputs, added by
//           one fma with its scale, and followed by its minimum times that sum (decode/packed.cuh)
//   sums    a slice's times the inverse of its power of two, added in the order of the slices, from 0; then the parts'
//           in their order; then times 1 / rms, whose squares are added in the same order
//
// Data flow: operands.cuh makes the operands once per op, in the layout in which they are multiplied; mixed_gemm.cuh
//           and sm90a/ multiply and finish. Devices without wgmma have no such kernel.
//
// Law 1:    a row's bits are those of the decode kernel: alone, among others, at any place. Tests compare by memcmp.
// Threads:  launches enqueue. Launches that share a workspace must be on one stream.
// Cost:     reads the weights once, from memory or, where several tiles of rows run at once, from L2; the operands once
//           per 64 to 256 packed rows.
// Errors:   launch_mixed_gemm() throws Error when a kernel cannot be launched.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/mixed_gemm/mixed_plan.h"

namespace foresay::kernels::cuda {

inline constexpr std::int32_t kMixedRows = 512;  // of one launch, at most
inline constexpr std::int32_t kMixedLeast = 17;  // fewer rows take the decode kernel
// Of packed rows, of which that takes 8 at a time.
inline constexpr std::int32_t kMixedLeastPacked = 9;

// What a launch needs besides weights and activations. The operands and sums of one op at a time.
struct MixedScratch {
    std::uint8_t* operands = nullptr;
    std::size_t operand_bytes = 0;
    float* squares = nullptr;  // [slices of all parts][rows]
    std::size_t square_floats = 0;
    float* terms = nullptr;  // sums of the parts of a split K
    std::size_t term_floats = 0;
    std::uint32_t* arrivals = nullptr;  // of the parts of a tile; all 0 between launches
    std::size_t arrival_words = 0;
};

// Device memory for it; empty where `max_rows` is below kMixedLeastPacked.
class MixedWorkspace {
public:
    MixedWorkspace() = default;
    MixedWorkspace(const ModelShape& shape, std::int32_t max_rows);
    static std::int64_t bytes(const ModelShape& shape, std::int32_t max_rows);
    const MixedScratch* scratch() const { return view_.operands != nullptr ? &view_ : nullptr; }

private:
    DeviceBuffer<std::uint8_t> operands_;
    DeviceBuffer<float> squares_, terms_;
    DeviceBuffer<std::uint32_t> arrivals_;
    MixedScratch view_;
};

// For tests and benchmarks: launches of types that have this tile take it where it fits, in this process, from now on.
// An empty one: each launch chooses. Returns the one before. Any thread.
MixedTileShape force_mixed_tile(MixedTileShape tile);

// How a launch of `rows` rows of an op is divided on such a device; stages 0: no tile has room for two. Asks no device.
MixedPlan plan_mixed_gemm(QuantType quant_type, const GemvOp& op, std::int32_t rows, const DeviceInfo& device);

// Rows that one launch of an op takes with this scratch memory; 0: the decode kernel must take them.
std::int32_t mixed_rows(QuantType quant_type, const GemvOp& op, std::int32_t rows, const MixedScratch& scratch);

// Enqueues the op for `rows` rows, at most mixed_rows(). `op` as decode_rows() makes it: blocks, panel_count, inputs,
// x, row, eps, inputs_inverse, epilogue.
void launch_mixed_gemm(QuantType quant_type, const GemvOp& op, const GemvStep& step, std::int32_t rows,
                       const MixedScratch& scratch, cudaStream_t stream);

}  // namespace foresay::kernels::cuda
