// kernels/cuda/device/division.h: division by numbers that the host knows, because it is slow on the device.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace foresay::kernels::cuda {

// 2^32 / divisor, rounded up; 0 for 1.
constexpr std::uint32_t inverse_of(std::int32_t divisor) {
    return divisor == 1
               ? 0
               : static_cast<std::uint32_t>((std::uint64_t{1} << 32) / static_cast<std::uint32_t>(divisor) + 1);
}
// Exact as long as number * divisor < 2^32.
FORESAY_HOST_DEVICE constexpr std::int32_t quotient_by(std::int32_t number, std::uint32_t inverse) {
    return inverse == 0 ? number
                        : static_cast<std::int32_t>(std::uint64_t{inverse} * static_cast<std::uint32_t>(number) >> 32);
}

}  // namespace foresay::kernels::cuda
