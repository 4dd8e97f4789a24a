// Attention of heads that are too wide for tiles: a CTA for a head of a row takes 64 positions at a time, of either row
// class. Plain and much slower than the other kernels: it reads K and V again for each query head, and a row's
// positions are not divided between CTAs.
//
// Data flow of a block of 64 positions (a page), per CTA:
//
//   scores   a warp for each position, the query in its registers --> shared memory
//   weights  exp2(score - peak), by every thread from the same scores
//   output   two values of the head per thread, eight positions in one load
//
// Blocks:   begin at multiples of 64 of the absolute position. What a row does not attend to is not scored, or, in a
//           group of eight that is loaded together, adds an exact 0 (law 1).
// Trees:    positions on a row's path are looked up one by one.
// Overlap:  none: the kernel reads through L1 what its predecessors have written.

#include "kernels/cuda/attention/kv_fragments.cuh"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

using attention::kLog2e;
using attention::minus_infinity;
using attention::power_of_two;
using attention::sink_weight;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kWidth = kMaxAttendWidth;
constexpr int kEach = kWidth / kThreads;     // values of the head of a thread
constexpr int kKeyRuns = kWidth / (32 * 8);  // runs of eight values of a key of a lane
constexpr int kBlock = kPagePositions, kRun = 8;

// K and V of a key-value head in one page: eight neighbouring values of a key, or eight neighbouring positions of a
// value, at once.
template <KvFormat kFormat>
struct Page;

template <>
struct Page<KvFormat::f16> {
    const __half* base;

    static __device__ void expand(const __half* from, float (&to)[kRun]) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
        for (int i = 0; i < 4; ++i) {
            const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
            to[2 * i] = pair.x;
            to[2 * i + 1] = pair.y;
        }
    }
    __device__ const __half* value_at(int32_t place, int32_t d) const {
        const KvFragmentOrder order = value_order(KvFormat::f16, kWidth);
        return base + kPagePositions * kWidth + order.value_place(place) + order.value_value(d);
    }
    __device__ void keys(int32_t place, int32_t d, float (&to)[kRun]) const {
        const KvFragmentOrder order = key_order(KvFormat::f16, kWidth);
        expand(base + order.key_place(place) + order.key_value(d), to);
    }
    __device__ void values(int32_t place, int32_t d, float (&to)[kRun]) const { expand(value_at(place, d), to); }
    __device__ float value(int32_t place, int32_t d) const { return __half2float(*value_at(place, d)); }
};

template <>
struct Page<KvFormat::q8> {
    const __half* base;

    __device__ const unsigned char* codes() const { return reinterpret_cast<const unsigned char*>(base); }
    // What a code of the key (0) or the value (1) of a position is multiplied by.
    __device__ float step(int32_t place, int which) const {
        return reinterpret_cast<const float*>(codes() + KvCodes::scales(kWidth, place))[which] / kLargestCode;
    }
    __device__ void keys(int32_t place, int32_t d, float (&to)[kRun]) const {
        const unsigned char* from = codes() + KvCodes::key(kWidth, place, d);
        const float scale = step(place, 0);
        for (int i = 0; i < kRun; ++i) to[i] = static_cast<float>(from[i] - kCodeZero) * scale;
    }
    __device__ void values(int32_t place, int32_t d, float (&to)[kRun]) const {
        for (int i = 0; i < kRun; ++i) to[i] = value(place + i, d);
    }
    __device__ float value(int32_t place, int32_t d) const {
        return static_cast<float>(codes()[KvCodes::value(kWidth, place, d)] - kCodeZero) * step(place, 1);
    }
};

template <>
struct Page<attention::kAnyLowBits> {
    const __half* base;
    LowCodes layout;

    __device__ float number(bool is_value, int32_t place, int32_t d) const {
        return layout.number(reinterpret_cast<const unsigned char*>(base), is_value, place, d);
    }
    __device__ void keys(int32_t place, int32_t d, float (&to)[kRun]) const {
        for (int i = 0; i < kRun; ++i) to[i] = number(false, place, d + i);
    }
    __device__ void values(int32_t place, int32_t d, float (&to)[kRun]) const {
        for (int i = 0; i < kRun; ++i) to[i] = number(true, place + i, d);
    }
    __device__ float value(int32_t place, int32_t d) const { return number(true, place, d); }
};

