// Packed rows (kernels/quant/packing.h): values of every form and width against the formulas, and products from their
// panels against plain loops on every instruction set, with the same bits at every number of rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/quant/packed_panels.h"
#include "kernels/quant/packing.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/packed_case.h"
#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;
using packed::Kind;
using packed::kinds;
using packed::Packed;

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

// All codes at an end of their range, and scales at the ends of float16's: sums of bytes must not saturate, nor small
// scales become zero.
TEST_P(PackedRows, ExtremeCodesAndScales) {
    for (const packed::Extreme& extreme : packed::kExtremes) {
        const Packed packed(GetParam(), 16, random_, extreme);
        const auto width = static_cast<std::size_t>(packed.cols);
        std::vector<float> row(width);
        for (std::int64_t r = 0; r < packed.rows; ++r) {
            dequantize_row(packed.view(), r, row);
            ASSERT_TRUE(std::equal(row.begin(), row.end(), packed.values.begin() + r * packed.cols)) << "row " << r;
        }
        const PanelMatrix matrix = pack(packed.view(), arena_, pool_);
        // The largest inputs of one sign, where sums grow most, and mixed ones.
        for (const float centre : {3.0f, 0.0f}) {
            const std::vector<float> x = bell(random_, width, centre > 0.0f ? 0.0f : 1.0f, centre);
            const auto expected = multiply(packed.values, seen(matrix, x));
            double inputs = 0.0;
            for (const float value : x) inputs += std::fabs(value);
            // What cancels: a code of at most 255 under a scale, a zero of at most 256, a minimum.
            const double scale = extreme.scale > 0.0f ? extreme.scale : 0.11;
            for (const std::string& set : usable_isas()) {
                const std::vector<float> y = products(select_isa(set), matrix, x, 1);
                for (std::size_t o = 0; o < expected.size(); ++o) {
                    ASSERT_NEAR(y[o], expected[o].value, kSums * (expected[o].magnitude + 600.0 * scale * inputs))
                        << set << ", codes " << static_cast<int>(extreme.codes) << ", scale " << extreme.scale
                        << ", output " << o;
                }
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

// The bytes of a panel, put together bit by bit as kernels/cpu/panel_blocks.h says.
std::vector<std::uint8_t> panel_by_hand(const Packed& packed, std::int64_t first) {
    const Packing& packing = packed.packing;
    std::vector<std::uint8_t> panel;
    std::int64_t at = 0;  // in each row
    const auto byte_of = [&](std::int64_t output, std::int64_t offset) {
        const std::int64_t row = first + output;
        return row < packed.rows ? packed.bytes[static_cast<std::size_t>(row * packed.view().row_bytes() + offset)]
                                 : std::byte{0};
    };
    const auto number_of = [&]<class T>(std::int64_t output, std::int64_t offset, T number) {
        for (std::size_t i = 0; i < sizeof number; ++i) {
            const std::byte byte = byte_of(output, offset + static_cast<std::int64_t>(i));
            std::memcpy(reinterpret_cast<std::byte*>(&number) + i, &byte, 1);
        }
        return number;
    };
    const auto put = [&]<class T>(const T& number) {
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&number);
        panel.insert(panel.end(), bytes, bytes + sizeof number);
    };
    for (std::int64_t g = 0; g < packed.cols / 32; ++g) {
        const std::uint8_t kind = packing.kind(g);
        if ((kind & kHead) != 0) {
            const auto all = [&](const auto& put_one) {
                for (std::int64_t o = 0; o < 16; ++o) put_one(o);
            };
            const auto halves = [&](std::int64_t offset) {
                all([&](std::int64_t o) { put(number_of(o, at + offset, std::uint16_t{})); });
            };
            const auto floats = [&](std::int64_t offset, float factor) {
                all([&](std::int64_t o) { put(number_of(o, at + offset, 0.0f) * factor); });
            };
            switch (packing.form) {
                case ScaleForm::f16_minimum:
                case ScaleForm::k_minimum:
                    halves(0), halves(2);
                    break;
                case ScaleForm::f16_zero:
                    halves(0);
                    all([&](std::int64_t o) {
                        put(f32_to_f16(static_cast<float>(number_of(o, at + 2, std::int16_t{}))));
                    });
                    break;
                case ScaleForm::f32_minimum:
                case ScaleForm::f32_zero:
                    floats(0, 1.0f), floats(4, 1.0f);
                    break;
                case ScaleForm::k_table:
                    floats(0, 1.0f);
                    break;
                case ScaleForm::f32_table:
                    floats(0, packing.factor), floats(4, packing.factor);
                    break;
                case ScaleForm::e4m3:
                    floats(0, 256.0f);
                    break;
            }
            if (packing.form == ScaleForm::k_minimum || packing.form == ScaleForm::k_table) {
                for (std::int64_t i = 0; i < 16; ++i) {
                    all([&](std::int64_t o) { put(byte_of(o, at + 4 + i)); });
                }
            }
            at += head_bytes(packing.form);
        }
        const int bits = kind & ~kHead;
        std::vector<std::uint8_t> vectors(static_cast<std::size_t>(64 * bits));
        const auto add = [&](int vector, std::int64_t o, int k, int value, int shift) {
            std::uint8_t& byte = vectors[static_cast<std::size_t>(64 * vector + 4 * o + k % 4)];
            byte = static_cast<std::uint8_t>(byte | value << shift);
        };
        for (std::int64_t o = 0; o < 16; ++o) {
            for (int k = 0; k < 32; ++k) {
                int code = 0;
                for (int bit = 0; bit < bits; ++bit) {
                    const int place = k * bits + bit;
                    code |= (std::to_integer<int>(byte_of(o, at + place / 8)) >> (place % 8) & 1) << bit;
                }
                const int vector = k / 4;
                if (packing.form == ScaleForm::e4m3) {
                    vectors[static_cast<std::size_t>(16 * k + o)] = static_cast<std::uint8_t>(code);
                } else if (bits == 8) {
                    add(vector, o, k, code, 0);
                } else if (bits <= 3) {
                    add(vector / 4, o, k, code & 3, 2 * (vector % 4));
                    if (bits == 3) add(2, o, k, code >> 2, vector);
                } else {
                    add(vector % 4, o, k, code & 15, vector / 4 * 4);
                    if (bits == 5) add(4, o, k, code >> 4, vector);
                    if (bits == 6) add(4 + vector / 4, o, k, code >> 4, 2 * (vector % 4));
                }
            }
        }
        panel.insert(panel.end(), vectors.begin(), vectors.end());
        at += 4 * bits;
    }
    return panel;
}

TEST_P(PackedRows, PanelsHaveTheBytesOfTheirLayout) {
    for (const std::int64_t outputs : {1, 16, 37}) {
        const Packed packed(GetParam(), outputs, random_);
        const PanelMatrix matrix = pack(packed.view(), arena_, pool_);
        for (int p = 0; p < matrix.panels; ++p) {
            const std::vector<std::uint8_t> expected = panel_by_hand(packed, 16 * p);
            ASSERT_EQ(static_cast<std::int64_t>(expected.size()), matrix.panel_bytes);
            for (std::size_t i = 0; i < expected.size(); ++i) {
                ASSERT_EQ(matrix.panel(p)[i], expected[i]) << "panel " << p << " byte " << i;
            }
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

// What a head's small scales make of it counts, not what they could: 10^34 is fine under 1, and too large under 127.
TEST(PackedLayout, LargeScalesMayHaveSmallOnesUnderThem) {
    const Packing packing{.form = ScaleForm::k_table, .kinds = {2 | kHead, 2, 2, 2, 2, 2, 2, 2}};
    std::vector<std::byte> row(20 + 8 * 8);
    put_bytes(row.data(), 1e34f);
    std::fill_n(row.begin() + 4, 16, std::byte{1});
    EXPECT_TRUE(packed_is_finite(packing, row.data(), 256));
    row[4 + 15] = std::byte{127};
    EXPECT_FALSE(packed_is_finite(packing, row.data(), 256));
}

TEST(PackedLayout, PanelsOfADeviceRepeatScalesEverySixtyFourInputs) {
    const Packing fours{.form = ScaleForm::f16_minimum, .kinds = {4 | kHead, 4, 4, 4}};
    EXPECT_EQ(packed_panel_row_bytes(fours, 256), 4 * (32 + 4));
    const Packing apart{.form = ScaleForm::f16_minimum, .kinds = {4 | kHead}};
    EXPECT_EQ(packed_panel_row_bytes(apart, 96), (32 + 8) + (32 + 4)) << "the last block has one group";
    const Packing table{.form = ScaleForm::k_table, .kinds = {3 | kHead, 3, 3, 3, 3, 3, 3, 3}};
    EXPECT_EQ(packed_panel_row_bytes(table, 256), 4 * (24 + 8));
    const Packing wider{.form = ScaleForm::f16_zero, .kinds = {6 | kHead, 5, 3, 3}};
    EXPECT_EQ(packed_panel_row_bytes(wider, 128), (48 + 4) + (24 + 4)) << "a block has the wider codes of its groups";
    const Packing restless{.form = ScaleForm::f16_zero, .kinds = {8 | kHead, 8, 4, 4}};
    EXPECT_EQ(packed_panel_row_bytes(restless, 128 * 5), 5 * (68 + 36));
    EXPECT_EQ(packed_panel_row_bytes(restless, 128 * 6), 0) << "more runs than a header holds";
    EXPECT_EQ(packed_panel_row_bytes(fours, 65536 + 256), 0);
}

TEST(PackedLayout, APairTakesTheWiderCodesAndTheHeadsOfBoth) {
    const Packing gate{.form = ScaleForm::f16_zero, .kinds = {6 | kHead, 4, 4, 4, 3 | kHead, 3}, .order = {1, 0}};
    Packing up{.form = ScaleForm::f16_zero, .kinds = {5 | kHead, 5 | kHead, 2}, .factor = 2.0f, .order = {1, 0}};
    const std::optional<Packing> pair = packing_of_pair(gate, up, 6 * 32);
    ASSERT_TRUE(pair);
    EXPECT_EQ(pair->kinds, (std::vector<std::uint8_t>{6 | kHead, 5 | kHead, 4, 5 | kHead, 5 | kHead, 3}));
    EXPECT_EQ(pair->order, gate.order);
    EXPECT_EQ(packing_of_pair(up, gate, 6 * 32)->kinds, pair->kinds);
    EXPECT_EQ(packing_of_pair(gate, gate, 6 * 32)->kinds, gate.kinds);
    up.order = {0, 1};
    EXPECT_FALSE(packing_of_pair(gate, up, 6 * 32)) << "inputs are gathered once for both";
    up.order = gate.order, up.form = ScaleForm::f16_minimum;
    EXPECT_FALSE(packing_of_pair(gate, up, 6 * 32));
    const Packing table{.form = ScaleForm::k_table, .kinds = {4 | kHead, 4, 4, 4, 4, 4, 4, 4}};
    const Packing other{.form = ScaleForm::k_table, .kinds = {3 | kHead, 3, 3, 3, 3, 3, 3, 3}};
    EXPECT_FALSE(packing_of_pair(table, other, 256)) << "a head for eight groups";
    // One that alone would become Q8_0 stays packed beside one that would not.
    const Packing five{.form = ScaleForm::f16_zero, .kinds = {5 | kHead}, .plain = QuantType::q8_0};
    const Packing eight{.form = ScaleForm::f16_zero, .kinds = {8 | kHead}};
    EXPECT_EQ(packed_panel_row_bytes(*packing_of_pair(five, eight, 64), 64), 64 + 8);
    EXPECT_FALSE(packing_of_pair(five, five, 64));
}

TEST(PackedLayout, DevicesKeepWhatQ8_0WouldDouble) {
    Packing packing{.form = ScaleForm::f16_zero, .kinds = {4 | kHead, 4}, .plain = QuantType::q8_0};
    EXPECT_TRUE(devices_keep_packed(packing));
    packing.kinds = {4 | kHead, 5};
    EXPECT_FALSE(devices_keep_packed(packing));
    packing.plain = QuantType::f32;
    EXPECT_TRUE(devices_keep_packed(packing));
    packing.plain = QuantType::q6_k;
    EXPECT_FALSE(devices_keep_packed(packing));
}

TEST(PackedLayout, ExpertsShareALayoutButForFactorsAndOrders) {
    const Packing one{.form = ScaleForm::f16_zero, .kinds = {4 | kHead, 4}, .factor = 0.5f, .order = {1, 0}};
    Packing two = one, up = one;
    two.factor = 2.0f, two.order = {0, 1};
    up.kinds = {5 | kHead, 4};
    const auto of = [](std::vector<const Packing*> first, std::vector<const Packing*> second = {}) {
        return packing_of_experts(first, second, 128);
    };
    EXPECT_EQ(of({&one, &two})->kinds, one.kinds);
    ASSERT_TRUE(of({&one, &one}, {&up, &up}));
    EXPECT_EQ(of({&one, &one}, {&up, &up})->kinds, (std::vector<std::uint8_t>{5 | kHead, 4, 5 | kHead, 4}));
    EXPECT_FALSE(of({&one, &up})) << "other widths";
    EXPECT_FALSE(of({&one, nullptr})) << "one is not packed";
    EXPECT_FALSE(of({&one, &two}, {&up, &up})) << "gate and up of an expert in other orders";
    two.order.clear();
    EXPECT_FALSE(of({&one, &two})) << "one has no order";
    Packing plain{.form = ScaleForm::f16_zero, .kinds = {5 | kHead}, .plain = QuantType::q8_0};
    EXPECT_FALSE(of({&plain, &plain})) << "they become Q8_0";
    Packing kept = plain;
    kept.plain = QuantType::f32;
    EXPECT_EQ(of({&plain, &kept})->plain, QuantType::f32);
}

TEST(PackedLayout, BytesOfARowFollowTheKinds) {
    const Packing even{.form = ScaleForm::f16_minimum, .kinds = {4 | kHead}};
    EXPECT_EQ(row_bytes(even, 64), 2 * (4 + 16));
    const Packing mixed{.form = ScaleForm::f16_zero, .kinds = {5 | kHead, 5, 3 | kHead}};
    EXPECT_EQ(row_bytes(mixed, 4 * 32), (4 + 20) + 20 + (4 + 12) + (4 + 20));
}

}  // namespace
}  // namespace foresay::test
