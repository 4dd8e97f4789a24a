// What a rank has of a layer that several share: units, shares, and the views of its matrices and vectors.

#include "kernels/row_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/op_checks.h"
#include "tests/support/error_of.h"

namespace foresay::kernels {
namespace {

using ::testing::ElementsAre;

using Shares = std::vector<std::int32_t>;

std::vector<std::int32_t> counts(std::int32_t total, std::int32_t unit, const Shares& shares) {
    std::vector<std::int32_t> all;
    for (const Part part : divide(total, unit, shares)) all.push_back(part.count);
    return all;
}

TEST(RowDivision, FollowsTheShares) {
    EXPECT_THAT(counts(8, 1, {1, 1}), ElementsAre(4, 4));
    EXPECT_THAT(counts(9, 1, {1, 2}), ElementsAre(3, 6));
    EXPECT_THAT(counts(8, 1, {1, 2}), ElementsAre(3, 5));
    EXPECT_THAT(counts(3, 1, {1, 1}), ElementsAre(2, 1));
    EXPECT_THAT(counts(28672, 32, {1, 1, 1, 1}), ElementsAre(7168, 7168, 7168, 7168));
    EXPECT_THAT(counts(8192, 32, {24, 80}), ElementsAre(1888, 6304));
}

TEST(RowDivision, KeepsUnitsWhole) {
    EXPECT_THAT(counts(100, 32, {1, 1}), ElementsAre(64, 36));  // the last unit is cut by the matrix
    EXPECT_THAT(counts(31, 32, {1, 1}), ElementsAre(31, 0));
    EXPECT_THAT(counts(2880, 32, {1, 1}), ElementsAre(1440, 1440));
}

TEST(RowDivision, FewerThanRanksLeavesSomeWithout) {
    EXPECT_THAT(counts(1, 1, {1, 1}), ElementsAre(1, 0));
    EXPECT_THAT(counts(2, 1, {1, 1, 1, 1}), ElementsAre(1, 0, 1, 0));
    EXPECT_THAT(counts(0, 1, {1, 1}), ElementsAre(0, 0));
    EXPECT_THAT(counts(8, 1, {0, 1}), ElementsAre(0, 8));
}

TEST(RowDivision, PartsCoverAllInOrder) {
    for (const std::int32_t total : {0, 1, 31, 32, 33, 1000, 4096, 128256}) {
        for (const Shares& shares : {Shares{1, 2}, Shares{5, 1, 2}, Shares(8, 1), Shares{1 << 30, 1, 1 << 30}}) {
            std::int32_t next = 0;
            for (const Part part : divide(total, kRowUnit, shares)) {
                EXPECT_EQ(part.first, next);
                EXPECT_GE(part.count, 0);
                EXPECT_TRUE(part.first % kRowUnit == 0 || part.count == 0);
                next += part.count;
            }
            EXPECT_EQ(next, total);
        }
    }
}

// Weights whose bytes say where they are.
struct Matrix {
    Matrix(QuantType quant_type, std::int64_t rows, std::int64_t cols)
        : bytes(static_cast<std::size_t>(rows * row_bytes(quant_type, cols))),
          view{quant_type, rows, cols, bytes.data()} {}
    std::ptrdiff_t row_of(const TensorView& part) const { return (part.data - bytes.data()) / view.row_bytes(); }
    std::vector<std::byte> bytes;
    TensorView view;
};

constexpr ModelShape kShape = {.layers = 1,
                               .d_model = 256,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .d_ff = 512,
                               .vocab = 320,
                               .experts = 4,
                               .experts_used = 2,
                               .expert_ff = 256};

TEST(RowDivision, HeadsGoWithTheirKeys) {
    const Matrix q(QuantType::q4_k, 512, 256), k(QuantType::q4_k, 256, 256), norm(QuantType::f32, 1, 512);
    const Matrix bias(QuantType::f32, 1, 512), head_norm(QuantType::f32, 1, 64), sinks(QuantType::f32, 1, 8);
    AttentionInSpec spec{.shape = kShape};
    spec.q = q.view;
    spec.k = spec.v = k.view;
    spec.q_bias = bias.view;
    spec.q_norm.weight = norm.view;
    spec.k_norm.weight = head_norm.view;
    const AttentionInSpec part = part_of(spec, {1, 3});
    check_op(part);
    EXPECT_EQ(part.shape.heads, 6);
    EXPECT_EQ(part.shape.kv_heads, 3);
    EXPECT_EQ(q.row_of(part.q), 128);
    EXPECT_EQ(part.q.rows, 384);
    EXPECT_EQ(k.row_of(part.v), 64);
    EXPECT_EQ(part.v.rows, 192);
    EXPECT_EQ(part.q_bias.data - bias.bytes.data(), 128 * 4);
    EXPECT_EQ(part.q_bias.cols, 384);
    EXPECT_EQ(part.q_norm.weight.cols, 384);  // of each head
    EXPECT_EQ(part.k_norm.weight.cols, 64);   // the same for all
    AttendSpec attend{.shape = kShape};
    attend.sinks = sinks.view;
    EXPECT_EQ(part_of(attend, {1, 3}).sinks.data - sinks.bytes.data(), 2 * 4);
    EXPECT_EQ(part_of(attend, {1, 3}).sinks.cols, 6);
}

TEST(RowDivision, OutputsHaveAllInputs) {
    const Matrix o(QuantType::q8_0, 256, 512), bias(QuantType::f16, 1, 256), norm(QuantType::f32, 1, 256);
    AttentionOutSpec spec{.shape = kShape, .o = o.view, .bias = bias.view};
    spec.scale = 0.5f;
    MlpOutSpec part = part_of(spec, {96, 160});
    check_op(part);
    EXPECT_EQ(o.row_of(part.down), 96);
    EXPECT_EQ(part.down.rows, 160);
    EXPECT_EQ(part.down.cols, 512);
    EXPECT_EQ(part.bias.data - bias.bytes.data(), 96 * 2);
    EXPECT_EQ(part.scale, 0.5f);
    // What needs the whole row comes when all sums are there.
    spec.post_norm.weight = norm.view;
    part = part_of(spec, {96, 160});
    EXPECT_TRUE(part.post_norm.empty());
    EXPECT_EQ(part.scale, 1.0f);
    const MlpOutSpec finish = finish_of(as_down(spec));
    EXPECT_TRUE(finish.down.empty() && finish.bias.empty());
    EXPECT_FALSE(finish.post_norm.empty());
    EXPECT_EQ(finish.scale, 0.5f);
}

TEST(RowDivision, ExpertsAreWhole) {
    const Matrix gate(QuantType::q4_0, 256, 256);
    MoeSpec spec{.shape = kShape};
    spec.gate = spec.up = spec.down = std::vector<TensorView>(4, gate.view);
    const MoeSpec part = part_of(spec, {1, 2});
    for (const auto* matrices : {&part.gate, &part.up, &part.down}) {
        EXPECT_TRUE((*matrices)[0].empty() && !(*matrices)[1].empty() && !(*matrices)[2].empty() &&
                    (*matrices)[3].empty());
    }
}

// Shapes without data are for backends that make numbers up.
TEST(RowDivision, ViewsWithoutDataStaySo) {
    const TensorView random{QuantType::q4_0, 256, 256, nullptr};
    EXPECT_EQ(rows_of(random, {64, 128}).data, nullptr);
    EXPECT_EQ(rows_of(random, {64, 128}).rows, 128);
    EXPECT_TRUE(rows_of({}, {64, 128}).empty());
}

TEST(RowDivision, NormsOfAllHeadsAreRefused) {
    const Matrix norm(QuantType::f32, 1, 512);
    AttentionInSpec spec{.shape = kShape};
    check_divides(spec);
    spec.whole_norms = true;
    spec.q_norm.weight = norm.view;
    EXPECT_EQ(test::error_of([&] { check_divides(spec); }),
              "this model norms the queries of all heads together, so its heads cannot be divided; use "
              "runtime.split_mode = \"layer\"");
}

}  // namespace
}  // namespace foresay::kernels
