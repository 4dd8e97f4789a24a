// Inputs of experts that have an order, without a device: what changes places in shared memory has the bits of what is
// loaded input by input, in an emulation of the threads (emulated/emulation.h).
#include "tests/cuda_linear/emulated/emulation.h"
// First: it makes host code of what the others have for devices.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "kernels/cuda/experts/expert_operand.cuh"
#include "kernels/cuda/experts/images.cuh"

namespace foresay::kernels::cuda {
namespace {

using Random = std::mt19937;
constexpr int kExperts = 3, kRowsOfX = 11;

// Rows of all kinds, a norm, and an order for each expert.
struct Inputs {
    int inputs;
    std::vector<float4> x, weight, bias;
    std::vector<float2> stats;
    std::vector<ushort4> order;

    explicit Inputs(int of, Random& random) : inputs(of) {
        const auto fill = [&](std::vector<float4>& to, int rows) {
            to.resize(static_cast<std::size_t>(rows * inputs / 4));
            for (int i = 0; i < rows * inputs; ++i) {
                const int row = i / inputs;
                const float value = static_cast<float>(random() % 20011) / 4000.0f - 2.5f;
                (&to[0].x)[i] = row == 3 ? 0.0f : value * (row == 5 ? 1e9f : row == 6 ? 1e-30f : 1.0f);
            }
        };
        fill(x, kRowsOfX);
        fill(weight, 1);
        fill(bias, 1);
        for (int row = 0; row < kRowsOfX; ++row) {
            stats.push_back({0.01f * static_cast<float>(row), 0.7f + 0.1f * static_cast<float>(row)});
        }
        order.resize(static_cast<std::size_t>(kExperts * inputs / 4));
        for (int expert = 0; expert < kExperts; ++expert) {
            std::uint16_t* const own = &order[0].x + expert * inputs;
            std::iota(own, own + inputs, std::uint16_t{0});
            std::shuffle(own, own + inputs, random);
        }
    }
    NormArgs norm(bool with_bias) const {
        NormArgs args;
        args.weight = &weight[0].x;
        if (with_bias) args.bias = &bias[0].x;
        return args;
    }
};

TEST(OrderedInputs, ImagesHaveTheBitsOfInputsLoadedOneByOne) {
    Random random(3);
    // Half a block is missing; several stretches; fewer inputs than a stretch has.
    for (const int width : {2080, 2048, 96}) {
        Inputs of(width, random);
        // Experts 1, 3 and 2 of all have 9, 1 and 3 slots; expert 1 is the first here. Two slots a row.
        const int counts[] = {9, 1, 3}, ids[] = {1, 3, 2};
        std::vector<std::int32_t> order(8 * 4, -1), choice(2 * kRowsOfX, 0);
        std::vector<GroupEight> eights;
        int slot = 0;
        for (int expert = 0; expert < kExperts; ++expert) {
            const int first = 8 * static_cast<int>(eights.size()), all = (counts[expert] + 7) / 8;
            for (int i = 0; i < counts[expert]; ++i, slot = (slot + 5) % (2 * kRowsOfX)) {
                order[static_cast<std::size_t>(first + i)] = slot;
                choice[static_cast<std::size_t>(slot)] = ids[expert];
            }
            for (int e = 0; e < all; ++e) eights.push_back({first, all | std::min(8, counts[expert] - 8 * e) << 16});
        }
        ImagesCall call;
        call.slots = 2 * kRowsOfX;
        call.used = 2;
        call.inputs = width;
        call.stride = (width + 63) / 64 * 64;
        call.x = &of.x[0].x;
        call.order = &of.order[0].x;
        call.first_expert = 1;
        call.to.order = order.data();
        call.to.choice = choice.data();
        call.to.eights = eights.data();
        call.to.stats = of.stats.data();
        for (const int norm : {0, 1, 2}) {
            call.norm = norm > 0 ? of.norm(norm == 2) : NormArgs{};
            const auto images_of = [&](const auto& put) {
                std::vector<uint4> images(static_cast<std::size_t>(8 * 4 * call.stride * 2 / 16),
                                          uint4{~0u, ~0u, ~0u, ~0u});
                std::vector<float> back(8 * 4, NAN);
                call.to.images = reinterpret_cast<std::uint8_t*>(images.data());
                call.to.back = back.data();
                for (unsigned eight = 0; eight < eights.size(); ++eight) {
                    std::memset(emulated::shared_memory, 0xff, 1 << 20);
                    emulated::block_index = {eight, 0};
                    emulated::run(32 * kImageWarps,
                                  [&] { put(call, reinterpret_cast<std::uint8_t*>(emulated::shared_memory)); });
                }
                std::vector<std::uint32_t> bits(4 * images.size());
                std::memcpy(bits.data(), images.data(), 4 * bits.size());
                for (const float value : back) bits.push_back(__float_as_uint(value));
                return bits;
            };
            const auto want = images_of([](const ImagesCall& c, std::uint8_t* memory) { put_images(c, memory); });
            const auto got =
                images_of([](const ImagesCall& c, std::uint8_t* memory) { put_ordered_images(c, memory); });
            EXPECT_EQ(std::count(want.begin(), want.end(), ~0u), 0) << width;
            EXPECT_TRUE(got == want) << width << " inputs, norm " << norm;
        }
    }
}

TEST(OrderedInputs, OperandsHaveTheBitsOfInputsLoadedOneByOne) {
    using Operand = ExpertOperand<QuantType::packed>;
    using Unit = ExpertUnit<QuantType::packed>;
    Random random(5);
    // One to three units a warp, the last one not whole.
    for (const int width : {2080, 768, 160}) {
        Inputs of(width, random);
        const int blocks = (width + 63) / 64, units = (blocks + 1) / 2, warps = std::min(units, 8);
        for (const int count : {1, 3, 8}) {
            const int room = count == 3 ? 5 : count, kept = (units + warps - 1) / warps;
            ExpertTile tile{2, count, {}};
            for (int i = 0; i < count; ++i) tile.slots[i] = (2 * i + 1) % (2 * kRowsOfX);
            ProductsCall call;
            call.gate_up = true;
            call.used = 2;
            call.inputs = width;
            call.blocks = blocks;
            call.x = &of.x[0].x;
            call.packed.order = &of.order[0].x;
            call.with.stats = of.stats.data();
            for (const int norm : {0, 1, 2}) {
                call.norm = norm > 0 ? of.norm(norm == 2) : NormArgs{};
                const std::uint32_t warp_bytes = static_cast<std::uint32_t>(kept * Unit::input_bytes(room));
                const std::uint32_t row_bytes = static_cast<std::uint32_t>(width) * 4;
                const auto memory_of = [&](bool in_order) {
                    std::memset(emulated::shared_memory, 0, 1 << 20);
                    emulated::run(32 * warps, [&] {
                        const int warp = emulated::number() / 32, lane = emulated::number() % 32;
                        TileRows rows(&tile, lane);
                        rows.locate(call);
                        const std::uint32_t inputs = row_bytes + static_cast<std::uint32_t>(warp) * warp_bytes;
                        if (in_order) {
                            Operand::put_in_order(call, rows, 0, inputs, room, warp, warps, lane);
                            return;
                        }
                        for (int i = 0; warp + i * warps < units; ++i) {
                            Operand::put(call, rows, (warp + i * warps) * Unit::kInputs,
                                         inputs + static_cast<std::uint32_t>(i * Unit::input_bytes(room)), room, lane);
                        }
                    });
                    // What is read: rows that exist, their factors, and their sums.
                    std::vector<std::byte> read;
                    const auto add = [&](std::uint32_t at, int bytes) {
                        const std::byte* const from = emulated::shared_memory + at;
                        read.insert(read.end(), from, from + bytes);
                    };
                    for (int unit = 0; unit < units; ++unit) {
                        const std::uint32_t at = row_bytes + static_cast<std::uint32_t>(unit % warps) * warp_bytes +
                                                 static_cast<std::uint32_t>(unit / warps * Unit::input_bytes(room));
                        add(at, count * Unit::kRowBytes - 64);
                        add(at + static_cast<std::uint32_t>(room * Unit::kRowBytes), 4 * count);
                        add(at + static_cast<std::uint32_t>(room * Unit::kRowBytes + 4 * kExpertRows), Unit::kSumBytes);
                    }
                    return read;
                };
                const auto want = memory_of(false), got = memory_of(true);
                EXPECT_TRUE(got == want) << width << " inputs, " << count << " rows, norm " << norm;
                EXPECT_GT(std::count_if(want.begin(), want.end(), [](std::byte b) { return b != std::byte{0}; }),
                          static_cast<std::ptrdiff_t>(want.size() / 4));
            }
        }
    }
}

}  // namespace
}  // namespace foresay::kernels::cuda
