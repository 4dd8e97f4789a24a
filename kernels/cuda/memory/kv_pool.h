// kernels/cuda/memory/kv_pool.h: the KV cache in device memory: where each number of a page lies.
//
// Layout:   [layer][page][head][K | V], so that what one attention reads lies in few pages of the device's memory. In
//           float16, or (KvFormat::q8) in codes, followed by the largest magnitude of K and of V of each position. W:
//           the head width rounded up to 32, 64, 128, 256 or 512; padding stays 0. K and V lie in the order in which a
//           warp loads them (KvFragmentOrder): straight into the operands of mma, 512 contiguous bytes per load
//           (kernels/cuda/attention/kv_fragments.cuh). Codes of fewer than 8 bits: kernels/cuda/memory/low_codes.h.
// Precision: values beyond float16 saturate, so the pool never holds an infinity or NaN: a position that a row does not
//           attend to is multiplied by an exact 0.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/host_device.h"
#include "kernels/kv/list.h"
#include "kernels/kv_format.h"

namespace foresay::kernels::cuda {

// Where the entries of K, and of V, lie in a page and head. A lane loads `run` entries at once: values of one key, or
// positions of one value. Four lanes side by side have four runs; eight times four lanes have eight keys, or eight
// values. Places and values add up: value d of position p is at place(p) + value(d).
struct KvFragmentOrder {
    std::int32_t run, width;

    FORESAY_HOST_DEVICE constexpr std::int32_t key_place(std::int32_t p) const {
        return p / 8 * 8 * width + p % 8 * 4 * run;
    }
    FORESAY_HOST_DEVICE constexpr std::int32_t key_value(std::int32_t d) const {
        return d / (4 * run) * 32 * run + d % (4 * run);
    }
    FORESAY_HOST_DEVICE constexpr std::int32_t value_place(std::int32_t p) const {
        return p / (4 * run) * 64 * run + p % (4 * run);
    }
    FORESAY_HOST_DEVICE constexpr std::int32_t value_value(std::int32_t d) const {
        return d / 16 * 16 * kPagePositions + d % 16 / 8 * 32 * run + d % 8 * 4 * run;
    }
};
// Contiguous entries of a lane: 16 bytes where there are so many.
FORESAY_HOST_DEVICE constexpr KvFragmentOrder key_order(KvFormat format, std::int32_t width) {
    return {format != KvFormat::f16 && width > 32 ? 16 : 8, width};
}
FORESAY_HOST_DEVICE constexpr KvFragmentOrder value_order(KvFormat format, std::int32_t width) {
    return {(format == KvFormat::q8 && width > 64) || has_low_bits(format) ? 16 : 8, width};
}

// Where the codes of a page and head lie, in bytes. A code u stands for (u - kCodeZero) / kLargestCode times the
// largest magnitude of its position's K or V.
inline constexpr std::int32_t kCodeZero = 128;
inline constexpr float kLargestCode = 127.0f;
struct KvCodes {
    // K's value d, and V's.
    FORESAY_HOST_DEVICE static constexpr std::int32_t key(std::int32_t width, std::int32_t place, std::int32_t d) {
        const KvFragmentOrder order = key_order(KvFormat::q8, width);
        return order.key_place(place) + order.key_value(d);
    }
    FORESAY_HOST_DEVICE static constexpr std::int32_t value(std::int32_t width, std::int32_t place, std::int32_t d) {
        const KvFragmentOrder order = value_order(KvFormat::q8, width);
        return kPagePositions * width + order.value_place(place) + order.value_value(d);
    }
    // Two floats, K's and V's largest magnitude.
    FORESAY_HOST_DEVICE static constexpr std::int32_t scales(std::int32_t width, std::int32_t place) {
        return 2 * kPagePositions * width + 8 * place;
    }
    FORESAY_HOST_DEVICE static constexpr std::int32_t bytes(std::int32_t width) {
        return scales(width, kPagePositions);
    }
};

// Strides in float16 elements, for kernels.
struct KvLayout {
    KvFormat format = KvFormat::f16;
    std::uint8_t k_bits = 16, v_bits = 16;  // of a value
    std::int32_t width = 0;                 // W
    std::int64_t head_stride = 0;           // from a head to the next; f16: V begins half of it after K
    std::int64_t page_stride = 0;
    std::int64_t layer_stride = 0;

