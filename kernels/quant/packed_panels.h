// kernels/quant/packed_panels.h: what packed rows take as panels of a device (kernels/cuda/weights/packed_format.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/quant/packing.h"

namespace foresay::kernels {

// Whether devices keep the rows packed. Those that fit Q6_K, or Q8_0 with more than four bits of their own, become
// that, whose kernels are faster (docs/experiments/packed-rows.md).
bool devices_keep_packed(const Packing& packing);

// Whether rows of both can share panels: all but the factor is alike.
bool share_panels(const Packing& a, const Packing& b);

// How the panels are packed in which rows of two matrices of `cols` inputs alternate, as gate and up do: each group has
// as many bits as the wider of its two, and a head where either has one. None: more differs than widths and factors, or
// devices keep neither packed.
std::optional<Packing> packing_of_pair(const Packing& a, const Packing& b, std::int64_t cols);

// How the panels of a mixture's experts are packed, `second` (up) interleaved with `first` (gate), or none: all experts
// alike but for factors and orders, which all have or none, gate and up of each in one order. An entry is null where
// the rows are not packed. None: they differ, or devices keep none of them packed.
std::optional<Packing> packing_of_experts(std::span<const Packing* const> first, std::span<const Packing* const> second,
                                          std::int64_t cols);

// Bytes of a row of a panel, at most: where all zeros are the middle of their codes, panels keep none.
// 0: devices keep such rows as Packing::plain.
std::int64_t packed_panel_row_bytes(const Packing& packing, std::int64_t cols);

}  // namespace foresay::kernels
