#include "kernels/quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace foresay::kernels {
namespace {

constexpr std::uint16_t kLargestF16 = 0x7bff;

// The smallest f16 that is not below `value` >= 0, so that a range scaled by it covers every value.
StoredF16 f16_at_least(float value) {
    std::uint16_t bits = f32_to_f16(value);
    if (f16_to_f32(bits) < value) ++bits;
    return StoredF16::from_bits(std::min(bits, kLargestF16));
}

// The integer nearest to value * inverse_step, clamped to [low, high].
int nearest_code(float value, float inverse_step, int low, int high) {
    const float scaled = std::clamp(value * inverse_step, static_cast<float>(low), static_cast<float>(high));
    return static_cast<int>(std::floor(scaled + 0.5f));
}

float inverse(float step) { return step != 0.0f ? 1.0f / step : 0.0f; }

float largest_magnitude(const float* values, int count) {
    float largest = 0.0f;
    for (int j = 0; j < count; ++j) largest = std::max(largest, std::fabs(values[j]));
    return largest;
}

// The smallest integer in [0, high] such that unit * integer covers `value`.
int covering_multiple(float value, float unit, int high) {
    if (unit == 0.0f) return 0;
    int multiple = static_cast<int>(std::clamp(std::ceil(value / unit), 0.0f, static_cast<float>(high)));
    if (multiple < high && static_cast<float>(multiple) * unit < value) ++multiple;
    return multiple;
}

std::uint8_t with_bits(std::uint8_t byte, int bits) { return static_cast<std::uint8_t>(byte | bits); }

}  // namespace

void quantize_block(const float* values, F32::Block& out) { std::memcpy(out.bytes, values, sizeof(out.bytes)); }

void quantize_block(const float* values, F16::Block& out) { out = StoredF16::from_bits(f32_to_f16(*values)); }

void quantize_block(const float* values, BF16::Block& out) {
    const std::uint16_t bits = f32_to_bf16(*values);
    out = {static_cast<std::uint8_t>(bits & 0xffu), static_cast<std::uint8_t>(bits >> 8)};
}

void quantize_block(const float* values, Q4_0::Block& out) {
    float extreme = 0.0f;
    for (int j = 0; j < Q4_0::kElements; ++j) {
        if (std::fabs(values[j]) > std::fabs(extreme)) extreme = values[j];
    }
    const StoredF16 magnitude = f16_at_least(std::fabs(extreme) / 8.0f);
    const std::uint16_t sign = extreme > 0.0f ? 0x8000u : 0u;
    out.d = StoredF16::from_bits(static_cast<std::uint16_t>(magnitude.bits() | sign));
    const float inverse_step = inverse(out.d.value());
    for (int j = 0; j < 16; ++j) {
        const int low = nearest_code(values[j], inverse_step, -8, 7) + 8;
        const int high = nearest_code(values[j + 16], inverse_step, -8, 7) + 8;
        out.codes[j] = static_cast<std::uint8_t>(low | (high << 4));
    }
}

void quantize_block(const float* values, Q8_0::Block& out) {
    out.d = f16_at_least(largest_magnitude(values, Q8_0::kElements) / 127.0f);
    const float inverse_step = inverse(out.d.value());
    for (int j = 0; j < Q8_0::kElements; ++j) {
        out.codes[j] = static_cast<std::int8_t>(nearest_code(values[j], inverse_step, -127, 127));
    }
}

