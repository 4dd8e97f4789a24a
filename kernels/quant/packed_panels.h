// kernels/quant/packed_panels.h: what packed rows take as panels of a device (kernels/cuda/weights/packed_format.h).
#pragma once

#include <cstdint>

#include "kernels/quant/packing.h"

namespace foresay::kernels {

// Whether devices keep the rows packed. Those that fit Q8_0 or Q6_K become that: it takes up to twice the memory, but
// its kernels are faster, above all with many rows.
bool devices_keep_packed(const Packing& packing);

// Bytes of a row of a panel, at most: where all zeros are the middle of their codes, panels keep none.
// 0: devices keep such rows as Packing::plain.
std::int64_t packed_panel_row_bytes(const Packing& packing, std::int64_t cols);

}  // namespace foresay::kernels
