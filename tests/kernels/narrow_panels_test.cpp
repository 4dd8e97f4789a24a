// Tensors whose codes use a part of their type's range lie in narrower panels: every value is that of the file, and
// products have the same bits as from the type's own panels, at every width and on every instruction set.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>

#include "kernels/cpu/activation_tiles.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/narrow_codes.h"
#include "kernels/quant/pack_codes.h"
#include "kernels/quant/q8_0.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;

struct Narrow {
    const char* name;
    QuantType quant_type;
    PanelType type;
    int panel_bytes_per_group;         // of 16 outputs x 32 inputs, scales and all
    std::vector<int> numbers;          // that the tensor has
    std::vector<int> (*one_beyond)();  // numbers of which each needs the type's own panels
};

std::vector<int> from_to(int low, int high) {
    std::vector<int> all;
    for (int i = low; i <= high; ++i) all.push_back(i);
    return all;
}
std::vector<int> iq4_numbers() { return {std::begin(kIq4Numbers), std::end(kIq4Numbers)}; }

std::vector<Narrow> kinds() {
    return {
        {"q2_of_q4_0", QuantType::q4_0, PanelType::q2_of_q4_0, 160, from_to(-2, 1),
         [] {
             return std::vector{-5, 4};
         }},
        {"q3_of_q4_0", QuantType::q4_0, PanelType::q3_of_q4_0, 224, from_to(-4, 3),
         [] {
             return std::vector{-5, 4};
         }},
        {"q5_of_q8_0", QuantType::q8_0, PanelType::q5_of_q8_0, 352, from_to(-16, 15),
         [] {
             return std::vector{-17, 16};
         }},
        {"iq4_nl_of_q8_0", QuantType::q8_0, PanelType::iq4_nl_of_q8_0, 288, iq4_numbers(),
         [] {
             return std::vector{-128, 0, 2, 127};
         }},
        {"q3_of_q6_k", QuantType::q6_k, PanelType::q3_of_q6_k, 232, from_to(-4, 3),
         [] {
             return std::vector{-5, 4};
         }},
    };
}

// Rows of blocks with these numbers; `wide` of them lies at the end of the last row.
std::vector<std::byte> blocks_of(const Narrow& kind, std::int64_t rows, std::int64_t cols, Random& random,
                                 std::optional<int> wide = std::nullopt) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * row_bytes(kind.quant_type, cols)));
    const auto scale = [&] {
        const float magnitude = 0.01f + static_cast<float>(random() % 1000) / 10000.0f;
        return StoredF16::from_bits(f32_to_f16(random() % 4 == 0 ? -magnitude : magnitude));
    };
    const std::int64_t elements = info(kind.quant_type).block_elements, count = rows * cols / elements;
    for (std::int64_t b = 0; b < count; ++b) {
        const auto number = [&](int i) {
            if (wide && b + 1 == count && i + 1 == elements) return *wide;
            return kind.numbers[random() % kind.numbers.size()];
        };
        if (kind.quant_type == QuantType::q4_0) {
            auto& block = reinterpret_cast<Q4_0::Block*>(bytes.data())[b];
            block.d = scale();
            std::uint8_t codes[32];
            for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(number(i) + 8);
            GroupBytes group;
            std::memcpy(&group, codes, sizeof group);
            set_codes(block, group);
        } else if (kind.quant_type == QuantType::q8_0) {
            auto& block = reinterpret_cast<Q8_0::Block*>(bytes.data())[b];
            block.d = scale();
            for (int i = 0; i < 32; ++i) block.codes[i] = static_cast<std::int8_t>(number(i));
        } else {
            auto& block = reinterpret_cast<Q6_K::Block*>(bytes.data())[b];
            block.d = scale();
            for (std::int8_t& s : block.scales) s = static_cast<std::int8_t>(random() & 255u);
            for (int i = 0; i < 256; ++i) set_code(block, i, number(i));
        }
    }
    return bytes;
}

