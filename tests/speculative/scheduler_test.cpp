// Which rows a forward of a batch has, how prompts and decoding share the time, and who is admitted.
#include "speculative/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace foresay::speculative {
namespace {

using kernels::RowClass;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Schedule scheduled(const std::vector<SequenceLoad>& loads, RowClass last) {
    Schedule schedule;
    schedule_forward(loads, {.prefill_rows = 100, .prefill_rows_beside = 30, .decode_rows = 8},
                     last == RowClass::decode ? 1 : 0, schedule);
    return schedule;
}

// Those who decode get their share of the time, whatever the forwards of both kinds take.
TEST(Scheduler, DecodingHasItsShareWhilePromptsWait) {
    const std::vector<SequenceLoad> loads = {{.decode_rows = 1}, {.prefill_rows = 500}, {.decode_rows = 1}};
    for (const double prefill_ms : {3.0, 20.0, 90.0}) {
        const std::int32_t turn = decode_turn(loads, prefill_ms, 2.0);
        const double share = 2.0 * turn / (2.0 * turn + prefill_ms);
        EXPECT_NEAR(share, kDecodeShare, 0.1) << prefill_ms;
        Schedule schedule;
        std::int32_t decoded = 0, decoding = 0;
        for (int forward = 0; forward < 10 * (turn + 1); ++forward) {
            schedule_forward(loads, {.decode_turn = turn}, decoded, schedule);
            const bool decodes = schedule.row_class == RowClass::decode;
            decoded = decodes ? decoded + 1 : 0;
            decoding += decodes ? 1 : 0;
        }
        EXPECT_EQ(decoding, 10 * turn);
    }
    // One that decodes does not keep many prompts waiting.
    const std::vector<SequenceLoad> many = {
        {.decode_rows = 1}, {.prefill_rows = 9}, {.prefill_rows = 9}, {.prefill_rows = 9}, {.prefill_rows = 9}};
    EXPECT_EQ(decode_turn(many, 40.0, 2.0), 6);
    EXPECT_EQ(decode_turn(loads, 0.0, 2.0), 1) << "not known";
    EXPECT_EQ(decode_turn(loads, 1e9, 1e-9), kLongestDecodeTurn);
    EXPECT_EQ(decode_turn({}, 20.0, 2.0), 1);
}

// Where many decode, a short prompt waits for others, but not for long, and many rows do not.
TEST(Scheduler, ShortPromptsWaitForCompanyWhereManyDecode) {
    const auto turn = [](int decoding, std::vector<std::int32_t> prompts, bool mixes = false) {
        std::vector<SequenceLoad> loads(static_cast<std::size_t>(decoding), {.decode_rows = 1});
        for (const std::int32_t rows : prompts) loads.push_back({.prefill_rows = rows});
        return decode_turn(loads, 13.0, 4.0, mixes);
    };
    const std::int32_t alone = turn(kManyDecode - 1, {200});
    EXPECT_EQ(alone, 4);
    EXPECT_EQ(turn(kManyDecode, {200}), 4) << "4 ms of company are less than the share";
    EXPECT_EQ(turn(32, {200}), 16);
    EXPECT_EQ(turn(32, {200, 200}), 16);
    EXPECT_EQ(turn(32, {200, 200, 200}), alone) << "they are enough";
    EXPECT_EQ(turn(32, {2000}), alone);
    EXPECT_EQ(turn(32, {200}, true), turn(7, {200}, true)) << "beside the decode rows it never waits";
}

TEST(Scheduler, ReadsPromptsInTheirOrderSeveralInOneForward) {
    const Schedule all =
        scheduled({{.prefill_rows = 40}, {.prefill_rows = 50}, {.prefill_rows = 70}}, RowClass::prefill);
    EXPECT_EQ(all.row_class, RowClass::prefill);
    EXPECT_THAT(all.rows, ElementsAre(ScheduledRows{0, 40}, ScheduledRows{1, 50}, ScheduledRows{2, 10}));
}

TEST(Scheduler, PromptsAndDecodingTakeTurnsAndPromptsAreShortThen) {
    const std::vector<SequenceLoad> loads = {{.decode_rows = 1}, {.prefill_rows = 500}, {.decode_rows = 1}};
    const Schedule first = scheduled(loads, RowClass::decode);
    EXPECT_EQ(first.row_class, RowClass::prefill);
    EXPECT_THAT(first.rows, ElementsAre(ScheduledRows{1, 30}));
    const Schedule second = scheduled(loads, RowClass::prefill);
    EXPECT_EQ(second.row_class, RowClass::decode);
    EXPECT_THAT(second.rows, ElementsAre(ScheduledRows{0, 1}, ScheduledRows{2, 1}));
}

// Where the classes are one, who decodes has a row in the prompts' turn, too.
TEST(Scheduler, PromptsAndDecodingShareAForwardWhereTheClassesAgree) {
    const std::vector<SequenceLoad> loads = {
        {.decode_rows = 1}, {.prefill_rows = 20}, {}, {.decode_rows = 1}, {.prefill_rows = 500}};
    ScheduleLimits limits{.prefill_rows = 100, .prefill_rows_beside = 30, .decode_rows = 64, .mixes = true};
    Schedule schedule;
    schedule_forward(loads, limits, 1, schedule);
    EXPECT_TRUE(schedule.mixed);
    EXPECT_TRUE(schedule.reads_prompts());
    EXPECT_THAT(schedule.rows,
                ElementsAre(ScheduledRows{0, 1}, ScheduledRows{1, 20}, ScheduledRows{3, 1}, ScheduledRows{4, 10}));
    schedule_forward(loads, limits, 0, schedule);
    EXPECT_FALSE(schedule.mixed);
    EXPECT_THAT(schedule.rows, ElementsAre(ScheduledRows{0, 1}, ScheduledRows{3, 1}));
    // The rows of a forward suffice for both, and prompts come on where they do not.
    limits.decode_rows = 12;
    schedule_forward(loads, limits, 1, schedule);
    EXPECT_THAT(schedule.rows, ElementsAre(ScheduledRows{0, 1}, ScheduledRows{1, 10}, ScheduledRows{3, 1}));
    limits.decode_rows = 2;
    schedule_forward(loads, limits, 1, schedule);
    EXPECT_FALSE(schedule.mixed);
    EXPECT_EQ(schedule.row_class, RowClass::prefill);
    EXPECT_THAT(schedule.rows, ElementsAre(ScheduledRows{1, 20}, ScheduledRows{4, 10}));
    // No text decodes: a prompt's forward is as long as it may be.
    limits.decode_rows = 64;
    schedule_forward(std::vector<SequenceLoad>{{.prefill_rows = 500}}, limits, 1, schedule);
    EXPECT_FALSE(schedule.mixed);
    EXPECT_THAT(schedule.rows, ElementsAre(ScheduledRows{0, 100}));
}

// Of a mixed forward a part is theirs: so fewer of their own come after it.
TEST(Scheduler, AMixedForwardCountsAsDecodingToo) {
    const std::vector<SequenceLoad> loads = {{.decode_rows = 1}, {.prefill_rows = 500}, {.decode_rows = 1}};
    for (const double prompts_ms : {6.0, 20.0, 90.0}) {
        const std::int32_t turn = decode_turn(loads, prompts_ms + 2.0, 2.0, true);
        const double theirs = 2.0 * (turn + 1);
        EXPECT_NEAR(theirs / (theirs + prompts_ms), kDecodeShare, 0.1) << prompts_ms;
    }
    EXPECT_EQ(decode_turn(loads, 2.1, 2.0, true), 1);
    EXPECT_EQ(decode_turn(loads, 1.0, 2.0, true), 1);
}

TEST(Scheduler, EveryoneHasARowAndTheRestIsForThoseWhoComeBack) {
    const Schedule all = scheduled({{.decode_rows = 5}, {.decode_rows = 1}, {.decode_rows = 40}}, RowClass::decode);
    EXPECT_THAT(all.rows, ElementsAre(ScheduledRows{0, 5}, ScheduledRows{1, 1}, ScheduledRows{2, 2}));
}

TEST(Scheduler, AdmitsByPriorityThenByWhatAQueueHasHadThenInOrder) {
    const auto next = [](const std::vector<WaitingRequest>& waiting) { return next_admitted(waiting); };
    EXPECT_EQ(next({{}, {}, {}}), 0u);
    EXPECT_EQ(next({{}, {.priority = 1}, {.priority = 1}}), 1u);
    EXPECT_EQ(next({{.priority = -1}, {}}), 1u);
    EXPECT_EQ(next({{.served = 9}, {.served = 3}, {.served = 3}}), 1u);
    EXPECT_EQ(next({{.priority = 1, .served = 9}, {.served = 3}}), 0u);
    // None waits for ever.
    EXPECT_EQ(next({{.priority = 2}, {.passed_over = 2 * kPassesToRise, .served = 0}}), 0u);
    EXPECT_EQ(next({{.priority = 2}, {.passed_over = 3 * kPassesToRise, .served = 0}}), 1u);
}

// Admissions from `waiting`, which grows by one of `more` before each; returns how many come before the last one of
// `waiting` as it is given.
int admissions_before_the_last(std::vector<WaitingRequest> waiting, const WaitingRequest& more) {
    std::size_t last = waiting.size() - 1;
    for (int admissions = 0; admissions < 10000; ++admissions) {
        waiting.push_back(more);
        const std::size_t next = next_admitted(waiting);
        if (next == last) return admissions;
        const std::int64_t reached = height(waiting[next]);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(next));
        last -= next < last ? 1 : 0;
        for (WaitingRequest& other : waiting) other.passed_over += height(other) < reached ? 1 : 0;
    }
    return 10000;
}

