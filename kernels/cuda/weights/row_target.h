// kernels/cuda/weights/row_target.h: where the rows of one matrix go in a stack of panels.
#pragma once

#include <cstdint>

#include "kernels/cuda/weights/panels.h"
#include "kernels/host_device.h"

namespace foresay::kernels::cuda {

// packed() is the inverse of row_of_head().
struct RowTarget {
    std::int64_t first = 0;   // row of the matrix that the slab begins with
    std::int64_t offset = 0;  // packed row of the matrix's row 0
    std::int32_t stride = 1;  // 2: interleaved with another
    HeadOrder order;

    // The packed row of row `row` of the matrix.
    FORESAY_HOST_DEVICE std::int64_t packed(std::int64_t row) const {
        const std::int64_t head = row / order.head;
        std::int32_t in_head = static_cast<std::int32_t>(row % order.head);
        if (in_head < order.rotated) {
            const std::int32_t half = order.rotated / 2;
            in_head = in_head < half ? 2 * in_head : 2 * (in_head - half) + 1;
        }
        return offset + stride * (head * order.head + in_head);
    }
};

}  // namespace foresay::kernels::cuda
