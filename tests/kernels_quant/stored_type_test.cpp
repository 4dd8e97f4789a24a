// Types of files that no kernel multiplies: their values, against an independent decoder, and that what the kernels get
// holds the same numbers.
#include "kernels/quant/stored_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/q3_k.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/tq1_0.h"

namespace foresay::kernels {
namespace {

constexpr std::int64_t kBlocks = 64;

// Where the float16 scales of a block lie.
const std::map<std::string_view, std::vector<std::int64_t>> kScales = {
    {"Q4_1", {0, 2}}, {"Q5_0", {0}},   {"Q5_1", {0, 2}}, {"Q2_K", {80, 82}}, {"Q3_K", {108}},
    {"IQ4_NL", {0}},  {"IQ4_XS", {0}}, {"TQ1_0", {52}},  {"TQ2_0", {64}},    {"NVFP4", {}},
    {"Q1_0", {0}},    {"Q2_0", {0}},   {"IQ2_XXS", {0}}, {"IQ2_XS", {0}},    {"IQ2_S", {0}},
    {"IQ3_XXS", {0}}, {"IQ3_S", {0}},  {"IQ1_S", {0}},   {"IQ1_M", {54}}};

// Blocks of random bytes (SplitMix64 from the type's number) with finite scales.
std::vector<std::byte> random_blocks(const StoredType& type) {
    std::uint64_t state = type.ggml_type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(kBlocks * type.block_bytes));
    for (std::byte& byte : bytes) {
        std::uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        byte = static_cast<std::byte>((z ^ (z >> 31)) >> 56);
    }
    for (std::int64_t block = 0; block < kBlocks; ++block) {
        for (const std::int64_t at : kScales.at(type.name)) {
            bytes[static_cast<std::size_t>(block * type.block_bytes + at + 1)] &= std::byte{0xbf};
        }
    }
    return bytes;
}

std::vector<float> values_of(const StoredType& type, const std::vector<std::byte>& bytes) {
    std::vector<float> values(static_cast<std::size_t>(kBlocks * type.block_elements));
    for (std::int64_t b = 0; b < kBlocks; ++b) {
        type.dequantize_block(bytes.data() + b * type.block_bytes, values.data() + b * type.block_elements);
    }
    return values;
}

// FNV-1a over the bits of the values.
std::uint64_t hash(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float value : values) {
        for (int shift = 0; shift < 32; shift += 8) {
            hash = (hash ^ (std::bit_cast<std::uint32_t>(value) >> shift & 0xffu)) * 0x100000001b3u;
        }
    }
    return hash;
}

// The hashes are of what ggml's dequantize_row_* make of the same bytes.
TEST(StoredTypes, ValuesAreThoseOfGgmlBitForBit) {
    const std::map<std::string_view, std::uint64_t> expected = {
        {"Q4_1", 0x7c0d1ea4b24388d8},    {"Q5_0", 0x1082e3a4f715b9aa},   {"Q5_1", 0x82e330fd821325d1},
        {"Q2_K", 0xf44e31cb3156635f},    {"Q3_K", 0x68b61712c3d14022},   {"IQ4_NL", 0xcf0adcb70db6acac},
        {"IQ4_XS", 0x6206a2c62c0c82ed},  {"TQ1_0", 0x702eadc1e3aadcce},  {"TQ2_0", 0xb1745b9cda84b1dc},
        {"IQ2_XXS", 0xc78e52141d00cf38}, {"IQ2_XS", 0x9be72fe8cd7bde9f}, {"IQ2_S", 0x0b9c30a8d5a50385},
        {"IQ3_XXS", 0x04ac29d48677b44b}, {"IQ3_S", 0xeb3ea625524d68c6},  {"IQ1_S", 0xe6542b8d90db8568},
        {"IQ1_M", 0xe8e9797182b22b68},   {"NVFP4", 0xd91df9cb22bdb64b},  {"Q1_0", 0x9a45cb248469f4a5},
        {"Q2_0", 0xc849247229f9ed8a},
    };
    ASSERT_EQ(stored_types().size(), expected.size());
    for (const StoredType& type : stored_types()) {
        ASSERT_TRUE(expected.contains(type.name)) << type.name;
        EXPECT_EQ(hash(values_of(type, random_blocks(type))), expected.at(type.name)) << type.name;
    }
}

