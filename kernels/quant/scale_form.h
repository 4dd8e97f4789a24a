// kernels/quant/scale_form.h: what the head of packed groups holds; kernels/quant/packing.h says how values come of it.
#pragma once

#include <cstdint>

namespace foresay::kernels {

enum class ScaleForm : std::uint8_t {
    f16_minimum,
    f32_minimum,
    f16_zero,
    f32_zero,
    k_minimum,
    k_table,
    f32_table,
    e4m3,
};

inline constexpr int kPackedGroup = 32;      // inputs of a group
inline constexpr std::uint8_t kHead = 0x80;  // in a group's kind: a head lies before it
inline constexpr int kGroupsOfKHead = 8;     // that share a head of a k form

// Bytes of a head.
constexpr int head_bytes(ScaleForm form) {
    switch (form) {
        case ScaleForm::f16_minimum:
        case ScaleForm::f16_zero:
        case ScaleForm::e4m3:
            return 4;
        case ScaleForm::f32_minimum:
        case ScaleForm::f32_zero:
        case ScaleForm::f32_table:
            return 8;
        case ScaleForm::k_minimum:
        case ScaleForm::k_table:
            return 4 + 2 * kGroupsOfKHead;
    }
    return 0;
}

}  // namespace foresay::kernels
