// Many sequences in one batch: who runs when, how sequences end, and that each ends alone. That their bytes are right
// is batch_identity_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "kernels/ops_decorator.h"
#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using kernels::RowClass;
using speculative::BatchGenerator;
using speculative::BatchRequest;
using speculative::FinishReason;
using speculative::Schedule;
using speculative::schedule_forward;
using speculative::ScheduledRows;
using speculative::SequenceLoad;
using speculative::Ticket;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ------------------------------------------------------------------------------------------------------- scheduler

Schedule scheduled(const std::vector<SequenceLoad>& loads, RowClass last) {
    Schedule schedule;
    schedule_forward(loads, {.prefill_rows = 100, .prefill_rows_beside = 30, .decode_rows = 8}, last, schedule);
    return schedule;
}

TEST(Scheduler, ReadsPromptsInTheirOrderSeveralInOneForward) {
    const Schedule all =
        scheduled({{.prefill_rows = 40}, {.prefill_rows = 50}, {.prefill_rows = 70}}, RowClass::prefill);
    EXPECT_EQ(all.row_class, RowClass::prefill);
    EXPECT_THAT(all.rows, ElementsAre(ScheduledRows{0, 40}, ScheduledRows{1, 50}, ScheduledRows{2, 10}));
}

TEST(Scheduler, PromptsAndDecodingTakeTurnsAndPromptsAreShortThen) {
    const std::vector<SequenceLoad> loads = {{.decodes = true}, {.prefill_rows = 500}, {.decodes = true}};
    const Schedule first = scheduled(loads, RowClass::decode);
    EXPECT_EQ(first.row_class, RowClass::prefill);
    EXPECT_THAT(first.rows, ElementsAre(ScheduledRows{1, 30}));
    const Schedule second = scheduled(loads, RowClass::prefill);
    EXPECT_EQ(second.row_class, RowClass::decode);
    EXPECT_THAT(second.rows, ElementsAre(ScheduledRows{0, 1}, ScheduledRows{2, 1}));
}

TEST(Scheduler, DecodesAloneAndLeavesPausedOnesOut) {
    const Schedule all = scheduled({{}, {.decodes = true}, {}}, RowClass::decode);
    EXPECT_EQ(all.row_class, RowClass::decode);
    EXPECT_THAT(all.rows, ElementsAre(ScheduledRows{1, 1}));
    EXPECT_THAT(scheduled({{}, {}}, RowClass::decode).rows, IsEmpty());
    EXPECT_THAT(scheduled({}, RowClass::prefill).rows, IsEmpty());
}

// ------------------------------------------------------------------------------------------------------- sequences

BatchRequest request(std::int32_t max_tokens, std::uint64_t seed = 0) {
    return {.input = prompt(),
            .chain = temperature_chain(0.8),
            .max_tokens = max_tokens,
            .seed = seed,
            .stop = {},
            .ignore_eos = true};
}

// The tokens of request(max_tokens, seed) when it is alone.
std::vector<std::int32_t> alone(std::int32_t max_tokens, std::uint64_t seed = 0) {
    BatchGenerator batch = make_batch(for_sequences(1));
    Recorder sink;
    batch.add(request(max_tokens, seed), sink);
    while (batch.step()) {
    }
    return sink.tokens;
}

TEST(BatchGenerator, RunsAsManyAsThereAreSequencesAndTheOthersAfterThem) {
    BatchGenerator batch = make_batch(for_sequences(2));
    Recorder sinks[5];
    for (Recorder& sink : sinks) batch.add(request(8), sink);
    ASSERT_TRUE(batch.step());
    EXPECT_EQ(batch.running(), 2u);
    EXPECT_EQ(batch.waiting(), 3u);
    while (batch.step()) EXPECT_LE(batch.running(), 2u);
    EXPECT_EQ(batch.running() + batch.waiting(), 0u);
    for (const Recorder& sink : sinks) {
        EXPECT_TRUE(sink.ended);
        EXPECT_EQ(sink.tokens, sinks[0].tokens);
        EXPECT_EQ(sink.result.finish, FinishReason::length);
        EXPECT_EQ(sink.tokens.size(), 8u);
    }
}

TEST(BatchGenerator, RefusesWhatCannotRun) {
    BatchGenerator batch = make_batch(for_sequences(2, 64));
    Recorder sink;
    const auto refusal = [&](std::vector<std::int32_t> input) {
        BatchRequest wrong = request(8);
        wrong.input = std::move(input);
        try {
            batch.add(std::move(wrong), sink);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refusal({}), HasSubstr("prompt is empty"));
    EXPECT_THAT(refusal(std::vector<std::int32_t>(65, 5)), HasSubstr("65 tokens long but the context holds 64"));
    EXPECT_THAT(refusal({5, -1}), HasSubstr("token id -1"));
    EXPECT_FALSE(batch.step());
    // A prompt that fills the context has no room for an answer.
    EXPECT_EQ(refusal(std::vector<std::int32_t>(64, 5)), "accepted");
    EXPECT_FALSE(batch.step());
    EXPECT_TRUE(sink.ended);
    EXPECT_EQ(sink.result.finish, FinishReason::length);
    EXPECT_THAT(sink.tokens, IsEmpty());
}

// Counts forwards, and the rows of each.
class CountedOps final : public kernels::OpsDecorator {
public:
    explicit CountedOps(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        rows.push_back(static_cast<std::int32_t>(batch.rows.size()));
        OpsDecorator::begin(workspace, batch);
    }
    std::vector<std::int32_t> rows;
};

TEST(BatchGenerator, CancelsBeforeTheNextForward) {
    CountedOps counted(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), counted);
    BatchGenerator batch = make_batch(for_sequences(4), 64, model);
    Recorder kept, cancelled, waiting;
    batch.add(request(20, 1), kept);
    const Ticket ticket = batch.add(request(20, 2), cancelled);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(batch.step());
    EXPECT_EQ(counted.rows.back(), 2);
    const std::size_t before = cancelled.tokens.size();
    EXPECT_GT(before, 0u);
    batch.cancel(ticket);
    EXPECT_FALSE(cancelled.ended);
    ASSERT_TRUE(batch.step());
    EXPECT_EQ(counted.rows.back(), 1) << "the cancelled sequence had a row";
    EXPECT_TRUE(cancelled.ended);
    EXPECT_EQ(cancelled.result.finish, FinishReason::cancelled);
    EXPECT_EQ(cancelled.tokens.size(), before);
    // One that never ran.
    const Ticket late = batch.add(request(20), waiting);
    batch.cancel(late);
    batch.step();
    EXPECT_TRUE(waiting.ended);
    EXPECT_THAT(waiting.tokens, IsEmpty());
    batch.cancel(late);  // ignored
    while (batch.step()) {
    }
    EXPECT_EQ(kept.tokens, alone(20, 1));
}

