// The decode kernel fits the shared memory of every card that kernels are compiled for, with enough rows to verify a
// draft. And that prompts can do without a library, and many rows take the tiles that were measured to be fast.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.h"
#include "kernels/cuda/prefill/cublaslt.h"
#include "kernels/cuda/weights/panel_format.h"
#include "kernels/cuda_info.h"
#include "kernels/quant/mxfp4.h"

namespace foresay::kernels::cuda {
namespace {

constexpr QuantType kPlanned[] = {QuantType::q4_0, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k,
                                  QuantType::q6_k, QuantType::f16,  QuantType::bf16, QuantType::mxfp4};

struct Card {
    int architecture;
    std::size_t shared_bytes;  // of a thread block
    int processors;
};
constexpr Card kCards[] = {{80, 163 * 1024, 108}, {86, 99 * 1024, 82},   {89, 99 * 1024, 128},
                           {90, 227 * 1024, 132}, {120, 99 * 1024, 170}, {120, 99 * 1024, 36}};

// A layer's matrices and its attention, with the largest inputs that a thread block takes.
std::vector<GemvOp> layer(QuantType quant_type) {
    GemvOp attend;
    attend.kind = OpKind::attend;
    GemvOp matrix;
    matrix.inputs = kSplitInputs;
    matrix.panel_count = 128;
    matrix.blocks = matrix.inputs / block_format(quant_type).inputs;
    GemvOp wide = matrix;
    wide.inputs = 14336;
    wide.blocks = wide.inputs / block_format(quant_type).inputs;
    return {matrix, attend, wide};
}

GemvScratch scratch_of(int architecture) {
    GemvScratch scratch;
    scratch.shared_start = 1024;
    scratch.little_shared = has_little_shared(architecture);
    scratch.partial_floats = std::size_t{12} << 20;
    return scratch;
}

TEST(GemvPlan, EveryCardHasRoomForEightRows) {
    for (const Card& card : kCards) {
        const GemvScratch scratch = scratch_of(card.architecture);
        for (const QuantType quant_type : kPlanned) {
            for (int rows = 1; rows <= 8; ++rows) {
                SCOPED_TRACE(testing::Message()
                             << "sm_" << card.architecture << ", " << info(quant_type).name << ", " << rows << " rows");
                std::vector<GemvOp> ops = layer(quant_type);
                GemvPlan plan;
                ASSERT_TRUE(plan_gemv(quant_type, scratch, card.shared_bytes, card.processors, 2, ops, rows, plan));
                EXPECT_LE(static_cast<std::size_t>(plan.shared_bytes), card.shared_bytes);
                EXPECT_GE(plan.ring_slots, 2);
            }
        }
    }
}

TEST(GemvPlan, LargeCardsHaveRoomForSixteenRows) {
    const GemvScratch scratch = scratch_of(90);
    for (const QuantType quant_type : kPlanned) {
        SCOPED_TRACE(info(quant_type).name);
        std::vector<GemvOp> ops = layer(quant_type);
        GemvPlan plan;
        EXPECT_TRUE(plan_gemv(quant_type, scratch, 227 * 1024, 132, 2, ops, 16, plan));
    }
}

// Their activations lie in shared memory, all of them, so small cards take fewer rows at a time.
TEST(GemvPlan, PackedRowsFitEveryCard) {
    for (const Card& card : kCards) {
        const bool little = has_little_shared(card.architecture);
        for (int rows = 1; rows <= (little ? 2 : card.architecture == 80 ? 3 : 8); ++rows) {
            SCOPED_TRACE(testing::Message() << "sm_" << card.architecture << ", " << rows << " rows");
            std::vector<GemvOp> ops = layer(QuantType::packed);
            GemvPlan plan;
            ASSERT_TRUE(plan_gemv(QuantType::packed, scratch_of(card.architecture), card.shared_bytes, card.processors,
                                  2, ops, rows, plan));
            EXPECT_LE(static_cast<std::size_t>(plan.shared_bytes), card.shared_bytes);
            // Up to four rows whose inputs have an order change places there.
            EXPECT_GE(plan.row_stats_at - plan.upper_rows_at, std::min(rows, 4) * kSplitInputs * 4);
        }
    }
    std::vector<GemvOp> ops = layer(QuantType::packed);
    GemvPlan plan;
    EXPECT_FALSE(plan_gemv(QuantType::packed, scratch_of(90), 227 * 1024, 132, 1, ops, 9, plan)) << "a launch takes 8";
}

// K-quants of several types share a launch, whose ring has slots for the largest of them.
TEST(GemvPlan, MixedLaunchesFitEveryCard) {
    constexpr QuantType kMix[] = {kSmallestOfMix, kMiddleOfMix, kLargestOfMix};
    for (const bool little : {false, true}) {
        for (const int tiles : {1, 2}) {
            for (const QuantType quant_type : kMix) {
                EXPECT_TRUE(share_launch(quant_type, kLargestOfMix));
                EXPECT_EQ(gemv_warps(quant_type), gemv_warps(kLargestOfMix));
                EXPECT_EQ(block_format(quant_type).inputs, block_format(kLargestOfMix).inputs);
                EXPECT_LE(block_format(quant_type).bytes, block_format(kLargestOfMix).bytes);
                EXPECT_EQ(chunk_blocks(quant_type, tiles, little), chunk_blocks(kLargestOfMix, tiles, little));
            }
        }
    }
    for (const Card& card : kCards) {
        for (int rows = 1; rows <= (card.architecture == 90 ? 16 : 8); ++rows) {
            SCOPED_TRACE(testing::Message() << "sm_" << card.architecture << ", " << rows << " rows");
            std::vector<GemvOp> ops;
            for (const QuantType quant_type : kMix) {
                for (GemvOp op : layer(quant_type)) {
                    if (op.kind == OpKind::attend && quant_type != kLargestOfMix) continue;
                    op.quant_type = quant_type;
                    ops.push_back(op);
                }
            }
            GemvPlan plan;
            ASSERT_TRUE(plan_gemv(kLargestOfMix, scratch_of(card.architecture), card.shared_bytes, card.processors, 1,
                                  ops, rows, plan));
            EXPECT_LE(static_cast<std::size_t>(plan.shared_bytes), card.shared_bytes);
            EXPECT_GE(plan.ring_slots, 2);
        }
    }
}

// Opened once in a process, so this asks first.
TEST(Cublaslt, IsLeftAloneWhereTheEnvironmentSaysSo) {
    setenv("FORESAY_NO_CUBLASLT", "1", 1);
    EXPECT_EQ(cublaslt(), nullptr);
    EXPECT_EQ(cublaslt_version(), 0u);
    unsetenv("FORESAY_NO_CUBLASLT");
}

TEST(GemvPlan, SaysWhenThereIsNoRoom) {
    std::vector<GemvOp> ops = layer(QuantType::q4_0);
    GemvPlan plan;
    EXPECT_FALSE(plan_gemv(QuantType::q4_0, scratch_of(90), 48 * 1024, 132, 2, ops, 8, plan));
}

// Every code at every place of a block, among zeros and among ones, becomes the float16 that is 2^-14 times its number.
TEST(PanelFormat, FloatCodesBecomeFloat16) {
    for (int row = 0; row < kBlockRows; ++row) {
        for (int input = 0; input < 64; ++input) {
            const Place place(row, input);
            const FloatCodePlace bits(place);
            for (std::uint32_t code = 0; code < 16; ++code) {
                for (const std::uint32_t others : {0u, 0xffffffffu}) {
                    const std::uint32_t mask = 7u << bits.magnitude | 1u << bits.sign;
                    std::uint32_t pairs[4];
                    unpack_float_codes((others & ~mask) | (code & 7u) << bits.magnitude | (code >> 3) << bits.sign,
                                       pairs);
                    const std::uint32_t pair = pairs[2 * place.s + place.c / 2];
                    const auto half = static_cast<std::uint16_t>(pair >> (16 * (place.c % 2)));
                    ASSERT_EQ(f16_to_f32(half) * 32768.0f, static_cast<float>(MXFP4::twice(static_cast<int>(code))))
                        << row << ", " << input << ", code " << code;
                }
            }
        }
    }
}

// The tiles that were the fastest, or within 2 % of it, where all were timed (docs/experiments/mixed-gemm.md).
TEST(MixedPlan, TakesTheTileThatWasFastest) {
    struct Case {
        const char* op;
        std::int32_t panels, inputs, rows;
        MixedTileShape fastest;
    };
    const Case cases[] = {
        {"attention_in of 8B", 192, 4096, 32, {2, 4, 32}},  {"attention_in of 8B", 192, 4096, 64, {2, 4, 64}},
        {"attention_in of 8B", 192, 4096, 128, {4, 1, 64}}, {"attention_out of 8B", 128, 4096, 32, {2, 4, 32}},
        {"attention_out of 8B", 128, 4096, 64, {2, 4, 32}}, {"attention_out of 8B", 128, 4096, 128, {2, 4, 64}},
        {"mlp_in of 8B", 896, 4096, 32, {8, 1, 32}},        {"mlp_in of 8B", 896, 4096, 64, {8, 1, 64}},
        {"mlp_in of 8B", 896, 4096, 128, {4, 1, 128}},      {"mlp_out of 8B", 128, 14336, 32, {4, 2, 32}},
        {"mlp_out of 8B", 128, 14336, 64, {4, 1, 64}},      {"mlp_out of 8B", 128, 14336, 128, {4, 1, 128}},
        {"attention_in of 70B", 320, 8192, 32, {8, 1, 32}}, {"attention_out of 70B", 256, 8192, 32, {4, 2, 32}},
        {"mlp_in of 70B", 1792, 8192, 32, {8, 1, 32}},      {"mlp_out of 70B", 256, 28672, 32, {8, 1, 32}},
    };
    DeviceInfo device;
    device.capability = 90;
    device.processors = 132;
    device.shared_bytes = 227 * 1024;
    for (const Case& c : cases) {
        SCOPED_TRACE(testing::Message() << c.op << ", " << c.rows << " rows");
        GemvOp op;
        op.panel_count = c.panels;
        op.inputs = c.inputs;
        op.blocks = c.inputs / block_format(QuantType::q4_0).inputs;
        const MixedPlan plan = plan_mixed_gemm(QuantType::q4_0, op, c.rows, device);
        EXPECT_EQ(plan.panels, c.fastest.panels);
        EXPECT_EQ(plan.slices, c.fastest.slices);
        EXPECT_EQ(plan.columns, c.fastest.columns);
        EXPECT_GE(plan.stages, 2);
        EXPECT_LE(plan.shared_bytes, 227 * 1024);
    }
}

}  // namespace
}  // namespace foresay::kernels::cuda
