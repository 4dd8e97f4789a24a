// kernels/cpu/isa/rows.cpp: what happens to one row of activations between matrices: norm, int8 codes, float16.

#include "kernels/cpu/isa/table.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

using std::int32_t;
using std::int64_t;

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
    F even = set(0.0f), odd = set(0.0f);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const F a = load(x + i), b = load(x + i + 16);
        even = fma(a, a, even);
        odd = fma(b, b, odd);
    }
    float squares = 0;
    for (int j = i; j < n; ++j) squares += x[j] * x[j];
    squares += sum_lanes(add(even, odd));
    const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
    const F s = set(scale);
    i = 0;
    for (; i + 16 <= n; i += 16) store(y + i, mul(mul(load(x + i), s), load(weight + i)));
    for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

namespace {

FORESAY_INLINE int32_t sum_codes(const std::int8_t* q) {
    int32_t sum = 0;
    for (int k = 0; k < 16; ++k) sum += q[k];
    return sum;
}

// A group of 32 values to codes: scale = largest magnitude / 127. Returns the scale.
FORESAY_INLINE float code_group(F a, F b, std::int8_t* q) {
    const float peak = max_lanes(max(abs(a), abs(b)));
    const float scale = peak / 127.0f;
    // A group of zeros, or one whose codes would overflow, is all zeros: the quotient is not finite there.
    const float inverse = scale > 1e-37f ? 1.0f / scale : 0.0f;
    store_i8(q, to_int(mul(a, set(inverse))));
    store_i8(q + 16, to_int(mul(b, set(inverse))));
    return inverse > 0 ? scale : 0.0f;
}

}  // namespace

void fill_tile(const float* x, int inputs, int padded_inputs, bool codes, bool floats, InputTile& tile, int m) {
    const int stride = tile.stride;
    if (floats) {
        for (int k = 0; k < inputs; ++k) tile.values[static_cast<int64_t>(k) * stride + m] = x[k];
    }
    if (!codes) return;
    for (int group = 0; 32 * group < padded_inputs; ++group) {
        const int64_t at = static_cast<int64_t>(group) * stride + m;
        std::int8_t* q = tile.q + 32 * at;
        float scale = 0;
        if (32 * group + 32 <= inputs) {
            scale = code_group(load(x + 32 * group), load(x + 32 * group + 16), q);
        } else {
            float padded[32] = {};
            for (int k = 32 * group; k < inputs; ++k) padded[k - 32 * group] = x[k];
            scale = code_group(load(padded), load(padded + 16), q);
        }
        const int32_t first = sum_codes(q), second = sum_codes(q + 16);
        tile.scale[at] = scale;
        tile.scaled_sum[at] = scale * static_cast<float>(first + second);
        tile.minus8[at] = -8 * (first + second);
        tile.minus128[at] = -128 * (first + second);
        tile.minus32[2 * at] = -32 * first;
        tile.minus32[2 * at + 1] = -32 * second;
    }
}

void to_half(const float* x, int n, std::uint16_t* out) {
    int i = 0;
    for (; i + 16 <= n; i += 16) store_half(out + i, load(x + i));
    if (i < n) {
        float rest[16] = {};
        std::uint16_t halves[16];
        for (int j = i; j < n; ++j) rest[j - i] = x[j];
        store_half(halves, load(rest));
        for (int j = i; j < n; ++j) out[j] = halves[j - i];
    }
}

std::uint64_t read(const void* data, int64_t bytes) {
    I sum[4] = {set_int(0), set_int(0), set_int(0), set_int(0)};
    const auto* p = static_cast<const std::uint8_t*>(data);
    for (int64_t i = 0; i + 256 <= bytes; i += 256) {
        for (int j = 0; j < 4; ++j) {
            prefetch(p + i + 64 * j + 8192);
            int32_t lanes[16];
            (void)lanes;
            I v;
            std::memcpy(&v, p + i + 64 * j, 64);
            sum[j] = add_int(sum[j], v);
        }
    }
    int32_t lanes[16];
    const I total = add_int(add_int(sum[0], sum[1]), add_int(sum[2], sum[3]));
    std::memcpy(lanes, &total, sizeof lanes);
    std::uint64_t out = 0;
    for (int32_t lane : lanes) out += static_cast<std::uint32_t>(lane);
    return out;
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
