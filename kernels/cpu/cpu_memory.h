// kernels/cpu/cpu_memory.h: the KV pages and the workspace of the CPU backend.
//
// Layout:   the keys of one key-value head in one layer of a page are [kPagePositions / 16, Dh, 16]: 16 positions side
//           by side, so that scores need no sum across lanes. The values are [kPagePositions, Dh rounded up to 16].
//           With f16 an element is a float16. With q8 it is an int8 code (kernels/kv_code.h), and float
//           [kPagePositions] follows the codes of K, and those of V: the step of each position, what its codes are
//           multiplied by. The order is page, layer, head, then K, V, so that a growing sequence touches memory page by
//           page.
// Low bits: (kernels/kv/low_bits.h) of 16 keys, a byte has the low four bits of two neighbouring values of one key,
//           then come bytes with the high two bits of four neighbouring values: [Dh / 2 + Dh / 4, 16]. Of a value
//           vector, 16 bytes have the low bits of values d ... d + 15 and d + 16 ... d + 31 (Dh rounded up to 32), then
//           come 16 bytes with the high bits of four such groups (Dh rounded up to 64). So one position never shares a
//           byte with another.
// Cost:     q8 takes half the memory of f16. Compared with f16, attention of one row takes 0.9 to 1.0 times as long
//           while K and V fit the processor's caches (1.3 on avx2 with one query head per key-value head), and 0.5 to
//           0.85 times as long beyond.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/cpu/activation_tiles.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/panels.h"
#include "kernels/kv/list.h"
#include "kernels/kv_format.h"
#include "kernels/ops.h"
#include "kernels/routing.h"
#include "kernels/sampling.h"

namespace foresay::kernels::cpu {

// One layer of a cache, as kernels address it.
struct CpuKvLayer {
    KvLayer shape;
    KvFormat format = KvFormat::f16;
    std::uint8_t* base = nullptr;  // of page 0
    std::int64_t page_stride = 0;  // bytes from a page to the next

    int k_bits() const { return kv_bits(key_type(format)); }
    int v_bits() const { return kv_bits(value_type(format)); }
    // Elements of a key, each one of 16 side by side, and of a value vector: numbers, or bytes where they have low
    // bits.
    std::int64_t k_columns() const {
        const std::int64_t width = shape.head_dim;
        return k_bits() >= 8 ? width : width / 2 + (k_bits() > 4 ? width / 4 : 0);
    }
    std::int64_t v_stride() const {
        const std::int64_t width = shape.head_dim;
        if (v_bits() >= 8) return round_up(width, 16);
        return round_up(width, 32) / 2 + (v_bits() > 4 ? round_up(width, 64) / 4 : 0);
    }
    // Bytes of an element.
    std::int64_t element_bytes() const { return format == KvFormat::f16 ? 2 : 1; }
    // Bytes of the keys, and of the values, of one head in one page.
    std::int64_t k_bytes() const { return tile_bytes(k_columns()); }
    std::int64_t v_bytes() const { return tile_bytes(v_stride()); }
    // Bytes of all heads, K and V, in one page.
    std::int64_t page_bytes() const { return shape.heads * (k_bytes() + v_bytes()); }

    std::uint8_t* k(std::int32_t page, std::int32_t head) const {
        return base + page * page_stride + head * (k_bytes() + v_bytes());
    }
    std::uint8_t* v(std::int32_t page, std::int32_t head) const { return k(page, head) + k_bytes(); }
    // Index of element 0 of the key at `place` in its page; element i lies 16 i further on.
    std::int64_t k_index(std::int32_t place) const {
        return static_cast<std::int64_t>(place / 16) * 16 * k_columns() + place % 16;
    }
    // Codes: the steps of a page's keys k() or values v().
    float* k_steps(std::uint8_t* k) const { return reinterpret_cast<float*>(k + kPagePositions * k_columns()); }
    float* v_steps(std::uint8_t* v) const { return reinterpret_cast<float*>(v + kPagePositions * v_stride()); }

private:
    std::int64_t tile_bytes(std::int64_t elements) const {
        const std::int64_t steps = format == KvFormat::f16 ? 0 : static_cast<std::int64_t>(sizeof(float));
        return kPagePositions * (elements * element_bytes() + steps);
    }
};

struct CpuKv : KvPages {
    Block memory;
    std::vector<std::int64_t> layer_offsets;  // of each layer in a page, and the size of a page

