// kernels/cuda/attention/kv_fragments.cuh: keys and values of decode rows as the lanes of a warp load them, for each
// format of the cache.
//
// Layout:   a block is 64 positions of K and V, 128 where heads are wider than 128 (16 warps) or the cache has codes,
//           so that as many bytes are in flight. Of its keys each warp has eight positions (16 of codes), of its values
//           each warp has 16 values of the head at all positions.
// Run:      what a lane loads at once, 8 or 16 bytes: neighbouring values of one key, or neighbouring positions of one
//           value. The cache is laid out so that the runs of a warp are contiguous (KvFragmentOrder in
//           kernels/cuda/memory/kv_pool.h).
// Lanes:    lane (quad, place) = (lane / 4, lane % 4) has key `quad` of an eight, and values `quad` and quad + 8.
// Operands: four entries of a run are this lane's part of the 16 that one mma contracts. So an mma takes values (or
//           positions) in an order of our own, not the natural one; queries and weights are stored in the same order
//           (value_of, position_of).
// Low bits: 16 bytes of a run as above have fewer bits of more codes (kernels/cuda/memory/low_codes.h). How many is
//           known at run time only: one kernel serves all such formats.
// Codes:    int8 codes become float16 by integer instructions, exactly; the scale of a key multiplies its score, the
//           scale of a value its weight.
#pragma once

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/memory/low_codes.h"

namespace foresay::kernels::cuda::attention {

// 16 or 8 bytes that bypass L1. Volatile, so the compiler keeps the order of these loads and the products between them,
// which is what hides their latency.
__device__ inline void load_ordered(uint4& to, const void* from) {
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from));
}
__device__ inline void load_ordered(uint2& to, const void* from) {
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
}

// Four codes to float16, exactly: the bits 0x6400 | u are the number 1024 + u.
__device__ inline uint2 halves_of(std::uint32_t codes) {
    const auto two = [&](std::uint32_t which) {
        const std::uint32_t raw = __byte_perm(codes, 0x64646464u, which);
        return as_bits(__hsub2(as_halves(raw), __float2half2_rn(1024.0f + kCodeZero)));
    };
    return {two(0x4140u), two(0x4342u)};
}

// Stands for all formats with low bits where a format is a template argument.
inline constexpr KvFormat kAnyLowBits = kv_format(KvType::q4, KvType::q4);

__device__ inline void load_ordered_low(uint4& to, const unsigned char* low, const unsigned char* high,
                                        std::int32_t bits) {
    if (bits == 8) return load_ordered(to, low);
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(low));
    if (bits > 4) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to.z) : "l"(high));
}
// Four codes of `bits` bits to float16, less the code of 0.
__device__ inline uint2 halves_of_low(std::uint32_t codes, std::int32_t bits) {
    const __half2 zero = __float2half2_rn(1024.0f + static_cast<float>(LowCodes::zero(bits)));
    const auto two = [&](std::uint32_t which) {
        return as_bits(__hsub2(as_halves(__byte_perm(codes, 0x64646464u, which)), zero));
    };
    return {two(0x4140u), two(0x4342u)};
}

template <int kWidth, KvFormat kFormat>
struct KvFragmentForm {
    static constexpr bool kLow = has_low_bits(kFormat), kCoded = kFormat != KvFormat::f16;
    static constexpr int kTiles = kWidth / 16;  // of 16 values
    static constexpr int kBlock = 1 << attend_block_shift(kFormat, kWidth), kBlockPages = kBlock / kPagePositions;
    static constexpr __device__ KvFragmentOrder keys() { return key_order(kFormat, kWidth); }
    static constexpr __device__ KvFragmentOrder values() { return value_order(kFormat, kWidth); }
    // Entries of a run, and how many of them a lane has of a warp's keys, and of each of its two values.
    static constexpr int kKeyRun = key_order(kFormat, kWidth).run, kValueRun = value_order(kFormat, kWidth).run;
    static constexpr int kKeys = kWidth / (4 * kKeyRun);
    static constexpr int kValues = kBlock / (4 * kValueRun);
    static constexpr int kEights = kBlock / (8 * group_warps(kWidth));  // of a warp's keys
    static_assert(kWidth % (4 * kKeyRun) == 0 && kBlock % kPagePositions == 0 && kPagePositions % (4 * kValueRun) == 0);
    static_assert(kTiles <= group_warps(kWidth));
    using Entry = std::conditional_t<kCoded, unsigned char, __half>;
    using KeyRun = std::conditional_t<kKeyRun * sizeof(Entry) == 16, uint4, uint2>;
    using ValueRun = std::conditional_t<kValueRun * sizeof(Entry) == 16, uint4, uint2>;