TEST(Scheduler, WhoWaitsRisesPastThoseAboveAndNotPastItsEquals) {
    EXPECT_EQ(admissions_before_the_last({{.priority = 0}}, {.priority = 3}), 3 * static_cast<int>(kPassesToRise));
    // Many of one queue wait. One of another queue comes when some of them have had their turn.
    std::vector<WaitingRequest> many(200, {.served = 50});
    for (int admissions = 0; admissions < 100; ++admissions) {
        const std::size_t next = next_admitted(many);
        const std::int64_t reached = height(many[next]);
        many.erase(many.begin() + static_cast<std::ptrdiff_t>(next));
        for (WaitingRequest& other : many) other.passed_over += height(other) < reached ? 1 : 0;
    }
    many.push_back({.served = 40});
    EXPECT_EQ(admissions_before_the_last(many, {.served = 50}), 0);
    EXPECT_EQ(admissions_before_the_last(many, {.priority = 1, .served = 60}), static_cast<int>(kPassesToRise));
}

TEST(Scheduler, APausedOneGivesItsPagesUpElseTheNewestOfTheLowestPriority) {
    const auto next = [](const std::vector<RunningRequest>& running) { return next_preempted(running); };
    EXPECT_EQ(next({{.arrival = 4}, {.arrival = 9}, {.arrival = 7}}), 1u);
    EXPECT_EQ(next({{.priority = 1, .arrival = 9}, {.arrival = 4}, {.arrival = 3}}), 1u);
    EXPECT_EQ(next({{.arrival = 9}, {.paused = true, .priority = 2, .arrival = 1}}), 1u);
}

