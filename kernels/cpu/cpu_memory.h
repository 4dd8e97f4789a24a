// kernels/cpu/cpu_memory.h: key-value pages and working memory of the CPU backend.
//
// Layout:   K of a page and head is [kPagePositions / 16, Dh, 16] float16: 16 positions side by side, so that scores need
//           no sum across lanes. V is [kPagePositions, Dh rounded up to 16] float16. Order: page, layer, head, then K, V, so
//           that memory is first touched page by page as a sequence grows.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/input_tiles.h"
#include "kernels/cpu/panels.h"
#include "kernels/draw.h"
#include "kernels/ops.h"

namespace foresay::kernels::cpu {

struct CpuKv : KvPages {
    Block memory;

    static std::int64_t k_halves(const ModelShape& s) { return static_cast<std::int64_t>(kPagePositions) * s.head_dim; }
    static std::int64_t v_stride(const ModelShape& s) { return round_up(s.head_dim, 16); }
    static std::int64_t v_halves(const ModelShape& s) { return kPagePositions * v_stride(s); }
    // Halves of one layer of one page: all heads, K and V.
    static std::int64_t page_halves(const ModelShape& s) { return s.kv_heads * (k_halves(s) + v_halves(s)); }

    std::uint16_t* page(std::int32_t layer, std::int32_t index) const {
        return reinterpret_cast<std::uint16_t*>(memory.data) +
               (static_cast<std::int64_t>(index) * shape.layers + layer) * page_halves(shape);
    }
    std::uint16_t* k(std::int32_t layer, std::int32_t index, std::int32_t head) const {
        return page(layer, index) + head * (k_halves(shape) + v_halves(shape));
    }
    std::uint16_t* v(std::int32_t layer, std::int32_t index, std::int32_t head) const {
        return k(layer, index, head) + k_halves(shape);
    }
};

// cos and sin of every row's angles for one rope table; filled by the first stage of a forward that needs it.
struct RowAngles {
    std::vector<float> cos, sin;  // [T, pairs]
    bool valid = false;
};

// What one thread needs for itself.
struct ThreadScratch {
    std::vector<float> row;     // one row after a norm
    std::vector<float> attend;  // attend_scratch_floats
    std::vector<const std::uint16_t*> k_tiles, v_tiles;
    std::vector<std::uint16_t> tree_k, tree_v;  // tiles gathered for tree rows
    std::vector<std::int32_t> cells;
    DrawScratch draw;
};

struct CpuActivations : Activations {
    Batch batch;
    Block memory;
    float* x = nullptr;          // [T, d_stride]
    float* qkv = nullptr;        // [T, q_stride + 2 kv_stride]
    float* attended = nullptr;   // [T, q_stride]
    float* ff = nullptr;         // [T, ff_stride]
    float* logits = nullptr;     // [logit rows, vocab_stride]
    float* projected = nullptr;  // [T, d_stride], outputs that a norm follows
    std::int64_t d_stride = 0, q_stride = 0, kv_stride = 0, ff_stride = 0, vocab_stride = 0;
    InputTiles tiles;     // inputs of the next linear stage
    InputTiles ff_tiles;  // those of mlp_out, which mlp_in fills while it reads `tiles`
    // Whether attend has left the codes of `attended` in `tiles`, and mlp_in those of `ff` in `ff_tiles`.
    bool attended_coded = false, ff_coded = false;
    std::vector<std::atomic<int>> finished;  // by part of a stage's outputs: panels that are done
    std::vector<RowAngles> angles;           // by rope table
    std::vector<ThreadScratch> scratch;
    std::vector<Drawn> slots;
    KeptCandidates kept;
    std::vector<std::int32_t> groups;  // first row of each group that attends together; then T

    std::int64_t qkv_stride() const { return q_stride + 2 * kv_stride; }
};

}  // namespace foresay::kernels::cpu
