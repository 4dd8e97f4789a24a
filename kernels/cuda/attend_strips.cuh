// kernels/cuda/attend_strips.cuh: keys and values of decode rows as the lanes of a warp read them, for each format of the cache.
//
// Layout:   a strip is 32 positions of a page, a unit what a lane reads at once; K's units come before V's. Lane (quad, place)
//           = (lane / 4, lane % 4). Column i of the product with the j-th block of eight keys is position
//           8 (i / 2) + 2 j + i % 2 of the strip, so that a lane's scores are those of eight neighbours, whose values it has
//           at one place. The values of a head are taken in an order of our own, the same in Q and K, so that operands of
//           several products lie side by side.
#pragma once

#include "kernels/cuda/attend_tile.cuh"

namespace foresay::kernels::cuda::attention {

inline constexpr int kStrip = 32;           // positions
inline constexpr int kBlocks = kStrip / 8;  // of eight positions

// 16 bytes past L1, in program order with other instructions of this kind and with products.
__device__ inline uint4 load_ordered(const void* from) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Of the key of a block that the lane reads, in the strip.
__device__ inline std::int32_t key_position(int block, int lane) { return 8 * (lane / 8) + 2 * block + lane / 4 % 2; }

// Operands: of K two blocks of positions, of V values quad and quad + 8 of sixteen.
struct Pair {
    uint4 low, high;
};

// Where a position of a tree's row lies: its page and head, and its place there.
struct TreeCell {
    const __half* page;
    std::int32_t place;

    __device__ TreeCell(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t position) {
        const RowState row = c.batch.rows[tile.state.first];
        const std::int32_t cell = c.batch.cell(row, min(position, row.position));
        page = kv + c.batch.lists[tile.state.pages + cell / kPagePositions] * c.layout.page_stride +
               tile.kv_head * c.layout.head_stride;
        place = cell % kPagePositions;
    }
};

template <int kWidth, KvFormat kFormat>
struct Strips;

template <int kWidth>
struct Strips<kWidth, KvFormat::f16> {
    static constexpr bool kCoded = false;
    static constexpr int kKeyUnits = kWidth / 16;  // by 32 values, then by two blocks
    static constexpr int kUnits = 2 * kKeyUnits;   // V's by 16 values
    using Unit = Pair;

    std::int32_t key_at, value_at;  // this lane's first 16 bytes in a page and head

    // `start`: where strips begin in their pages.
    __device__ Strips(std::int32_t start, int lane)
        : key_at((start + key_position(0, lane)) * kWidth + 8 * (lane % 4)),
          value_at(kPagePositions * kWidth + lane / 4 * kPagePositions + start + 8 * (lane % 4)) {}

    __device__ Unit load(const __half* page, int unit) const {
        if (unit < kKeyUnits) {
            const __half* at = page + key_at + 32 * (unit / 2) + 4 * (unit % 2) * kWidth;
            return {load_ordered(at), load_ordered(at + 2 * kWidth)};
        }
        const __half* at = page + value_at + 16 * (unit - kKeyUnits) * kPagePositions;
        return {load_ordered(at), load_ordered(at + 8 * kPagePositions)};
    }
    // A unit of the strip that begins at `start`, position by position: for cells of a tree.
    __device__ static Unit gather(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t start, int unit,
                                  int lane) {
        const int quad = lane / 4, place = lane % 4;
        if (unit < kKeyUnits) {
            const auto key = [&](int block) {
                const TreeCell cell(c, kv, tile, start + key_position(block, lane));
                return load_ordered(cell.page + cell.place * kWidth + 32 * (unit / 2) + 8 * place);
            };
            return {key(2 * (unit % 2)), key(2 * (unit % 2) + 1)};
        }
        __half low[8], high[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const TreeCell cell(c, kv, tile, start + 8 * place + j);
            const __half* value =
                cell.page + c.layout.v_offset() + cell.place + (16 * (unit - kKeyUnits) + quad) * kPagePositions;
            low[j] = __ldcg(value);
            high[j] = __ldcg(value + 8 * kPagePositions);
        }
        const auto packed = [](const __half(&v)[8]) {
            return uint4{pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
        };
        return {packed(low), packed(high)};
    }
    __device__ static Pair operands(const Unit& unit) { return unit; }
};

// Four codes to halves, exactly: 0x6400 | u is 1024 + u.
__device__ inline uint2 halves_of(std::uint32_t codes) {
    const auto two = [&](std::uint32_t which) {
        const std::uint32_t raw = __byte_perm(codes, 0x64646464u, which);
        const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&raw), __float2half2_rn(1024.0f + kCodeZero));
        return *reinterpret_cast<const std::uint32_t*>(&value);
    };
    return {two(0x4140u), two(0x4342u)};
}

