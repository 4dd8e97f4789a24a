// The late backend computes what its inner backend computes, and reports broken contracts that the inner one would not.

#include "tests/models/late_ops.h"

#include <gtest/gtest-spi.h>

#include <cmath>

#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using kernels::TokenRef;

// Counts the forwards that begin.
class CountingOps final : public kernels::OpsDecorator {
public:
    CountingOps() : OpsDecorator(kernels::make_reference_ops()) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        ++begun;
        OpsDecorator::begin(workspace, batch);
    }
    int begun = 0;
};

class Late : public testing::Test {
protected:
    std::shared_ptr<const core::Model> model(kernels::Ops& ops) const {
        core::ModelConfig config = small_config();
        config.shape.layers = 1;
        return random_model(config, kernels::QuantType::f32, kernels::QuantType::f32, ops);
    }
    core::Context context(kernels::Ops& ops) const {
        return core::Context(model(ops), {.length = 128, .prefill_rows = 8, .decode_rows = 8});
    }
    static kernels::SamplingPlan plan(std::span<const kernels::TokenValue> bias = {}) {
        kernels::SamplingPlan plan;
        plan.greedy = true;
        if (bias.empty()) return plan;
        plan.step_count = 1;
        plan.steps[0] = {.kind = kernels::SamplingStepKind::bias, .values = bias};
        return plan;
    }
    static void sample(core::Context& c, const kernels::SamplingPlan& plan, std::int32_t slot) {
        c.ops().sample(c.workspace(), {&plan, 1}, {&slot, 1});
    }
    kernels::SampledToken sampled(std::int32_t slot) { return late_.sampled(context_.workspace(), slot); }
    bool decode(std::int32_t token) { return context_.decode(std::span(&token, 1)); }

    CountingOps inner_;
    LateOps late_{inner_};
    core::Context context_ = context(late_);
};

TEST_F(Late, NothingRunsBeforeItIsRead) {
    ASSERT_TRUE(decode(3));
    ASSERT_TRUE(decode(4));
    sample(context_, plan(), 0);
    ASSERT_TRUE(decode(5));
    EXPECT_EQ(inner_.begun, 0);
    sampled(0);
    EXPECT_EQ(inner_.begun, 2);
    context_.wait();
    EXPECT_EQ(inner_.begun, 3);
}

TEST_F(Late, GivesWhatTheBackendInsideGives) {
    const std::unique_ptr<kernels::Ops> plain = kernels::make_reference_ops();
    core::Context expected = context(*plain);
    const std::vector<std::int32_t> input = {1, 5, 9, 2, 200};
    ASSERT_TRUE(expected.prefill(input));
    ASSERT_TRUE(context_.prefill(input));
    // Tokens pass from slot to slot here, and through the host there.
    TokenRef next = TokenRef::id(7);
    std::vector<std::int32_t> tokens = {7};
    for (std::int32_t step = 0; step < 6; ++step) {
        ASSERT_TRUE(expected.decode(std::span(&tokens.back(), 1)));
        ASSERT_TRUE(context_.decode(std::span(&next, 1)));
        sample(expected, plan(), step);
        sample(context_, plan(), step);
        next = TokenRef::slot(step);
        tokens.push_back(plain->sampled(expected.workspace(), step).token);
    }
    for (std::int32_t step = 0; step < 6; ++step)
        EXPECT_EQ(sampled(step).token, tokens[static_cast<std::size_t>(step) + 1]);
    ASSERT_TRUE(expected.decode(tokens, 2));
    ASSERT_TRUE(context_.decode(tokens, 2));
    for (const std::int32_t row : {0, 1}) EXPECT_TRUE(std::ranges::equal(expected.logits(row), context_.logits(row)));
}

// sample() sees what the host has written into a row.
TEST_F(Late, WrittenLogitsAreDrawnFrom) {
    ASSERT_TRUE(decode(3));
    context_.logits(0)[77] = 1000.0f;
    sample(context_, plan(), 4);
    EXPECT_EQ(sampled(4).token, 77);
}

TEST_F(Late, LogitsDieWithTheNextForward) {
    ASSERT_TRUE(decode(3));
    const std::span<const float> kept = context_.logits(0);
    EXPECT_TRUE(std::isfinite(kept[0]));
    ASSERT_TRUE(decode(4));
    EXPECT_TRUE(std::isnan(kept[0]));
}

TEST_F(Late, CandidatesDieWithTheNextDrawIntoTheirSlot) {
    kernels::SamplingPlan keeping = plan();
    keeping.keep = true;
    keeping.cut = 10;
    ASSERT_TRUE(decode(3));
    sample(context_, keeping, 2);
    const kernels::Candidates kept = late_.candidates(context_.workspace(), 2);
    EXPECT_EQ(kept.count, 10);
    EXPECT_EQ(kept.ids[0], sampled(2).token);
    sample(context_, plan(), 2);
    EXPECT_TRUE(std::isnan(kept.logits[0]));
    EXPECT_NONFATAL_FAILURE(late_.candidates(context_.workspace(), 2), "no plan kept them");
}

TEST_F(Late, ABorrowedListMustLiveUntilItsDrawIsRead) {
    std::vector<kernels::TokenValue> bias = {{.token = 11, .value = 1000.0f}};
    ASSERT_TRUE(decode(3));
    sample(context_, plan(bias), 0);
    EXPECT_EQ(sampled(0).token, 11);
    bias[0].token = 12;  // it was read: free to change
    sample(context_, plan(bias), 0);
    bias[0].token = 13;
    EXPECT_NONFATAL_FAILURE(sampled(0), "a list that a plan borrows has changed");
}

TEST_F(Late, ASlotMustBeFilledBeforeItIsRead) {
    ASSERT_TRUE(decode(3));
    EXPECT_NONFATAL_FAILURE(sampled(9), "no sample fills it");
    const TokenRef next = TokenRef::slot(8);
    EXPECT_NONFATAL_FAILURE(context_.decode(std::span(&next, 1)), "slot 8, which no sample fills");
}

TEST_F(Late, LogitsMustHaveBeenAskedFor) {
    const std::vector<std::int32_t> tokens = {1, 2, 3};
    ASSERT_TRUE(context_.decode(tokens, 1));
    EXPECT_NONFATAL_FAILURE(context_.logits(1), "row 1 of the logits is read, and the last forward has 1");
}

TEST_F(Late, ABatchMustLiveUntilItsLastOp) {
    const auto& shape = context_.model().config().shape;
    const auto kv = late_.allocate_kv(shape, 1, kernels::KvFormat::f16);
    const auto workspace = late_.allocate_workspace(shape, 1, 1);
    std::vector<kernels::Row> rows = {{TokenRef::id(3), 0}};
    const std::vector<std::int32_t> pages = {0};
    const kernels::SequenceView view = {pages, 0};
    late_.begin(*workspace, {kernels::RowClass::decode, false, rows, {&view, 1}, {}});
    late_.embed(*context_.model().forward_ops()[0].prepared, *workspace);
    rows[0].token = TokenRef::id(4);
    EXPECT_NONFATAL_FAILURE(late_.attention_in(*context_.model().forward_ops()[1].prepared, *workspace, *kv, 0),
                            "a batch has changed");
}

}  // namespace
}  // namespace foresay::test
