// kernels/cuda/rowwise/rows.h: what happens to rows between the matrices: embedding, angles, heads.
//
// Layout:   as kernels/cuda/linear.h.
// Law 1:    a row's sums run in an order that its width alone decides.
// Errors:   none; every function enqueues on the stream and returns.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/memory/batch_state.h"
#include "kernels/cuda/memory/kv_pool.h"
#include "kernels/cuda/rowwise/norms.h"

namespace foresay::kernels::cuda {

// A rope table; angles are position * inverse_frequency, computed in double precision.
struct RopeTable {
    const float* inverse_frequency = nullptr;  // [pairs], device
    std::int32_t pairs = 0;
    float attention_factor = 1.0f;
    float2* angles = nullptr;  // [T, pairs]: cos and sin times the attention factor
};
inline constexpr int kMaxRopes = 8;

// The tables that the ops of a forward use.
struct RopeTables {
    RopeTable table[kMaxRopes];
    std::int32_t count = 0;
};

struct EmbedCall {
    BatchView batch;
    std::int32_t rows = 0;
    const std::byte* table = nullptr;  // [V, D] as in the file
    QuantType quant_type = QuantType::f32;
    std::int64_t vocab = 0;
    std::int32_t d_model = 0;
    float scale = 1.0f;
    const SampledToken* slots = nullptr;
    float* x = nullptr;  // [T, D]
    KvLayout kv;
    std::int64_t* k_cell = nullptr;  // [T]
    std::int64_t* v_cell = nullptr;  // [T]
    RopeTables ropes;
};
// The first kernel of a forward: tokens to x, and what the ops need of each row: its cells and its angles.
void launch_embed(cudaStream_t stream, const EmbedCall& call);
// The same without x and its table, for ops that run without an embedding before them.
void launch_places(cudaStream_t stream, const EmbedCall& call);

// What becomes of projected rows: norms of heads, rope, the temperature of queries; K and V into the cache.
struct HeadsCall {
    BatchView batch;  // the cells of the rows, and their positions
    std::int32_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
    const float* raw = nullptr;  // [T, (H + 2 Hkv) * Dh]: q, k, v
    // Weights and biases: [Dh] for all heads; or of each head's own, one after the other (own_weights).
    RowNorm q_norm, k_norm, v_norm;
    bool q_own_weights = false, k_own_weights = false;
    bool whole_norms = false;  // q_norm and k_norm are over all heads together
    RopePairs pairs = RopePairs::none;
    std::int32_t rope_pairs = 0;
    const float2* angles = nullptr;  // [T, pairs]
    QueryTemperature temperature;
    float* q = nullptr;    // [T, H*Dh]
    __half* kv = nullptr;  // of the layer
    KvLayout layout;
};
void launch_heads(cudaStream_t stream, const HeadsCall& call);

}  // namespace foresay::kernels::cuda