// Grid: (rows, query heads). kNumber: of a KvFormat; nvcc cannot spell a format that has no name of its own.
template <int kNumber>
__global__ void __launch_bounds__(kThreads) wide_kernel(AttendCall c) {
    constexpr auto kFormat = static_cast<KvFormat>(kNumber);
    __shared__ float query[kWidth];
    __shared__ float scores[kBlock];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int64_t t = blockIdx.x;
    const int32_t head = blockIdx.y;
    const RowState row = c.batch.rows[t];
    const int32_t first = c.window > 0 ? max(0, row.position - c.window + 1) : 0;
    const int64_t kv_head = head / c.group * c.layout.head_stride;
    // The page that a cell is in.
    const auto page_of = [&](int32_t cell) {
        const int32_t number = c.batch.lists[row.pages + cell / kPagePositions];
        const __half* const base = c.kv + number * c.layout.page_stride + kv_head;
        if constexpr (has_low_bits(kFormat)) {
            return Page<kFormat>{base, LowCodes(c.layout)};
        } else {
            return Page<kFormat>{base};
        }
    };
    const float* const q = c.q + (t * c.heads + head) * c.head_dim;
    for (int32_t d = thread; d < kWidth; d += kThreads) query[d] = d < c.head_dim ? q[d] : 0.0f;
    __syncthreads();
    float own[kKeyRuns][kRun];  // of the query, as this lane needs it
#pragma unroll
    for (int g = 0; g < kKeyRuns; ++g) {
#pragma unroll
        for (int i = 0; i < kRun; ++i) own[g][i] = query[(32 * g + lane) * kRun + i];
    }
    float peak = minus_infinity(), sum = 0.0f, out[kEach] = {};
    for (int32_t block = first / kBlock; block <= row.position / kBlock; ++block) {
        const int32_t begin = max(first, block * kBlock), end = min(row.position + 1, (block + 1) * kBlock);
        for (int32_t p = begin + warp; p < end; p += kWarps) {
            const int32_t cell = c.batch.cell(row, p);
            const Page<kFormat> page = page_of(cell);
            float score = 0.0f;
#pragma unroll
            for (int g = 0; g < kKeyRuns; ++g) {
                float key[kRun];
                page.keys(cell % kPagePositions, (32 * g + lane) * kRun, key);
#pragma unroll
                for (int i = 0; i < kRun; ++i) score = fmaf(own[g][i], key[i], score);
            }
            for (int offset = 16; offset > 0; offset >>= 1) score += __shfl_xor_sync(0xffffffffu, score, offset);
            score *= c.scale;
            if (c.soft_cap > 0) score = c.soft_cap * tanhf(score / c.soft_cap);
            if (lane == 0) scores[p - block * kBlock] = score * kLog2e;
        }
        // The other positions of the block have no weight.
        if (thread < kBlock && (thread < begin - block * kBlock || thread >= end - block * kBlock)) {
            scores[thread] = minus_infinity();
        }
        __syncthreads();
        float top = peak;
        for (int i = 0; i < kBlock; ++i) top = fmaxf(top, scores[i]);
        const float old = power_of_two(peak - top);
        peak = top;
        sum *= old;
        for (float& value : out) value *= old;
        for (int i = 0; i < kBlock; i += kRun) {
            float weight[kRun];
            bool some = false;
#pragma unroll
            for (int j = 0; j < kRun; ++j) {
                weight[j] = power_of_two(scores[i + j] - top);
                sum += weight[j];
                some |= scores[i + j] != minus_infinity();
            }
            if (!some) continue;  // the same in all threads
            const int32_t p = block * kBlock + i;
            // Whether all eight lie in the cells of their positions.
            const bool in_place = row.branch == 0 || p + kRun <= row.position - row.branch + 1;
            const Page<kFormat> page = page_of(p);
#pragma unroll
            for (int e = 0; e < kEach; ++e) {
                const int32_t d = thread + kThreads * e;
                float values[kRun] = {};
                if (in_place) {
                    page.values(i, d, values);
                } else {
                    for (int j = 0; j < kRun; ++j) {
                        if (p + j < begin || p + j >= end) continue;
                        const int32_t cell = c.batch.cell(row, p + j);
                        values[j] = page_of(cell).value(cell % kPagePositions, d);
                    }
                }
#pragma unroll
                for (int j = 0; j < kRun; ++j) out[e] = fmaf(weight[j], values[j], out[e]);
            }
        }
        __syncthreads();
    }
    if (c.sinks != nullptr) sum += sink_weight(c.sinks[head], peak);
    float* const to = c.out + (t * c.heads + head) * c.head_dim;
    for (int e = 0; e < kEach; ++e) {
        if (thread + kThreads * e < c.head_dim) to[thread + kThreads * e] = out[e] / sum;
    }
}

}  // namespace

void launch_attend_wide(cudaStream_t stream, const AttendCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>(call.heads));
    const auto kernel = has_low_bits(call.layout.format)     ? wide_kernel<static_cast<int>(attention::kAnyLowBits)>
                        : call.layout.format == KvFormat::q8 ? wide_kernel<static_cast<int>(KvFormat::q8)>
                                                             : wide_kernel<static_cast<int>(KvFormat::f16)>;
    kernel<<<grid, kThreads, 0, stream>>>(call);
    launched("attention of wide heads");
}

}  // namespace foresay::kernels::cuda
