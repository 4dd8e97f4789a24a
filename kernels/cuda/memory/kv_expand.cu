// Codes of a layer to float16, page by page. Grid: (pages, KV heads), one page of one head per CTA. Neighbouring
// threads take neighbouring values of K and neighbouring positions of V, which is how either lies in the float16 pages
// (KvFragmentOrder), so their writes are contiguous.
//
// Precision: code times scale in float32, rounded to float16 once.
// Padding:  values from head_dim to the width become 0, because prefill attention multiplies the whole width.

#include "kernels/cuda/memory/kv_expand.h"

#include "kernels/cuda/memory/low_codes.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void expand_kernel(KvExpandCall c) {
    const std::int32_t page = c.list != nullptr ? c.list[blockIdx.x] : static_cast<std::int32_t>(blockIdx.x);
    const std::int32_t width = c.to_layout.width;
    const auto* codes = reinterpret_cast<const unsigned char*>(c.from + page * c.from_layout.page_stride +
                                                               blockIdx.y * c.from_layout.head_stride);
    __half* keys = c.to + page * c.to_layout.page_stride + blockIdx.y * c.to_layout.head_stride;
    __half* values = keys + c.to_layout.v_offset();
    const KvFragmentOrder order = key_order(KvFormat::f16, width);
    // `order` serves for V as well.
    static_assert(key_order(KvFormat::f16, 64).run == value_order(KvFormat::f16, 64).run);
    // The number that the code at byte `at` stands for. `which`: whether it is of K (0) or V (1), which have a largest
    // magnitude each per position.
    const LowCodes low(c.from_layout);
    const bool is_low = has_low_bits(c.from_layout.format);
    const auto kept = [&](std::int32_t at, std::int32_t place, int which) {
        const auto* scales = reinterpret_cast<const float*>(codes + KvCodes::scales(width, place));
        return __float2half_rn(static_cast<float>(codes[at] - kCodeZero) * (scales[which] / kLargestCode));
    };
    for (std::int32_t i = threadIdx.x; i < kPagePositions * width; i += kThreads) {
        const __half zero = __float2half_rn(0.0f);
        const std::int32_t key_d = i % width, key_place = i / width;
        const std::int32_t value_d = i / kPagePositions, value_place = i % kPagePositions;
        if (is_low) {
            keys[order.key_place(key_place) + order.key_value(key_d)] =
                key_d < c.head_dim ? __float2half_rn(low.number(codes, false, key_place, key_d)) : zero;
            values[order.value_place(value_place) + order.value_value(value_d)] =
                value_d < c.head_dim ? __float2half_rn(low.number(codes, true, value_place, value_d)) : zero;
            continue;
        }
        keys[order.key_place(key_place) + order.key_value(key_d)] =
            key_d < c.head_dim ? kept(KvCodes::key(width, key_place, key_d), key_place, 0) : zero;
        values[order.value_place(value_place) + order.value_value(value_d)] =
            value_d < c.head_dim ? kept(KvCodes::value(width, value_place, value_d), value_place, 1) : zero;
    }
}

}  // namespace

void launch_kv_expand(cudaStream_t stream, const KvExpandCall& call) {
    if (call.pages == 0) return;
    const dim3 grid(static_cast<unsigned>(call.pages), static_cast<unsigned>(call.kv_heads));
    expand_kernel<<<grid, kThreads, 0, stream>>>(call);
    launched("expansion of the cache");
}

}  // namespace foresay::kernels::cuda
