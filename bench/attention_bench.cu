// attention_bench: how fast the device attends.
//
//   attention_bench SHAPE [f16|q8] [DEPTH..]    attention of one layer at 1, 2, 4, 8, 16 decode rows over DEPTH
//                                               positions
//
// Three columns: `own`, attention as a kernel of its own (launch_attend_decode), `resident`, in CTAs with as few
// registers per thread as the decode kernel has, and `flash`, the kernel that reads keys and values once for all rows
// (launch_flash_decode). All must give the same bits; "DIFFERENT BITS" at the end of a line is a bug.
//
// Rates:    K and V count once, whatever the number of rows. Compare with `linear_bench read`.
// Times:    the median of replays of a graph, per layer. The graph attends in several layers, one after the other. With
//           short depths all of them fit into the L2, and rates exceed those of memory.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "bench/device_time.h"
#include "bench/named_shapes.h"
#include "kernels/cuda/attention/decode_attention.cuh"
#include "kernels/cuda/attention/flash_decode.h"

namespace foresay {
namespace {

namespace cuda = kernels::cuda;
using kernels::KvFormat;
using kernels::ModelShape;

// 16 multiplying warps and as many threads in all as the decode kernel of Q4_0 and Q8_0 (gemv_threads).
constexpr int kLayers = 8, kWarps = 16, kBlockThreads = 640;

// Attention as the decode kernel has it: one CTA per multiprocessor, as many groups as its warps make, and the other
// threads only take registers away.
template <int kWidth, KvFormat kFormat>
__global__ void __launch_bounds__(kBlockThreads, 1) resident_kernel(cuda::AttendCall c) {
    constexpr int kGroups = kWarps / cuda::attention::group_warps(kWidth);
    __shared__ __align__(16) char places[kGroups * cuda::kAttendUnitBytes];
    __shared__ __align__(16) char groups[kGroups * cuda::kAttendGroup<kWidth, kFormat>];
    if (threadIdx.x >= 32 * kWarps) return;
    cuda::attend_group<kWidth, kFormat, kGroups, false>(c, {.kv = c.kv, .out = c.out},
                                                        cuda::AttendMemory{c, places, groups}, [] {});
}

// 132: the multiprocessors of an H100 or H200. On devices with fewer the grid could hang (decode_attention.cu).
void launch_resident(const cuda::AttendCall& call, cudaStream_t stream) {
    const bool narrow = call.layout.width == 64, codes = call.layout.format == KvFormat::q8;
    const auto kernel = narrow  ? codes ? resident_kernel<64, KvFormat::q8> : resident_kernel<64, KvFormat::f16>
                         : codes ? resident_kernel<128, KvFormat::q8>
                                : resident_kernel<128, KvFormat::f16>;
    kernel<<<132, kBlockThreads, 0, stream>>>(call);
    cuda::launched("resident attention");
}

// Numbers from -1 to 1, K and V alike. With q8 the same bits are codes and scales, of any size: fine for times and for
// comparing bits, not for values.
__global__ void fill_small(__half* data, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const std::uint32_t mixed = static_cast<std::uint32_t>(i) * 2654435761u;
        data[i] = __float2half(static_cast<float>(mixed >> 8) * (2.0f / 16777216.0f) - 1.0f);
    }
}

// One line per number of rows: rows at positions depth, depth + 1, ... of one sequence whose pages are in random order,
// as a cache has them that was in use for a while.
void measure(const ModelShape& whole, KvFormat format, int depth, const cuda::Stream& stream) {
    ModelShape shape = whole;
    shape.layers = kLayers;
    constexpr int kMaxRows = 16;
    const int pages = (depth + kMaxRows + kernels::kPagePositions - 1) / kernels::kPagePositions;
    const cuda::KvLayout layout(shape, pages, format);
    const cuda::DeviceBuffer<__half> pool(static_cast<std::size_t>(layout.layer_stride * kLayers));
    fill_small<<<1024, 256, 0, stream>>>(pool.data(), layout.layer_stride * kLayers);
    std::vector<std::int32_t> list(static_cast<std::size_t>(pages));
    std::iota(list.begin(), list.end(), 0);
    std::shuffle(list.begin(), list.end(), std::mt19937(1));
    const auto on_device_list = cuda::to_device(std::span<const std::int32_t>(list));
    const std::size_t q_floats = static_cast<std::size_t>(kMaxRows * shape.heads * shape.head_dim);
    std::vector<float> queries(q_floats);
    for (float& q : queries) q = static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f;
    const auto q = cuda::to_device(std::span<const float>(queries));
    const cuda::DeviceBuffer<float> out(q_floats), resident_out(q_floats), flash_out(q_floats);
    const double bytes = 2.0 * static_cast<double>(layout.page_stride) / kernels::kPagePositions * depth;
    for (const int rows : {1, 2, 4, 8, 16}) {
        // The batch, as write_batch() would make it.
        const int room = cuda::rows_per_tile(shape.heads / shape.kv_heads);
        std::vector<cuda::RowState> states;
        std::vector<cuda::TileState> tiles;
        for (int t = 0; t < rows; ++t) {
            states.push_back({0, depth + t, depth + t, 0, 0, 0});
            if (t % room == 0) tiles.push_back({t, 0, 0, depth, depth + t, 0, 0, 0});
            ++tiles.back().rows;
            tiles.back().highest = depth + t;
        }
        const auto on_device_rows = cuda::to_device(std::span<const cuda::RowState>(states));
        const auto on_device_tiles = cuda::to_device(std::span<const cuda::TileState>(tiles));
        cuda::AttendCall call;
        call.batch = {on_device_rows.data(), on_device_tiles.data(), nullptr, on_device_list.data()};
        call.tiles = static_cast<std::int32_t>(tiles.size());
        call.heads = shape.heads;
        call.kv_heads = shape.kv_heads;
        call.head_dim = shape.head_dim;
        call.layout = layout;
        cuda::shape_attention(call);
        call.chunks = (cuda::chunk_of(depth + rows - 1, call.block_shift) + 8) / 8 * 8;
        call.scale = 0.1f;
        call.q = q.data();
        const cuda::DeviceBuffer<float> partial(static_cast<std::size_t>(cuda::attend_partial_floats(call)));
        cuda::cuda_check(cudaMemset(partial.data(), cuda::kNotReadyByte, partial.bytes()), "cannot fill memory");
        const cuda::DeviceBuffer<std::int32_t> taken(cuda::kTakenCounters);
        cuda::cuda_check(cudaMemset(taken.data(), 0, taken.bytes()), "cannot clear memory");
        call.partial = partial.data();
        call.taken = taken.data();
        // Microseconds of one layer.
        const auto time = [&](float* to, const auto& launch) {
            call.out = to;
            return graph_microseconds(stream, 9,
                                      [&] {
                                          for (int layer = 0; layer < kLayers; ++layer) {
                                              call.kv = pool.data() + layer * layout.layer_stride;
                                              launch();
                                          }
                                      }) /
                   kLayers;
        };
        // Both leave `partial` and `taken` as they found them, so they can use the same memory.
        const double own = time(out.data(), [&] { cuda::launch_attend_decode(stream, call); });
        const double resident = time(resident_out.data(), [&] { launch_resident(call, stream); });
        const auto together = static_cast<std::int32_t>(tiles.size());
        const cuda::DeviceBuffer<float> flash_partial(partial.size());
        call.partial = flash_partial.data();
        const double flash = time(flash_out.data(), [&] { cuda::launch_flash_decode(stream, call, together); });
        const auto values = [&](const cuda::DeviceBuffer<float>& of) {
            std::vector<float> host(static_cast<std::size_t>(rows * shape.heads * shape.head_dim));
            cuda::cuda_check(cudaMemcpy(host.data(), of.data(), host.size() * sizeof(float), cudaMemcpyDeviceToHost),
                             "copy");
            return host;
        };
        const std::vector<float> expected = values(out);
        const auto differs = [&](const cuda::DeviceBuffer<float>& of) {
            return std::memcmp(values(of).data(), expected.data(), expected.size() * sizeof(float)) != 0;
        };
        std::printf("depth %6d rows %2d: own %7.1f us, resident %7.1f us, flash %7.1f us %5.2f TB/s%s%s\n", depth, rows,
                    own, resident, flash, bytes / flash * 1e-6,
                    differs(resident_out) ? " DIFFERENT BITS: resident" : "",
                    differs(flash_out) ? " DIFFERENT BITS: flash" : "");
        std::fflush(stdout);
    }
}

// Arguments after the shape come in any order.
int run(int argc, char** argv) {
    for (const NamedShape& known : kShapes) {
        if (argc < 2 || std::strcmp(argv[1], known.name) != 0) continue;
        const cuda::Stream stream;
        std::vector<int> depths;
        KvFormat format = KvFormat::f16;
        for (int i = 2; i < argc; ++i) {
            const bool name = std::strcmp(argv[i], "q8") == 0 || std::strcmp(argv[i], "f16") == 0;
            if (name) format = argv[i][0] == 'q' ? KvFormat::q8 : KvFormat::f16;
            if (!name) depths.push_back(std::atoi(argv[i]));
        }
        if (depths.empty()) depths = {64, 1024, 4096, 32768};
        for (const int depth : depths) measure(known.shape, format, depth, stream);
        return 0;
    }
    std::fprintf(stderr, "usage: attention_bench 8b|70b|1b [f16|q8] [DEPTH..]\n");
    return 2;
}

}  // namespace
}  // namespace foresay

int main(int argc, char** argv) {
    try {
        return foresay::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attention_bench: %s\n", error.what());
        return 1;
    }
}
