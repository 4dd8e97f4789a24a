// Decides by what was measured with 8B on an H200 (docs/experiments/attention.md).
//
// A launch of its own per layer costs some ten microseconds more than attention within the decode kernel. What it saves
// grows with the tiles of a sequence, which then read keys and values once instead of once each, and with the
// positions. With codes it saves less, because the conversion of codes limits both forms. Prefill rows have launches of
// their own in both forms.

#include "kernels/cuda/attention/attention_choice.h"

#include <atomic>

#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/attention/flash_prefill.h"
#include "kernels/cuda/linear.h"

namespace foresay::kernels::cuda {
namespace {

// Positions of all tiles, times key-value heads, from which on flash attention of decode rows is faster. With codes it
// is faster where two or four warps have a tile. Rows that take two launches of the decode kernel for a matrix have no
// launch for all layers to lose.
constexpr std::int64_t kHeadsOf8B = 8;
constexpr std::int64_t kDecodeWork = 36864 * kHeadsOf8B, kDecodeWorkOfManyRows = 16384 * kHeadsOf8B;
constexpr std::int64_t kDecodeWorkOfCodes = 57344 * kHeadsOf8B, kDecodeWorkOfManyTilesOfCodes = 114688 * kHeadsOf8B;
constexpr std::int64_t kDecodeWorkOfManyRowsOfCodes = 65536 * kHeadsOf8B;
// The position from which on it is for prefill rows, however many there are. Windows up to it leave too little.
constexpr std::int32_t kPrefillPosition = 63;

std::atomic<FlashAttention> chosen = FlashAttention::by_speed;

}  // namespace

void choose_flash_attention(FlashAttention choice) { chosen = choice; }

FlashWorth flash_worth(const ModelShape& shape, const AttendWork& work) {
    if (chosen == FlashAttention::never) return {};
    if (chosen == FlashAttention::always) return {true, true};
    if (work.row_class == RowClass::prefill) {
        const bool far = work.furthest >= kPrefillPosition;
        return {far, far};
    }
    // A single tile reads nothing twice, but many sequences of one tile each are more rows than the decode kernel
    // takes. Of codes that has not been timed.
    if (work.together <= 1 && work.rows <= kDecodeTile) return {};
    const std::int64_t head_tiles = (shape.heads + kTileRows * shape.kv_heads - 1) / (kTileRows * shape.kv_heads);
    const std::int64_t positions = work.tile_positions * shape.kv_heads * head_tiles;
    if (work.rows > kDecodeTile) {
        return {positions >= kDecodeWorkOfManyRows, work.together > 1 && positions >= kDecodeWorkOfManyRowsOfCodes};
    }
    return {positions >= kDecodeWork,
            positions >= (work.together > 2 ? kDecodeWorkOfManyTilesOfCodes : kDecodeWorkOfCodes)};
}

bool takes_flash_decode(const AttendCall& call, const DeviceInfo& device, FlashWorth worth) {
    // Of fewer bits, keys and values would have to be unpacked in the ring.
    if (has_low_bits(call.layout.format)) return false;
    if (!(call.layout.format == KvFormat::q8 ? worth.q8 : worth.f16)) return false;
    // A window leaves few positions, whatever the batch has.
    if (call.window > 0 && chosen != FlashAttention::always) return false;
    return can_flash_decode(call, device);
}

bool takes_flash_prefill(const AttendCall& call, const DeviceInfo& device, FlashWorth worth) {
    if (call.window > 0 && call.window <= kPrefillPosition && chosen != FlashAttention::always) return false;
    return worth.f16 && can_flash_prefill(call, device);
}

}  // namespace foresay::kernels::cuda
