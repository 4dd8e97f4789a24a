// kernels/cuda/kv_pool.h: key-value pages in device memory.
//
// Layout:   [page][layer][head][K | V] in float16. K of a page and head is [kPagePositions][W], V is transposed,
//           [W][kPagePositions], W being the head width rounded up to 32, 64, 128 or 256: so that both are read 16 bytes at a time
//           straight into the operands of matrix instructions (kernels/cuda/attend.cu). What pads a head stays 0.
//           In 8 bits (KvFormat::q8) a page and head is two strips of 32 positions, each K codes then V codes in the order in
//           which a warp reads them, and then K's and V's largest magnitude of each position (KvCodes).
// Precision: values beyond float16 saturate, so that the pool never holds an infinity or NaN: a position that a row does
//           not attend to is multiplied by an exact 0.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/host_device.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// Where the codes of a page and head lie, in bytes. A code u stands for (u - kCodeZero) / kLargestCode times the largest
// magnitude of its position's K or V.
inline constexpr std::int32_t kCodeZero = 128;
inline constexpr float kLargestCode = 127.0f;
struct KvCodes {
    // Of the strip that position `place` of a page lies in.
    FORESAY_HOST_DEVICE static constexpr std::int32_t strip(std::int32_t width, std::int32_t place) {
        return place / 32 * 64 * width;
    }
    // K's value d: 16-byte units by 32 values, by 16 positions, by lane; eight values of a position in each half.
    FORESAY_HOST_DEVICE static constexpr std::int32_t key(std::int32_t width, std::int32_t place, std::int32_t d) {
        const std::int32_t p = place % 32, quad = 2 * (p / 8) + p % 2, block = p % 8 / 2;
        return strip(width, place) + d / 32 * 1024 + block / 2 * 512 + quad * 64 + d % 32 / 8 * 16 + block % 2 * 8 +
               d % 8;
    }
    // V's value d: units by 16 values, by lane; eight positions of a value in each half.
    FORESAY_HOST_DEVICE static constexpr std::int32_t value(std::int32_t width, std::int32_t place, std::int32_t d) {
        const std::int32_t p = place % 32;
        return strip(width, place) + 32 * width + d / 16 * 512 + d % 8 * 64 + p / 8 * 16 + d % 16 / 8 * 8 + p % 8;
    }
    // Two floats, K's and V's largest magnitude.
    FORESAY_HOST_DEVICE static constexpr std::int32_t scales(std::int32_t width, std::int32_t place) {
        return 2 * kPagePositions * width + 8 * place;
    }
    FORESAY_HOST_DEVICE static constexpr std::int32_t bytes(std::int32_t width) {
        return scales(width, kPagePositions);
    }
};

// Strides in halves, for kernels.
struct KvLayout {
    KvFormat format = KvFormat::f16;
    std::int32_t width = 0;        // W
    std::int64_t head_stride = 0;  // from a head to the next; f16: V lies half of it behind K
    std::int64_t layer_stride = 0;
    std::int64_t page_stride = 0;

    explicit KvLayout(const ModelShape& s, KvFormat f = KvFormat::f16)
        : format(f),
          width(s.head_dim <= 32    ? 32
                : s.head_dim <= 64  ? 64
                : s.head_dim <= 128 ? 128
                                    : 256),
          head_stride(f == KvFormat::q8 ? KvCodes::bytes(width) / 2 : 2LL * kPagePositions * width),
          layer_stride(head_stride * s.kv_heads),
          page_stride(layer_stride * s.layers) {}
    KvLayout() = default;

    FORESAY_HOST_DEVICE std::int64_t v_offset() const { return head_stride / 2; }
    // f16, of head 0 of layer 0 in a page: value 0 of K, of V.
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
