// What happens to prefill rows before and after the matrix products.
//
//   convert         before: a CTA per row. Two passes over the row, the second one from the cache: sum of squares and
//                   largest number, then float16 after scaling. Zeros fill the row up to the stride.
//   add_rows        after attention_out and mlp_out: four outputs per thread, x += sums.
//   epilogue_tiles  after attention_in, and after those two where rows are no multiple of 4: 32 rows x 32 pairs per
//                   CTA. Lanes take pairs, because rows are contiguous in memory. V lies transposed in the cache: the
//                   CTA transposes its tile in shared memory, and lanes take rows.
//   mlp_epilogue    after mlp_in: a CTA per row. With halves, the row stays in shared memory until its largest number
//                   is known; mlp_out then needs no convert.
//
// The kernels are launched in stream order without overlap, so plain loads see what the kernel before has written.

#include "kernels/cuda/prefill/rows.h"

#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/device/row_scale.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitThreads = 512;
constexpr int kEpilogueRows = 32, kEpiloguePairs = 32;  // of epilogue_tiles

// A butterfly: addition is commutative, so every lane has the same bits.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

// The sum of `squares` and the largest `most` (not negative) over a CTA, the same in every thread. Warps are added in
// their order (law 1). Once per kernel: a second call would overwrite `parts` while other warps read it.
__device__ float2 over_block(float squares, float most) {
    __shared__ float2 parts[32];
    squares = warp_sum(squares);
    most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = {squares, most};
    __syncthreads();
    float2 all = {0.0f, 0.0f};
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
        all.x += parts[warp].x;
        all.y = fmaxf(all.y, parts[warp].y);
    }
    return all;
}

// Four numbers to aligned memory, rounded to float16 or as they are.
__device__ void store4(__half* to, float4 v) {
    *reinterpret_cast<uint2*>(to) = {as_bits(__floats2half2_rn(v.x, v.y)), as_bits(__floats2half2_rn(v.z, v.w))};
}
__device__ void store4(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }

// A CTA per row. Inputs and stride are multiples of 4. 1 / rms is not multiplied in here: it goes to `scale`, and the
// epilogue multiplies the sums.
template <class T>
__global__ void __launch_bounds__(kThreads) convert(const ConvertCall c) {
    const std::int64_t t = blockIdx.x;
    const auto* x = reinterpret_cast<const float4*>(c.x + t * c.inputs);
    const auto* norm = reinterpret_cast<const float4*>(c.norm);
    const int fours = c.inputs / 4;
    // Four inputs times the norm's weights; 1 / rms comes later, by the sums.
    const auto weighted = [&](int i, float4 v) {
        if (norm == nullptr) return v;
        const float4 w = norm[i];
        return float4{v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
    };
    const auto ordered = [&](int place) {
        const std::uint16_t input = c.order[place];
        const float value = c.x[t * c.inputs + input];
        return c.norm == nullptr ? value : value * c.norm[input];
    };
    // Squares of x, but the largest of x times the norm weight: that is what becomes float16.
    float squares = 0.0f, most = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < fours; i += kThreads) {
        const float4 v = x[i], y = weighted(i, v);
        squares += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
        most = larger_magnitude(most, y);
    }
    const float2 all = over_block(squares, most);
    const RowScale<true> scaling(__float_as_uint(all.y));
    T* out = static_cast<T*>(c.out) + t * c.stride;
    for (int i = static_cast<int>(threadIdx.x); i < c.stride / 4; i += kThreads) {
        float4 y = {};
        if (i < fours && c.order == nullptr) {
            y = weighted(i, x[i]);
        } else if (i < fours) {
            y = {ordered(4 * i), ordered(4 * i + 1), ordered(4 * i + 2), ordered(4 * i + 3)};
        }
        store4(out + 4 * i, {y.x * scaling.up(), y.y * scaling.up(), y.z * scaling.up(), y.w * scaling.up()});
    }
    if (threadIdx.x == 0) {
        const float factor = norm == nullptr ? 1.0f : 1.0f / sqrtf(all.x / static_cast<float>(c.inputs) + c.eps);
        c.scale[t] = factor * scaling.back();
    }
}

