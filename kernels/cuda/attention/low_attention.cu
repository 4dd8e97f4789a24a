// Attention of decode rows over caches with low bits (kernels/cuda/memory/low_codes.h), as a kernel of its own: the
// decode kernel would have to be compiled once more to unpack them. Everything is in decode_attention.cuh; how many
// bits keys and values have is known at run time, and trees and capped scores take the same kernel as other rows.
//
// Breaks:   a grid that is larger than what is resident at once, as in decode_attention.cu.

#include "kernels/cuda/attention/decode_attention.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using attention::blocks_of;
using attention::kAnyLowBits;

template <int kWidth>
__global__ void __launch_bounds__(32 * attention::group_warps(kWidth), blocks_of(kWidth)) low_kernel(AttendCall c) {
    __shared__ __align__(16) char units[kAttendUnitBytes];
    __shared__ __align__(16) char group[kAttendGroup<kWidth, kAnyLowBits>];
    allow_successor();
    attend_group<kWidth, kAnyLowBits, 1, true>(c, {c.kv, c.out, c.sinks, c.q_norm, c.k_norm},
                                               AttendMemory{c, units, group}, [] { await_predecessors(); });
}

template <int kWidth>
void launch(cudaStream_t stream, const AttendCall& call, int processors) {
    const dim3 grid(static_cast<unsigned>(call.members(processors * blocks_of(kWidth))));
    launch_overlapping("attention", low_kernel<kWidth>, grid, 32 * attention::group_warps(kWidth), 0, stream, call);
}

}  // namespace

void launch_attend_low(cudaStream_t stream, const AttendCall& call, int processors) {
    if (call.layout.width == 64) {
        launch<64>(stream, call, processors);
    } else if (call.layout.width == 128) {
        launch<128>(stream, call, processors);
    } else {
        launch<256>(stream, call, processors);
    }
}

}  // namespace foresay::kernels::cuda