// As kernels/cpu/panel_blocks.h describes them. Code of input k of a group at `p`.
int nibble(const std::uint8_t* p, int output, int k) {
    const std::uint8_t byte = p[64 * (k / 4 % 4) + 4 * output + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}
int pair(const std::uint8_t* p, int output, int k) {
    return p[64 * (k / 16) + 4 * output + k % 4] >> (2 * (k / 4 % 4)) & 3;
}
int single(const std::uint8_t* p, int output, int k) { return p[4 * output + k % 4] >> (k / 4) & 1; }
float half_at(const std::uint8_t* p, int output) {
    return f16_to_f32(static_cast<std::uint16_t>(p[2 * output] | p[2 * output + 1] << 8));
}

float unpack(const PanelMatrix& m, std::int64_t o, std::int64_t i) {
    const PanelFormat format = panel_format(m.type);
    const std::uint8_t* const block =
        m.panel(static_cast<int>(o / 16)) + i / format.block_inputs * static_cast<std::int64_t>(format.block_bytes);
    const int output = static_cast<int>(o % 16), input = static_cast<int>(i % format.block_inputs);
    const int group = input / 32, k = input % 32;
    const auto number = [&](int code) { return half_at(block + 32 * group, output) * static_cast<float>(code); };
    switch (m.type) {
        case PanelType::q2_of_q4_0:
            return number(pair(block + 64 + 128 * group, output, k) - 2);
        case PanelType::q3_of_q4_0: {
            const std::uint8_t* const codes = block + 64 + 192 * group;
            return number((pair(codes, output, k) | single(codes + 128, output, k) << 2) - 4);
        }
        case PanelType::q5_of_q8_0: {
            const std::uint8_t* const codes = block + 64 + 320 * group;
            return number((nibble(codes, output, k) | single(codes + 256, output, k) << 4) - 16);
        }
        case PanelType::iq4_nl_of_q8_0:
            return number(kIq4Numbers[nibble(block + 64 + 256 * group, output, k)]);
        case PanelType::q3_of_q6_k: {
            const std::uint8_t* const codes = block + 320 + 192 * group;
            const int code = (pair(codes, output, k) | single(codes + 128, output, k) << 2) - 4;
            const int scale = static_cast<std::int8_t>(block[64 + 16 * (input / 16) + output]);
            return half_at(block, output) * static_cast<float>(scale) * static_cast<float>(code);
        }
        default:
            ADD_FAILURE() << "not narrow";
            return 0.0f;
    }
}

class NarrowPanels : public testing::TestWithParam<Narrow> {
protected:
    std::int64_t unit() const { return GetParam().quant_type == QuantType::q6_k ? 256 : 32; }
    TensorView view(const std::vector<std::byte>& bytes, std::int64_t rows, std::int64_t cols) const {
        return {GetParam().quant_type, rows, cols, bytes.data()};
    }

    Random random_{11};
    Arena arena_;
    ThreadPool pool_{2};
};

TEST_P(NarrowPanels, EveryValueIsThatOfTheFile) {
    for (const std::int64_t outputs : {1, 16, 37}) {
        for (const std::int64_t blocks : {1, 2, 3}) {
            const std::int64_t inputs = unit() * blocks;
            const auto bytes = blocks_of(GetParam(), outputs, inputs, random_);
            const TensorView tensor = view(bytes, outputs, inputs);
            const PanelMatrix matrix = pack(tensor, arena_, pool_);
            // A single small block may have few numbers; its panels may be narrower still.
            if (outputs > 1) {
                ASSERT_EQ(matrix.type, GetParam().type);
                const PanelFormat format = panel_format(matrix.type);
                ASSERT_EQ(format.block_bytes, GetParam().panel_bytes_per_group * format.block_inputs / 32);
            }
            ASSERT_EQ(matrix.memory.bytes, packed_bytes(tensor));
            if (matrix.type != GetParam().type) continue;
            std::vector<float> row(static_cast<std::size_t>(inputs));
            for (std::int64_t o = 0; o < outputs; ++o) {
                dequantize_row(tensor, o, row);
                for (std::int64_t i = 0; i < inputs; ++i) {
                    ASSERT_EQ(unpack(matrix, o, i), row[static_cast<std::size_t>(i)]) << o << ", " << i;
                }
            }
        }
    }
}

TEST_P(NarrowPanels, OneNumberBeyondNeedsWiderOnes) {
    for (const int wide : GetParam().one_beyond()) {
        const auto bytes = blocks_of(GetParam(), 16, unit(), random_, wide);
        EXPECT_EQ(panel_type(view(bytes, 16, unit())), own_panel_type(GetParam().quant_type)) << wide;
    }
}

// The same rows with one more, which has a number that needs the type's own panels.
TEST_P(NarrowPanels, ProductsHaveTheBitsOfTheOwnPanels) {
    for (const std::string& set : usable_isas()) {
        const IsaKernels& isa = select_isa(set);
        for (const std::int64_t outputs : {16, 37}) {
            const std::int64_t inputs = unit() * 3;
            auto bytes = blocks_of(GetParam(), outputs, inputs, random_);
            const PanelMatrix narrow = pack(view(bytes, outputs, inputs), arena_, pool_);
            ASSERT_EQ(narrow.type, GetParam().type);
            const auto last = blocks_of(GetParam(), 1, inputs, random_, GetParam().one_beyond().front());
            bytes.insert(bytes.end(), last.begin(), last.end());
            const PanelMatrix own = pack(view(bytes, outputs + 1, inputs), arena_, pool_);
            ASSERT_EQ(own.type, own_panel_type(GetParam().quant_type));
            for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 33}) {
                ActivationTiles tiles;
                tiles.reserve(64, inputs);
                tiles.set_rows(rows, isa);
                for (int row = 0; row < rows; ++row) {
                    const auto x = bell(random_, static_cast<std::size_t>(inputs), row % 3 == 2 ? 100.0f : 1.0f);
                    tiles.fill(isa, row, x.data(), static_cast<int>(inputs), true, false);
                }
                std::vector<float> results[2];
                for (const PanelMatrix* m : {&narrow, &own}) {
                    const std::int64_t stride = m->padded_outputs();
                    std::vector<float> y(static_cast<std::size_t>(rows * stride));
                    for (int i = 0; i < tiles.tiles(); ++i) {
                        isa.linear({m->type, m->panel(0), m->panel_bytes, m->blocks, 0, m->panels}, tiles.tile(i),
                                   y.data() + tiles.first_row(i) * stride, stride, Store::set);
                    }
                    for (int row = 0; row < rows; ++row) {
                        const auto from = y.begin() + row * stride;
                        results[m == &own].insert(results[m == &own].end(), from, from + outputs);
                    }
                }
                ASSERT_EQ(0, std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)))
                    << set << ", " << outputs << " outputs, " << rows << " rows";
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowPanels, testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

// Estimates count what formats say of their codes by construction. Blocks of any bits have no other codes, and need all
// of these.
TEST(NarrowPanels, FormatsSayWhatTheirCodesTake) {
    Random random{7};
    int narrowed = 0;
    for (const StoredType& type : stored_types()) {
        if (type.packing != nullptr) continue;
        SCOPED_TRACE(type.name);
        constexpr std::int64_t kRows = 16, kCols = 512;
        std::vector<std::byte> file(static_cast<std::size_t>(type.stored_bytes(kRows * kCols)));
        for (std::byte& byte : file) {
            auto bits = static_cast<unsigned>(random() & 255u);
            if (type.name == "TQ2_0") bits &= ~(bits >> 1 & 0x55u);  // codes 0 to 2
            byte = static_cast<std::byte>(bits);
        }
        std::vector<std::byte> packed(static_cast<std::size_t>(type.packed_bytes(kRows * kCols)));
        type.pack(file.data(), kRows * kCols / type.block_elements, packed.data());
        const TensorView view{type.packed, kRows, kCols, packed.data()};
        EXPECT_EQ(kernels::cpu::packed_bytes(view), narrow_bytes(type.packed, codes_of(type), kRows * kCols));
        EXPECT_LT(kernels::cpu::packed_bytes(view), type.packed_bytes(kRows * kCols));
        ++narrowed;
    }
    EXPECT_EQ(narrowed, 7);
}

}  // namespace
}  // namespace foresay::test