TEST(StoredTypes, PackedBlocksHoldTheSameNumbers) {
    for (const StoredType& type : stored_types()) {
        const std::vector<std::byte> bytes = random_blocks(type);
        const std::vector<float> expected = values_of(type, bytes);
        const auto elements = static_cast<std::int64_t>(expected.size());
        ASSERT_EQ(type.stored_bytes(elements), static_cast<std::int64_t>(bytes.size()));
        std::vector<std::byte> packed(static_cast<std::size_t>(type.packed_bytes(elements)), std::byte{0xa5});
        type.pack(bytes.data(), kBlocks, packed.data());
        std::vector<float> values(expected.size());
        dequantize_row({type.packed, 1, elements, packed.data(), type.packing}, 0, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
                << type.name << " value " << i;
        }
        if (type.packing == nullptr) continue;
        // And what a backend without packed rows gets.
        const QuantType kept = type.packing->plain;
        std::vector<std::byte> plain(static_cast<std::size_t>(row_bytes(kept, elements)), std::byte{0xa5});
        unpack_to_plain(*type.packing, packed.data(), elements, plain.data());
        dequantize_row({kept, 1, elements, plain.data()}, 0, values);
        EXPECT_EQ(values, expected) << type.name << " as " << info(kept).name;
    }
}

// Whatever a block holds, the places in grids and tables that it names exist: all bytes alike, each of the 256, and a
// byte of all bits at each place among zeros. A sanitizer, or numbers that differ, would tell.
TEST(StoredTypes, NoBlockReadsBeyondItsGrid) {
    for (const StoredType& type : stored_types()) {
        const auto size = static_cast<std::size_t>(type.block_bytes);
        std::vector<std::byte> bytes;
        for (int value = 0; value < 256; ++value) bytes.insert(bytes.end(), size, static_cast<std::byte>(value));
        for (std::size_t at = 0; at < size; ++at) {
            bytes.insert(bytes.end(), size, std::byte{0});
            bytes[bytes.size() - size + at] = std::byte{0xff};
        }
        const auto blocks = static_cast<std::int64_t>(bytes.size() / size);
        std::vector<std::byte> packed(static_cast<std::size_t>(type.packed_bytes(type.block_elements)));
        std::vector<float> expected(static_cast<std::size_t>(type.block_elements)), found(expected.size());
        for (std::int64_t b = 0; b < blocks; ++b) {
            const std::byte* const block = bytes.data() + b * type.block_bytes;
            type.dequantize_block(block, expected.data());
            type.pack(block, 1, packed.data());
            dequantize_row({type.packed, 1, type.block_elements, packed.data(), type.packing}, 0, found);
            for (std::size_t i = 0; i < found.size(); ++i) {
                if (!std::isfinite(expected[i])) continue;  // under a scale that is none
                ASSERT_EQ(found[i], expected[i]) << type.name << " block " << b << " value " << i;
            }
        }
    }
}

TEST(StoredTypes, AreFoundByTheirNumbers) {
    std::uint32_t last = 0;
    for (const StoredType& type : stored_types()) {
        EXPECT_LT(last, type.ggml_type);
        last = type.ggml_type;
        EXPECT_EQ(stored_type(type.ggml_type), &type);
        EXPECT_EQ(type.block_elements % info(type.packed).block_elements, 0) << type.name;
    }
    EXPECT_EQ(stored_type(2), nullptr) << "Q4_0 is multiplied as it is";
    EXPECT_EQ(stored_type(97), nullptr);
}

