// tests/kernels/cache_bits.h: the bits in the key-value pages of the CPU backend.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_memory.h"

namespace foresay::test {

// A byte of which every float16 and every scale of codes is NaN.
inline constexpr std::uint8_t kNanByte = 0xff;

inline std::span<std::uint8_t> all_bytes(kernels::KvPages& pages) {
    auto& kv = static_cast<kernels::cpu::CpuKv&>(pages);
    return {reinterpret_cast<std::uint8_t*>(kv.memory.data), static_cast<std::size_t>(kv.bytes)};
}

// K and V of all layers and heads in one cell.
inline std::vector<std::uint8_t> cell_bytes(const kernels::KvPages& pages, std::span<const std::int32_t> list,
                                            std::int32_t cell) {
    const auto& kv = static_cast<const kernels::cpu::CpuKv&>(pages);
    const bool codes = kv.format == kernels::KvFormat::q8;
    const std::int64_t size = codes ? 1 : 2;
    const std::int32_t page = list[static_cast<std::size_t>(cell / kernels::kPagePositions)];
    const std::int32_t place = cell % kernels::kPagePositions;
    std::vector<std::uint8_t> out;
    const auto append = [&](const void* from, std::int64_t bytes) {
        const auto* p = static_cast<const std::uint8_t*>(from);
        out.insert(out.end(), p, p + bytes);
    };
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(kv.shape.layers.size()); ++i) {
        const kernels::cpu::CpuKvLayer layer = kv.layer(i);
        const std::int32_t dh = layer.shape.head_dim;
        for (std::int32_t head = 0; head < layer.shape.heads; ++head) {
            std::uint8_t *k = layer.k(page, head), *v = layer.v(page, head);
            for (std::int32_t d = 0; d < dh; ++d) append(k + size * (layer.k_index(place) + 16 * d), size);
            append(v + size * place * layer.v_stride(), size * dh);
            if (!codes) continue;
            append(layer.k_steps(k) + place, sizeof(float));
            append(layer.v_steps(v) + place, sizeof(float));
        }
    }
    return out;
}

}  // namespace foresay::test
