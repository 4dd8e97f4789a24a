// kernels/cuda/weights/panels.h: the one layout in which the CUDA backend keeps weights, and how a file's tensors get
// into it.
//
// Layout:   the matrices that read the same input are stacked into one: packed rows, in the order that the epilogue of
//           their op wants, two neighbours (2i, 2i + 1) being a pair that one thread handles
//           (kernels/cuda/decode/epilogue.cuh). 32 packed rows are a panel; a panel is a row of blocks in input order
//           (panel_format.h), and panels follow one another. Lossless: every number of the file is kept as it is. Rows
//           and inputs beyond the matrix have scale 0.
// Cost:     packing copies each byte to the device once and rearranges it there.
// Errors:   Error when the device has no room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/host_device.h"
#include "kernels/quant/packing.h"
#include "kernels/quant_type.h"

namespace foresay::kernels::cuda {

inline constexpr int kPanelRows = 32;

// Within each head of `head` rows the first `rotated` are reordered so that rows i and i + rotated / 2 become
// neighbours. rotated 0: rows keep their order.
struct HeadOrder {
    std::int32_t head = 1;
    std::int32_t rotated = 0;
};

// The row of its head that lies at place `packed` of the head.
FORESAY_HOST_DEVICE constexpr std::int32_t row_of_head(HeadOrder order, std::int32_t packed) {
    if (packed >= order.rotated) return packed;
    return packed / 2 + packed % 2 * (order.rotated / 2);
}

// A matrix of a stack. A view that has a shape but no data stands for synthetic weights: random numbers, generated on
// the device, of about the size that weights of such a width have, and never zero.
struct PackSource {
    TensorView view;
    HeadOrder order;
};

// How the rows of several matrices become packed rows.
enum class RowOrder : std::uint8_t {
    stacked,      // matrix after matrix
    interleaved,  // of two matrices of one shape: packed rows 2i and 2i + 1 are row i of the first and of the second
};

// The type in which tables are kept, and other matrices where packed rows cannot stay packed (packed_panels.h): packed
// rows become blocks of a plain type.
inline QuantType kept_type(const TensorView& view) {
    return view.packing != nullptr ? view.packing->plain : view.quant_type;
}
// Rows [first, first + count) of a tensor in that type, on the host. Packed rows are unpacked into `storage`.
const std::byte* kept_rows(const TensorView& view, std::int64_t first, std::int64_t count,
                           std::vector<std::byte>& storage);

class Panels {
public:
    // Consecutive packed rows in one quantisation type. Stacked matrices of different quantisation types lie in parts
    // of their own; interleaved ones are dequantised to float32 first.
    struct Part {
        QuantType quant_type = QuantType::f32;
        std::int64_t first_row = 0;  // of the stack
        std::int64_t rows = 0;       // without padding
        std::int32_t panels = 0;
        std::int32_t blocks = 0;  // per panel
        DeviceBuffer<std::uint8_t> data;
    };

    Panels() = default;
    Panels(std::span<const PackSource> matrices, RowOrder order);

    std::int64_t rows() const { return rows_; }
    std::int64_t inputs() const { return inputs_; }
    std::span<const Part> parts() const { return parts_; }
    std::int64_t bytes() const;

private:
    std::int64_t rows_ = 0, inputs_ = 0;
    std::vector<Part> parts_;
};

struct PackedLayout;  // packed_panels.h

// What matrices of experts are kept as: packed rows where all can share a layout (packed_layout_of_experts()), else the
// type that they have together, or float32.
struct ExpertForm {
    QuantType quant_type = QuantType::f32;
    std::shared_ptr<const PackedLayout> packed;
};
ExpertForm form_of_experts(std::span<const TensorView> first, std::span<const TensorView> second);

// The matrices of the experts of a layer, one after the other in one allocation, each padded to whole panels. With
// `second` the matrices of an expert interleave, as gate and up do. All are in `form`; those of other types are
// dequantised to float32 first.
class ExpertPanels {
public:
    // Of packed rows, whose header comes before the panels.
    struct Packed {
        DeviceBuffer<float> factors;        // [E][2]: of even and odd packed rows
        DeviceBuffer<std::uint16_t> order;  // [E, inputs], or empty: inputs as they come
        std::int64_t panel_bytes = 0, panels_at = 0;
        std::int32_t unit_bytes = 0;  // the most of two neighbouring blocks, of which the first is even
    };

    ExpertPanels() = default;
    ExpertPanels(std::span<const TensorView> first, std::span<const TensorView> second, const ExpertForm& form);

    std::int64_t rows() const { return rows_; }  // of an expert, without padding
    std::int64_t inputs() const { return inputs_; }
    const Panels::Part& part() const { return part_; }
    const Packed& packed() const { return packed_; }
    std::int64_t bytes() const;

private:
    void pack(std::span<const TensorView> first, std::span<const TensorView> second, const PackedLayout& layout);

    std::int64_t rows_ = 0, inputs_ = 0;
    Panels::Part part_;
    Packed packed_;
};

}  // namespace foresay::kernels::cuda
