// kernels/cuda/kv_pool.h: key-value pages in device memory.
//
// Layout:   [page][layer][head][K | V] in float16. K of a page and head is [kPagePositions][W], V is transposed,
//           [W][kPagePositions], W being the head width rounded up to 32, 64, 128 or 256: so that both are read 16 bytes at a time
//           straight into the operands of matrix instructions (kernels/cuda/attend.cu). What pads a head stays 0.
// Precision: values beyond float16 saturate, so that the pool never holds an infinity or NaN: a position that a row does
//           not attend to is multiplied by an exact 0.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// Strides in elements, for kernels.
struct KvLayout {
    std::int32_t width = 0;        // W
    std::int64_t head_stride = 0;  // from a head to the next; V lies half of it behind K
    std::int64_t layer_stride = 0;
    std::int64_t page_stride = 0;

    explicit KvLayout(const ModelShape& s)
        : width(s.head_dim <= 32    ? 32
                : s.head_dim <= 64  ? 64
                : s.head_dim <= 128 ? 128
                                    : 256),
          head_stride(2LL * kPagePositions * width),
          layer_stride(head_stride * s.kv_heads),
          page_stride(layer_stride * s.layers) {}
    KvLayout() = default;

    FORESAY_HOST_DEVICE std::int64_t v_offset() const { return head_stride / 2; }
    // Of head 0 of layer 0 in a page: value 0 of K, of V.
    FORESAY_HOST_DEVICE std::int64_t k_cell(std::int32_t page, std::int32_t place) const {
        return page * page_stride + static_cast<std::int64_t>(place) * width;
    }
    FORESAY_HOST_DEVICE std::int64_t v_cell(std::int32_t page, std::int32_t place) const {
        return page * page_stride + v_offset() + place;
    }
};

struct CudaKv : KvPages {
    DeviceBuffer<__half> memory;
    KvLayout layout;
    std::uint64_t id = 0;  // never used twice

    __half* layer(std::int32_t index) const { return memory.data() + index * layout.layer_stride; }
};

}  // namespace foresay::kernels::cuda
