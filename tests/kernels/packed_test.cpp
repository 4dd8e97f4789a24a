// Packed rows (kernels/quant/packing.h): values of every form and width against the formulas, and products from their
// panels against plain loops on every instruction set, with the same bits at every number of rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/quant/packing.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;

constexpr std::uint8_t H = kHead;

struct Kind {
    const char* name;
    ScaleForm form;
    std::vector<std::uint8_t> kinds;
    std::int64_t inputs;
    float factor = 1.0f;
    bool ordered = false;
};

// Every form; every width; heads before each group, every second, and wherever they may be.
std::vector<Kind> kinds() {
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
        {"scales_of_f32", F::f32_zero, {8 | H, 8, 8}, 96},
        {"q2_k", F::k_minimum, {2 | H, 2, 2, 2, 2, 2, 2, 2}, 512},
        {"iq4_xs", F::k_table, {4 | H, 4, 4, 4, 4, 4, 4, 4}, 512},
        {"iq2_s", F::k_table, {3 | H, 3, 3, 3, 3, 3, 3, 3}, 256},
        {"nvfp4", F::f32_table, {4 | H}, 128, 0.37f},
        {"fp8", F::e4m3, {8 | H, 8, 8, 8}, 288},
    };
}

bool has_table(ScaleForm form) { return form == ScaleForm::k_table || form == ScaleForm::f32_table; }

// A matrix of random codes and heads, and the values that they stand for by the formulas of packing.h.
struct Packed {
    Packing packing;
    std::vector<std::byte> bytes;
    std::vector<float> values;
    std::int64_t rows, cols;

