#include "kernels/cuda/attention/prefill_attention.cuh"

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

void launch_attend_prefill(cudaStream_t stream, const AttendCall& call) {
    if (call.layout.width > kMaxTileWidth) return launch_attend_wide(stream, call);
    const dim3 grid(static_cast<unsigned>((call.tiles + kWarps - 1) / kWarps), static_cast<unsigned>(call.head_tiles));
    with_attention_variant(
        call, [&](auto width, auto special) { prefill_kernel<width, special><<<grid, kThreads, 0, stream>>>(call); });
    launched("attention of prefill rows");
}

}  // namespace foresay::kernels::cuda
