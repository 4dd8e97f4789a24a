// kernels/cuda/weights/packed_panels.h: how packed rows become panels on the device (packed_format.h).
//
// Cost:     packed_layout() looks at every head of the matrices, on the host; a few seconds for 8 billion weights with
//           groups of 32, less with wider ones. pack_slab() is a kernel.
// Errors:   launches throw Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/weights/packed_format.h"
#include "kernels/cuda/weights/row_target.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels::cuda {

// Where a group of 32 inputs lies in a row of the file.
struct PackedSource {
    std::uint32_t codes_at = 0, head_at = 0;  // bytes
    std::uint8_t bits = 0, index = 0;         // index: PackedGroup::index
};

struct PackedLayout {
    ScaleForm form = ScaleForm::f16_minimum;
    bool centred = false;  // every zero is the middle of its codes, and is not kept
    PackedHeader header;
    // Of a row of each matrix of a pair whose codes differ in width; else the first, of every matrix.
    std::vector<PackedSource> groups[2];
    std::vector<std::uint16_t> order;  // of the inputs; empty: as they come
    std::int32_t blocks = 0;           // of a panel
};

// The panels of matrices that share them. `interleaved`: two, row by row, whose factors and widths of codes may differ
// (packing_of_pair()). None: the kernels have no such layout, and the rows become Packing::plain.
std::optional<PackedLayout> packed_layout(std::span<const TensorView> matrices, bool interleaved);

// The panels of the experts of a mixture, which have one layout (packing_of_experts()); `second` interleaves with
// `first`, or is empty. Its header has factors of 1, and it has no order: those are each expert's.
std::optional<PackedLayout> packed_layout_of_experts(std::span<const TensorView> first,
                                                     std::span<const TensorView> second);

// The bytes of `panels` panels with what lies before them.
std::size_t packed_bytes(const PackedLayout& layout, std::int64_t panels);
// Writes what lies before the panels.
void put_header(const PackedLayout& layout, std::uint8_t* to);

// Packs `count` rows that lie on the device as the file has them. `sources`: layout.groups of the matrix, on the
// device.
void pack_slab(const PackedLayout& layout, const PackedSource* sources, const std::byte* slab, std::int64_t row_bytes,
               std::int64_t count, const RowTarget& target, std::uint8_t* to);
// Random codes and scales, that make weights of about 1 / sqrt(inputs).
void fill_packed_randomly(const PackedLayout& layout, std::int64_t inputs, std::int64_t panels, std::uint64_t seed,
                          std::uint8_t* to);

}  // namespace foresay::kernels::cuda
