// kernels/cuda/attention/finish_heads.cuh: norms of heads and rope of decode rows within their attention, for models
// with norms of Q and K: a norm needs the whole of a head, which the epilogue of the projections does not have.
//
//   raw (global) --> fours of values per lane --norm--> --rope--> operands of queries, or K and V as float16 or codes
//
// Threads:  a warp for a head of a row; lane l has values 4 l ... 4 l + 3, and those 128 further on.
// Bits:     those of write_head() (kernels/cuda/rowwise/heads.cuh): the same additions in the same order.
// Cost:     one round trip to L2, for queries the one that loading them takes anyway. Units with the same new keys
//           finish and write them each for itself, all the same bytes.
#pragma once

#include "kernels/cuda/attention/kv_fragments.cuh"
#include "kernels/cuda/attention/merge_chunks.cuh"
#include "kernels/cuda/rowwise/heads.cuh"

namespace foresay::kernels::cuda::attention {

// The values of a head that a lane has: d, d + 1, d + 2, d + 3 with d = 4 lane + 128 i.
template <int kWidth>
struct HeadFours {
    static constexpr int kFours = (kWidth + 127) / 128;
    float4 of[kFours];
};

// Values of a head of row t, whose first value is at `from`. `weight`: of the norm; null: none. `rotates`: whether rope
// is for this head. By a warp.
template <int kWidth>
__device__ __forceinline__ HeadFours<kWidth> finished_head(const AttendCall& c, const float* from, const float* weight,
                                                           float eps, std::int32_t t, bool rotates, int lane) {
    constexpr int kFours = HeadFours<kWidth>::kFours;
    HeadFours<kWidth> head;
    auto& x = head.of;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        const std::int32_t d = 4 * lane + 128 * i;  // heads are whole fours
        x[i] = d < c.head_dim ? __ldcg(reinterpret_cast<const float4*>(from + d)) : float4{};
    }
    if (weight != nullptr) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            squares = fmaf(x[i].w, x[i].w, fmaf(x[i].z, x[i].z, fmaf(x[i].y, x[i].y, fmaf(x[i].x, x[i].x, squares))));
        }
        const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(c.head_dim) + eps);
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const std::int32_t d = 4 * lane + 128 * i;
            if (d >= c.head_dim) continue;
            const float4 w = *reinterpret_cast<const float4*>(weight + d);
            x[i] = {x[i].x * scale * w.x, x[i].y * scale * w.y, x[i].z * scale * w.z, x[i].w * scale * w.w};
        }
    }
    if (!rotates || c.rope_pairs == 0) return head;
    const float2* const angles = c.angles + static_cast<std::int64_t>(t) * c.rope_pairs;
    const auto two_angles = [&](std::int32_t i) { return __ldcg(reinterpret_cast<const float4*>(angles + i)); };
    if (c.pairs == RopePairs::adjacent) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const std::int32_t d = 4 * lane + 128 * i;
            if (d >= 2 * c.rope_pairs) continue;
            const float4 angle = two_angles(d / 2), own = x[i];
            x[i] = {fmaf(own.x, angle.x, -(own.y * angle.y)), fmaf(own.x, angle.y, own.y * angle.x),
                    fmaf(own.z, angle.z, -(own.w * angle.w)), fmaf(own.z, angle.w, own.w * angle.z)};
        }
        return head;
    }
    // a: values d ... d + 3 of the first half, b: of the second. Both turn by the same angles.
    const auto turn = [&](float4 own, float4 other, std::int32_t pair, bool second) {
        const float4 low = two_angles(pair), high = two_angles(pair + 2);
        const auto turned = [&](float mine, float its, float cosine, float sine) {
            return second ? fmaf(its, sine, mine * cosine) : fmaf(mine, cosine, -(its * sine));
        };
        return float4{turned(own.x, other.x, low.x, low.y), turned(own.y, other.y, low.z, low.w),
                      turned(own.z, other.z, high.x, high.y), turned(own.w, other.w, high.z, high.w)};
    };
    const std::int32_t d = 4 * lane;
    if constexpr (kFours == 1) {
        // The other values of the pairs are another lane's.
        const bool second = d >= c.rope_pairs;
        const int partner = second ? lane - c.rope_pairs / 4 : lane + c.rope_pairs / 4;
        const float4 own = x[0];
        const float4 other = {__shfl_sync(~0u, own.x, partner), __shfl_sync(~0u, own.y, partner),
                              __shfl_sync(~0u, own.z, partner), __shfl_sync(~0u, own.w, partner)};
        if (d < 2 * c.rope_pairs) x[0] = turn(own, other, second ? d - c.rope_pairs : d, second);
    } else {
        // They are this lane's own: there are 128 pairs.
        const float4 a = x[0], b = x[1];
        x[0] = turn(a, b, d, false);
        x[1] = turn(b, a, d, true);
    }
    return head;
}

// Where head `head` of row t begins in the projections: of q, then k, then v.
__device__ inline const float* raw_head(const AttendCall& c, std::int32_t t, std::int32_t head) {
    return c.raw + (static_cast<std::int64_t>(t) * (c.heads + 2 * c.kv_heads) + head) * c.head_dim;
}

