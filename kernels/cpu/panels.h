// kernels/cpu/panels.h: packed weights, the layout in which the CPU backend keeps matrices of every quantisation type.
//
// Layout:   a matrix is a sequence of panels. A panel is 16 output features x all inputs, stored input-major: one
//           vector holds the 16 outputs, so no sum runs across lanes. A panel is a sequence of blocks
//           (kernels/cpu/panel_blocks.h). Outputs are padded to 16, and inputs to whole blocks, with zero scales.
//           Panels are contiguous, so that a thread streams through memory in one direction.
// Cost:     packing reads each quantisation block once; about 1 ns per weight and thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/panel_blocks.h"
#include "kernels/quant_type.h"

namespace foresay::kernels::cpu {

class ThreadPool;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

constexpr bool is_float(QuantType quant_type) {
    return quant_type == QuantType::f32 || quant_type == QuantType::f16 || quant_type == QuantType::bf16;
}

struct PanelMatrix {
    QuantType quant_type = QuantType::f32;
    PanelType type = PanelType::f32;
    std::int64_t outputs = 0;      // as in the file
    std::int64_t inputs = 0;       // as in the file
    int panels = 0;                // ceil(outputs / 16)
    int blocks = 0;                // per panel
    std::int64_t panel_bytes = 0;  // blocks * block_bytes
    Block memory;
    PackedPanels packed;  // of PanelType::packed; kinds: see kinds_of_groups
    std::vector<std::uint8_t> kinds_of_groups;
    std::vector<std::int32_t> order;  // which input each place reads; empty: its own

    // Whether it is multiplied with float32 inputs, not with int8 codes.
    bool reads_floats() const {
        return is_float(quant_type) || (type == PanelType::packed && packed.form == ScaleForm::e4m3);
    }
    const std::uint8_t* panel(int p) const {
        return reinterpret_cast<const std::uint8_t*>(memory.data) + p * panel_bytes;
    }
    std::int64_t padded_outputs() const { return static_cast<std::int64_t>(panels) * kPanelOutputs; }
};

// The panels that a tensor goes into: its type's own, or narrower ones that hold all of its codes. Reads a tensor's
// codes until one is found that no narrower panels hold: the first block, for most.
PanelType panel_type(const TensorView& tensor);

// Bytes that pack() allocates for a tensor.
std::int64_t packed_bytes(const TensorView& tensor);

PanelMatrix pack(const TensorView& tensor, Arena& arena, ThreadPool& pool);

}  // namespace foresay::kernels::cpu
