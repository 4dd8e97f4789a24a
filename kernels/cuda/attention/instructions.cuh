// kernels/cuda/attention/instructions.cuh: the instructions that attention kernels share. A test has others in their
// place (tests/cuda_attention/emulated).
//
// Precision: ex2.approx and rcp.approx give the same bits for the same number in every launch, which is all that law 1
//           needs. They differ from exp2f() and a division.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda::attention {

// c += a . b: 16 x 16 times 16 x 8, float16 operands, float32 sums. Volatile, so that the compiler keeps its place
// among ordered loads (kv_fragments.cuh).
__device__ inline void multiply_add(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                    std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 2^x; 0 for -inf and for results below the normal numbers.
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// To about a unit in the last place, in one instruction.
__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace foresay::kernels::cuda::attention
