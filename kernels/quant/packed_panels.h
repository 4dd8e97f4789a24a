// kernels/quant/packed_panels.h: what packed rows take as panels of a device (kernels/cuda/weights/packed_format.h).
#pragma once

#include <cstdint>

#include "kernels/quant/packing.h"

namespace foresay::kernels {

// Bytes of a row of a panel, at most: where all zeros are the middle of their codes, panels keep none.
// 0: devices have no panels for such rows and keep them as Packing::plain.
std::int64_t packed_panel_row_bytes(const Packing& packing, std::int64_t cols);

}  // namespace foresay::kernels
