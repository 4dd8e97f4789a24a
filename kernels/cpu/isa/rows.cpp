// kernels/cpu/isa/rows.cpp: the work on one row of activations between matrices: norm, quantisation into a tile, rope,
// and conversion to the two formats of the KV cache. Also the memory read that measures bandwidth.

#include "kernels/cpu/isa/table.h"
#include "kernels/kv_code.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

using std::int32_t;
using std::int64_t;

namespace {

template <int kCount>
struct Width {
    static constexpr int value = kCount;
};

}  // namespace

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

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, float* y) {
    F sums = set(0.0f), squares = set(0.0f);
    float rest = 0, rest_squares = 0;
    int i = 0;
    for (; i + 16 <= n; i += 16) sums = add(sums, load(x + i));
    for (int j = i; j < n; ++j) rest += x[j];
    const float mean = (sum_lanes(sums) + rest) / static_cast<float>(n);
    for (i = 0; i + 16 <= n; i += 16) {
        const F d = sub(load(x + i), set(mean));
        squares = fma(d, d, squares);
    }
    for (int j = i; j < n; ++j) rest_squares += (x[j] - mean) * (x[j] - mean);
    const float variance = (sum_lanes(squares) + rest_squares) / static_cast<float>(n);
    const float scale = 1.0f / __builtin_sqrtf(variance + eps);
    for (i = 0; i + 16 <= n; i += 16) {
        const F normed = mul(mul(sub(load(x + i), set(mean)), set(scale)), load(weight + i));
        store(y + i, bias != nullptr ? add(normed, load(bias + i)) : normed);
    }
    for (; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + (bias != nullptr ? bias[i] : 0.0f);
}

void activate(float* gate, const float* up, const float* gate_bias, const float* up_bias, int n, RowActivation kind,
              float limit) {
    for (int i = 0; i < n; i += 16) {
        F g = load(gate + i), u = up != nullptr ? load(up + i) : set(1.0f);
        if (gate_bias != nullptr) g = add(g, load(gate_bias + i));
        if (up_bias != nullptr) u = add(u, load(up_bias + i));
        switch (kind) {
            case RowActivation::silu:
                g = silu(g);
                break;
            case RowActivation::gelu_tanh:
                g = gelu_tanh(g);
                break;
            case RowActivation::gelu: {
                float values[16];
                store(values, g);
                for (float& value : values) value = 0.5f * value * (1.0f + __builtin_erff(value * 0.70710678f));
                g = load(values);
                break;
            }
            case RowActivation::clamped_swiglu: {
                g = min(g, set(limit));
                g = div(g, add(set(1.0f), exp(mul(g, set(-1.702f)))));
                if (up != nullptr) u = add(max(min(u, set(limit)), set(-limit)), set(1.0f));
                break;
            }
        }
        store(gate + i, up != nullptr ? mul(g, u) : g);
    }
}

namespace {

constexpr int kBatch = 16;  // groups of 32 values whose scales are computed side by side, one in each lane
constexpr int kScaleGroups = kScaleInputs / 32;

// Up to 16 groups of 32 codes, with the values that an ActivationTile stores per group.
struct CodedGroups {
    std::int8_t q[kBatch][32];
    float scale[kBatch], sum[kBatch];
    int32_t minus8[kBatch], minus128[kBatch], minus32_first[kBatch], minus32_second[kBatch];
};

FORESAY_INLINE void store_ints(int32_t* p, I v) { std::memcpy(p, &v, sizeof v); }

// The range of a code. NaN becomes the lower end.
FORESAY_INLINE F limit(F v) { return min(max(v, set(-127.0f)), set(127.0f)); }

// scale = largest magnitude among kScaleInputs inputs / 127; code = the integer nearest to x / scale. The scale is 0
// for zeros, and for inputs so small or large that a quotient would not be finite.
FORESAY_INLINE void code_groups(const float* x, int groups, CodedGroups& out) {
    float peaks[kBatch] = {}, inverses[kBatch], first[kBatch] = {}, second[kBatch] = {};
    for (int g = 0; g < groups; g += kScaleGroups) {
        const int end = g + kScaleGroups < groups ? g + kScaleGroups : groups;
        F top = set(0.0f);
        for (int i = g; i < end; ++i) top = max(top, max(abs(load(x + 32 * i)), abs(load(x + 32 * i + 16))));
        const float peak = max_lanes(top);
        for (int i = g; i < end; ++i) peaks[i] = peak;
    }
    const F tiny = set(1e-37f);
    const F raw = div(load(peaks), set(127.0f));
    const F scale = zero_below(set(1e37f), raw, zero_below(raw, tiny, raw));
    store(inverses, zero_below(scale, tiny, div(set(1.0f), raw)));
    for (int g = 0; g < groups; ++g) {
        const F inverse = set(inverses[g]);
        const F a = limit(mul(load(x + 32 * g), inverse)), b = limit(mul(load(x + 32 * g + 16), inverse));
        store_i8(out.q[g], to_int(a));
        store_i8(out.q[g] + 16, to_int(b));
    }
    if (groups % 2 != 0) std::memset(out.q[groups], 0, 32);
    for (int g = 0; g < groups; g += 2) sum_halves(out.q[g], first + g, second + g);
    const F one = load(first), two = load(second), sum = add(one, two);
    store(out.scale, scale);
    store(out.sum, sum);
    store_ints(out.minus8, to_int(mul(sum, set(-8.0f))));
    store_ints(out.minus128, to_int(mul(sum, set(-128.0f))));
    store_ints(out.minus32_first, to_int(mul(one, set(-32.0f))));
    store_ints(out.minus32_second, to_int(mul(two, set(-32.0f))));
}

}  // namespace

void fill_tile(const float* x, int inputs, int padded_inputs, bool codes, bool floats, ActivationTile& tile, int m) {
    const int stride = tile.stride;
    if (floats) {
        for (int k = 0; k < inputs; ++k) tile.values[static_cast<int64_t>(k) * stride + m] = x[k];
    }
    if (!codes) return;
    CodedGroups coded;
    for (int begin = 0; begin < padded_inputs; begin += 32 * kBatch) {
        const int groups = padded_inputs - begin < 32 * kBatch ? (padded_inputs - begin) / 32 : kBatch;
        if (begin + 32 * groups <= inputs) {
            code_groups(x + begin, groups, coded);
        } else {
            float padded[32 * kBatch] = {};
            for (int k = begin; k < inputs; ++k) padded[k - begin] = x[k];
            code_groups(padded, groups, coded);
        }
        for (int g = 0; g < groups; ++g) {
            const int64_t at = static_cast<int64_t>(begin / 32 + g) * stride + m;
            std::memcpy(tile.q + 32 * at, coded.q[g], 32);
            if (g % kScaleGroups == 0) {
                tile.scale[static_cast<int64_t>(begin / kScaleInputs + g / kScaleGroups) * stride + m] = coded.scale[g];
            }
            tile.sum[at] = coded.sum[g];
            tile.minus8[at] = coded.minus8[g];
            tile.minus128[at] = coded.minus128[g];
            tile.minus32[2 * at] = coded.minus32_first[g];
            tile.minus32[2 * at + 1] = coded.minus32_second[g];
        }
    }
}

void rotate(float* head, const float* cos, const float* sin, int pairs, bool adjacent) {
    if (adjacent) {
        for (int i = 0; i < pairs; ++i) {
            const float x = head[2 * i], y = head[2 * i + 1];
            head[2 * i] = x * cos[i] - y * sin[i];
            head[2 * i + 1] = x * sin[i] + y * cos[i];
        }
        return;
    }
    for (int i = 0; i < pairs; ++i) {
        const float x = head[i], y = head[i + pairs];
        head[i] = x * cos[i] - y * sin[i];
        head[i + pairs] = x * sin[i] + y * cos[i];
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

// Repeats the operations of kernels/kv_code.h instead of calling its inline functions: the linker could keep the copy
// compiled for this instruction set for the whole program, which would crash on older processors. A vector with an
// infinity or a NaN gets NaN as its step.
float to_kv_codes(const float* x, int n, std::int8_t* codes) {
    const auto load_some = [&](int i) {
        if (i + 16 <= n) return load(x + i);
        float rest[16] = {};
        for (int j = i; j < n; ++j) rest[j - i] = x[j];
        return load(rest);
    };
    F top = set(0.0f), zeros = set(0.0f);
    for (int i = 0; i < n; i += 16) {
        const F values = load_some(i);
        top = max(top, abs(values));
        zeros = add(zeros, mul(values, set(0.0f)));  // NaN where a value is not finite
    }
    const float largest = max_lanes(top);
    const F scale = set(largest < kLeastKvMagnitude ? 0.0f : kLargestKvCode / largest);
    for (int i = 0; i < n; i += 16) {
        const I rounded = to_int(limit(mul(load_some(i), scale)));
        if (i + 16 <= n) {
            store_i8(codes + i, rounded);
        } else {
            std::int8_t rest[16];
            store_i8(rest, rounded);
            for (int j = i; j < n; ++j) codes[j] = rest[j - i];
        }
    }
    return largest / kLargestKvCode + sum_lanes(zeros);
}

// Repeats the operations of kernels/kv/low_bits.h, for the same reason.
float to_low_kv_codes(const float* x, int n, int bits, std::uint8_t* codes) {
    const auto zero = static_cast<float>(1 << (bits - 1));
    float largest = x[0], least = x[0], zeros = 0.0f;
    for (int i = 0; i < n; ++i) {
        largest = x[i] > largest ? x[i] : largest;
        least = x[i] < least ? x[i] : least;
        zeros += x[i] * 0.0f;  // NaN where a value is not finite
    }
    const float extreme = largest > -least ? largest : least;
    const float scale = __builtin_fabsf(extreme) < kLeastKvMagnitude ? 0.0f : -zero / extreme;
    const auto some = [&](const float* from, std::uint8_t* to) {
        const F rounded = min(max(round(mul(load(from), set(scale))), set(-zero)), set(zero - 1.0f));
        store_i8(reinterpret_cast<std::int8_t*>(to), to_int(add(rounded, set(zero))));
    };
    int i = 0;
    for (; i + 16 <= n; i += 16) some(x + i, codes + i);
    if (i < n) {
        float rest[16] = {};
        std::uint8_t last[16];
        for (int j = i; j < n; ++j) rest[j - i] = x[j];
        some(rest, last);
        for (int j = i; j < n; ++j) codes[j] = last[j - i];
    }
    return extreme / -zero + zeros;
}

void rotate_for_cache(float* x, int n) {
    const int block = n & -n;
    // Strides below 16 within 16 neighbours, which the compiler turns into shuffles.
    const auto within = [](float* values, auto count) {
        constexpr int kCount = decltype(count)::value;
#pragma GCC unroll 4
        for (int stride = 1; stride < kCount; stride *= 2) {
            float out[kCount];
#pragma GCC unroll 16
            for (int i = 0; i < kCount; ++i) {
                const float a = values[i & ~stride], b = values[i | stride];
                out[i] = (i & stride) != 0 ? a - b : a + b;
            }
            std::memcpy(values, out, sizeof out);
        }
    };
    if (block >= 16) {
        for (int i = 0; i < n; i += 16) within(x + i, Width<16>());
    } else if (block == 8) {
        for (int i = 0; i < n; i += 8) within(x + i, Width<8>());
    } else if (block == 4) {
        for (int i = 0; i < n; i += 4) within(x + i, Width<4>());
    } else if (block == 2) {
        for (int i = 0; i < n; i += 2) within(x + i, Width<2>());
    }
    for (int stride = 16; stride < block; stride *= 2) {
        for (int from = 0; from < n; from += 2 * stride) {
            for (int i = from; i < from + stride; i += 16) {
                const F a = load(x + i), b = load(x + i + stride);
                store(x + i, add(a, b));
                store(x + i + stride, sub(a, b));
            }
        }
    }
    const float factor = 1.0f / __builtin_sqrtf(static_cast<float>(block));
    for (int i = 0; i < n; ++i) x[i] *= factor;
}

std::uint64_t read(const void* data, int64_t bytes) {
    I sum[4] = {set_int(0), set_int(0), set_int(0), set_int(0)};
    const auto* p = static_cast<const std::uint8_t*>(data);
    for (int64_t i = 0; i + 256 <= bytes; i += 256) {
        for (int j = 0; j < 4; ++j) {
            prefetch(p + i + 64 * j + 8192);
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
