// Packing keeps every number: values read back from the panel layout, as kernels/cpu/panel_blocks.h describes it, are
// those of the file.

#include <gtest/gtest.h>

#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quant/bf16.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;

float half_at(const std::uint8_t* p, int output) {
    return f16_to_f32(static_cast<std::uint16_t>(p[2 * output] | p[2 * output + 1] << 8));
}

// Code of input `k` of a group of 32 at `p`: its byte is in vector g = k / 4, at 4 * output + k % 4.
int nibble(const std::uint8_t* p, int output, int k) {
    const int g = k / 4;
    const std::uint8_t byte = p[64 * (g % 4) + 4 * output + k % 4];
    return g < 4 ? byte & 15 : byte >> 4;
}
int fifth_bit(const std::uint8_t* p, int output, int k) { return p[4 * output + k % 4] >> (k / 4) & 1; }
int upper_two_bits(const std::uint8_t* p, int output, int k) {
    const int g = k / 4;
    return p[64 * (g / 4) + 4 * output + k % 4] >> (2 * (g % 4)) & 3;
}

float unpack_k(const std::uint8_t* block, int output, int input, bool five) {
    const int group = input / 32, k = input % 32;
    const std::uint8_t* scales = block + 64 + 48 * (group / 2);
    const bool b = group % 2 == 1;
    const int low = scales[(b ? 16 : 0) + output], high = scales[32 + output] >> (b ? 4 : 0);
    const int scale = (low & 15) | (high & 3) << 4, minimum = low >> 4 | (high >> 2 & 3) << 4;
    const std::uint8_t* codes = block + 256 + (five ? 320 : 256) * group;
    const int code = nibble(codes, output, k) | (five ? fifth_bit(codes + 256, output, k) << 4 : 0);
    const float step = half_at(block, output) * static_cast<float>(scale);
    return step * static_cast<float>(code) - half_at(block + 32, output) * static_cast<float>(minimum);
}

float unpack(const PanelMatrix& m, std::int64_t o, std::int64_t i) {
    const PanelFormat format = panel_format(m.type);
    const std::uint8_t* block =
        m.panel(static_cast<int>(o / 16)) + i / format.block_inputs * static_cast<std::int64_t>(format.block_bytes);
    const int output = static_cast<int>(o % 16), input = static_cast<int>(i % format.block_inputs);
    switch (m.quant_type) {
        case QuantType::f32: {
            float value;
            std::memcpy(&value, block + 4 * output, 4);
            return value;
        }
        case QuantType::f16:
            return half_at(block, output);
        case QuantType::bf16:
            return bf16_to_f32(static_cast<std::uint16_t>(block[2 * output] | block[2 * output + 1] << 8));
        case QuantType::q4_0: {
            const int half = input / 32;
            const int code = nibble(block + 64 + 256 * half, output, input % 32);
            return half_at(block + 32 * half, output) * static_cast<float>(code - 8);
        }
        case QuantType::mxfp4: {
            constexpr int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
            const int half = input / 32;
            const std::uint8_t* d = block + 32 * half + 2 * output;
            const float scale = bf16_to_f32(static_cast<std::uint16_t>(d[0] | d[1] << 8));
            return scale * static_cast<float>(kTwice[nibble(block + 64 + 256 * half, output, input % 32)]);
        }
        case QuantType::q8_0: {
            const int half = input / 32, k = input % 32;
            const int code = block[64 + 512 * half + 64 * (k / 4) + 4 * output + k % 4];
            return half_at(block + 32 * half, output) * static_cast<float>(code - 128);
        }
        case QuantType::q4_k:
            return unpack_k(block, output, input, false);
        case QuantType::q5_k:
            return unpack_k(block, output, input, true);
        case QuantType::q6_k: {
            const int group = input / 32, k = input % 32;
            const std::uint8_t* codes = block + 320 + 384 * group;
            const int code = nibble(codes, output, k) | upper_two_bits(codes + 256, output, k) << 4;
            const int scale = static_cast<std::int8_t>(block[64 + 16 * (input / 16) + output]);
            return half_at(block, output) * static_cast<float>(scale) * static_cast<float>(code - 32);
        }
        case QuantType::packed:  // packed_test.cpp
            break;
    }
    return 0.0f;
}

class Panels : public testing::TestWithParam<QuantType> {};

TEST_P(Panels, EveryValueIsThatOfTheFile) {
    const QuantType quant_type = GetParam();
    Random random(3);
    Arena arena;
    ThreadPool pool(2);
    const std::int64_t block = info(quant_type).block_elements;
    for (const std::int64_t outputs : {1, 15, 16, 17, 70}) {
        for (const std::int64_t blocks : {1, 2, 3, 5}) {
            for (const bool bits : {false, true}) {
                const std::int64_t inputs = block * blocks;
                const Tensor tensor = bits ? Tensor::random_bits(random, quant_type, outputs, inputs)
                                           : Tensor::random(random, quant_type, outputs, inputs);
                const PanelMatrix matrix = pack(tensor.view(), arena, pool);
                ASSERT_EQ(matrix.type, own_panel_type(quant_type)) << "narrow ones: narrow_panels_test.cpp";
                ASSERT_EQ(matrix.memory.bytes, packed_bytes(tensor.view()));
                ASSERT_EQ(matrix.panels, (outputs + 15) / 16);
                ASSERT_EQ(matrix.panel_bytes * matrix.panels, matrix.memory.bytes);
                const std::vector<float> values = tensor.values();
                for (std::int64_t o = 0; o < outputs; ++o) {
                    for (std::int64_t i = 0; i < inputs; ++i) {
                        ASSERT_EQ(unpack(matrix, o, i), values[static_cast<std::size_t>(o * inputs + i)])
                            << "output " << o << " of " << outputs << ", input " << i << " of " << inputs;
                    }
                }
                // The padding of panels adds nothing.
                const std::int64_t padded =
                    static_cast<std::int64_t>(matrix.blocks) * panel_format(matrix.type).block_inputs;
                for (std::int64_t o = 0; o < matrix.padded_outputs(); ++o) {
                    for (std::int64_t i = o < outputs ? inputs : 0; i < padded; ++i)
                        ASSERT_EQ(unpack(matrix, o, i), 0.0f) << "padding, output " << o << ", input " << i;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Panels, testing::ValuesIn(kAllQuantTypes),
                         [](const auto& info) { return std::string(kernels::info(info.param).name); });

TEST(Arena, GivesAlignedZeroedMemoryThatOutlivesIt) {
    std::vector<Block> blocks;
    {
        Arena arena;
        for (const std::int64_t bytes : {1, 63, 64, 65, 4096, 1000000, 9 << 20, 40 << 20, 5})
            blocks.push_back(arena.allocate(bytes));
        blocks.push_back(Arena::allocate_alone(100));
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(blocks[b].data) % 64, 0u);
        for (std::int64_t i = 0; i < blocks[b].bytes; i += 61) ASSERT_EQ(blocks[b].data[i], std::byte{0});
        std::memset(blocks[b].data, static_cast<int>(b + 1), static_cast<std::size_t>(blocks[b].bytes));
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        for (std::int64_t i = 0; i < blocks[b].bytes; i += 61)
            ASSERT_EQ(blocks[b].data[i], static_cast<std::byte>(b + 1)) << "blocks overlap";
    }
}

}  // namespace
}  // namespace foresay::test