// x += f.scale * (sums + bias), or raw = sums + bias; four outputs per thread. Grid: (fours of the part, rows of the
// batch).
__global__ void __launch_bounds__(kThreads) add_rows(const GemmSums in, const EpilogueArgs f) {
    const std::int64_t t = blockIdx.y;
    const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (4 * i >= f.rows) return;
    const float scale = in.scale[t];
    const float4 sum = *reinterpret_cast<const float4*>(in.sums + t * in.stride + 4 * i);
    float4* to = reinterpret_cast<float4*>((f.raw != nullptr ? f.raw : f.out) + t * f.out_stride + f.first_row) + i;
    float4 bias{};
    if (in.bias != nullptr) bias = *reinterpret_cast<const float4*>(in.bias + f.first_row + 4 * i);
    const float4 y = {fmaf(sum.x, scale, bias.x), fmaf(sum.y, scale, bias.y), fmaf(sum.z, scale, bias.z),
                      fmaf(sum.w, scale, bias.w)};
    if (f.raw != nullptr) {
        *to = y;
        return;
    }
    const float4 x = *to;
    *to = {fmaf(f.scale, y.x, x.x), fmaf(f.scale, y.y, x.y), fmaf(f.scale, y.z, x.z), fmaf(f.scale, y.w, x.w)};
}

