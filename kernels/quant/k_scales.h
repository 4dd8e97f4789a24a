// kernels/quant/k_scales.h: the packed scales and minima that the K types of 4 and 5 bits share.
//
// Layout:   12 bytes hold eight 6-bit scales and eight 6-bit minima, one pair per group of 32 values:
//               bytes 0-3    scale of groups 0-3 in bits 0-5;  bits 4-5 of the scale of groups 4-7 in bits 6-7
//               bytes 4-7    minimum of groups 0-3 in bits 0-5;  bits 4-5 of the minimum of groups 4-7 in bits 6-7
//               bytes 8-11   groups 4-7: bits 0-3 of the scale in the low nibble, of the minimum in the high nibble
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace foresay::kernels {

struct KScales {
    static constexpr int kGroups = 8;
    static constexpr int kMax = 63;

    std::uint8_t bytes[12];

    FORESAY_HOST_DEVICE int scale(int group) const {
        if (group < 4) return bytes[group] & 63;
        return (bytes[group + 4] & 15) | ((bytes[group - 4] >> 6) << 4);
    }
    FORESAY_HOST_DEVICE int minimum(int group) const {
        if (group < 4) return bytes[group + 4] & 63;
        return (bytes[group + 4] >> 4) | ((bytes[group] >> 6) << 4);
    }
    // Both in 0 .. kMax. The bytes must have been zero before the first call, and every group is set once.
    void set(int group, int scale, int minimum) {
        if (group < 4) {
            bytes[group] = static_cast<std::uint8_t>(bytes[group] | scale);
            bytes[group + 4] = static_cast<std::uint8_t>(bytes[group + 4] | minimum);
        } else {
            bytes[group + 4] = static_cast<std::uint8_t>((scale & 15) | ((minimum & 15) << 4));
            bytes[group - 4] = static_cast<std::uint8_t>(bytes[group - 4] | ((scale >> 4) << 6));
            bytes[group] = static_cast<std::uint8_t>(bytes[group] | ((minimum >> 4) << 6));
        }
    }
};
static_assert(sizeof(KScales) == 12 && alignof(KScales) == 1);

}  // namespace foresay::kernels
