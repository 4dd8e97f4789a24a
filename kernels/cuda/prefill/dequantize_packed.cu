// Packed panels to plain rows: a warp takes a block, 32 rows x 64 inputs; its lanes read codes and scales as the decode
// kernel does (weights/packed_codes.cuh), and compute weights in float32 by the formula of kernels/quant/packing.h.

#include "kernels/cuda/prefill/dequantize_packed.h"

#include <cmath>

#include "kernels/cuda/weights/packed_codes.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // of a CTA

struct GlobalBlock {
    const std::uint8_t* at;
    __device__ std::uint32_t one(int byte) const { return __ldcs(reinterpret_cast<const std::uint32_t*>(at + byte)); }
    __device__ uint2 two(int byte) const { return __ldcs(reinterpret_cast<const uint2*>(at + byte)); }
    __device__ uint4 four(int byte) const { return __ldcs(reinterpret_cast<const uint4*>(at + byte)); }
};

// body(t, h, g, a, b): weights times `times`, a power of two, of row 16 t + 8 h + lane / 4, inputs 32 g + 4 (lane % 4)
// .. and 16 further.
template <CodeKind kKind, class Body>
__device__ __forceinline__ void weights_of_block(const GlobalBlock& block, const PackedHeader& header,
                                                 const PackedRun& run, int lane, float times, const Body& body) {
    constexpr int kScales = code_bits(kKind) * 256;
    constexpr float kUnit = kCodeUnit<kKind>, kUpperUnit = kUnit / 16.0f;
    const bool minimum_is_zero = (header.flags & kMinimumIsZero) != 0;
    const bool has_minimum =
        !minimum_is_zero && (header.scales == PanelScales::f16_pair || header.scales == PanelScales::f32_pair ||
                             header.scales == PanelScales::k_pair);
    const float factor = header.factor[lane / 4 % 2] * times;
    uint4 table = {};
    if constexpr (is_table(kKind)) table = *reinterpret_cast<const uint4*>(header.table);
    const auto four = [&](std::uint32_t first, std::uint32_t second, float s, float m) {
        const float2 low = as_floats(first), high = as_floats(second);
        const float zero = kKind == CodeKind::e4m3 ? 0.0f : is_table(kKind) ? 128.0f : minimum_is_zero ? m : run.zero;
        const float minimum = has_minimum ? m : -0.0f;  // which changes no number, nor the sign of zero
        // Code times unit is exact, so fmaf rounds as the difference does.
        const auto weight = [&](float code, float unit) { return (s * fmaf(code, unit, -zero) + minimum) * factor; };
        return float4{weight(low.x, kUnit), weight(low.y, kUnit), weight(high.x, kUpperUnit),
                      weight(high.y, kUpperUnit)};
    };
    [[maybe_unused]] float s32[2][4], m32[2][4];
    if constexpr (!has_halves(kKind)) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            load_group_scales(block, header.scales, kScales + (g == 1 && run.apart ? scale_bytes(header.scales) : 0),
                              lane, s32[g], m32[g]);
        }
    }
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        // All loads of a tile before its stores: the compiler cannot know that what is stored is not what is loaded
        // next. Those of both tiles at once would take registers from the warps beside.
        [[maybe_unused]] float s16[2][4], m16[2][4];
        if constexpr (has_halves(kKind)) load_halves(block, header.scales, kScales, t, lane, s16, m16);
        CodeWords words[2];
#pragma unroll
        for (int g = 0; g < 2; ++g) words[g] = load_words<kKind>(block, t, g, lane);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][4];
            unpack_words<kKind>(words[g], g, table, p);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float4 of[2];
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    if constexpr (has_halves(kKind)) {
                        of[s] = four(p[h][2 * s], p[h][2 * s + 1], s16[h][2 * g + s], m16[h][2 * g + s]);
                    } else {
                        of[s] = four(p[h][2 * s], p[h][2 * s + 1], s32[g][2 * t + h], m32[g][2 * t + h]);
                    }
                }
                body(t, h, g, of[0], of[1]);
            }
        }
    }
}

// The panels of a launch, from `first` on.
struct PackedPart {
    const std::uint8_t* data;  // of the part: the header, and the panels after it
    std::int64_t first;
    std::int32_t blocks;  // of a panel
};

// Calls body as above for the block of this warp. Grid: x: kWarps blocks each; y: panels.
template <class Body>
__device__ __forceinline__ void visit_block(const PackedPart& part, std::int32_t block, float times, const Body& body) {
    if (block >= part.blocks) return;
    const PackedHeader& header = *reinterpret_cast<const PackedHeader*>(part.data);
    int number = 0;
    while (block >= header.runs[number].end) ++number;
    const PackedRun run = header.runs[number];
    const GlobalBlock from{part.data + header.panels_at +
                           static_cast<std::int64_t>(part.first + blockIdx.y) * header.panel_bytes + run.offset +
                           static_cast<std::int64_t>(block - run.first) * run.bytes()};
    const int lane = static_cast<int>(threadIdx.x % 32);
    visit_code_kind(run.kind, [&](auto kind) { weights_of_block<kind.value>(from, header, run, lane, times, body); });
}
__device__ std::int32_t warp_block() { return static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32); }

