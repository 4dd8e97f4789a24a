// tests/cuda_linear/emulated/kernels/cuda/device/wgmma.cuh: the matrix instruction of a warpgroup, by emulation.h. It
// is done when it is issued.
#pragma once

#include <cstdlib>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/wgmma_operands.cuh"

namespace foresay::kernels::cuda {

inline void wgmma_fence() {}
inline void wgmma_commit() {}
inline void wgmma_wait() {}
template <class T, int kCount>
void keep_registers(T (&)[kCount]) {}

template <bool kAdds, int kCount>
void wgmma(float (&d)[kCount], const std::uint32_t (&a)[4], std::uint64_t b) {
    if ((b & ~std::uint64_t{0x3fff'3fff'3fff}) != 0) std::abort();  // an addition has left its 14 bits
    const auto part = [b](int shift) { return static_cast<std::uint32_t>(b >> shift & 0x3fff) << 4; };
    const std::uint32_t address = part(0), inputs = part(16), columns = part(32);
    emulated::Meeting& group = emulated::warpgroups[static_cast<std::size_t>(emulated::number() / 128)];
    emulated::show(emulated::OperandA{{a[0], a[1], a[2], a[3]}});
    emulated::meet(group);
    const int lane = emulated::number() % 32;
    for (int i = 0; i < kCount; ++i) {
        const int column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
        d[i] = emulated::add_products(kAdds ? d[i] : 0.0f, lane / 4 + 8 * (i / 2 % 2), [&](int k) {
            const auto at = address + static_cast<std::uint32_t>(k / 8) * inputs +
                            static_cast<std::uint32_t>(column / 8) * columns +
                            static_cast<std::uint32_t>(column % 8 * 16 + k % 8 * 2);
            return __half2float(load_shared<__half>(at));
        });
    }
    emulated::meet(group);
}

}  // namespace foresay::kernels::cuda
