// tests/kernels/cache_bits.h: the bits in the key-value pages of the CPU backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_memory.h"

namespace foresay::test {

inline std::span<std::uint16_t> all_halves(kernels::KvPages& pages) {
    auto& kv = static_cast<kernels::cpu::CpuKv&>(pages);
    return {reinterpret_cast<std::uint16_t*>(kv.memory.data), static_cast<std::size_t>(kv.bytes / 2)};
}

// K and V of all layers and heads in one cell.
inline std::vector<std::uint16_t> cell_halves(const kernels::KvPages& pages, std::span<const std::int32_t> list,
                                              std::int32_t cell) {
    const auto& kv = static_cast<const kernels::cpu::CpuKv&>(pages);
    const std::int32_t page = list[static_cast<std::size_t>(cell / kernels::kPagePositions)];
    const std::int32_t place = cell % kernels::kPagePositions, dh = kv.shape.head_dim;
    std::vector<std::uint16_t> out;
    for (std::int32_t layer = 0; layer < kv.shape.layers; ++layer) {
        for (std::int32_t head = 0; head < kv.shape.kv_heads; ++head) {
            for (std::int32_t d = 0; d < dh; ++d)
                out.push_back(kv.k(layer, page, head)[(place / 16 * dh + d) * 16 + place % 16]);
            const std::uint16_t* v = kv.v(layer, page, head) + place * kernels::cpu::CpuKv::v_stride(kv.shape);
            out.insert(out.end(), v, v + dh);
        }
    }
    return out;
}

inline constexpr std::uint16_t kHalfNan = 0x7e00;

}  // namespace foresay::test