__device__ uint2 halves(const float4& v) {
    return {as_bits(__floats2half2_rn(v.x, v.y)), as_bits(__floats2half2_rn(v.z, v.w))};
}

__global__ void __launch_bounds__(32 * kWarps)
    packed_to_f16(const PackedPart part, float times, __half* out, std::int64_t stride) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::int32_t block = warp_block();
    // Neighbouring lanes trade, so that each writes eight inputs that follow one another (dequantize.cu).
    const bool odd = lane % 2 != 0;
    __half* const to = out + (static_cast<std::int64_t>(blockIdx.y) * kPanelRows + lane / 4) * stride +
                       static_cast<std::int64_t>(block) * 64 + (odd ? 16 + 4 * (lane % 4 - 1) : 4 * (lane % 4));
    visit_block(part, block, times, [&](int t, int h, int g, const float4& a, const float4& b) {
        const uint2 first = halves(a), second = halves(b);
        const uint2 away = odd ? first : second;
        const uint2 got = {__shfl_xor_sync(~0u, away.x, 1), __shfl_xor_sync(~0u, away.y, 1)};
        *reinterpret_cast<uint4*>(to + (16 * t + 8 * h) * stride + 32 * g) =
            odd ? uint4{got.x, got.y, second.x, second.y} : uint4{first.x, first.y, got.x, got.y};
    });
}

__global__ void __launch_bounds__(32 * kWarps) packed_to_f32(const PackedPart part, float* out, std::int64_t stride) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::int32_t block = warp_block();
    float* const to = out + (static_cast<std::int64_t>(blockIdx.y) * kPanelRows + lane / 4) * stride +
                      static_cast<std::int64_t>(block) * 64 + 4 * (lane % 4);
    visit_block(part, block, 1.0f, [&](int t, int h, int g, const float4& a, const float4& b) {
        float* const row = to + (16 * t + 8 * h) * stride + 32 * g;
        *reinterpret_cast<float4*>(row) = a;
        *reinterpret_cast<float4*>(row + 16) = b;
    });
}

__global__ void __launch_bounds__(32 * kWarps) largest_packed(const PackedPart part, std::uint32_t* found) {
    float most = 0.0f;
    const auto see = [&](float value) {
        if (fabsf(value) <= 3.4e38f) most = fmaxf(most, fabsf(value));
    };
    visit_block(part, warp_block(), 1.0f, [&](int, int, int, const float4& a, const float4& b) {
        see(a.x), see(a.y), see(a.z), see(a.w);
        see(b.x), see(b.y), see(b.z), see(b.w);
    });
    const std::uint32_t of_warp = __reduce_max_sync(~0u, __float_as_uint(most));
    if (threadIdx.x % 32 == 0 && of_warp != 0) atomicMax(found, of_warp);
}

PackedPart part_of(const Panels::Part& part, std::int32_t first) { return {part.data.data(), first, part.blocks}; }
dim3 grid_of(const Panels::Part& part, std::int32_t count) {
    return {static_cast<unsigned>((part.blocks + kWarps - 1) / kWarps), static_cast<unsigned>(count)};
}

}  // namespace

void launch_dequantize_packed(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count,
                              int shift, void* out, std::int64_t stride) {
    packed_to_f16<<<grid_of(part, count), 32 * kWarps, 0, stream>>>(part_of(part, first), std::ldexp(1.0f, shift),
                                                                    static_cast<__half*>(out), stride);
    launched("packed_to_f16");
}

void launch_dequantize_packed_f32(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count,
                                  float* out, std::int64_t stride) {
    packed_to_f32<<<grid_of(part, count), 32 * kWarps, 0, stream>>>(part_of(part, first), out, stride);
    launched("packed_to_f32");
}

void launch_largest_packed(const Panels::Part& part, std::uint32_t* found) {
    largest_packed<<<grid_of(part, part.panels), 32 * kWarps>>>(part_of(part, 0), found);
    launched("largest_packed");
}

const std::uint16_t* packed_order(const Panels::Part& part) {
    if (part.quant_type != QuantType::packed) return nullptr;
    std::uint32_t panels_at = 0;
    cuda_check(cudaMemcpy(&panels_at, part.data.data() + offsetof(PackedHeader, panels_at), sizeof panels_at,
                          cudaMemcpyDeviceToHost),
               "cannot read back");
    if (panels_at == sizeof(PackedHeader)) return nullptr;
    return reinterpret_cast<const std::uint16_t*>(part.data.data() + kOrderAt);
}

}  // namespace foresay::kernels::cuda
