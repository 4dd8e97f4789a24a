// kernels/cuda/decode/flagged_words.cuh: numbers that blocks hand to each other, of which every word says by itself
// whether it has come.
//
// Words that have not come are kNothing, the bits of a NaN that no instruction gives. So nobody has to wait until all
// that a block has written can be read everywhere: who wants a number looks at it until it is one. Whoever has read it
// last puts kNothing back, before it can be written again.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNothing = 0xffffffffu;

__device__ inline bool is_nothing(float x) { return __float_as_uint(x) == kNothing; }
__device__ inline bool is_nothing(const float2& v) { return is_nothing(v.x) || is_nothing(v.y); }
// The largest of the words so far and four more: kNothing, the largest word there is, if one of them is.
__device__ inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    so_far = __vimax3_u32(so_far, __float_as_uint(v.x), __float_as_uint(v.y));
    return __vimax3_u32(so_far, __float_as_uint(v.z), __float_as_uint(v.w));
}
__device__ inline bool is_nothing(const float4& v) { return largest_word(0, v) == kNothing; }

// Looks past L1 at what other blocks may be writing.
__device__ inline float look_at(const float* from) {
    float value;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}
__device__ inline float2 look_at2(const void* from) {
    float2 value;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from) : "memory");
    return value;
}
__device__ inline float4 look_at4(const void* from) {
    float4 value;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

// Looks if `wanted`; without a branch, so that several can be under way.
__device__ inline void look_where(float4& value, bool wanted, const void* from) {
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

__device__ inline void put_nothing2(void* at) { __stcg(static_cast<uint2*>(at), uint2{kNothing, kNothing}); }
__device__ inline void put_nothing4(void* at) {
    __stcg(static_cast<uint4*>(at), uint4{kNothing, kNothing, kNothing, kNothing});
}

}  // namespace foresay::kernels::cuda