    // Offsets of each layer in a page, then the size of a page.
    static std::vector<std::int64_t> offsets(const KvShape& shape, KvFormat format) {
        std::vector<std::int64_t> all = {0};
        for (const KvLayer& layer : shape.layers) all.push_back(all.back() + CpuKvLayer{layer, format}.page_bytes());
        return all;
    }

    CpuKvLayer layer(std::int32_t index) const {
        const auto i = static_cast<std::size_t>(index);
        return {shape.layers[i], format, reinterpret_cast<std::uint8_t*>(memory.data) + layer_offsets[i],
                layer_offsets.back()};
    }
};

// cos and sin of every row's angles for one rope table. The first op of a forward that needs them fills them in.
struct RowAngles {
    std::vector<float> cos, sin;  // [T, pairs]
    bool valid = false;
};

struct ThreadScratch {
    std::vector<float> row;  // one row after a norm
    std::vector<float> routing;
    std::vector<float> attend;  // attend_scratch_floats
    std::vector<const std::uint8_t*> k_tiles, v_tiles;
    std::vector<std::uint8_t> tree_k, tree_v;  // tiles gathered for tree rows
    std::vector<std::int32_t> cells;
    SamplingScratch sampling;
};

struct CpuWorkspace : Workspace {
    Batch batch;
    Block memory;
    float* x = nullptr;          // [T, d_stride]
    float* qkv = nullptr;        // [T, q_stride + 2 kv_stride]
    float* attended = nullptr;   // [T, q_stride]
    float* ff = nullptr;         // [T, ff_stride]
    float* logits = nullptr;     // [logit rows, vocab_stride]
    float* projected = nullptr;  // [T, d_stride], outputs before a bias or post_norm
    float* up = nullptr;         // [T, ff_stride], where gate and up are not multiplied by one kernel
    // Experts (kernels/cpu/moe.cpp). A slot is a row's use of one expert; slots are in the order of the experts.
    float* branch = nullptr;      // [T, d_stride] that moe keeps for mlp_out
    float* scores = nullptr;      // [T, score_stride]
    float* expert_ff = nullptr;   // [slots, expert_stride]
    float* expert_up = nullptr;   // likewise
    float* expert_out = nullptr;  // [slots, d_stride]
    std::int64_t score_stride = 0, expert_stride = 0;
    ActivationTiles expert_tiles, expert_ff_tiles;
    std::vector<ExpertChoice> choices;     // [T, K]
    std::vector<std::int32_t> slot_of;     // [T, K]
    std::vector<std::int32_t> row_of;      // of each slot
    std::vector<std::int32_t> expert_of;   // likewise
    std::vector<std::int32_t> used;        // experts that some row has chosen
    std::vector<std::int32_t> first_slot;  // of each of them, then the number of slots
    std::vector<int> group_sizes;          // slots of each
    std::vector<std::int32_t> next_slot;   // [E], while slots are sorted
    // Per-layer embeddings.
    float* per_layer = nullptr;       // [T, per_layer_stride]
    float* per_layer_gate = nullptr;  // [T, P padded]
    std::int64_t per_layer_stride = 0, per_layer_part = 0;
    std::int64_t d_stride = 0, q_stride = 0, kv_stride = 0, ff_stride = 0, vocab_stride = 0;
    ActivationTiles tiles;     // activations of the next linear op
    ActivationTiles ff_tiles;  // those of mlp_out, which mlp_in fills while it reads `tiles`
    // Whether attend has already quantised `attended` into `tiles`, and mlp_in `ff` into `ff_tiles`.
    bool attended_coded = false, ff_coded = false;
    std::vector<std::atomic<int>> finished;  // panels done, by part of an op's outputs (CpuOps::run_parts)
    std::vector<RowAngles> angles;           // by rope table
    std::vector<ThreadScratch> scratch;
    std::vector<SampledToken> slots;
    KeptCandidates kept;
    std::vector<std::int32_t> groups;  // first row of each group that attends together (CpuOps::group_rows), then T

    std::int64_t qkv_stride() const { return q_stride + 2 * kv_stride; }
};

}  // namespace foresay::kernels::cpu