void quantize_groups(const float* values, int bits, StoredF16& d_out, StoredF16& dmin_out, KScales& scales,
                     std::uint8_t (&codes)[256]) {
    const int max_code = (1 << bits) - 1;
    scales = {};
    constexpr int kGroup = 32;
    float lowest[KScales::kGroups];  // most negative value as a magnitude; 0 when there is none
    float highest[KScales::kGroups];
    float deepest = 0.0f;
    for (int group = 0; group < KScales::kGroups; ++group) {
        float low = 0.0f;
        float high = 0.0f;
        for (int j = 0; j < kGroup; ++j) {
            low = std::min(low, values[group * kGroup + j]);
            high = std::max(high, values[group * kGroup + j]);
        }
        lowest[group] = -low;
        highest[group] = high;
        deepest = std::max(deepest, -low);
    }
    dmin_out = f16_at_least(deepest / KScales::kMax);
    const float dmin = dmin_out.value();
    int minimum[KScales::kGroups];
    float step[KScales::kGroups];
    float widest = 0.0f;
    for (int group = 0; group < KScales::kGroups; ++group) {
        minimum[group] = covering_multiple(lowest[group], dmin, KScales::kMax);
        step[group] = (highest[group] + dmin * static_cast<float>(minimum[group])) / static_cast<float>(max_code);
        widest = std::max(widest, step[group]);
    }
    d_out = f16_at_least(widest / KScales::kMax);
    const float d = d_out.value();
    for (int group = 0; group < KScales::kGroups; ++group) {
        const int scale = covering_multiple(step[group], d, KScales::kMax);
        scales.set(group, scale, minimum[group]);
        const float inverse_step = inverse(d * static_cast<float>(scale));
        const float offset = dmin * static_cast<float>(minimum[group]);
        for (int j = 0; j < kGroup; ++j) {
            const int element = group * kGroup + j;
            codes[element] =
                static_cast<std::uint8_t>(nearest_code(values[element] + offset, inverse_step, 0, max_code));
        }
    }
}

void quantize_block(const float* values, MXFP4::Block& out) {
    const float most = largest_magnitude(values, MXFP4::kElements);
    int exponent = 0;
    std::frexp(most / 6.0f, &exponent);  // below 2^exponent
    if (most <= std::ldexp(6.0f, exponent - 1)) --exponent;
    out.exponent = static_cast<std::uint8_t>(most > 0.0f ? std::clamp(exponent + 127, 0, MXFP4::kMostExponent) : 0);
    const float inverse_scale = 1.0f / MXFP4::half_scale(out.exponent);
    const auto code = [&](float value) {
        const float twice = std::fabs(value) * inverse_scale;
        int best = 0;
        for (int i = 1; i < 8; ++i) {
            if (std::fabs(twice - static_cast<float>(MXFP4::twice(i))) <
                std::fabs(twice - static_cast<float>(MXFP4::twice(best))))
                best = i;
        }
        return best | (value < 0.0f ? 8 : 0);
    };
    for (int j = 0; j < 16; ++j) {
        out.codes[j] = static_cast<std::uint8_t>(code(values[j]) | code(values[j + 16]) << 4);
    }
}

void quantize_block(const float* values, Q6_K::Block& out) {
    constexpr int kGroups = Q6_K::kElements / Q6_K::kGroup;
    out = {};
    float step[kGroups];
    float widest = 0.0f;
    for (int group = 0; group < kGroups; ++group) {
        step[group] = largest_magnitude(values + group * Q6_K::kGroup, Q6_K::kGroup) / 31.0f;
        widest = std::max(widest, step[group]);
    }
    out.d = f16_at_least(widest / 127.0f);
    const float d = out.d.value();
    for (int group = 0; group < kGroups; ++group) {
        const int scale = covering_multiple(step[group], d, 127);
        out.scales[group] = static_cast<std::int8_t>(scale);
        const float inverse_step = inverse(d * static_cast<float>(scale));
        for (int j = 0; j < Q6_K::kGroup; ++j) {
            const int element = group * Q6_K::kGroup + j;
            const int code = nearest_code(values[element], inverse_step, -32, 31) + 32;
            const int half = element / 128;
            const int quarter = element % 128 / 32;
            const int l = element % 32;
            std::uint8_t& low = out.low[half * 64 + quarter % 2 * 32 + l];
            low = with_bits(low, (code & 15) << (quarter / 2 * 4));
            std::uint8_t& high = out.high[half * 32 + l];
            high = with_bits(high, (code >> 4) << (quarter * 2));
        }
    }
}

}  // namespace foresay::kernels
