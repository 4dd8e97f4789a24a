// tests/cuda_linear/emulated/kernels/cuda/device/mma.cuh: the matrix instruction of a warp, by emulation.h.
#pragma once

#include "tests/cuda_linear/emulated/emulation.h"

namespace foresay::kernels::cuda {

inline void mma(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                std::uint32_t b1, const float (&c)[4]) {
    namespace emulated = foresay::test::emulated;
    struct Both {
        emulated::OperandA a;
        std::uint32_t b[2];
    };
    const float begin[4] = {c[0], c[1], c[2], c[3]};
    emulated::show(Both{{{a0, a1, a2, a3}}, {b0, b1}});
    emulated::meet_warp();
    const int lane = emulated::number() % 32;
    for (int i = 0; i < 4; ++i) {
        const int column = 2 * (lane % 4) + i % 2;
        d[i] = emulated::add_products(begin[i], lane / 4 + 8 * (i / 2), [&](int k) {
            const auto of = emulated::shown_by<Both>(4 * column + k % 8 / 2);
            return emulated::half_of(&of.b[k / 8], k % 2);
        });
    }
    emulated::meet_warp();
}
// Of other types than packed rows.
inline void mma_bf16(float (&)[4], std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                     std::uint32_t, const float (&)[4]) {
    std::abort();
}
inline void mma_k8(float (&)[4], std::uint32_t, std::uint32_t, std::uint32_t, const float (&)[4]) { std::abort(); }

}  // namespace foresay::kernels::cuda
