// kernels/cuda/rowwise/heads.cuh: what becomes of a projected head: norm, rope, temperature, and its way into q or the
// cache. For models with norms of heads or a temperature, and for caches whose codes need the whole of a head.
//
//   raw (global) --> values (shared memory of the warp) --norm--> --rope--> q, or K and V as float16 or codes
//
// Threads:  a warp for a head of a row. What other CTAs have written is loaded past L1 (__ldcg). Lane l has values l,
//           l + 32, ...; rope pairs values of different lanes, hence shared memory and __syncwarp().
// Codes:    the scale of a head is the largest magnitude of its values, a maximum over the warp; below 8 bits the
//           rotated value of that magnitude, with its sign.
// Cost:     about a microsecond; heads + 2 * kv_heads warps for each row.
#pragma once

#include "kernels/cuda/memory/low_codes.h"
#include "kernels/cuda/rowwise/norms.cuh"
#include "kernels/cuda/rowwise/rows.h"
#include "kernels/kv/low_bits.h"
#include "kernels/kv_code.h"

namespace foresay::kernels::cuda {

inline constexpr int kFewValues = 256;  // of a head: code for more takes twice the registers

// Saturates, NaN included: what a row does not attend to is multiplied by an exact 0.
__device__ inline float saturated(float value) { return fminf(fmaxf(value, -65504.0f), 65504.0f); }

// K or V of a head, as codes at a place of its page, by one warp. value(d): value d of it, of kMost at most.
template <int kMost, class Value>
__device__ inline void store_codes(__half* page, std::int32_t width, std::int32_t place, bool is_value,
                                   std::int32_t head_dim, int lane, const Value& value) {
    auto* base = reinterpret_cast<unsigned char*>(page);
    float values[kMost / 32], largest = 0;
#pragma unroll
    for (int i = 0; i < kMost / 32; ++i) {
        const std::int32_t d = lane + 32 * i;
        if (d < head_dim) largest = fmaxf(largest, fabsf(values[i] = saturated(value(d))));
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const float scale = kv_code_scale(largest);
#pragma unroll
    for (int i = 0; i < kMost / 32; ++i) {
        const std::int32_t d = lane + 32 * i;
        if (d >= head_dim) continue;
        const auto code = static_cast<std::int32_t>(kv_code(values[i], scale));
        base[is_value ? KvCodes::value(width, place, d) : KvCodes::key(width, place, d)] =
            static_cast<unsigned char>(kCodeZero + code);
    }
    if (lane == 0) reinterpret_cast<float*>(base + KvCodes::scales(width, place))[is_value ? 1 : 0] = largest;
}

// Rotates a head in shared memory, as kernels/kv/low_bits.h defines it, by one warp.
__device__ inline void rotate_for_cache(float* values, std::int32_t head_dim, int lane) {
    const std::int32_t n = rotation_block(head_dim);
    for (std::int32_t stride = 1; stride < n; stride *= 2) {
        __syncwarp();
        for (std::int32_t pair = lane; pair < head_dim / 2; pair += 32) {
            const std::int32_t d = (pair & -stride) * 2 + (pair & (stride - 1));
            const float a = values[d], b = values[d + stride];
            values[d] = a + b;
            values[d + stride] = a - b;
        }
    }
    __syncwarp();
    const float factor = 1.0f / sqrtf(static_cast<float>(n));
    for (std::int32_t d = lane; d < head_dim; d += 32) values[d] *= factor;
    __syncwarp();
}

// K or V of a head in shared memory, as codes at a place of its page of a cache with low bits, by one warp. Changes the
// values.
__device__ inline void store_low_codes(__half* page, const LowCodes& to, std::int32_t place, bool is_value,
                                       std::int32_t head_dim, int lane, float* values) {
    auto* base = reinterpret_cast<unsigned char*>(page);
    const std::int32_t bits = is_value ? to.v_bits : to.k_bits;
    for (std::int32_t d = lane; d < head_dim; d += 32) values[d] = saturated(values[d]);
    __syncwarp();
    if (bits < 8) rotate_for_cache(values, head_dim, lane);
    float largest = -INFINITY, least = INFINITY;
    for (std::int32_t d = lane; d < head_dim; d += 32) {
        largest = fmaxf(largest, values[d]);
        least = fminf(least, values[d]);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        least = fminf(least, __shfl_xor_sync(0xffffffffu, least, offset));
    }
    const float extreme = bits == 8 ? fmaxf(largest, -least) : kv_extreme(largest, least);
    const float scale = bits == 8 ? kv_code_scale(extreme) : kv_low_scale(extreme, bits);
    const auto code = [&](std::int32_t d) -> std::int32_t {
        if (d >= head_dim) return LowCodes::zero(bits);
        return bits == 8 ? kCodeZero + static_cast<std::int32_t>(kv_code(values[d], scale))
                         : kv_low_code(values[d], scale, bits);
    };
    const auto low = [&](std::int32_t d) { return code(d) & 15; };
    const auto high = [&](std::int32_t d) { return code(d) >> 4; };
    if (bits == 8) {
        for (std::int32_t d = lane; d < head_dim; d += 32) {
            const std::int32_t at =
                is_value ? to.value(place, d, false) : 16 * LowCodes::run(to.width, place, d) + d % 16;
            base[at] = static_cast<unsigned char>(code(d));
        }
    } else {
        for (std::int32_t i = lane; i < (head_dim + 15) / 16 * 8; i += 32) {
            // The two values of a byte: neighbours by four of a key, by eight of a value vector.
            const std::int32_t first = is_value ? i / 8 * 16 + i % 8 : i / 8 * 16 + i % 8 / 4 * 8 + i % 4;
            const std::int32_t at =
                is_value ? to.value(place, first, false) : 8 * LowCodes::run(to.width, place, first) + i % 8;
            base[at] = static_cast<unsigned char>(low(first) | low(first + (is_value ? 8 : 4)) << 4);
        }
        // Of keys in sixteens, of values in thirty-twos.
        const std::int32_t bytes = bits == 4 ? 0 : is_value ? (head_dim + 31) / 32 * 8 : (head_dim + 15) / 16 * 4;
        for (std::int32_t i = lane; i < bytes; i += 32) {
            const std::int32_t first = is_value ? i / 8 * 32 + i % 8 : i / 4 * 16 + i % 4, step = is_value ? 8 : 4;
            const std::int32_t at = is_value ? to.value(place, first, true)
                                             : to.high_keys() + 4 * LowCodes::run(to.width, place, first) + i % 4;
            base[at] = static_cast<unsigned char>(high(first) | high(first + step) << 2 | high(first + 2 * step) << 4 |
                                                  high(first + 3 * step) << 6);
        }
    }
    if (lane == 0) reinterpret_cast<float*>(base + to.scales(place))[is_value ? 1 : 0] = extreme;
}

// 1 + beta ln(1 + floor(position / length)), as query_factor() of kernels/op_checks.h.
__device__ inline float temperature_factor(const QueryTemperature& temperature, std::int32_t position) {
    if (temperature.beta == 0.0f) return 1.0f;
    const auto lengths = static_cast<double>(position / temperature.length);
    return static_cast<float>(1.0 + static_cast<double>(temperature.beta) * log(1.0 + lengths));
}

// Rotates the pairs of a head by the angles of its row, by one warp; values that follow them stay as they are.
__device__ inline void rotate_head(const HeadsCall& c, std::int32_t t, float* values, int lane) {
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

// Head `head` of row t: of q, then k, then v. `whole`: the factors of q and k where their norms are over all heads.
// `values`: kMost floats of shared memory of the warp's own.
template <int kMost>
__device__ inline void write_head(const HeadsCall& c, std::int32_t t, std::int32_t head, const NormFactors* whole,
                                  float* values, int lane) {
    const std::int32_t all = c.heads + 2 * c.kv_heads;
    const float* raw = c.raw + (static_cast<std::int64_t>(t) * all + head) * c.head_dim;
    const bool query = head < c.heads, value = head >= c.heads + c.kv_heads;
    const RowState row = c.batch.rows[t];
    // Each lane reads back only what it has written itself, until the __syncwarp() below.
    for (std::int32_t d = lane; d < c.head_dim; d += 32) values[d] = __ldcg(raw + d);
    RowNorm norm = value ? c.v_norm : query ? c.q_norm : c.k_norm;
    if (norm.weight != nullptr) {
        // Fours, as attention has them (kernels/cuda/attention/finish_heads.cuh), which are other lanes' values.
        __syncwarp();
        const bool over_all = c.whole_norms && !value;
        if (over_all || (query ? c.q_own_weights : !value && c.k_own_weights)) {
            const std::int32_t first = (query ? head : head - c.heads) * c.head_dim;
            norm.weight += first;
            if (norm.bias != nullptr) norm.bias += first;
        }
        const NormFactors factors = over_all
                                        ? whole[query ? 0 : 1]
                                        : norm_factors<4>(
                                              norm, lane, 32, c.head_dim, [&](std::int32_t d) { return values[d]; },
                                              [](float part) { return warp_sum(part); });
        __syncwarp();
        for (std::int32_t d = lane; d < c.head_dim; d += 32) values[d] = factors.apply(norm, values[d], d);
    }
    __syncwarp();
    if (c.pairs != RopePairs::none && !value) rotate_head(c, t, values, lane);
    if (query) {
        if (c.layout.k_bits < 8) rotate_for_cache(values, c.head_dim, lane);
        const float factor = temperature_factor(c.temperature, row.position);
        float* q = c.q + (static_cast<std::int64_t>(t) * c.heads + head) * c.head_dim;
        for (std::int32_t d = lane; d < c.head_dim; d += 32) q[d] = values[d] * factor;
        return;
    }
    const std::int32_t page = c.batch.lists[row.pages + row.cell / kPagePositions];
    const std::int32_t place = row.cell % kPagePositions;
    const std::int32_t kv_head = value ? head - c.heads - c.kv_heads : head - c.heads;
    __half* const kv = c.kv + kv_head * c.layout.head_stride;
    if (has_low_bits(c.layout.format)) {
        store_low_codes(kv + page * c.layout.page_stride, LowCodes(c.layout), place, value, c.head_dim, lane, values);
        return;
    }
    if (c.layout.format == KvFormat::q8) {
        store_codes<kMost>(kv + page * c.layout.page_stride, c.layout.width, place, value, c.head_dim, lane,
                           [&](std::int32_t d) { return values[d]; });
        return;
    }
    __half* const cell = kv + (value ? c.layout.v_cell(page, place) : c.layout.k_cell(page, place));
    for (std::int32_t d = lane; d < c.head_dim; d += 32) {
        cell[value ? KvLayout::value_value(d) : KvLayout::key_value(d)] = __float2half_rn(saturated(values[d]));
    }
}

}  // namespace foresay::kernels::cuda
