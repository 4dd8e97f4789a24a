// kernels/quant/packed_panels.h: what packed rows take as panels of a device (kernels/cuda/weights/packed_format.h).
#pragma once

#include <cstdint>

#include "kernels/quant/packing.h"

namespace foresay::kernels {

// Whether devices keep the rows packed. Those that fit Q8_0 or Q6_K become that: it takes up to twice the memory, but
// its kernels take many rows in one pass. (One row of four bits is faster packed: docs/experiments/packed-rows.md.)
bool devices_keep_packed(const Packing& packing);

// Whether rows of both can share panels: all but the factor is alike.
bool share_panels(const Packing& a, const Packing& b);

// What a backend says of its device beside kernels/ops.h. One that says nothing keeps rows packed.
class PackedRowsDevice {
public:
    virtual ~PackedRowsDevice() = default;
    // False: all packed rows become Packing::plain.
    virtual bool keeps_rows_packed() const = 0;
};
template <class Ops>
bool keeps_rows_packed(const Ops& ops) {
    const auto* const device = dynamic_cast<const PackedRowsDevice*>(&ops);
    return device == nullptr || device->keeps_rows_packed();
}

// Bytes of a row of a panel, at most: where all zeros are the middle of their codes, panels keep none.
// 0: devices keep such rows as Packing::plain.
std::int64_t packed_panel_row_bytes(const Packing& packing, std::int64_t cols);

}  // namespace foresay::kernels