TEST(BatchGenerator, APausedSequenceTakesNoRowsAndLosesNothing) {
    BatchGenerator batch = make_batch(for_sequences(2));
    Recorder paused, other;
    const Ticket ticket = batch.add(request(20, 1), paused);
    batch.add(request(20, 2), other);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(batch.step());
    batch.pause(ticket);
    const std::size_t before = paused.tokens.size();
    while (batch.step()) {
    }
    EXPECT_TRUE(other.ended);
    EXPECT_EQ(paused.tokens.size(), before);
    EXPECT_EQ(batch.running(), 1u);
    batch.resume(ticket);
    while (batch.step()) {
    }
    EXPECT_EQ(paused.tokens, alone(20, 1));
    EXPECT_EQ(other.tokens, alone(20, 2));
}

TEST(BatchGenerator, SinksMayAddAndCancel) {
    BatchGenerator batch = make_batch(for_sequences(3));
    Recorder first, second, third;
    batch.add(request(12, 1), first);
    const Ticket ticket = batch.add(request(12, 2), second);
    // In the same forward, after the first sequence's token and before the second one's.
    first.on_token = [&] {
        if (first.tokens.size() == 4) batch.cancel(ticket);
    };
    second.on_end = [&] { batch.add(request(12, 3), third); };
    while (batch.step()) {
    }
    EXPECT_EQ(first.tokens, alone(12, 1));
    EXPECT_EQ(second.tokens.size(), 3u) << "no token comes after cancel()";
    EXPECT_EQ(second.result.finish, FinishReason::cancelled);
    EXPECT_EQ(third.tokens, alone(12, 3));
}

// Makes logit row `row` of one forward not finite.
class BrokenOps final : public kernels::OpsDecorator {
public:
    explicit BrokenOps(kernels::Ops& inner) : OpsDecorator(inner) {}
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        const std::span<float> row = OpsDecorator::logits(workspace, i);
        if (i == broken) row[7] = std::numeric_limits<float>::quiet_NaN();
        return row;
    }
    std::int32_t broken = -1;
};

TEST(BatchGenerator, LogitsThatAreNotFiniteEndTheirOwnSequence) {
    BrokenOps ops(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), ops);
    BatchGenerator batch = make_batch(for_sequences(3), 64, model);
    Recorder first, broken, third;
    batch.add(request(16, 1), first);
    batch.add(request(16, 2), broken);
    batch.add(request(16, 3), third);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(batch.step());
    ops.broken = 1;
    ASSERT_TRUE(batch.step());
    ops.broken = -1;
    EXPECT_TRUE(broken.ended);
    EXPECT_THAT(broken.error, HasSubstr("logits are not finite"));
    EXPECT_FALSE(broken.tokens.empty());
    EXPECT_EQ(broken.result.tokens, broken.tokens);
    while (batch.step()) {
    }
    EXPECT_EQ(first.tokens, alone(16, 1));
    EXPECT_EQ(third.tokens, alone(16, 3));
    EXPECT_TRUE(first.error.empty());
}

// Fails at the tenth token of the answer to prompt().
struct Failing {
    static constexpr Info info{"failing", "1", "Fails.", "Apache-2.0"};
    Failing(detail::NoParameters, Host) {}
    void process(const Context& context, foresay::Candidates&) const {
        if (context.index() == prompt().size() + 9) throw std::runtime_error("the answer is 42");
    }
};

TEST(BatchGenerator, AStageThatFailsEndsItsOwnSequence) {
    BatchGenerator batch = make_batch(for_sequences(3));
    Recorder first, failing, third;
    batch.add(request(16, 1), first);
    BatchRequest wrong = request(16, 2);
    samplers::StageSpec stage_that_fails = stage("failing");
    stage_that_fails.factory = samplers::make_plugin_factory(&detail::Adapter<Failing>::sampler, nullptr, "test");
    wrong.chain = make_chain({stage_that_fails, stage("temperature", {{"value", 0.8}})});
    batch.add(std::move(wrong), failing);
    batch.add(request(16, 3), third);
    while (batch.step()) {
    }
    EXPECT_TRUE(failing.ended);
    EXPECT_EQ(failing.error, "sampler 'failing' failed: the answer is 42");
    EXPECT_EQ(failing.tokens.size(), 9u);
    EXPECT_EQ(first.tokens, alone(16, 1));
    EXPECT_EQ(third.tokens, alone(16, 3));
    EXPECT_EQ(batch.target().cache().free_pages(), batch.target().cache().pages().pages);
}

}  // namespace
}  // namespace foresay::test