    KvLayout(const KvLayer& of, std::int32_t pages, KvFormat f = KvFormat::f16)
        : format(f),
          k_bits(static_cast<std::uint8_t>(kv_bits(key_type(f)))),
          v_bits(static_cast<std::uint8_t>(kv_bits(value_type(f)))),
          width(of.head_dim <= 32 && !has_low_bits(f) ? 32
                : of.head_dim <= 64                   ? 64
                : of.head_dim <= 128                  ? 128
                : of.head_dim <= 256                  ? 256
                                                      : 512),
          head_stride(f == KvFormat::f16  ? 2LL * kPagePositions * width
                      : f == KvFormat::q8 ? KvCodes::bytes(width) / 2
                                          : kPagePositions / 16 * (width * (k_bits + v_bits) + 64)),
          page_stride(head_stride * of.heads),
          layer_stride(page_stride * pages) {}
    KvLayout(const ModelShape& s, std::int32_t pages, KvFormat f = KvFormat::f16)
        : KvLayout(KvLayer{s.kv_heads, s.head_dim}, pages, f) {}
    KvLayout() = default;

    FORESAY_HOST_DEVICE std::int64_t v_offset() const { return head_stride / 2; }
    // f16: value 0 of K, and of V, of head 0 of a layer at a place of a page. Value d of head h is h * head_stride +
    // key_value(d), or value_value(d), further.
    FORESAY_HOST_DEVICE std::int64_t k_cell(std::int32_t page, std::int32_t place) const {
        return page * page_stride + key_order(KvFormat::f16, width).key_place(place);
    }
    FORESAY_HOST_DEVICE std::int64_t v_cell(std::int32_t page, std::int32_t place) const {
        return page * page_stride + v_offset() + value_order(KvFormat::f16, width).value_place(place);
    }
    FORESAY_HOST_DEVICE static constexpr std::int32_t key_value(std::int32_t d) {
        return key_order(KvFormat::f16, 0).key_value(d);
    }
    FORESAY_HOST_DEVICE static constexpr std::int32_t value_value(std::int32_t d) {
        return value_order(KvFormat::f16, 0).value_value(d);
    }
};

struct CudaKv : KvPages {
    // Layers may differ in their heads, and so in their layouts.
    struct Layer {
        KvLayout layout;
        std::int64_t first = 0;  // of `memory`, in elements
    };
    DeviceBuffer<__half> memory;
    std::vector<Layer> layers;
    std::uint64_t id = 0;  // never used twice

    // The layers of a cache, one after the other.
    static std::vector<Layer> place(const KvShape& shape, std::int32_t pages, KvFormat format) {
        std::vector<Layer> layers;
        std::int64_t first = 0;
        for (const KvLayer& of : shape.layers) {
            layers.push_back({KvLayout(of, pages, format), first});
            first += layers.back().layout.layer_stride;
        }
        return layers;
    }
    // The widest layer in float16, as rows of a prompt read codes (ForwardRunner::expand_kv).
    static std::int64_t expanded_bytes(const KvShape& shape, std::int32_t pages) {
        std::int64_t halves = 0;
        for (const KvLayer& of : shape.layers) halves = std::max(halves, KvLayout(of, pages).layer_stride);
        return halves * static_cast<std::int64_t>(sizeof(__half));
    }

    const KvLayout& layout(std::int32_t index) const { return layers[static_cast<std::size_t>(index)].layout; }
    __half* layer(std::int32_t index) const { return memory.data() + layers[static_cast<std::size_t>(index)].first; }
    // Enqueues a copy for each layer: they may lie further apart than the pitch of one copy can be.
    void copy_page(std::int32_t from, std::int32_t to, cudaStream_t stream) const {
        for (const Layer& of : layers) {
            const std::int64_t stride = of.layout.page_stride;
            __half* const base = memory.data() + of.first;
            cuda_check(
                cudaMemcpyAsync(base + to * stride, base + from * stride,
                                static_cast<std::size_t>(stride) * sizeof(__half), cudaMemcpyDeviceToDevice, stream),
                "cannot copy a page");
        }
    }
    // Enqueues a copy of a page, layer after layer, to host memory of page_bytes() bytes or from it.
    void copy_out(std::int32_t page, std::byte* to, cudaStream_t stream) const {
        for (const Layer& of : layers) {
            const auto bytes = static_cast<std::size_t>(of.layout.page_stride) * sizeof(__half);
            const __half* const from = memory.data() + of.first + page * of.layout.page_stride;
            cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cannot read a page");
            to += bytes;
        }
    }
    void copy_in(std::int32_t page, const std::byte* from, cudaStream_t stream) const {
        for (const Layer& of : layers) {
            const auto bytes = static_cast<std::size_t>(of.layout.page_stride) * sizeof(__half);
            __half* const to = memory.data() + of.first + page * of.layout.page_stride;
            cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cannot write a page");
            from += bytes;
        }
    }
    std::size_t page_bytes() const {
        std::int64_t values = 0;
        for (const Layer& of : layers) values += of.layout.page_stride;
        return static_cast<std::size_t>(values) * sizeof(__half);
    }
};

}  // namespace foresay::kernels::cuda
