// The decode kernel fits the shared memory of every card that kernels are compiled for, with enough rows to verify a
// draft.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/weights/panel_format.h"
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

// A mixture as published models have it.
struct Experts {
    const char* name;
    QuantType dense, expert;
    std::int32_t width, ff, experts, used;
};
constexpr Experts kMixtures[] = {{"qwen3-30b-a3b", QuantType::q4_k, QuantType::q4_k, 2048, 768, 128, 8},
                                 {"gpt-oss-20b", QuantType::q8_0, QuantType::mxfp4, 2880, 2880, 32, 4},
                                 {"gpt-oss-20b", QuantType::q8_0, QuantType::q8_0, 2880, 2880, 32, 4}};

MixtureConstants constants_of(const Experts& of) {
    static const float weight = 0.0f;
    MixtureConstants constants;
    constants.router.width = constants.combine.width = of.width;
    constants.router.experts = of.experts;
    constants.router.used = constants.combine.used = of.used;
    constants.router.norm.weight = constants.router.expert_norm.weight = &weight;
    const auto products = [&](std::int32_t inputs, std::int32_t rows) {
        ProductsCall call;
        call.quant_type = of.expert;
        call.inputs = inputs;
        call.rows = rows;
        call.used = of.used;
        call.experts = of.experts;
        call.panel_count = (rows + 31) / 32;
        call.blocks = (inputs + block_format(of.expert).inputs - 1) / block_format(of.expert).inputs;
        return call;
    };
    constants.in = products(of.width, 2 * of.ff);
    constants.out = products(of.ff, of.width);
    return constants;
}

// Experts share a thread block's memory with the ring.
TEST(GemvPlan, ExpertsOfUpToEightRowsFit) {
    for (const Experts& of : kMixtures) {
        const MixtureConstants constants = constants_of(of);
        for (int rows = 1; rows <= 8; ++rows) {
            SCOPED_TRACE(testing::Message() << of.name << ", " << info(of.expert).name << ", " << rows << " rows");
            std::vector<GemvOp> ops = layer(of.dense);
            GemvPlan plan;
            ASSERT_TRUE(plan_mixture_step(constants, of.dense, rows, gemv_warps(of.dense), plan.mixture));
            const MixturePlan& mixture = plan.mixture;
            for (const MixtureProducts& products : {mixture.in, mixture.out}) {
                EXPECT_LE(products.groups * products.warps, gemv_warps(of.dense));
                EXPECT_LE(mixture.work_at + products.groups * products.plan.shared_bytes, mixture.shared_bytes);
                EXPECT_GE(products.plan.stages, 2);
            }
            ASSERT_TRUE(plan_gemv(of.dense, scratch_of(90), 227 * 1024, 132, 1, ops, rows, plan));
            EXPECT_GE(mixture.shared_at, plan.row_stats_at);
            EXPECT_LE(mixture.shared_at + mixture.shared_bytes, plan.shared_bytes);
            EXPECT_LE(plan.shared_bytes, 227 * 1024);
            // The words that CTAs pass on lie apart.
            const std::int32_t end = place_mixture_words(constants, rows, 100, plan.mixture);
            EXPECT_GE(mixture.scores, 100);
            EXPECT_GE(mixture.stats - mixture.scores, rows * of.experts);
            EXPECT_GE(mixture.ff - mixture.stats, rows);
            EXPECT_EQ(mixture.out_rows - mixture.ff, rows * of.used * of.ff);
            EXPECT_EQ(end - mixture.out_rows, rows * of.used * of.width);
        }
    }
}

TEST(GemvPlan, OtherExpertsAreLaunched) {
    const Experts& of = kMixtures[2];
    const auto fits = [&](const MixtureConstants& constants, QuantType dense, std::int32_t rows) {
        MixturePlan plan;
        return plan_mixture_step(constants, dense, rows, gemv_warps(dense), plan);
    };
    const float weight = 0.0f;
    MixtureConstants constants = constants_of(of);
    EXPECT_TRUE(fits(constants, of.dense, 1));
    EXPECT_FALSE(fits(constants, QuantType::q4_0, 1)) << "the kernel of Q4_0 has no code for MXFP4";
    EXPECT_FALSE(fits(constants, of.dense, kMixtureRows + 1));
    constants.combine.keep_branch = true;
    EXPECT_FALSE(fits(constants, of.dense, 1)) << "the branch is another step's";
    constants = constants_of(of);
    constants.combine.post_norm.weight = &weight;
    EXPECT_FALSE(fits(constants, of.dense, 1)) << "a post norm needs whole rows";
    constants = constants_of(of);
    constants.router.norm.layer = true;
    EXPECT_FALSE(fits(constants, of.dense, 1)) << "LayerNorm";
    constants = constants_of(of);
    constants.router.used = constants.in.used = constants.out.used = 16;
    EXPECT_FALSE(fits(constants, of.dense, 5)) << "more slots than the lists hold";
}

}  // namespace
}  // namespace foresay::kernels::cuda