// Layouts by hand, so that a mistake shared with the other decoder would be seen.
TEST(StoredTypes, Q5_0TakesItsFifthBitsFromOneWord) {
    Q5_0::Block block{.d = StoredF16::from_bits(0x3800), .fifth = {}, .low = {}};  // 0.5
    block.fifth[0] = 0x08;                                                         // of value 3
    block.fifth[3] = 0x80;                                                         // of value 31
    block.low[3] = 0x2f;                                                           // value 3: 15, value 19: 2
    EXPECT_EQ(Q5_0::dequantize(block, 3), 7.5f);                                   // (31 - 16) / 2
    EXPECT_EQ(Q5_0::dequantize(block, 19), -7.0f);                                 // (2 - 16) / 2
    EXPECT_EQ(Q5_0::dequantize(block, 31), 0.0f);
    EXPECT_EQ(Q5_0::dequantize(block, 0), -8.0f);
}

TEST(StoredTypes, Q3_KCodesReachFromMinus4To3) {
    Q3_K::Block block{};
    block.d = StoredF16::from_bits(0x3c00);
    block.scales[0] = 0x51;  // scale 0: low bits 1, scale 8: low bits 5
    block.scales[8] = 0x21;  // scale 0: upper bits 1, scale 8: 2
    EXPECT_EQ(Q3_K::scale(block, 0), 17);
    EXPECT_EQ(Q3_K::scale(block, 8), 37);
    block.lower[32 + 2] = 3;  // value 130
    block.upper[2] = 0x10;
    EXPECT_EQ(Q3_K::dequantize(block, 130), 15.0f);  // (37 - 32) 3
    EXPECT_EQ(Q3_K::dequantize(block, 131), -20.0f);
    EXPECT_EQ(Q3_K::dequantize(block, 0), 60.0f);  // (17 - 32) -4
}

TEST(StoredTypes, IQ4_NLNumbersRise) {
    IQ4_NL::Block block{.d = StoredF16::from_bits(0x3c00), .indices = {}};
    for (int j = 0; j < 16; ++j) block.indices[j] = static_cast<std::uint8_t>(j | (15 - j) << 4);
    for (int j = 0; j < 16; ++j) {
        EXPECT_EQ(IQ4_NL::dequantize(block, j), static_cast<float>(kIq4Numbers[j]));
        EXPECT_EQ(IQ4_NL::dequantize(block, j + 16), static_cast<float>(kIq4Numbers[15 - j]));
    }
    for (int j = 1; j < 16; ++j) {
        EXPECT_GT(kIq4Numbers[j], kIq4Numbers[j - 1]);
    }
}

// Five digits in base three, and the fraction of 256 that stands for them.
TEST(StoredTypes, TQ1_0DigitsComeFromFractions) {
    TQ1_0::Block block{.codes = {}, .d = StoredF16::from_bits(0x3c00)};
    const int digits[5] = {2, 0, 1, 1, 2};
    int number = 0;
    for (const int digit : digits) number = number * 3 + digit;
    block.codes[7] = static_cast<std::uint8_t>((number * 256 + 242) / 243);
    for (int n = 0; n < 5; ++n) EXPECT_EQ(TQ1_0::dequantize(block, 32 * n + 7), static_cast<float>(digits[n] - 1));
}

TEST(StoredTypes, NVFP4ScalesAreEightBitFloats) {
    EXPECT_EQ(NVFP4::scale(0), 0.0f);
    EXPECT_EQ(NVFP4::scale(1), std::ldexp(1.0f, -9));
    EXPECT_EQ(NVFP4::scale(0x38), 1.0f);
    EXPECT_EQ(NVFP4::scale(0x7e), 448.0f);
    EXPECT_EQ(NVFP4::scale(0x7f), 0.0f);
}

}  // namespace
}  // namespace foresay::kernels