    Packed(const Kind& kind, std::int64_t rows_wanted, Random& random) : rows(rows_wanted), cols(kind.inputs) {
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
    static float number(Random& random) {
        const float magnitude = 0.01f + static_cast<float>(random() % 1000) / 10000.0f;
        return random() % 4 == 0 ? -magnitude : magnitude;
    }
    static float half(Random& random) { return f16_to_f32(f32_to_f16(number(random))); }

    std::byte* add_group(Random& random, std::int64_t row, std::int64_t group, std::byte* out) {
        const std::uint8_t kind = packing.kinds[static_cast<std::size_t>(group) % packing.kinds.size()];
        if ((kind & H) != 0) {
            out = add_head(random, out);
            index_ = 0;
        }
        const int bits = kind & 15;
        std::uint8_t codes[32];
        for (int i = 0; i < 32; ++i) {
            codes[i] = static_cast<std::uint8_t>(random() & ((1u << bits) - 1u));
            if (packing.form == ScaleForm::e4m3 && (codes[i] & 0x7f) == 0x7f) codes[i] = 0x81;  // no NaN
            const std::int64_t place = 32 * group + i;
            const std::int64_t input = packing.order.empty() ? place : packing.order[static_cast<std::size_t>(place)];
            values[static_cast<std::size_t>(row * cols + input)] = value_of(codes[i], i / 16);
        }
        ++index_;
        return put_codes(out, bits, codes);
    }

    std::byte* add_head(Random& random, std::byte* out) {
        switch (packing.form) {
            case ScaleForm::f16_minimum:
                d_ = half(random), m_ = half(random);
                return put_bytes(put_bytes(out, f32_to_f16(d_)), f32_to_f16(m_));
            case ScaleForm::f32_minimum:
                d_ = number(random), m_ = number(random);
                return put_bytes(put_bytes(out, d_), m_);
            case ScaleForm::f16_zero:
                d_ = half(random), zero_ = static_cast<int>(random() % 257);
                return put_bytes(put_bytes(out, f32_to_f16(d_)), static_cast<std::int16_t>(zero_));
            case ScaleForm::f32_zero:
                d_ = number(random), zero_ = static_cast<int>(random() % 257);
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

    float d_ = 0, m_ = 0;
    int zero_ = 0, index_ = 0;
    std::uint8_t scales_[16] = {};
};

class PackedRows : public testing::TestWithParam<Kind> {
protected:
    // y = W x of every row of x, by an instruction set; one tile after the other.
    std::vector<float> products(const IsaKernels& isa, const PanelMatrix& matrix, const std::vector<float>& x,
                                int rows) {
        ActivationTiles tiles;
        tiles.reserve(64, matrix.inputs);
        tiles.set_rows(rows, isa);
        for (int row = 0; row < rows; ++row) {
            tiles.fill(isa, row, x.data() + row * matrix.inputs, static_cast<int>(matrix.inputs),
                       !matrix.reads_floats(), matrix.reads_floats(), matrix.order);
        }
        const std::int64_t stride = matrix.padded_outputs();
        std::vector<float> y(static_cast<std::size_t>(rows * stride));
        for (int i = 0; i < tiles.tiles(); ++i) {
            isa.linear(range(matrix, 0, matrix.panels), tiles.tile(i), y.data() + tiles.first_row(i) * stride, stride,
                       Store::set);
        }
        return y;
    }
    // What the matrix sees of a row.
    static std::vector<float> seen(const PanelMatrix& matrix, const std::vector<float>& row) {
        if (matrix.reads_floats()) return row;
        if (matrix.order.empty()) return Codes(row).values(row.size());
        std::vector<float> placed(row.size()), back(row.size());
        for (std::size_t i = 0; i < row.size(); ++i) placed[i] = row[static_cast<std::size_t>(matrix.order[i])];
        placed = Codes(placed).values(row.size());
        for (std::size_t i = 0; i < row.size(); ++i) back[static_cast<std::size_t>(matrix.order[i])] = placed[i];
        return back;
    }

    Random random_{5};
    Arena arena_;
    ThreadPool pool_{2};
};

TEST_P(PackedRows, HoldTheValuesOfTheirForm) {
    const Packed packed(GetParam(), 5, random_);
    std::vector<float> row(static_cast<std::size_t>(packed.cols));
    for (std::int64_t r = 0; r < packed.rows; ++r) {
        dequantize_row(packed.view(), r, row);
        for (std::int64_t i = 0; i < packed.cols; ++i) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(row[static_cast<std::size_t>(i)]),
                      std::bit_cast<std::uint32_t>(packed.values[static_cast<std::size_t>(r * packed.cols + i)]))
                << "row " << r << " input " << i;
        }
    }
}

TEST_P(PackedRows, ProductsEqualPlainLoopsAtEveryWidth) {
    for (const std::string& set : usable_isas()) {
        const IsaKernels& isa = select_isa(set);
        for (const std::int64_t outputs : {1, 16, 37}) {
            const Packed packed(GetParam(), outputs, random_);
            const PanelMatrix matrix = pack(packed.view(), arena_, pool_);
            ASSERT_EQ(matrix.memory.bytes, packed_bytes(packed.view()));
            ASSERT_EQ(matrix.memory.bytes, matrix.padded_outputs() * packed.view().row_bytes());
            constexpr int kRows = 17;
            const auto width = static_cast<std::size_t>(packed.cols);
            const std::vector<float> x = bell(random_, kRows * width, 1.0f);
            const std::vector<float> all = products(isa, matrix, x, kRows);
            const auto stride = static_cast<std::size_t>(matrix.padded_outputs());
            for (std::size_t row = 0; row < kRows; ++row) {
                const std::vector<float> own(x.begin() + static_cast<std::ptrdiff_t>(row * width),
                                             x.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
                const auto expected = multiply(packed.values, seen(matrix, own));
                // A minimum and a code's product may cancel: what is added is larger than what is left.
                for (std::size_t o = 0; o < expected.size(); ++o) {
                    const double scale = expected[o].magnitude + 30.0 * static_cast<double>(width) * 0.11;
                    ASSERT_NEAR(all[row * stride + o], expected[o].value, kSums * scale)
                        << set << ", row " << row << ", output " << o;
                }
                for (std::size_t o = expected.size(); o < stride; ++o) ASSERT_EQ(all[row * stride + o], 0.0f);
            }
            // A row has the same bits alone and in tiles of any width.
            for (int rows = 1; rows < kRows; ++rows) {
                const std::vector<float> some = products(isa, matrix, x, rows);
                ASSERT_EQ(0, std::memcmp(some.data(), all.data(), some.size() * sizeof(float))) << set << ", " << rows;
            }
        }
    }
}

// One input at a time finds every code in its place.
TEST_P(PackedRows, EveryInputHasItsWeight) {
    const IsaKernels& isa = select_isa("");
    const Packed packed(GetParam(), 16, random_);
    const PanelMatrix matrix = pack(packed.view(), arena_, pool_);
    for (std::int64_t i = 0; i < packed.cols; ++i) {
        std::vector<float> x(static_cast<std::size_t>(packed.cols));
        x[static_cast<std::size_t>(i)] = 1.0f;
        const std::vector<float> y = products(isa, matrix, x, 1);
        for (std::int64_t o = 0; o < 16; ++o) {
            ASSERT_NEAR(y[static_cast<std::size_t>(o)], packed.values[static_cast<std::size_t>(o * packed.cols + i)],
                        2e-5 * 30)
                << "output " << o << " input " << i;
        }
    }
}

TEST_P(PackedRows, ScalesThatAreNotFiniteAreFound) {
    Packed packed(GetParam(), 3, random_);
    const auto finite = [&](std::int64_t r) {
        return packed_is_finite(packed.packing, packed.bytes.data() + r * packed.view().row_bytes(), packed.cols);
    };
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(finite(r));
    // The second row begins with a head, and a head with a scale: 0x7e00 is NaN in float16, 0x7f7f7f7f too large.
    std::byte* const row = packed.bytes.data() + packed.view().row_bytes();
    const bool half = GetParam().form == ScaleForm::f16_minimum || GetParam().form == ScaleForm::f16_zero ||
                      GetParam().form == ScaleForm::k_minimum;
    if (half) {
        put_bytes(row, std::uint16_t{0x7e00});
    } else {
        put_bytes(row, std::uint32_t{0x7fc00000});
    }
    EXPECT_TRUE(finite(0));
    EXPECT_FALSE(finite(1));
    EXPECT_TRUE(finite(2));
}

INSTANTIATE_TEST_SUITE_P(All, PackedRows, testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PackedLayout, CodesOfEightBitsThatAreNoNumbersAreFound) {
    const Packing packing{.form = ScaleForm::e4m3, .kinds = {8 | kHead}};
    std::vector<std::byte> row(36);
    put_bytes(row.data(), 1.0f);
    EXPECT_TRUE(packed_is_finite(packing, row.data(), 32));
    row[35] = std::byte{0xff};
    EXPECT_FALSE(packed_is_finite(packing, row.data(), 32));
}

TEST(PackedLayout, BytesOfARowFollowTheKinds) {
    const Packing even{.form = ScaleForm::f16_minimum, .kinds = {4 | kHead}};
    EXPECT_EQ(row_bytes(even, 64), 2 * (4 + 16));
    const Packing mixed{.form = ScaleForm::f16_zero, .kinds = {5 | kHead, 5, 3 | kHead}};
    EXPECT_EQ(row_bytes(mixed, 4 * 32), (4 + 20) + 20 + (4 + 12) + (4 + 20));
}

}  // namespace
}  // namespace foresay::test