    static constexpr int kValuesAt = kPagePositions * kWidth;  // where V begins after K, in entries

    // The value of a head, and the position of a block, that four `s` of the lanes `place` begins with.
    static __device__ int value_of(int s, int place) { return four_of<kKeyRun>(s, place); }
    static __device__ int position_of(int s, int place) { return four_of<kValueRun>(s, place); }
    // The inverse: which four, and of which lanes, value d of a head begins.
    static __device__ int step_of(int d) { return d / (4 * kKeyRun) * (kKeyRun / 4) + d % kKeyRun / 4; }
    static __device__ int place_of(int d) { return d % (4 * kKeyRun) / kKeyRun; }
    // Four `s` of a run as halves.
    template <class Run>
    static __device__ uint2 four(const Run& run, int s) {
        if constexpr (kCoded) return halves_of(word(run, s));
        return {word(run, 2 * s), word(run, 2 * s + 1)};
    }
    // Four `s` of keys.
    template <class Run>
    static __device__ uint2 four_keys(const KvLayout& layout, const Run& run, int s) {
        if constexpr (kLow) {
            const std::int32_t bits = layout.k_bits;
            const std::uint32_t low = word(run, s / 2) >> (4 * (s % 2)) & 0x0f0f0f0fu;
            const std::uint32_t high = bits > 4 ? (run.z >> (2 * s) & 0x03030303u) << 4 : 0u;
            return halves_of_low(bits == 8 ? word(run, s) : low | high, bits);
        } else {
            return four(run, s);
        }
    }
    // Four `s` of each of a lane's two values.
    template <class Run>
    static __device__ void four_values(const KvLayout& layout, const Run (&runs)[2], int s, int warp, uint2& first,
                                       uint2& second) {
        if constexpr (kLow) {
            const std::int32_t bits = layout.v_bits;
            std::uint32_t a = word(runs[0], s), b = word(runs[1], s);
            if (bits < 8) {
                const std::uint32_t high = bits > 4 ? b >> (4 * (warp % 2)) : 0u;
                b = (a >> 4 & 0x0f0f0f0fu) | (high >> 2 & 0x03030303u) << 4;
                a = (a & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
            }
            first = halves_of_low(a, bits);
            second = halves_of_low(b, bits);
        } else {
            first = four(runs[0], s);
            second = four(runs[1], s);
        }
    }
    // What codes of keys, and of values, are multiplied by besides their scales.
    static __device__ float key_factor(const KvLayout& layout) {
        return kLow ? LowCodes::factor(layout.k_bits) : 1.0f / kLargestCode;
    }
    static __device__ float value_factor(const KvLayout& layout) {
        return kLow ? LowCodes::factor(layout.v_bits) : 1.0f / kLargestCode;
    }
    // Two floats, the scales of K and of V.
    static __device__ std::int32_t scales_at(const KvLayout& layout, std::int32_t place) {
        return kLow ? LowCodes(layout).scales(place) : KvCodes::scales(kWidth, place);
    }

private:
    template <int kRun>
    static __device__ int four_of(int s, int place) {
        return s / (kRun / 4) * 4 * kRun + place * kRun + s % (kRun / 4) * 4;
    }
    static __device__ std::uint32_t word(const uint4& v, int i) {
        return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    }
    static __device__ std::uint32_t word(const uint2& v, int i) { return i == 0 ? v.x : v.y; }
};

// What the warps of a group need to know of a unit (decode_attention.cuh) before they can load its keys; in shared
// memory.
struct UnitDescriptor {
    Tile tile;
    std::int32_t number;  // of the unit; -1: there is none
    std::int32_t chunk, first_chunk, last_chunk;
    std::int32_t first_block, end_block;
    std::int32_t in_place;                                     // positions from here on lie in the cells of a tree path
    const __half* base;                                        // of the key-value head, in page 0
    const __half* pages[kMaxChunkPositions / kPagePositions];  // likewise, of the pages of the chunk
    std::int32_t positions[kTileRows];                         // of the operand rows; -1: empty

    bool has_new_kv;  // the last positions are those of this forward

    // Whether no other unit attends for these rows.
    __device__ bool alone() const { return first_chunk == last_chunk; }
};

// Which positions are loaded: those of earlier forwards, those of this one, or both.
enum class Written { before, now, ever };

// A lane's fragments of a block: the operands B of scores (keys) and A of outputs (values). Loads write into them
// directly; a product that uses a fragment waits for its load.
template <int kWidth, KvFormat kFormat, bool kSpecial>
struct KvFragments {
    using Form = KvFragmentForm<kWidth, kFormat>;
    using Entry = typename Form::Entry;

