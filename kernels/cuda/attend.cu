#include "kernels/cuda/attend.cuh"

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using std::int64_t;

// As many blocks on a multiprocessor as leave 128 registers to a thread, where that suffices.
constexpr int blocks_of(int width, bool special) { return width > 128 || special ? 1 : 4; }

// A block is a unit.
template <int kWidth, KvFormat kFormat, bool kSpecial>
__global__ void __launch_bounds__(attention::kUnitThreads, blocks_of(kWidth, kSpecial)) decode_kernel(AttendCall c) {
    __shared__ attention::UnitShared<kWidth> shared;
    allow_successor();
    attention::attend_unit<kWidth, kFormat, kSpecial>(c, c.kv, blockIdx.x, blockIdx.y, blockIdx.z, gridDim.z,
                                                      reinterpret_cast<char*>(&shared), 1,
                                                      [] { await_predecessors(); });
}

}  // namespace

std::int64_t attend_units(const AttendCall& call) { return static_cast<int64_t>(call.tiles) * call.head_tiles; }

std::int64_t attend_partial_floats(const AttendCall& call) {
    return attend_units(call) * call.chunks * kTileRows * (2 + call.layout.width);
}

bool attends_within(const AttendCall& call) {
    // Codes need a kernel between projections and attention, so that there is no launch for them to be in.
    return !call.tree && call.soft_cap <= 0 && call.layout.width <= 128 && call.layout.format == KvFormat::f16;
}

void launch_attend_decode(cudaStream_t stream, const AttendCall& call) {
    const dim3 grid(static_cast<unsigned>(call.tiles), static_cast<unsigned>(call.head_tiles),
                    static_cast<unsigned>(call.chunks));
    with_attend_kind(call, [&](auto width, auto special) {
        const auto kernel = call.layout.format == KvFormat::q8 ? decode_kernel<width, KvFormat::q8, special>
                                                               : decode_kernel<width, KvFormat::f16, special>;
        launch_overlapping("attention", kernel, grid, attention::kUnitThreads, 0, stream, call);
    });
}

}  // namespace foresay::kernels::cuda
