// kernels/cuda/attention/attention_choice.h: which of the kernels of attention runs. All forms of decode rows have the
// same bits, and so have both of prefill rows, so this is a matter of speed alone.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace foresay::kernels::cuda {

struct AttendCall;
struct DeviceInfo;

// What attention of a batch has to do in each layer.
struct AttendWork {
    RowClass row_class = RowClass::decode;
    std::int32_t rows = 0;
    std::int32_t together = 1;        // the most neighbouring tiles of a sequence, up to kMostTogether
    std::int64_t tile_positions = 0;  // that tiles attend to, added up
    std::int32_t furthest = 0;        // position
};

// Whether flash attention is faster for a batch than the older forms, in layers that attend to all positions and have
// either format of the cache. Of prefill rows both formats are the same, because codes are expanded first.
struct FlashWorth {
    bool f16 = false, q8 = false;
    bool operator==(const FlashWorth&) const = default;
};
FlashWorth flash_worth(const ModelShape& shape, const AttendWork& work);

// Whether rows of a batch for which it has that worth attend by launch_flash_decode() or launch_flash_prefill() in a
// layer, instead of the older forms.
bool takes_flash_decode(const AttendCall& call, const DeviceInfo& device, FlashWorth worth);
bool takes_flash_prefill(const AttendCall& call, const DeviceInfo& device, FlashWorth worth);

// For tests and measurements, of this process: by speed, or flash attention never, or wherever it can run. Between
// forwards of workspaces that have none recorded.
enum class FlashAttention : std::uint8_t { by_speed, never, always };
void choose_flash_attention(FlashAttention choice);

}  // namespace foresay::kernels::cuda
