// tests/kernels/packed_case.h: packed rows of random codes and heads, of every form and width, with the values that
// they stand for by the formulas of kernels/quant/packing.h.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/quant/packing.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {

// Names of the packing, as in kernels/quant.
namespace packed {
using namespace kernels;

inline constexpr std::uint8_t H = kHead;

struct Kind {
    const char* name;
    ScaleForm form;
    std::vector<std::uint8_t> kinds;
    std::int64_t inputs;
    float factor = 1.0f;
    bool ordered = false;
    bool centred = false;  // zeros are the middle of their codes
};

// Every form; every width; heads before each group, every second, and wherever they may be.
inline std::vector<Kind> kinds() {
    using F = ScaleForm;
    return {
        {"q4_1", F::f16_minimum, {4 | H}, 96},
        {"q5_1", F::f16_minimum, {5 | H}, 160},
        {"mlx_2_bits", F::f16_minimum, {2 | H, 2}, 128},
        {"mlx_3_bits", F::f32_minimum, {3 | H, 3, 3, 3}, 256},
        {"mlx_6_bits", F::f32_minimum, {6 | H}, 64},
        {"mlx_8_bits", F::f16_minimum, {8 | H, 8}, 320},
        {"gptq", F::f16_zero, {4 | H, 4, 4, 4}, 256, 1.0f, true},
        {"gptq_8_bits", F::f16_zero, {8 | H}, 64},
        {"exl2", F::f16_zero, {8 | H, 6 | H, 5 | H, 5, 4 | H, 4, 4, 4, 3 | H, 2 | H}, 320, 1.0f, true},
        {"exl2_centred", F::f16_zero, {6 | H, 5 | H, 4 | H, 4, 4, 4, 3 | H, 3, 2 | H, 2}, 320, 1.0f, true, true},
        {"scales_of_f32", F::f32_zero, {8 | H, 8, 8}, 96},
        {"q2_k", F::k_minimum, {2 | H, 2, 2, 2, 2, 2, 2, 2}, 512},
        {"iq4_xs", F::k_table, {4 | H, 4, 4, 4, 4, 4, 4, 4}, 512},
        {"iq2_s", F::k_table, {3 | H, 3, 3, 3, 3, 3, 3, 3}, 256},
        {"nvfp4", F::f32_table, {4 | H}, 128, 0.37f},
        {"fp8", F::e4m3, {8 | H, 8, 8, 8}, 288},
    };
}

inline bool has_table(ScaleForm form) { return form == ScaleForm::k_table || form == ScaleForm::f32_table; }

// What random codes and heads hardly ever are.
struct Extreme {
    enum class Codes : std::uint8_t { random, lowest, highest };
    Codes codes = Codes::random;
    float scale = 0.0f;  // of all heads, with random signs; 0: random
};
inline constexpr Extreme kExtremes[] = {
    {Extreme::Codes::lowest, 0.0f},      {Extreme::Codes::highest, 0.0f},
    {Extreme::Codes::random, 0x1p-24f},  // the smallest subnormal float16
    {Extreme::Codes::highest, 0x1p-24f}, {Extreme::Codes::random, 65504.0f},
    {Extreme::Codes::highest, 65504.0f},  // the largest float16
};

// A matrix of random codes and heads, and the values that they stand for by the formulas of packing.h.
struct Packed {
    Packing packing;
    std::vector<std::byte> bytes;
    std::vector<float> values;
    std::int64_t rows, cols;

    Packed(const Kind& kind, std::int64_t rows_wanted, Random& random, const Extreme& extreme = {})
        : rows(rows_wanted), cols(kind.inputs), extreme_(extreme), centred_(kind.centred) {
        packing.form = kind.form;
        packing.kinds = kind.kinds;
        packing.factor = kind.factor;
        for (std::size_t i = 0; has_table(kind.form) && i < 16; ++i) {
            packing.table[i] = static_cast<std::int8_t>(random() & 255u);
        }
        if (kind.ordered) {
            packing.order.resize(static_cast<std::size_t>(cols));
            std::iota(packing.order.begin(), packing.order.end(), 0);
            for (std::size_t i = packing.order.size(); i > 1; --i) {
                std::swap(packing.order[i - 1], packing.order[random() % i]);
            }
        }
        values.resize(static_cast<std::size_t>(rows * cols));
        bytes.resize(static_cast<std::size_t>(view().bytes()));
        std::byte* out = bytes.data();
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t g = 0; g < cols / 32; ++g) out = add_group(random, r, g, out);
        }
        EXPECT_EQ(out, bytes.data() + bytes.size());
    }

    TensorView view() const { return {QuantType::packed, rows, cols, bytes.data(), &packing}; }

