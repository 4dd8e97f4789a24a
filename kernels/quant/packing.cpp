#include "kernels/quant/packing.h"

#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/code_stream.h"
#include "kernels/quant/pack_codes.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {
namespace {

template <class T>
T at(const std::byte* from, int offset) {
    T value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
}

float half_at(const std::byte* from, int offset) { return f16_to_f32(at<std::uint16_t>(from, offset)); }

// A code's value is scale * (what the form makes of the code) + minimum, for the 16 inputs of half `h` of a group.
struct Scales {
    float scale = 0.0f, minimum = 0.0f, zero = 0.0f;
};

Scales scales_of(ScaleForm form, const PackedGroup& group, int h) {
    const std::byte* const head = group.head;
    const int of_sixteen = 4 + 2 * group.index + h;
    switch (form) {
        case ScaleForm::f16_minimum:
            return {half_at(head, 0), half_at(head, 2), 0.0f};
        case ScaleForm::f32_minimum:
            return {at<float>(head, 0), at<float>(head, 4), 0.0f};
        case ScaleForm::f16_zero:
            return {half_at(head, 0), 0.0f, static_cast<float>(at<std::int16_t>(head, 2))};
        case ScaleForm::f32_zero:
            return {at<float>(head, 0), 0.0f, at<float>(head, 4)};
        case ScaleForm::k_minimum: {
            const auto both = at<std::uint8_t>(head, of_sixteen);
            return {half_at(head, 0) * static_cast<float>(both & 15),
                    -(half_at(head, 2) * static_cast<float>(both >> 4)), 0.0f};
        }
        case ScaleForm::k_table:
            return {at<float>(head, 0) * static_cast<float>(at<std::int8_t>(head, of_sixteen)), 0.0f, 0.0f};
        case ScaleForm::f32_table:
            return {at<float>(head, 4 * h), 0.0f, 0.0f};
        case ScaleForm::e4m3:
            return {at<float>(head, 0), 0.0f, 0.0f};
    }
    return {};
}

bool has_minimum(ScaleForm form) {
    return form == ScaleForm::f16_minimum || form == ScaleForm::f32_minimum || form == ScaleForm::k_minimum;
}
bool has_table(ScaleForm form) { return form == ScaleForm::k_table || form == ScaleForm::f32_table; }
// Whether a number is below 2^40, NaN being none: products of two such, codes and a factor are finite.
bool small(float value) { return (f32_bits(value) & 0x7fffffffu) < 0x53800000u; }
bool finite_half(const std::byte* head, int offset) { return (at<std::uint16_t>(head, offset) & 0x7c00u) != 0x7c00u; }

// Whether all values under a head are finite, whatever its small scales and its codes are. False: look closer.
bool surely_finite(ScaleForm form, const std::byte* head) {
    switch (form) {
        case ScaleForm::f16_minimum:
        case ScaleForm::k_minimum:
            return finite_half(head, 0) && finite_half(head, 2);
        case ScaleForm::f16_zero:
            return finite_half(head, 0);
        case ScaleForm::f32_minimum:
        case ScaleForm::f32_zero:
        case ScaleForm::f32_table:
            return small(at<float>(head, 0)) && small(at<float>(head, 4));
        case ScaleForm::k_table:
        case ScaleForm::e4m3:
            return small(at<float>(head, 0));
    }
    return false;
}

// Whether one of the codes, floats of 8 bits, is NaN.
bool holds_no_number(const std::byte* codes) {
    std::uint8_t found = 0;  // of bytes, so that the loop runs on vectors
    for (int i = 0; i < kPackedGroup; ++i) {
        found = static_cast<std::uint8_t>(found | ((codes[i] & std::byte{0x7f}) == std::byte{0x7f}));
    }
    return found != 0;
}

}  // namespace

std::int64_t row_bytes(const Packing& packing, std::int64_t cols) {
    check(cols % kPackedGroup == 0 && !packing.kinds.empty(), "a packed row that is no whole number of groups");
    const auto bytes_of = [&](std::int64_t groups) {
        std::int64_t bytes = 0;
        for (std::int64_t g = 0; g < groups; ++g) {
            const std::uint8_t kind = packing.kind(g);
            bytes += (kind & ~kHead) * (kPackedGroup / 8) + ((kind & kHead) != 0 ? head_bytes(packing.form) : 0);
        }
        return bytes;
    };
    const std::int64_t groups = cols / kPackedGroup, period = static_cast<std::int64_t>(packing.kinds.size());
    return groups / period * bytes_of(period) + bytes_of(groups % period);
}

float e4m3_value(std::uint8_t code) {
    // Shifted into a float16 it is the number divided by 256.
    if ((code & 0x7f) == 0x7f) return std::nanf("");
    return 256.0f * f16_to_f32(static_cast<std::uint16_t>((code & 0x7f) << 7 | (code & 0x80) << 8));
}