// 32 rows of the batch x 32 pairs of packed rows. Grid: (pairs, rows of the batch).
__global__ void __launch_bounds__(kThreads) epilogue_tiles(const GemmSums in, const EpilogueArgs f) {
    __shared__ float tile[kEpilogueRows][2 * kEpiloguePairs + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int t0 = static_cast<int>(blockIdx.y) * kEpilogueRows,
              packed0 = static_cast<int>(blockIdx.x) * 2 * kEpiloguePairs;
    // Whether all of this tile is V and goes to the cache. A tile that begins before V takes the plain way.
    const bool values =
        f.kind == Epilogue::attention_in && f.raw == nullptr && f.first_row + packed0 >= f.query_rows + f.kv_rows;
    for (int row = warp; row < kEpilogueRows; row += kThreads / 32) {
        const int t = t0 + row, packed = packed0 + 2 * lane;
        if (t >= in.rows || packed >= f.rows) continue;
        const float scale = in.scale[t];
        const float2 sum = *reinterpret_cast<const float2*>(in.sums + t * in.stride + packed);
        if (values) {
            tile[row][2 * lane] = sum.x * scale;
            tile[row][2 * lane + 1] = sum.y * scale;
        } else {
            epilogue_pair(f, in.bias, in.kv, packed, t, sum.x * scale, sum.y * scale);
        }
    }
    // V: lanes take rows of the batch, whose positions are neighbours in the cache. All threads return or none, so the
    // barrier is safe.
    if (!values) return;
    __syncthreads();
    for (int pair = warp; pair < kEpiloguePairs; pair += kThreads / 32) {
        const int t = t0 + lane, packed = packed0 + 2 * pair;
        if (t >= in.rows || packed >= f.rows) continue;
        epilogue_pair(f, in.bias, in.kv, packed, t, tile[lane][2 * pair], tile[lane][2 * pair + 1]);
    }
}

// A CTA per row: packed rows 2 i and 2 i + 1 are gate and up of unit i. `scale` may be in.scale: a CTA reads its row's
// entry before the barrier and writes it after.
__global__ void __launch_bounds__(kUnitThreads)
    mlp_epilogue(const GemmSums in, const EpilogueArgs f, __half* halves, std::int64_t halves_stride, float* scale) {
    extern __shared__ float units[];
    const std::int64_t t = blockIdx.x;
    const int count = f.rows / 2;
    const float factor = in.scale[t];
    const auto* sums = reinterpret_cast<const float4*>(in.sums + t * in.stride);
    float most = 0.0f;
    // Gate or up, complete. `packed`: its row of the stack.
    const auto complete = [&](float sum, int packed) {
        return in.bias != nullptr ? fmaf(sum, factor, in.bias[f.first_row + packed]) : sum * factor;
    };
    for (int i = static_cast<int>(threadIdx.x); i < (count + 1) / 2; i += kUnitThreads) {  // two units
        const float4 v = sums[i];
        const auto unit = [&](float gate, float up, int packed) {
            return gated(f.activation, f.limit, complete(gate, packed), complete(up, packed + 1));
        };
        const float a = unit(v.x, v.y, 4 * i);
        const float b = 2 * i + 1 < count ? unit(v.z, v.w, 4 * i + 2) : 0.0f;
        if (halves == nullptr) {
            float* out = f.out + t * f.out_stride + 2 * i;
            out[0] = a;
            if (2 * i + 1 < count) out[1] = b;
            continue;
        }
        units[2 * i] = a;
        units[2 * i + 1] = b;
        most = fmaxf(most, fmaxf(fabsf(a), fabsf(b)));
    }
    if (halves == nullptr) return;                                            // in all threads alike
    const RowScale<true> scaling(__float_as_uint(over_block(0.0f, most).y));  // also a barrier: all units are there
    for (int i = static_cast<int>(threadIdx.x); i < halves_stride / 4; i += kUnitThreads) {
        const auto unit = [&](int k) { return k < count ? units[k] * scaling.up() : 0.0f; };
        store4(halves + t * halves_stride + 4 * i, {unit(4 * i), unit(4 * i + 1), unit(4 * i + 2), unit(4 * i + 3)});
    }
    if (threadIdx.x == 0) scale[t] = scaling.back();
}

// One more than the units: mlp_epilogue writes them in pairs.
int unit_bytes(std::int64_t units) { return static_cast<int>(units + 1) * static_cast<int>(sizeof(float)); }

unsigned blocks_of(std::int64_t count, std::int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

bool mlp_rows_fit(std::int64_t units) {
    int device = 0, most = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
               "cannot ask for shared memory");
    return unit_bytes(units) + 1024 <= most;  // the kernel has static shared memory, too: over_block()
}

// Once per stack: launch_convert() for its input; once per part: launch_epilogue() or launch_mlp_epilogue().
void launch_convert(cudaStream_t stream, const ConvertCall& call) {
    const auto rows = static_cast<unsigned>(call.rows);
    if (call.half) {
        convert<__half><<<rows, kThreads, 0, stream>>>(call);
    } else {
        convert<float><<<rows, kThreads, 0, stream>>>(call);
    }
    launched("prefill convert");
}

// add_rows needs rows that begin at multiples of 16 bytes; everything else goes to epilogue_tiles.
void launch_epilogue(cudaStream_t stream, const GemmSums& in, const EpilogueArgs& epilogue) {
    if (epilogue.kind == Epilogue::out && epilogue.rows % 4 == 0 && epilogue.out_stride % 4 == 0) {
        const dim3 grid(blocks_of(epilogue.rows, 4 * kThreads), static_cast<unsigned>(in.rows));
        add_rows<<<grid, kThreads, 0, stream>>>(in, epilogue);
    } else {
        const dim3 grid(blocks_of(epilogue.rows, 2 * kEpiloguePairs), blocks_of(in.rows, kEpilogueRows));
        epilogue_tiles<<<grid, kThreads, 0, stream>>>(in, epilogue);
    }
    launched("prefill epilogue");
}

void launch_mlp_epilogue(cudaStream_t stream, const GemmSums& in, const EpilogueArgs& epilogue, __half* halves,
                         std::int64_t halves_stride, float* scale) {
    // A kernel must opt in to more than 48 KiB of shared memory; mlp_rows_fit() has checked that there is so much.
    const int bytes = halves == nullptr ? 0 : unit_bytes(epilogue.rows / 2);
    if (bytes > 48 * 1024) {
        cuda_check(cudaFuncSetAttribute(mlp_epilogue, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "prefill units");
    }
    mlp_epilogue<<<static_cast<unsigned>(in.rows), kUnitThreads, bytes, stream>>>(in, epilogue, halves, halves_stride,
                                                                                  scale);
    launched("prefill units");
}

}  // namespace foresay::kernels::cuda
