// Attention of decode rows as a kernel of its own, for what does not fit into the decode kernel (can_fuse_attention).
// One group per CTA, one or two CTAs per multiprocessor; everything else is in decode_attention.cuh.
//
// Bits:     the same as those of the fused attention. Both call attend_group(), where no sum depends on the number of
//           groups or on which group takes a unit.
// Breaks:   a grid that is larger than what is resident at once. A group that merges polls for the units of other CTAs
//           and would wait for ever for one that has not started. Hence blocks_of() in __launch_bounds__ and in the
//           size of the grid.

#include "kernels/cuda/attention/decode_attention.cuh"

#include <algorithm>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using std::int64_t;

using attention::blocks_of;

// One attention of one layer. attend_group() calls await_predecessors() late: first it loads K and V of earlier
// forwards, which the predecessors do not write.
template <int kWidth, KvFormat kFormat, bool kSpecial>
__global__ void __launch_bounds__(32 * attention::group_warps(kWidth), blocks_of(kWidth)) decode_kernel(AttendCall c) {
    __shared__ __align__(16) char units[kAttendUnitBytes];
    __shared__ __align__(16) char group[kAttendGroup<kWidth, kFormat>];
    allow_successor();
    attend_group<kWidth, kFormat, 1, kSpecial>(c, {c.kv, c.out, c.sinks, c.q_norm, c.k_norm},
                                               AttendMemory{c, units, group}, [] { await_predecessors(); });
}

}  // namespace

// A Partial (merge_chunks.cuh) for every unit, empty ones included: 16 rows of peak, sum and `width` outputs.
std::int64_t attend_partial_floats(const AttendCall& call) {
    return static_cast<int64_t>(call.units()) * kTileRows * (2 + call.layout.width);
}

void launch_attend_decode(cudaStream_t stream, const AttendCall& call) {
    if (call.layout.width > kMaxTileWidth) return launch_attend_wide(stream, call);
    int device = 0, processors = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "cannot ask for the number of multiprocessors");
    if (has_low_bits(call.layout.format)) return launch_attend_low(stream, call, processors);
    with_attention_variant(call, [&](auto width, auto special) {
        const dim3 grid(static_cast<unsigned>(call.members(processors * blocks_of(width))));
        const auto kernel = call.layout.format == KvFormat::q8 ? decode_kernel<width, KvFormat::q8, special>
                                                               : decode_kernel<width, KvFormat::f16, special>;
        launch_overlapping("attention", kernel, grid, 32 * attention::group_warps(width), 0, stream, call);
    });
}

}  // namespace foresay::kernels::cuda
