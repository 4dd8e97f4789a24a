// kernels/cpu/cpu_memory.h: the KV pages and the workspace of the CPU backend.
//
// Layout:   the keys of one key-value head in one layer of a page are [kPagePositions / 16, Dh, 16]: 16 positions side
//           by side, so that scores need no sum across lanes. The values are [kPagePositions, Dh rounded up to 16].
//           With f16 an element is a float16. With q8 it is an int8 code (kernels/kv_code.h), and float
//           [kPagePositions] follows the codes of K, and those of V: the step of each position, largest magnitude /
//           127. The order is page, layer, head, then K, V, so that a growing sequence touches memory page by page.
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
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace foresay::kernels::cpu {

struct CpuKv : KvPages {
    Block memory;

    static std::int64_t v_stride(const ModelShape& s) { return round_up(s.head_dim, 16); }
    // Bytes of the keys, and of the values, of one head in one layer of a page.
    static std::int64_t k_bytes(const ModelShape& s, KvFormat f) { return tile_bytes(s.head_dim, f); }
    static std::int64_t v_bytes(const ModelShape& s, KvFormat f) { return tile_bytes(v_stride(s), f); }
    // Bytes of one layer of one page: all heads, K and V.
    static std::int64_t page_bytes(const ModelShape& s, KvFormat f) {
        return s.kv_heads * (k_bytes(s, f) + v_bytes(s, f));
    }

    std::uint8_t* page(std::int32_t layer, std::int32_t index) const {
        return reinterpret_cast<std::uint8_t*>(memory.data) +
               (static_cast<std::int64_t>(index) * shape.layers + layer) * page_bytes(shape, format);
    }
    std::uint8_t* k(std::int32_t layer, std::int32_t index, std::int32_t head) const {
        return page(layer, index) + head * (k_bytes(shape, format) + v_bytes(shape, format));
    }
    std::uint8_t* v(std::int32_t layer, std::int32_t index, std::int32_t head) const {
        return k(layer, index, head) + k_bytes(shape, format);
    }
    // Index of value 0 of the key at `place` in its page; value d lies 16 d further on.
    std::int64_t k_index(std::int32_t place) const {
        return static_cast<std::int64_t>(place / 16) * 16 * shape.head_dim + place % 16;
    }
    // q8: the steps of a page's keys k() or values v().
    float* k_steps(std::uint8_t* k) const { return reinterpret_cast<float*>(k + kPagePositions * shape.head_dim); }
    float* v_steps(std::uint8_t* v) const { return reinterpret_cast<float*>(v + kPagePositions * v_stride(shape)); }

private:
    static std::int64_t tile_bytes(std::int64_t width, KvFormat f) {
        const std::int64_t values = kPagePositions * width;
        return f == KvFormat::q8 ? values + kPagePositions * static_cast<std::int64_t>(sizeof(float)) : 2 * values;
    }
};

// cos and sin of every row's angles for one rope table. The first op of a forward that needs them fills them in.
struct RowAngles {
    std::vector<float> cos, sin;  // [T, pairs]
    bool valid = false;
};

struct ThreadScratch {
    std::vector<float> row;     // one row after a norm
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
