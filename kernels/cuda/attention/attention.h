// kernels/cuda/attention/attention.h: softmax attention over the pages of the KV cache: the parameters of both kernels.
//
// Tile:     up to 16 (row, query head) pairs that share a KV head, the rows of one 16-row matrix operand.
// Decode:   positions are cut at fixed absolute places into chunks (chunk_begin) of blocks of 64 or 128. A unit is one
//           tile against one chunk (decode_attention.cuh). Blocks of a chunk come in order, and chunks are merged in a
//           fixed order.
// Prefill:  one warp takes a tile through all its positions in strips of 32, so there is nothing to merge
//           (prefill_attention.cu).
// Law 1:    all of that depends on absolute positions alone, and what a neighbour in the tile does not attend to adds
//           an exact 0, so a row's bits are its own. Changing where chunks begin changes the bits of every text longer
//           than 1,024 positions.
// Sinks:    a sink is one more score of a head, without a value. It joins the sum of the weights where outputs are
//           divided by it, so it has no part in chunks.
// Wide:     heads of more than kMaxTileWidth values have a plain kernel of their own (wide_attention.cu).
// Precision: queries and weights in float16, scores, sums and maxima in float32.
// Cost:     reads K and V of the attended positions once per tile of a KV head (tiles share it through L2).
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/division.h"
#include "kernels/cuda/memory/batch_state.h"
#include "kernels/cuda/memory/kv_pool.h"

namespace foresay::kernels::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kNotReadyByte = 0xff;   // of words that have not come (kernels/cuda/decode/flagged_words.cuh)
inline constexpr int kMaxTileWidth = 256;    // widest head of the kernels with tiles
inline constexpr int kMaxAttendWidth = 512;  // widest head

namespace attention {
// Warps that attend together; `width`: of a head, padded.
FORESAY_HOST_DEVICE constexpr int group_warps(int width) { return width > 128 ? 16 : 8; }
}  // namespace attention

// Positions of a block, 64 or 128, as a power of two.
FORESAY_HOST_DEVICE constexpr std::int32_t attend_block_shift(KvFormat format, std::int32_t width) {
    return width > 128 || format != KvFormat::f16 ? 7 : 6;
}

// Chunks of decode rows grow with the position, so that a long context has few of them and a short one still keeps many
// multiprocessors busy: 1 block each up to block 16, 2 blocks up to 64, 8 up to 256, then 16.
inline constexpr std::int32_t kMaxChunkPositions = 2048;
FORESAY_HOST_DEVICE constexpr std::int32_t chunk_begin(std::int32_t chunk, std::int32_t block_shift) {
    return (chunk <= 16   ? chunk
            : chunk <= 40 ? 16 + 2 * (chunk - 16)
            : chunk <= 64 ? 64 + 8 * (chunk - 40)
                          : 256 + 16 * (chunk - 64))
           << block_shift;
}
FORESAY_HOST_DEVICE constexpr std::int32_t chunk_of(std::int32_t position, std::int32_t block_shift) {
    const std::int32_t block = position >> block_shift;
    return block < 16    ? block
           : block < 64  ? 16 + (block - 16) / 2
           : block < 256 ? 40 + (block - 64) / 8
                         : 64 + (block - 256) / 16;
}

// Positions that a launch covers, at least up to the furthest. Few different numbers, so that a growing sequence seldom
// needs another graph.
constexpr std::int32_t attend_reach(std::int32_t furthest) {
    const std::int32_t shift = attend_block_shift(KvFormat::f16, 0), chunks = chunk_of(furthest, shift) + 1;
    return chunk_begin(chunks <= 4 ? 4 : (chunks + 7) / 8 * 8, shift);
}

// Query heads of a KV head that one tile takes, and the rows for which it then has room.
FORESAY_HOST_DEVICE constexpr std::int32_t heads_per_tile(std::int32_t group) {
    return group < kTileRows ? group : kTileRows;
}
FORESAY_HOST_DEVICE constexpr std::int32_t rows_per_tile(std::int32_t group) {
    return kTileRows / heads_per_tile(group);
}

struct AttendCall {
    BatchView batch;
    bool tree = false;  // some row has tree ancestors
    // Query heads of the rows of `out`, of which these are some, where it lies in the memory of linked ranks.
    std::uint16_t whole_heads = 0;
    std::int32_t tiles = 0;
    std::int32_t chunks = 0;  // decode: chunks that the launch covers, at least those of the longest row
    std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
    // Set by shape_attention(), because division is slow on the device. A change of heads, tiles or layout after that
    // needs another call.
    std::int32_t group = 1;           // query heads of a key-value head
    std::int32_t per_tile = 1;        // of them in a tile
    std::int32_t tiles_per_head = 1;  // of a key-value head
    std::int32_t head_tiles = 0;      // of all of them
    std::int32_t block_shift = 0;     // positions of a block, as a power of two
    // quotient_by()
    std::uint32_t per_tile_inverse = 0, tiles_inverse = 0, head_tiles_inverse = 0, tiles_per_head_inverse = 0;
    float scale = 1.0f;
    std::int32_t window = 0;
    float soft_cap = 0.0f;
    const float* q = nullptr;       // [T, H*Dh]
    float* out = nullptr;           // [T, H*Dh]
    const __half* kv = nullptr;     // of the layer
    const float* sinks = nullptr;   // [H], of the layer; null: none
    const float* q_norm = nullptr;  // [Dh] each, of the layer; null: none (raw)
    const float* k_norm = nullptr;
    KvLayout layout;
    // K and V of the batch's rows, of all heads, that the attention has yet to write into the cache as codes. Null: the
    // cache has them.
    const float* new_kv = nullptr;  // [T, K | V]
    // Projections of the batch's rows, which the attention has yet to norm and rotate, in place of q and new_kv
    // (finish_heads.cuh). Null: q is complete.
    const float* raw = nullptr;      // [T, (H + 2 Hkv) * Dh]: q, k, v
    const float2* angles = nullptr;  // [T, rope_pairs]
    float q_eps = 0.0f, k_eps = 0.0f;
    std::int32_t rope_pairs = 0;
    RopePairs pairs = RopePairs::none;
    std::int32_t rows = 0;         // T; for raw, new_kv and wide heads only
    std::int32_t first_value = 0;  // with whole_heads: of the first of these heads in a row of `out`
    // Decode rows. Every launch leaves both as it found them.
    float* partial = nullptr;       // attend_partial_floats(), all bytes kNotReadyByte
    std::int32_t* taken = nullptr;  // units that groups have taken; 0