void PackedGroup::unpack(std::uint8_t (&out)[kPackedGroup]) const {
    with_bits(bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
        const GroupBytes group = split_group<kBits>(codes);
        std::memcpy(out, &group, sizeof out);
    });
}

void dequantize_packed(const Packing& packing, const std::byte* row, std::span<float> out) {
    PackedRow groups(packing, row);
    for (std::size_t begin = 0; begin < out.size(); begin += kPackedGroup) {
        const PackedGroup group = groups.next();
        std::uint8_t codes[kPackedGroup];
        group.unpack(codes);
        for (int h = 0; h < 2; ++h) {
            const Scales s = scales_of(packing.form, group, h);
            for (int i = 16 * h; i < 16 * h + 16; ++i) {
                float number = static_cast<float>(codes[i]) - s.zero;
                if (has_table(packing.form)) number = packing.table[codes[i]];
                if (packing.form == ScaleForm::e4m3) number = e4m3_value(codes[i]);
                float value = s.scale * number;
                if (has_minimum(packing.form)) value += s.minimum;
                const std::size_t place = begin + static_cast<std::size_t>(i);
                const std::size_t input =
                    packing.order.empty() ? place : static_cast<std::size_t>(packing.order[place]);
                out[input] = value * packing.factor;
            }
        }
    }
}

void unpack_to_plain(const Packing& packing, const std::byte* row, std::int64_t cols, std::byte* out) {
    if (packing.plain == QuantType::q8_0) {
        check(packing.form == ScaleForm::f16_zero && packing.order.empty(), "packed rows that are no blocks of Q8_0");
        PackedRow groups(packing, row);
        auto* block = reinterpret_cast<Q8_0::Block*>(out);
        for (std::int64_t g = 0; g < cols / kPackedGroup; ++g, ++block) {
            const PackedGroup group = groups.next();
            std::uint8_t codes[kPackedGroup];
            group.unpack(codes);
            const int zero = at<std::int16_t>(group.head, 2);
            block->d = StoredF16::from_bits(at<std::uint16_t>(group.head, 0));
            for (int i = 0; i < kPackedGroup; ++i) block->codes[i] = static_cast<std::int8_t>(codes[i] - zero);
        }
        return;
    }
    if (packing.plain == QuantType::q6_k) {
        check(packing.form == ScaleForm::k_table, "packed rows that are no blocks of Q6_K");
        PackedRow groups(packing, row);
        auto* block = reinterpret_cast<Q6_K::Block*>(out);
        for (std::int64_t g = 0; g < cols / kPackedGroup; ++g) {
            const PackedGroup group = groups.next();
            if (group.index == 0) {
                *block = {};
                block->d = StoredF16::from_bits(f32_to_f16(at<float>(group.head, 0)));
                std::memcpy(block->scales, group.head + 4, sizeof block->scales);
            }
            std::uint8_t codes[kPackedGroup];
            group.unpack(codes);
            for (int i = 0; i < kPackedGroup; ++i) {
                set_code(*block, kPackedGroup * group.index + i, packing.table[codes[i]]);
            }
            if (group.index + 1 == kGroupsOfKHead) ++block;
        }
        return;
    }
    std::vector<float> values(static_cast<std::size_t>(cols));
    dequantize_packed(packing, row, values);
    for (const float value : values) {
        if (packing.plain == QuantType::f32) {
            out = put_bytes(out, value);
        } else {
            check(packing.plain == QuantType::bf16, "packed rows become float32, bfloat16, Q8_0 or Q6_K");
            out = put_bytes(out, f32_to_bf16(value));
        }
    }
}

bool packed_is_finite(const Packing& packing, const std::byte* row, std::int64_t cols) {
    constexpr float kLargest = 448.0f;  // of all codes and numbers of tables
    const bool sane_factor = small(packing.factor);
    PackedRow groups(packing, row);
    bool sure = false;  // of the present head
    for (std::int64_t g = 0; g < cols / kPackedGroup; ++g) {
        const PackedGroup group = groups.next();
        if (packing.form == ScaleForm::e4m3 && holds_no_number(group.codes)) return false;
        if (group.index == 0) sure = sane_factor && surely_finite(packing.form, group.head);
        for (int h = 0; h < 2 && !sure; ++h) {
            const Scales s = scales_of(packing.form, group, h);
            const float largest = std::fabs(s.scale) * (kLargest + std::fabs(s.zero)) + std::fabs(s.minimum);
            if (!std::isfinite(largest * packing.factor)) return false;
        }
    }
    return true;
}

std::byte* put_codes(std::byte* out, int bits, const std::uint8_t (&codes)[kPackedGroup]) {
    with_bits(bits, [&]<int kBits>(std::integral_constant<int, kBits>) { out = put_group<kBits>(out, codes); });
    return out;
}

}  // namespace foresay::kernels
