// tests/kernels/cache_bits.h: the bits in the key-value pages of the host's backends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_memory.h"
#include "kernels/reference/reference_ops.h"

namespace foresay::test {

// A byte of which every float16 and every scale of codes is NaN.
inline constexpr std::uint8_t kNanByte = 0xff;

// Of the CPU backend.
inline std::span<std::uint8_t> all_bytes(kernels::KvPages& pages) {
    auto& kv = static_cast<kernels::cpu::CpuKv&>(pages);
    return {reinterpret_cast<std::uint8_t*>(kv.memory.data), static_cast<std::size_t>(kv.bytes)};
}

inline std::vector<std::uint8_t> reference_cell_bytes(const kernels::reference::ReferenceKv& kv, std::int32_t page,
                                                      std::int32_t place) {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < kv.shape.layers.size(); ++i) {
        const kernels::KvLayer& layer = kv.shape.layers[i];
        const std::int64_t at = kv.offset(static_cast<std::int32_t>(i), page, place, 0);
        for (const auto* values : {&kv.k[i], &kv.v[i]}) {
            const auto* bytes = reinterpret_cast<const std::uint8_t*>(values->data() + at);
            out.insert(out.end(), bytes,
                       bytes + sizeof(float) * static_cast<std::size_t>(layer.heads * layer.head_dim));
        }
    }
    return out;
}

// K and V of all layers and heads in one cell.
inline std::vector<std::uint8_t> cell_bytes(const kernels::KvPages& pages, std::span<const std::int32_t> list,
                                            std::int32_t cell) {
    if (const auto* reference = dynamic_cast<const kernels::reference::ReferenceKv*>(&pages)) {
        return reference_cell_bytes(*reference, list[static_cast<std::size_t>(cell / kernels::kPagePositions)],
                                    cell % kernels::kPagePositions);
    }
    const auto& kv = static_cast<const kernels::cpu::CpuKv&>(pages);
    const bool codes = kv.format != kernels::KvFormat::f16;
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
        // Padding of values may hold anything; with low bits there is none that is not written.
        const bool low = layer.v_bits() < 8;
        const std::int64_t values = low ? layer.v_stride() : layer.shape.head_dim;
        for (std::int32_t head = 0; head < layer.shape.heads; ++head) {
            std::uint8_t *k = layer.k(page, head), *v = layer.v(page, head);
            for (std::int64_t i = 0; i < layer.k_columns(); ++i)
                append(k + size * (layer.k_index(place) + 16 * i), size);
            append(v + size * place * layer.v_stride(), size * values);
            if (!codes) continue;
            append(layer.k_steps(k) + place, sizeof(float));
            append(layer.v_steps(v) + place, sizeof(float));
        }
    }
    return out;
}

}  // namespace foresay::test
