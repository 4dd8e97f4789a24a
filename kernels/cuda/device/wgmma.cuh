// kernels/cuda/device/wgmma.cuh: the matrix instruction of a warpgroup: 64 x 16 from registers times 16 x N from shared
// memory, float32 accumulators. Only code for sm_90a has it.
//
// Lanes:    warp i of the warpgroup has rows 16 i to 16 i + 15, with the registers of mma.m16n8k16 (mma.cuh); d[4 j ..]
//           are columns 8 j to 8 j + 7.
// B:        8 inputs x 8 columns are 128 bytes in a row, [column][input]; a descriptor says how far the next 8 inputs
//           and the next 8 columns are.
// Bits:     those of mma.sync, for every N (tests/cuda_linear).
// Order:    accumulators and A are registers that the hardware reads and writes later: wgmma_fence() before the first,
//           wgmma_commit() after the last, wgmma_wait() before the sums are read. A branch between them, or operands
//           worked out after the fence, makes the compiler wait for each one (ptxas says so).
#pragma once

#include <cstdint>

#include "kernels/cuda/device/wgmma_operands.cuh"

namespace foresay::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

__device__ inline void wgmma_fence() {
    if constexpr (kHasWgmma) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
    if constexpr (kHasWgmma) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// For all but the last kLeft that were committed.
template <int kLeft>
__device__ inline void wgmma_wait_for() {
    if constexpr (kHasWgmma) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
__device__ inline void wgmma_wait() { wgmma_wait_for<0>(); }
// Ties registers to this place in the code.
template <int kCount>
__device__ inline void keep_registers(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ inline void keep_registers(std::uint32_t (&a)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i]));
}

// d = a b, or d += a b, for as many columns as d has room for, with elements of the named type.
#define FORESAY_WGMMA(NAME, TYPE)                                                                                      \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[4], const std::uint32_t(&a)[4], std::uint64_t b) {                           \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %9, 0;\n"                                                      \
                "wgmma.mma_async.sync.aligned.m64n8k16.f32." TYPE "." TYPE                                             \
                " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, adds, 1, 1, "                                                \
                "0;\n}"                                                                                                \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }                                                                                                                  \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[8], const std::uint32_t(&a)[4], std::uint64_t b) {                           \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %13, 0;\n"                                                     \
                "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                                            \
                " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "                                              \
                "%12, adds, 1, 1, 0;\n}"                                                                               \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])       \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }                                                                                                                  \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[16], const std::uint32_t(&a)[4], std::uint64_t b) {                          \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n"                                                     \
                "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                            \
                " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                                 \
                "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n}"                                    \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }                                                                                                                  \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[24], const std::uint32_t(&a)[4], std::uint64_t b) {                          \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %29, 0;\n"                                                     \
                "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE                                            \
                " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                             \
                "%16, %17, %18, %19, %20, %21, %22, %23}, "                                                            \
                "{%24, %25, %26, %27}, %28, adds, 1, 1, 0;\n}"                                                         \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),             \
                  "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),           \
                  "+f"(d[22]), "+f"(d[23])                                                                             \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }                                                                                                                  \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[32], const std::uint32_t(&a)[4], std::uint64_t b) {                          \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"                                                     \
                "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                            \
                " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                                 \
                "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "      \
                "%31}, "                                                                                               \
                "{%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n}"                                                         \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),             \
                  "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),           \
                  "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),           \
                  "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                                                \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }                                                                                                                  \
    template <bool kAdds>                                                                                              \
    __device__ inline void NAME(float(&d)[64], const std::uint32_t(&a)[4], std::uint64_t b) {                          \
        if constexpr (kHasWgmma) {                                                                                     \
            asm volatile(                                                                                              \
                "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"                                                     \
                "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                                           \
                " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                                 \
                "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                "%32, "                                                                                                \
                "%33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
                "%53, "                                                                                                \
                "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n}"      \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),             \
                  "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),           \
                  "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),           \
                  "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),           \
                  "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),           \
                  "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),           \
                  "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),           \
                  "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])            \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdds ? 1 : 0));                             \
        }                                                                                                              \
    }

FORESAY_WGMMA(wgmma, "f16")
FORESAY_WGMMA(wgmma_bf16, "bf16")
#undef FORESAY_WGMMA

}  // namespace foresay::kernels::cuda