    typename Form::KeyRun keys[Form::kEights][Form::kKeys];
    typename Form::ValueRun values[Form::kValues][2];
    float scale = 0.0f;  // codes
    // Addresses of the loads in flight. Kept until the next load, because overwriting the register of an address has to
    // wait for the load's data.
    const Entry* keys_from[Form::kEights] = {};
    const Entry* values_from = nullptr;

    __device__ KvFragments() {
#pragma unroll
        for (int e = 0; e < Form::kEights; ++e) {
            for (auto& run : keys[e]) run = {};
        }
#pragma unroll
        for (auto& pair : values) pair[0] = pair[1] = {};
    }

    // The first position of an eight in the block.
    static __device__ int eight(int warp, int e) { return 8 * (Form::kEights * warp + e); }

    // Loads this lane's key of an eight of a block. Where there is no position to load, the registers keep what they
    // have, which is a finite number.
    template <Written kWritten>
    __device__ void load_keys(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int e, int warp,
                              int lane) {
        const int in_block = eight(warp, e) + lane / 4;
        const std::int32_t position = block * Form::kBlock + in_block;
        if (!wanted<kWritten>(unit, position, 1)) return;
        const Cell cell = cell_of(c, unit, block, in_block);
        keep(keys_from[e]);
        if constexpr (Form::kLow) {
            const LowCodes codes(c.layout);
            const std::int32_t run = codes.run(kWidth, cell.place, 16 * (lane % 4)), bytes = codes.run_bytes();
            keys_from[e] = cell.page + run * bytes;
            const unsigned char* const high = cell.page + codes.high_keys() + 4 * run;
#pragma unroll
            for (int g = 0; g < Form::kKeys; ++g) {
                load_ordered_low(keys[e][g], keys_from[e] + g * 32 * bytes, high + g * 32 * 4, codes.k_bits);
            }
            return;
        }
        keys_from[e] = cell.page + Form::keys().key_place(cell.place) + lane % 4 * Form::kKeyRun;
#pragma unroll
        for (int g = 0; g < Form::kKeys; ++g) load_ordered(keys[e][g], keys_from[e] + g * 32 * Form::kKeyRun);
    }
    // Loads run g of each of this lane's two values. In increasing g, because the runs of a page share an address.
    template <Written kWritten>
    __device__ void load_values(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int g, int warp,
                                int lane) {
        if (warp >= Form::kTiles) return;
        const int in_block = g * 4 * Form::kValueRun + lane % 4 * Form::kValueRun;
        const std::int32_t position = block * Form::kBlock + in_block;
        if (!wanted<kWritten>(unit, position, Form::kValueRun)) return;
        const int d = 16 * warp + lane / 4;
        if (kSpecial && position + Form::kValueRun > unit.in_place) {
            gather(c, unit, block, in_block, d, values[g]);
            return;
        }
        if constexpr (Form::kLow) {
            const LowCodes codes(c.layout);
            const unsigned char* const from = page(unit, block, in_block);
            const std::int32_t place = in_block % kPagePositions;
            load_ordered(values[g][0], from + codes.value(place, d, false));
            if (codes.v_bits == 8) load_ordered(values[g][1], from + codes.value(place, d + 8, false));
            if (codes.v_bits == 6) load_ordered(values[g][1], from + codes.value(place, d, true));
            return;
        }
        // The runs of a page follow each other.
        constexpr int kOfPage = kPagePositions / (4 * Form::kValueRun), kNext = 64 * Form::kValueRun;
        if (g % kOfPage == 0) {
            keep(values_from);
            values_from = page(unit, block, in_block) + Form::kValuesAt +
                          Form::values().value_place(in_block % kPagePositions) + Form::values().value_value(d);
        }
        const Entry* from = values_from + g % kOfPage * kNext;
        load_ordered(values[g][0], from);
        load_ordered(values[g][1], from + 32 * Form::kValueRun);
    }
    // Lane l loads K's (l even) or V's scale of position l / 2 of the warp's.
    template <Written kWritten>
    __device__ void load_scales(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int warp,
                                int lane) {
        if constexpr (Form::kCoded) {
            const int in_block = eight(warp, 0) + lane / 2;
            if (lane / 2 >= 8 * Form::kEights || !wanted<kWritten>(unit, block * Form::kBlock + in_block, 1)) return;
            const Cell cell = cell_of(c, unit, block, in_block);
            scale =
                __ldcg(reinterpret_cast<const float*>(cell.page + Form::scales_at(c.layout, cell.place)) + lane % 2);
        }
    }
    // The scale of position 2 place + odd of an eight, from the lane that has it.
    static __device__ float key_scale(float scale, int e, int place, int odd) {
        return __shfl_sync(0xffffffffu, scale, 16 * e + 4 * place + 2 * odd);
    }
    static __device__ float value_scale(float scale, int e, int place, int odd) {
        return __shfl_sync(0xffffffffu, scale, 16 * e + 4 * place + 2 * odd + 1);
    }
    // All fragments of a block. Between blocks attend_blocks() loads them one by one instead, as they become free.
    template <Written kWritten>
    __device__ void load(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int warp, int lane) {
#pragma unroll
        for (int e = 0; e < Form::kEights; ++e) {
            load_keys<kWritten>(c, unit, block, e, warp, lane);
        }
        load_scales<kWritten>(c, unit, block, warp, lane);
#pragma unroll
        for (int g = 0; g < Form::kValues; ++g) load_values<kWritten>(c, unit, block, g, warp, lane);
    }

private:
    // Makes the compiler keep an address in its register up to here (keys_from).
    static __device__ void keep(const Entry* from) { asm volatile("" ::"l"(from)); }
    struct Cell {
        const Entry* page;
        std::int32_t place;
    };
    // Whether any of `count` positions from `position` on is to be loaded now. A run that reaches past the committed
    // positions counts as this forward's.
    template <Written kWritten>
    static __device__ bool wanted(const UnitDescriptor& unit, std::int32_t position, int count) {
        // The cells of a tree path may have been written by this forward, whatever their positions.
        const bool before = !kSpecial && position + count <= unit.tile.state.committed;
        if (kWritten == Written::before) return before;
        return position <= unit.tile.state.highest && (kWritten == Written::ever || !before);
    }
    // The page of a position; blocks are whole pages.
    static __device__ const Entry* page(const UnitDescriptor& unit, std::int32_t block, int in_block) {
        return reinterpret_cast<const Entry*>(
            unit.pages[(block - unit.first_block) * Form::kBlockPages + in_block / kPagePositions]);
    }
    // Where a position lies. On a tree path the batch's lists say which cell has it.
    static __device__ Cell cell_of(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int in_block) {
        const std::int32_t position = block * Form::kBlock + in_block;
        if (kSpecial && position >= unit.in_place) {
            const RowState row = c.batch.rows[unit.tile.state.first];
            const std::int32_t cell = c.batch.cell(row, min(position, row.position));
            const std::int32_t number = c.batch.lists[unit.tile.state.pages + cell / kPagePositions];
            return {reinterpret_cast<const Entry*>(unit.base + number * c.layout.page_stride), cell % kPagePositions};
        }
        return {page(unit, block, in_block), in_block % kPagePositions};
    }
    // Values d and d + 8, position by position: for the cells of a tree path.
    static __device__ void gather(const AttendCall& c, const UnitDescriptor& unit, std::int32_t block, int in_block,
                                  int d, typename Form::ValueRun (&to)[2]) {
        constexpr int kEach = 4 / sizeof(Entry);  // of a word
        std::uint32_t words[2][Form::kValueRun / kEach] = {};
#pragma unroll
        for (int j = 0; j < Form::kValueRun; ++j) {
            const Cell cell = cell_of(c, unit, block, in_block + j);
            if constexpr (Form::kLow) {
                const LowCodes codes(c.layout);
                for (int i = 0; i < (codes.v_bits == 4 ? 1 : 2); ++i) {
                    const bool high = codes.v_bits == 6 && i == 1;
                    const std::int32_t at = codes.value(cell.place, codes.v_bits == 8 ? d + 8 * i : d, high);
                    words[i][j / kEach] |= bits(cell.page + at) << (32 / kEach * (j % kEach));
                }
                continue;
            }
            const Entry* from =
                cell.page + Form::kValuesAt + Form::values().value_place(cell.place) + Form::values().value_value(d);
            for (int i = 0; i < 2; ++i) {
                words[i][j / kEach] |= bits(from + i * 32 * Form::kValueRun) << (32 / kEach * (j % kEach));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            to[i].x = words[i][0];
            to[i].y = words[i][1];
            if constexpr (Form::kValueRun / kEach == 4) {
                to[i].z = words[i][2];
                to[i].w = words[i][3];
            }
        }
    }
    static __device__ std::uint32_t bits(const __half* from) { return __half_as_ushort(__ldcg(from)); }
    static __device__ std::uint32_t bits(const unsigned char* from) { return __ldcg(from); }
};

}  // namespace foresay::kernels::cuda::attention
