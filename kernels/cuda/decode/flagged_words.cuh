// kernels/cuda/decode/flagged_words.cuh: values that CTAs pass to each other and that carry their own ready flag.
//
// A word that is not written yet is kNotReady, the bits of a NaN that no instruction produces. A reader loads the word
// until it is something else: no counter, no fence, and it waits for no value but the ones it needs. Loads and stores
// of up to 16 bytes are single accesses of the L2, so a vector is either seen word by word as old or new; each word is
// checked.
//
// Protocol: every word is written once, read by all who need it, then reset to kNotReady. The reset must come after the
//           last read and before the next write; how the steps of the decode kernel guarantee that is at
//           kFlaggedBuffers (gemv.h), for attention in merge_chunks.cuh.
// Breaks:   a result that is a NaN with exactly these bits would be waited for for ever. Arithmetic instructions yield
//           the NaN 0x7fffffff, so never copy bits from elsewhere into these words without arithmetic.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNotReady = 0xffffffffu;

__device__ inline bool not_ready(float x) { return __float_as_uint(x) == kNotReady; }
__device__ inline bool not_ready(const float2& v) { return not_ready(v.x) || not_ready(v.y); }
// The largest of the words so far and four more. kNotReady is the largest word there is, so the result is kNotReady if
// one of them is.
__device__ inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    so_far = __vimax3_u32(so_far, __float_as_uint(v.x), __float_as_uint(v.y));
    return __vimax3_u32(so_far, __float_as_uint(v.z), __float_as_uint(v.w));
}
__device__ inline bool not_ready(const float4& v) { return largest_word(0, v) == kNotReady; }

// Relaxed loads at the scope of the device: from L2, because lines in L1 may be older.
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

// The same from any memory.
__device__ inline float4 load_anywhere4(const void* from) {
    float4 value;
    asm volatile("ld.relaxed.gpu.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

// Loads if `wanted`, by a predicate instead of a branch, so that several loads can be in flight.
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