private:
    float number(Random& random) const {
        const float magnitude =
            extreme_.scale > 0.0f ? extreme_.scale : 0.01f + static_cast<float>(random() % 1000) / 10000.0f;
        return random() % 4 == 0 ? -magnitude : magnitude;
    }
    float half(Random& random) const { return f16_to_f32(f32_to_f16(number(random))); }

    std::byte* add_group(Random& random, std::int64_t row, std::int64_t group, std::byte* out) {
        const std::uint8_t kind = packing.kinds[static_cast<std::size_t>(group) % packing.kinds.size()];
        if ((kind & H) != 0) {
            out = add_head(random, kind & 15, out);
            index_ = 0;
        }
        const int bits = kind & 15;
        std::uint8_t codes[32];
        for (int i = 0; i < 32; ++i) {
            const auto most = static_cast<std::uint8_t>((1u << bits) - 1u);
            codes[i] = static_cast<std::uint8_t>(random() & most);
            if (extreme_.codes == Extreme::Codes::lowest) codes[i] = 0;
            if (extreme_.codes == Extreme::Codes::highest) codes[i] = packing.form == ScaleForm::e4m3 ? 0xfe : most;
            if (packing.form == ScaleForm::e4m3 && (codes[i] & 0x7f) == 0x7f) codes[i] = 0x81;  // no NaN
            const std::int64_t place = 32 * group + i;
            const std::int64_t input = packing.order.empty() ? place : packing.order[static_cast<std::size_t>(place)];
            values[static_cast<std::size_t>(row * cols + input)] = value_of(codes[i], i / 16);
        }
        ++index_;
        return put_codes(out, bits, codes);
    }

    int zero(Random& random, int bits) const { return centred_ ? 1 << (bits - 1) : static_cast<int>(random() % 257); }
    std::byte* add_head(Random& random, int bits, std::byte* out) {
        switch (packing.form) {
            case ScaleForm::f16_minimum:
                d_ = half(random), m_ = half(random);
                return put_bytes(put_bytes(out, f32_to_f16(d_)), f32_to_f16(m_));
            case ScaleForm::f32_minimum:
                d_ = number(random), m_ = number(random);
                return put_bytes(put_bytes(out, d_), m_);
            case ScaleForm::f16_zero:
                d_ = half(random), zero_ = zero(random, bits);
                return put_bytes(put_bytes(out, f32_to_f16(d_)), static_cast<std::int16_t>(zero_));
            case ScaleForm::f32_zero:
                d_ = number(random), zero_ = zero(random, bits);
                return put_bytes(put_bytes(out, d_), static_cast<float>(zero_));
            case ScaleForm::k_minimum:
                d_ = half(random), m_ = half(random);
                out = put_bytes(put_bytes(out, f32_to_f16(d_)), f32_to_f16(m_));
                break;
            case ScaleForm::k_table:
                d_ = number(random);
                out = put_bytes(out, d_);
                break;
            case ScaleForm::f32_table:
                d_ = number(random), m_ = number(random);
                return put_bytes(put_bytes(out, d_), m_);
            case ScaleForm::e4m3:
                d_ = number(random);
                return put_bytes(out, d_);
        }
        for (std::uint8_t& byte : scales_) {
            byte = static_cast<std::uint8_t>(random() & 255u);
            out = put_bytes(out, byte);
        }
        return out;
    }

    float value_of(std::uint8_t code, int half_of_group) const {
        const std::uint8_t byte = scales_[2 * index_ + half_of_group];
        const auto q = static_cast<float>(code);
        switch (packing.form) {
            case ScaleForm::f16_minimum:
            case ScaleForm::f32_minimum:
                return d_ * q + m_;
            case ScaleForm::f16_zero:
            case ScaleForm::f32_zero:
                return d_ * static_cast<float>(code - zero_);
            case ScaleForm::k_minimum:
                return d_ * static_cast<float>(byte & 15) * q - m_ * static_cast<float>(byte >> 4);
            case ScaleForm::k_table:
                return d_ * static_cast<float>(static_cast<std::int8_t>(byte)) * packing.table[code];
            case ScaleForm::f32_table:
                return (half_of_group == 0 ? d_ : m_) * packing.table[code] * packing.factor;
            case ScaleForm::e4m3: {
                const int exponent = code >> 3 & 15, mantissa = code & 7;
                const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                                 : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
                return ((code & 0x80) != 0 ? -size : size) * d_;
            }
        }
        return 0.0f;
    }

    Extreme extreme_;
    bool centred_;
    float d_ = 0, m_ = 0;
    int zero_ = 0, index_ = 0;
    std::uint8_t scales_[16] = {};
};

}  // namespace packed
}  // namespace foresay::test
