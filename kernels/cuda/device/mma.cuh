// kernels/cuda/device/mma.cuh: the matrix instructions of the products: 16 x 16 (or 16 x 8) times 16 (8) x 8, float32
// accumulators.
//
// Lanes:    with r = lane / 4 and q = lane % 4, each register a pair of 16-bit numbers. A (row-major): a0 row r, a1 row
//           r + 8, inputs 2 q, 2 q + 1; a2, a3 the same rows, inputs 8 more. B: b0 inputs 2 q, 2 q + 1 of column r, b1
//           inputs 8 more. D: d[0], d[1] row r, columns 2 q, 2 q + 1; d[2], d[3] row r + 8.
// Order:    the hardware adds the products of one instruction in an order of its own, the same for every column.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace foresay::kernels::cuda {

__device__ inline void mma(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                           std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ inline void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
// Half as deep: k = 0..7.
__device__ inline void mma_k8(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0,
                              const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(b0), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

}  // namespace foresay::kernels::cuda