TEST(Scheduler, LearnsWhatForwardsTakeBesideTheOtherKindAndCountsTurns) {
    const std::vector<SequenceLoad> both = {{.decode_rows = 1}, {.prefill_rows = 9}}, one = {{.decode_rows = 1}};
    Turns turns;
    EXPECT_EQ(turns.decoded, kLongestDecodeTurn) << "the first prompt waits for no other";
    turns.note(RowClass::prefill, both, 20.0);
    EXPECT_EQ(turns.decoded, 0);
    turns.note(RowClass::decode, one, 5.0);
    EXPECT_EQ(turns.decode_ms, 0.0) << "no prompt waits";
    turns.note(RowClass::decode, both, 2.0);
    EXPECT_EQ(turns.decoded, 2);
    EXPECT_EQ(turns.prefill_ms, 20.0);
    EXPECT_EQ(turns.decode_ms, 2.0);
    turns.note(RowClass::decode, both, 1000.0);
    EXPECT_NEAR(turns.decode_ms, 2.0 + 0.3 * 4.0, 1e-9) << "an interrupted forward says little";
    turns.note_ahead();
    EXPECT_EQ(turns.decoded, 4) << "one that ran ahead counts, too";
    for (int forward = 0; forward < 100; ++forward) turns.note_ahead();
    EXPECT_EQ(turns.decoded, kLongestDecodeTurn);
}

TEST(Scheduler, DecodesAloneAndLeavesPausedOnesOut) {
    const Schedule all = scheduled({{}, {.decode_rows = 1}, {}}, RowClass::decode);
    EXPECT_EQ(all.row_class, RowClass::decode);
    EXPECT_THAT(all.rows, ElementsAre(ScheduledRows{1, 1}));
    EXPECT_THAT(scheduled({{}, {}}, RowClass::decode).rows, IsEmpty());
    EXPECT_THAT(scheduled({}, RowClass::prefill).rows, IsEmpty());
}

}  // namespace
}  // namespace foresay::speculative