    // Whether the attention writes K and V of the batch's rows.
    FORESAY_HOST_DEVICE bool writes_kv() const { return new_kv != nullptr || raw != nullptr; }
    // Units of a launch for decode rows, empty ones included.
    FORESAY_HOST_DEVICE std::int32_t units() const { return tiles * head_tiles * chunks; }
    // Rows whose chunks may have to be merged.
    FORESAY_HOST_DEVICE std::int32_t merges() const { return chunks > 1 ? tiles * head_tiles * kTileRows : 0; }
    // Of `blocks` CTAs the first have units and the last have rows to merge: how many take part, and whether one does.
    FORESAY_HOST_DEVICE std::int32_t members(std::int32_t blocks) const {
        const std::int32_t wanted = units() + merges();
        return wanted < blocks ? wanted : blocks;
    }
    FORESAY_HOST_DEVICE bool has_member(std::int32_t block, std::int32_t blocks) const {
        return block < units() || blocks - 1 - block < merges();
    }
};

// What a step of attention has of its own layer.
struct AttendLayer {
    const __half* kv = nullptr;
    float* out = nullptr;
    const float* sinks = nullptr;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
};

// Fills in what follows from the heads, the tiles and the layout of a call. `most_heads`: of a tile; the tiles of a
// batch may have more rows than the groups of a layer leave room for, whose tiles then have fewer heads.
inline void shape_attention(AttendCall& call, std::int32_t most_heads = kTileRows) {
    call.block_shift = attend_block_shift(call.layout.format, call.layout.width);
    call.group = call.heads / call.kv_heads;
    call.per_tile = std::min(heads_per_tile(call.group), most_heads);
    call.tiles_per_head = (call.group + call.per_tile - 1) / call.per_tile;
    call.head_tiles = call.kv_heads * call.tiles_per_head;
    call.per_tile_inverse = inverse_of(call.per_tile);
    call.tiles_inverse = inverse_of(call.tiles);
    call.head_tiles_inverse = inverse_of(call.head_tiles);
    call.tiles_per_head_inverse = inverse_of(call.tiles_per_head);
}

std::int64_t attend_partial_floats(const AttendCall& call);

// Whether this attention can run within a decode kernel of `warps` multiplying warps, with the same bits as
// launch_attend_decode(). False for trees and capped scores, whose code needs more registers than that kernel has left,
// for caches with low bits, whose code it would have to be compiled with, and for heads of more than 128 values where
// it has 8 warps (K-quants) instead of 16.
inline bool can_fuse_attention(const AttendCall& call, int warps) {
    return !call.tree && call.soft_cap <= 0 && !has_low_bits(call.layout.format) &&
           call.layout.width <= kMaxTileWidth && attention::group_warps(call.layout.width) <= warps;
}

// Whether attention can norm and rotate heads of a model (AttendCall::raw). A lane of a warp has whole fours, 128
// values apart, and pairs must be whole fours, too.
constexpr bool can_finish_heads(std::int32_t head_dim, RopePairs pairs, std::int32_t rope_pairs) {
    if (head_dim % 4 != 0 || head_dim > kMaxTileWidth) return false;
    if (pairs == RopePairs::adjacent) return rope_pairs % 2 == 0;
    return head_dim <= 128 ? rope_pairs % 4 == 0 : rope_pairs % 128 == 0;
}
// Whether this call of it is for that: not for trees or capped scores.
inline bool can_finish_heads(const AttendCall& call) {
    return call.raw != nullptr && !call.tree && call.soft_cap <= 0 &&
           can_finish_heads(call.head_dim, call.pairs, call.rope_pairs);
}

void launch_attend_decode(cudaStream_t stream, const AttendCall& call);
void launch_attend_prefill(cudaStream_t stream, const AttendCall& call);
// For caches with low bits, on a device with so many multiprocessors. launch_attend_decode() calls it.
void launch_attend_low(cudaStream_t stream, const AttendCall& call, int processors);
// Rotates the outputs of an attention back, whose values are kept rotated (kernels/kv/low_bits.h). Of either kind of
// rows.
void launch_rotate_back(cudaStream_t stream, const AttendCall& call);
// Either kind of rows, for heads of more than kMaxTileWidth values. The two above call it.
void launch_attend_wide(cudaStream_t stream, const AttendCall& call);

}  // namespace foresay::kernels::cuda