// A unit is eight codes of each half of a pair; those of a strip lie in the order in which a warp reads them (kv_pool.h).
template <int kWidth>
struct Strips<kWidth, KvFormat::q8> {
    static constexpr bool kCoded = true;
    static constexpr int kKeyUnits = kWidth / 16, kUnits = 2 * kKeyUnits;
    using Unit = uint4;

    std::int32_t at;      // bytes, of this lane's first unit in a page and head
    std::int32_t scales;  // of the scales of position `lane` of the strip

    __device__ Strips(std::int32_t start, int lane)
        : at(KvCodes::strip(kWidth, start) + 16 * lane), scales(KvCodes::scales(kWidth, start + lane)) {}

    __device__ Unit load(const __half* page, int unit) const {
        return load_ordered(reinterpret_cast<const char*>(page) + at + 512 * unit);
    }
    // K's and V's of position `lane` of the strip.
    __device__ float2 load_scales(const __half* page) const {
        return __ldcg(reinterpret_cast<const float2*>(reinterpret_cast<const char*>(page) + scales));
    }
    __device__ static Unit gather(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t start, int unit,
                                  int lane) {
        const int quad = lane / 4, place = lane % 4;
        if (unit < kKeyUnits) {
            const auto key = [&](int block) {
                const TreeCell cell(c, kv, tile, start + key_position(block, lane));
                return __ldcg(
                    reinterpret_cast<const uint2*>(reinterpret_cast<const char*>(cell.page) +
                                                   KvCodes::key(kWidth, cell.place, 32 * (unit / 2) + 8 * place)));
            };
            const uint2 low = key(2 * (unit % 2)), high = key(2 * (unit % 2) + 1);
            return {low.x, low.y, high.x, high.y};
        }
        std::uint32_t words[4] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const TreeCell cell(c, kv, tile, start + 8 * place + j);
            const auto* base = reinterpret_cast<const unsigned char*>(cell.page);
            const int d = 16 * (unit - kKeyUnits) + quad;
            words[j / 4] |= static_cast<std::uint32_t>(__ldcg(base + KvCodes::value(kWidth, cell.place, d)))
                            << (j % 4 * 8);
            words[2 + j / 4] |= static_cast<std::uint32_t>(__ldcg(base + KvCodes::value(kWidth, cell.place, d + 8)))
                                << (j % 4 * 8);
        }
        return {words[0], words[1], words[2], words[3]};
    }
    __device__ static float2 gather_scales(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t start,
                                           int lane) {
        const TreeCell cell(c, kv, tile, start + lane);
        return __ldcg(reinterpret_cast<const float2*>(reinterpret_cast<const char*>(cell.page) +
                                                      KvCodes::scales(kWidth, cell.place)));
    }
    __device__ static Pair operands(const Unit& unit) {
        const uint2 a = halves_of(unit.x), b = halves_of(unit.y), c = halves_of(unit.z), d = halves_of(unit.w);
        return {{a.x, a.y, b.x, b.y}, {c.x, c.y, d.x, d.y}};
    }
};

}  // namespace foresay::kernels::cuda::attention
