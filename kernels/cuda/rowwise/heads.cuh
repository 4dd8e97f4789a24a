// kernels/cuda/rowwise/heads.cuh: what becomes of a projected head: norm, rope, and its way into q or the cache. For
// models with norms of heads, and for caches whose codes need the whole of a head.
//
//   raw (global) --> values (shared memory of the warp) --norm--> --rope--> q, or K and V as float16 or codes
//
// Threads:  a warp for a head of a row. What other CTAs have written is loaded past L1 (__ldcg). Lane l has values l,
//           l + 32, ...; rope pairs values of different lanes, hence shared memory and __syncwarp().
// Codes:    the scale of a head is the largest magnitude of its values, a maximum over the warp.
// Cost:     about a microsecond; heads + 2 * kv_heads warps for each row.
#pragma once

#include "kernels/cuda/rowwise/rows.h"
#include "kernels/kv_code.h"

namespace foresay::kernels::cuda {

inline constexpr int kMaxHeadDim = 256;

// Saturates, NaN included: what a row does not attend to is multiplied by an exact 0.
__device__ inline float saturated(float value) { return fminf(fmaxf(value, -65504.0f), 65504.0f); }

// K or V of a head, as codes at a place of its page, by one warp. value(d): value d of it.
template <class Value>
__device__ inline void store_codes(__half* page, std::int32_t width, std::int32_t place, bool is_value,
                                   std::int32_t head_dim, int lane, const Value& value) {
    auto* base = reinterpret_cast<unsigned char*>(page);
    float values[kMaxHeadDim / 32], largest = 0;
#pragma unroll
    for (int i = 0; i < kMaxHeadDim / 32; ++i) {
        const std::int32_t d = lane + 32 * i;
        if (d < head_dim) largest = fmaxf(largest, fabsf(values[i] = saturated(value(d))));
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const float scale = kv_code_scale(largest);
#pragma unroll
    for (int i = 0; i < kMaxHeadDim / 32; ++i) {
        const std::int32_t d = lane + 32 * i;
        if (d >= head_dim) continue;
        const auto code = static_cast<std::int32_t>(kv_code(values[i], scale));
        base[is_value ? KvCodes::value(width, place, d) : KvCodes::key(width, place, d)] =
            static_cast<unsigned char>(kCodeZero + code);
    }
    if (lane == 0) reinterpret_cast<float*>(base + KvCodes::scales(width, place))[is_value ? 1 : 0] = largest;
}

// Head `head` of row t: of q, then k, then v. `values`: kMaxHeadDim floats of shared memory of the warp's own.
__device__ inline void write_head(const HeadsCall& c, std::int32_t t, std::int32_t head, float* values, int lane) {
    const std::int32_t all = c.heads + 2 * c.kv_heads;
    const float* raw = c.raw + (static_cast<std::int64_t>(t) * all + head) * c.head_dim;
    const bool coded = c.layout.format == KvFormat::q8;
    const bool query = head < c.heads, value = head >= c.heads + c.kv_heads;
    // V of a float16 cache has neither norm nor rope: straight to its cell.
    if (value && !coded) {
        __half* v = c.kv + c.v_cell[t] + (head - c.heads - c.kv_heads) * c.layout.head_stride;
        for (std::int32_t d = lane; d < c.head_dim; d += 32) {
            v[KvLayout::value_value(d)] = __float2half_rn(saturated(__ldcg(raw + d)));
        }
        return;
    }
    const float* norm = value ? nullptr : query ? c.q_norm : c.k_norm;
    // Each lane reads back only what it has written itself, until the __syncwarp() below.
    float squares = 0;
    for (std::int32_t d = lane; d < c.head_dim; d += 32) {
        const float x = __ldcg(raw + d);
        values[d] = x;
        squares = fmaf(x, x, squares);
    }
    if (norm != nullptr) {
        for (int offset = 16; offset > 0; offset >>= 1) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
        const float scale = 1.0f / sqrtf(squares / static_cast<float>(c.head_dim) + (query ? c.q_eps : c.k_eps));
        for (std::int32_t d = lane; d < c.head_dim; d += 32) values[d] = values[d] * scale * norm[d];
    }
    __syncwarp();
    if (c.pairs != RopePairs::none && !value) {
        const float2* angles = c.angles + static_cast<std::int64_t>(t) * c.rope_pairs;
        for (std::int32_t i = lane; i < c.rope_pairs; i += 32) {
            const std::int32_t first = c.pairs == RopePairs::adjacent ? 2 * i : i;
            const std::int32_t second = c.pairs == RopePairs::adjacent ? 2 * i + 1 : i + c.rope_pairs;
            const float a = values[first], b = values[second];
            const float2 angle = __ldcg(angles + i);
            values[first] = fmaf(a, angle.x, -(b * angle.y));
            values[second] = fmaf(a, angle.y, b * angle.x);
        }
        __syncwarp();
    }
    if (query) {
        float* q = c.q + (static_cast<std::int64_t>(t) * c.heads + head) * c.head_dim;
        for (std::int32_t d = lane; d < c.head_dim; d += 32) q[d] = values[d];
    } else if (coded) {
        // k_cell and v_cell are places in float16 pages, so the cell of codes is found by the batch.
        const RowState row = c.batch.rows[t];
        const std::int32_t page = c.batch.lists[row.pages + row.cell / kPagePositions];
        const std::int32_t kv_head = value ? head - c.heads - c.kv_heads : head - c.heads;
        store_codes(c.kv + page * c.layout.page_stride + kv_head * c.layout.head_stride, c.layout.width,
                    row.cell % kPagePositions, value, c.head_dim, lane, [&](std::int32_t d) { return values[d]; });
    } else {
        __half* k = c.kv + c.k_cell[t] + (head - c.heads) * c.layout.head_stride;
        for (std::int32_t d = lane; d < c.head_dim; d += 32)
            k[KvLayout::key_value(d)] = __float2half_rn(saturated(values[d]));
    }
}

}  // namespace foresay::kernels::cuda