// What store_queries() does, from projections. kColumns: 1 when rows 8 to 15 are empty.
template <class Form, int kWidth, int kColumns, class Shared, class Group>
__device__ __forceinline__ void store_finished_queries(const AttendCall& c, const Tile& tile, const float* weight,
                                                       Shared& shared, const Group& group) {
#pragma unroll 1
    for (int r = group.warp; r < 8 * kColumns; r += Group::warps()) {
        HeadFours<kWidth> head = {};
        if (tile.valid(r)) {
            head = finished_head<kWidth>(c, raw_head(c, tile.row(r), tile.head(r)), weight, c.q_eps, tile.row(r), true,
                                         group.lane);
        }
#pragma unroll
        for (int i = 0; i < HeadFours<kWidth>::kFours; ++i) {
            const int d = 4 * group.lane + 128 * i;
            if (d >= kWidth) continue;
            const float4 x = head.of[i];
            auto* const to =
                reinterpret_cast<std::uint32_t*>(&shared.queries[Form::step_of(d)][4 * (r % 8) + Form::place_of(d)]);
            to[r / 8] = pack(x.x, x.y);
            to[2 + r / 8] = pack(x.z, x.w);
            if (kColumns == 1) to[1] = to[3] = 0;
        }
    }
}

// Finishes K and V of the forward's own positions of a unit and writes them into the cache. The last warps begin,
// because the first ones have the queries (finish_heads()).
template <int kWidth, KvFormat kFormat, class Group>
__device__ __noinline__ void store_new_heads(const AttendCall& c, const UnitDescriptor& unit, const float* weight,
                                             const Group& group) {
    constexpr KvFragmentOrder keys = key_order(kFormat, kWidth), values = value_order(kFormat, kWidth);
    const std::int32_t first = unit.first_block << c.block_shift, end = unit.end_block << c.block_shift;
    const TileState tile = unit.tile.state;
#pragma unroll 1
    for (std::int32_t task = group.warps() - 1 - group.warp; task < 2 * c.rows; task += group.warps()) {
        const std::int32_t t = task / 2;
        const bool is_value = task % 2 == 1;
        const RowState row = c.batch.rows[t];
        if (row.pages != tile.pages || row.position < first || row.position >= end || row.position > tile.highest)
            continue;
        const float* const from = raw_head(c, t, c.heads + (is_value ? c.kv_heads : 0) + unit.tile.kv_head);
        const HeadFours<kWidth> head =
            finished_head<kWidth>(c, from, is_value ? nullptr : weight, c.k_eps, t, !is_value, group.lane);
        auto* const page = const_cast<__half*>(unit.pages[(row.position - first) / kPagePositions]);
        const std::int32_t place = row.position % kPagePositions;
        constexpr int kFours = HeadFours<kWidth>::kFours;
        float own[kFours][4];
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const float four[4] = {head.of[i].x, head.of[i].y, head.of[i].z, head.of[i].w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                own[i][j] = saturated(four[j]);
                largest = fmaxf(largest, fabsf(own[i][j]));
            }
        }
        if constexpr (kFormat == KvFormat::q8) {
            for (int offset = 16; offset > 0; offset >>= 1) {
                largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
            }
            const float scale = kv_code_scale(largest);
            auto* const base = reinterpret_cast<unsigned char*>(page);
#pragma unroll
            for (int i = 0; i < kFours; ++i) {
                const std::int32_t d = 4 * group.lane + 128 * i;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (d >= c.head_dim) continue;
                    const auto code = static_cast<std::int32_t>(kv_code(own[i][j], scale));
                    base[is_value ? KvCodes::value(kWidth, place, d + j) : KvCodes::key(kWidth, place, d + j)] =
                        static_cast<unsigned char>(kCodeZero + code);
                }
            }
            if (group.lane == 0) {
                reinterpret_cast<float*>(base + KvCodes::scales(kWidth, place))[is_value ? 1 : 0] = largest;
            }
        } else {
#pragma unroll
            for (int i = 0; i < kFours; ++i) {
                const std::int32_t d = 4 * group.lane + 128 * i;
                if (d >= c.head_dim) continue;
                if (is_value) {
                    __half* const to = page + kPagePositions * kWidth + values.value_place(place);
#pragma unroll
                    for (int j = 0; j < 4; ++j) to[values.value_value(d + j)] = __float2half_rn(own[i][j]);
                } else {
                    // Four neighbours of a run.
                    *reinterpret_cast<uint2*>(page + keys.key_place(place) + keys.key_value(d)) = {
                        pack(own[i][0], own[i][1]), pack(own[i][2], own[i][3])};
                }
            }
        }
    }
}

// Queries, and K and V, of a unit whose last positions are the forward's own. Not inlined: what is in flight of earlier
// positions has come by now, and is kept for the time.
template <class Form, int kWidth, KvFormat kFormat, class Shared, class Group>
__device__ __noinline__ void finish_heads(const AttendCall& c, const UnitDescriptor& unit, const float* q_norm,
                                          const float* k_norm, Shared& shared, const Group& group) {
    if (unit.tile.used() <= 8) {
        store_finished_queries<Form, kWidth, 1>(c, unit.tile, q_norm, shared, group);
    } else {
        store_finished_queries<Form, kWidth, 2>(c, unit.tile, q_norm, shared, group);
    }
    store_new_heads<kWidth, kFormat>(c, unit, k_norm, group);
}

}  // namespace foresay::kernels::cuda::attention
