// kernels/cuda/attend.h: softmax attention over pages.
//
// Order:    a tile is up to 16 (row, query head) pairs that share a key-value head, the rows of one 16-row matrix operand.
//           Positions are cut at fixed places: for decode rows into chunks (chunk_begin) and blocks of 128, which warps
//           divide (attend.cuh); blocks of a chunk come in order, and chunks are merged in a fixed order. All of that depends
//           on absolute positions alone; what a neighbour in the tile adds is an exact 0. So a row's bits are its own (law 1).
//           Input rows take another path: one warp for a tile, all strips in order, nothing to merge.
// Precision: queries and weights in float16, scores, sums and maxima in float32.
// Cost:     reads K and V of the attended positions once per tile of a key-value head (tiles share it through L2).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/batch_state.h"
#include "kernels/cuda/division.h"
#include "kernels/cuda/kv_pool.h"

namespace foresay::kernels::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kNothingByte = 0xff;    // of words that have not come (kernels/cuda/handed.cuh)
inline constexpr int kMaxAttendWidth = 256;  // widest head

// Chunks of decode rows: 128 positions each at first, 256 from 2,048 on, 1,024 from 8,192 on.
inline constexpr std::int32_t kMaxChunkPositions = 1024;
FORESAY_HOST_DEVICE constexpr std::int32_t chunk_begin(std::int32_t chunk) {
    return chunk <= 16 ? 128 * chunk : chunk <= 40 ? 2048 + 256 * (chunk - 16) : 8192 + 1024 * (chunk - 40);
}
FORESAY_HOST_DEVICE constexpr std::int32_t chunk_of(std::int32_t position) {
    return position < 2048   ? position / 128
           : position < 8192 ? 16 + (position - 2048) / 256
                             : 40 + (position - 8192) / 1024;
}

// Query heads of a key-value head that one tile takes, and the rows it then has room for.
FORESAY_HOST_DEVICE constexpr std::int32_t heads_per_tile(std::int32_t group) {
    return group < kTileRows ? group : kTileRows;
}
FORESAY_HOST_DEVICE constexpr std::int32_t rows_per_tile(std::int32_t group) {
    return kTileRows / heads_per_tile(group);
}

struct AttendCall {
    BatchView batch;
    bool tree = false;  // some row has tree ancestors
    std::int32_t tiles = 0;
    std::int32_t chunks = 0;  // decode: chunks that the launch covers, at least those of the longest row
    std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
    // Set by shape_attention(), because division is slow on the device.
    std::int32_t group = 1;           // query heads of a key-value head
    std::int32_t per_tile = 1;        // of them in a tile
    std::int32_t tiles_per_head = 1;  // of a key-value head
    std::int32_t head_tiles = 0;      // of all of them
    // quotient_by()
    std::uint32_t per_tile_inverse = 0, tiles_inverse = 0, head_tiles_inverse = 0, tiles_per_head_inverse = 0;
    float scale = 1.0f;
    std::int32_t window = 0;
    float soft_cap = 0.0f;
    const float* q = nullptr;    // [T, H*Dh]
    float* out = nullptr;        // [T, H*Dh]
    const __half* kv = nullptr;  // of the layer
    KvLayout layout;
    // Decode rows. Of both every launch leaves what it found.
    float* partial = nullptr;       // attend_partial_floats(), all bytes kNothingByte
    std::int32_t* taken = nullptr;  // units that groups have taken; 0

    // Of a launch for decode rows.
    FORESAY_HOST_DEVICE std::int32_t units() const { return tiles * head_tiles * chunks; }
    // Rows of tiles whose chunks may have to be merged.
    FORESAY_HOST_DEVICE std::int32_t merges() const { return chunks > 1 ? tiles * head_tiles * kTileRows : 0; }
    // Of `groups` of warps the first have units, the last have rows to merge: how many take part, and whether one does.
    FORESAY_HOST_DEVICE std::int32_t members(std::int32_t groups) const {
        const std::int32_t wanted = units() + merges();
        return wanted < groups ? wanted : groups;
    }
    FORESAY_HOST_DEVICE bool has_member(std::int32_t group, std::int32_t groups) const {
        return group < units() || groups - 1 - group < merges();
    }
};

// What follows from the heads and tiles of a call.
inline void shape_attention(AttendCall& call) {
    call.group = call.heads / call.kv_heads;
    call.per_tile = heads_per_tile(call.group);
    call.tiles_per_head = (call.group + call.per_tile - 1) / call.per_tile;
    call.head_tiles = call.kv_heads * call.tiles_per_head;
    call.per_tile_inverse = inverse_of(call.per_tile);
    call.tiles_inverse = inverse_of(call.tiles);
    call.head_tiles_inverse = inverse_of(call.head_tiles);
    call.tiles_per_head_inverse = inverse_of(call.tiles_per_head);
}

std::int64_t attend_partial_floats(const AttendCall& call);

// Whether this attention can run within another kernel (kernels/cuda/attend.cuh), bit for bit as launch_attend_decode().
bool attends_within(const AttendCall& call);

void launch_attend_decode(cudaStream_t stream, const AttendCall& call);
void launch_attend_input(cudaStream_t stream, const AttendCall& call);

}  // namespace foresay::kernels::cuda
