// kernels/cuda/decode/flagged_words.cuh: numbers that blocks hand to each other, of which every word says by itself
// whether it has come.
//
// Words that have not come are kNotReady, the bits of a NaN that no instruction gives. So nobody has to wait until all
// that a block has written can be read everywhere: who wants a number looks at it until it is one. Whoever has read it
// last puts kNotReady back, before it can be written again.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNotReady = 0xffffffffu;

__device__ inline bool not_ready(float x) { return __float_as_uint(x) == kNotReady; }
__device__ inline bool not_ready(const float2& v) { return not_ready(v.x) || not_ready(v.y); }
// The largest of the words so far and four more: kNotReady, the largest word there is, if one of them is.
__device__ inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    so_far = __vimax3_u32(so_far, __float_as_uint(v.x), __float_as_uint(v.y));
    return __vimax3_u32(so_far, __float_as_uint(v.z), __float_as_uint(v.w));
}
__device__ inline bool not_ready(const float4& v) { return largest_word(0, v) == kNotReady; }

// Looks past L1 at what other blocks may be writing.
__device__ inline float load_flagged(const float* from) {
    float value;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline float2 load_flagged2(const void* from) {
    float2 value;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from) : "memory");
    return value;
}
__device__ inline float4 load_flagged4(const void* from) {
    float4 value;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

// Looks if `wanted`; without a branch, so that several can be under way.
__device__ inline void load_flagged4_if(float4& value, bool wanted, const void* from) {
    asm volatile(
        "{\n"
        ".reg .pred wanted;\n"
        "setp.ne.u32 wanted, %4, 0;\n"
        "@wanted ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%5];\n"
        "}"
        : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)
        : "r"(static_cast<std::uint32_t>(wanted)), "l"(from)
        : "memory");
}

__device__ inline void reset_flagged2(void* at) { __stcg(static_cast<uint2*>(at), uint2{kNotReady, kNotReady}); }
__device__ inline void reset_flagged4(void* at) {
    __stcg(static_cast<uint4*>(at), uint4{kNotReady, kNotReady, kNotReady, kNotReady});
}

}  // namespace foresay::kernels::cuda
