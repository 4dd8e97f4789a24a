// What a scheduler decided is decided again from its record, without models; and recorded loads, whose decisions have
// what users feel: short gaps between tokens, turns of queues, and a place for everybody in the end.
//
// FORESAY_RENEW_SCHEDULES=1 records the loads of tests/golden/schedules again, with the bundled target.
#include "tests/speculative/schedule_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>

#include "speculative/drafters/ngram_drafter.h"
#include "tests/speculative/batch_requests.h"

namespace foresay::test {
namespace {

using kernels::RowClass;
using speculative::BatchGenerator;
using speculative::BatchRequest;
using speculative::Ticket;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A prompt like no other from its first token on.
std::vector<std::int32_t> tokens_of(std::size_t count, unsigned which) {
    std::vector<std::int32_t> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>(300 + (which * 131 + i * 7) % 5000);
    return tokens;
}

BatchRequest request_of(std::size_t prompt, std::int32_t count, unsigned which) {
    BatchRequest made = request(count, which);
    made.input = tokens_of(prompt, which);
    return made;
}

double hand_of_clock = 0.0;
speculative::Now clock_by_hand() {
    return [] { return hand_of_clock += 1.0; };
}

// ---------------------------------------------------------------------------------------------------- any load at all

// Arrivals, cancels and pauses at random, with drafts, shared beginnings, deadlines, and pages for few.
std::string record_at_random(unsigned seed) {
    std::mt19937 random(seed);
    core::ContextOptions options = for_sequences(1, 320);
    options.branches = 7;
    options.prefill_rows = 48;
    speculative::BatchParts parts = batch_parts(options);
    parts.most_sequences = 2 + static_cast<std::int32_t>(random() % 5);
    parts.sure_growth = 1;
    parts.prefill_rows_beside = 1 + static_cast<std::int32_t>(random() % 20);
    parts.classes_agree = core::classes_agree(parts.target->ops()) && seed % 2 == 0;
    if (seed % 3 == 0) {
        parts.speculation = fixed(3);
        parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
    }
    parts.now = clock_by_hand();
    ScheduleRecord record;
    parts.schedule_log = record.writer();
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks;
    std::vector<Ticket> tickets;
    const auto add = [&] {
        const std::size_t length = random() % 3 == 0 ? 100 + random() % 60 : 1 + random() % 20;
        BatchRequest one = request_of(length, static_cast<std::int32_t>(10 + random() % 40), random() % 6);
        one.priority = static_cast<std::int32_t>(random() % 3);
        one.queue = std::string(1, static_cast<char>('a' + random() % 4));
        if (random() % 6 == 0) one.deadline = hand_of_clock + 100.0 + static_cast<double>(random() % 400);
        tickets.push_back(batch.add(std::move(one), sinks.emplace_back()));
    };
    // What a sink does stands in the record where it happened.
    const auto add_another = [&] {
        if (tickets.size() < 30) add();
    };
    while (tickets.size() < 24 || batch.running() + batch.waiting() > 0) {
        if (tickets.size() < 24 && random() % 4 == 0) {
            add();
            if (random() % 3 == 0) sinks.back().on_end = add_another;
        }
        if (!tickets.empty()) {
            const Ticket any = tickets[random() % tickets.size()];
            if (random() % 30 == 0) batch.cancel(any);
            if (random() % 12 == 0) batch.pause(any);
        }
        if (!batch.step() || random() % 8 == 0) {
            for (const Ticket ticket : tickets) batch.resume(ticket);
        }
    }
    return record.text();
}

TEST(ScheduleReplay, TheSameIsDecidedAgainWithoutModels) {
    Replay all;
    // Which texts a backend writes decides what becomes of a load. Where four of them were too tame, more follow.
    for (unsigned seed = 0; seed < 4 || (seed < 16 && all.waits == 0); ++seed) {
        const Replay one = replay_schedule(record_at_random(seed));
        EXPECT_THAT(one.differences, IsEmpty()) << "load " << seed;
        EXPECT_EQ(one.limits.prefill_rows, 48);
        EXPECT_GE(one.forwards.size(), 50u);
        for (std::size_t ticket = 1; ticket < one.requests.size(); ++ticket)
            all.requests.push_back(one.requests[ticket]);
        all.admissions += one.admissions;
        all.preemptions += one.preemptions;
        all.cancelled += one.cancelled;
        all.late += one.late;
        all.full += one.full;
        all.waits += one.waits;
        for (const Replay::Forward& forward : one.forwards) all.mixed += forward.mixed ? 1 : 0;
    }
    // The loads are worth their name.
    EXPECT_GE(all.requests.size(), 4u * 24u);
    EXPECT_GT(all.preemptions, 0);
    EXPECT_GT(all.cancelled, 0);
    EXPECT_GT(all.late, 0);
    EXPECT_GT(all.full, 0);
    EXPECT_GT(all.waits, 0);
    if (core::classes_agree(fast_backend().ops())) EXPECT_GT(all.mixed, 0);
}

// Controls: a decision or a fact that is another one is noticed.
std::string with_other(const std::string& record, const std::string& before, const std::string& after) {
    const std::size_t at = record.rfind(before);
    EXPECT_NE(at, std::string::npos);
    return record.substr(0, at) + after + record.substr(at + before.size());
}

TEST(ScheduleReplay, AnotherDecisionIsNoticed) {
    const std::string record =
        "batch 48 8 16 2\nadd 1 0 0 0 9\nadd 2 0 0 0 9\nadd 3 1 1 0 9\nstep 0\nadmit 3 0\nadmit 1 8\n"
        "loads 9,0 0,1\nrows prefill 3:8\nran 3 8\ntook 9\nstep 0\nloads 1,0 0,1\nrows decode 1:1\nran 1 1\ntook 2\n";
    EXPECT_THAT(replay_schedule(record).differences, IsEmpty());
    const auto differences = [&](const std::string& before, const std::string& after) {
        return replay_schedule(with_other(record, before, after)).differences;
    };
    EXPECT_THAT(differences("admit 3 0", "admit 2 0"), Contains(HasSubstr("line 6: the next one is 2 in the record")));
    EXPECT_THAT(differences("admit 1 8\n", ""), Contains(HasSubstr("the next one is 0 in the record, 1 here")));
    EXPECT_THAT(differences("3:8", "3:7"), Contains("line 9: other rows"));
    EXPECT_THAT(differences("rows decode 1:1", "rows prefill 3:1"), Contains("line 14: rows of the other class"));
    EXPECT_THAT(differences("add 3 1 1 0 9", "add 3 0 1 0 9"), Contains(HasSubstr("3 in the record, 1 here")));
    EXPECT_THAT(differences("step 0\nloads 1,0", "step 0\npreempt 3\nloads 1,0"),
                Contains(HasSubstr("preempted is 3 in the record, 1 here")));
    EXPECT_THAT(differences("step 0\nloads", "cancel 1\nstep 0\nloads"), Contains(HasSubstr("1 should have ended")));
    EXPECT_THAT(differences("step 0\nloads", "step 0\nend 1 cancelled\nloads"),
                Contains(HasSubstr("not cancelled: 1")));
}

TEST(ScheduleReplay, NothingIsRecordedOfNames) {
    ScheduleRecord record;
    speculative::BatchParts parts = batch_parts(for_sequences(1));
    parts.schedule_log = record.writer();
    BatchGenerator batch(std::move(parts));
    Recorder sink;
    BatchRequest named = request(2);
    named.queue = "somebody";
    batch.add(std::move(named), sink);
    run(batch);
    EXPECT_THAT(record.text(), HasSubstr("\nadd 1 0 0 0 "));
    EXPECT_EQ(record.text().find("somebody"), std::string::npos);
}

// ------------------------------------------------------------------------------------------------------ recorded loads

// Three texts decode, and long prompts come one after the other.
std::string record_prompts(bool classes_agree) {
    core::ContextOptions options = for_sequences(5);
    options.prefill_rows = 64;
    speculative::BatchParts parts = batch_parts(options);
    parts.prefill_rows_beside = 24;
    parts.classes_agree = classes_agree;
    parts.now = speculative::steady_now;
    ScheduleRecord record;
    parts.schedule_log = record.writer();
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks;
    for (unsigned i = 0; i < 3; ++i) batch.add(request_of(9 + i, 90, i), sinks.emplace_back());
    for (int step = 0; batch.step(); ++step) {
        if (step >= 8 && step % 24 == 8 && sinks.size() < 7) {
            batch.add(request_of(230, 3, static_cast<unsigned>(sinks.size())), sinks.emplace_back());
        }
    }
    return record.text();
}

std::string record_long_prompts() { return record_prompts(false); }
std::string record_mixed_prompts() { return record_prompts(true); }

// One queue brings thirty requests at once, another one has a request every now and then.
std::string record_two_queues() {
    speculative::BatchParts parts = batch_parts(for_sequences(2));
    parts.now = speculative::steady_now;
    ScheduleRecord record;
    parts.schedule_log = record.writer();
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks;
    const auto add = [&](const char* queue) {
        const auto which = static_cast<unsigned>(sinks.size());
        BatchRequest one = request_of(6 + which % 5, 6, which);
        one.queue = queue;
        batch.add(std::move(one), sinks.emplace_back());
    };
    for (int i = 0; i < 30; ++i) add("many");
    for (int step = 0; batch.step(); ++step) {
        if (step % 12 == 5 && step < 72) add("few");
    }
    return record.text();
}

// Two places, and always some of priority 2 that wait: those of priority 0 have their turn all the same. Some are
// cancelled, one is paused, some have deadlines, and the pages do not suffice for all that runs.
std::string record_priorities() {
    core::ContextOptions options = for_sequences(1, 128);
    options.branches = 3;
    speculative::BatchParts parts = batch_parts(options);
    parts.most_sequences = 2;
    parts.sure_growth = 1;
    parts.now = clock_by_hand();
    ScheduleRecord record;
    parts.schedule_log = record.writer();
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks;
    std::vector<Ticket> tickets;
    const auto add = [&](std::int32_t priority, std::size_t prompt, std::int32_t count, double deadline = 0.0) {
        BatchRequest one = request_of(prompt, count, static_cast<unsigned>(sinks.size()));
        one.priority = priority;
        one.deadline = deadline;
        tickets.push_back(batch.add(std::move(one), sinks.emplace_back()));
    };
    add(2, 5, 3);
    for (int i = 0; i < 3; ++i) add(0, 5, 4);
    for (int step = 0; sinks.size() < 64 || batch.running() + batch.waiting() > 0; ++step) {
        while (sinks.size() < 64 && batch.waiting() < 6) {
            const std::size_t which = sinks.size();
            // Some begin in the first page and need another one soon.
            add(2, which % 4 == 0 ? 60 : 5, which % 2 == 0 ? 9 : 3, which % 9 == 0 ? hand_of_clock + 30.0 : 0.0);
            if (which % 11 == 0) batch.cancel(tickets.back());
            if (which == 20) batch.pause(tickets.back());
        }
        if (step == 60) batch.resume(tickets[20]);
        batch.step();
    }
    return record.text();
}

Replay recorded(const std::string& name, std::string (*record)()) {
    const std::string path = std::string(FORESAY_SOURCE_DIR) + "/tests/golden/schedules/" + name + ".txt";
    if (std::getenv("FORESAY_RENEW_SCHEDULES") != nullptr) std::ofstream(path) << record();
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    Replay replay = replay_schedule(text.str());
    EXPECT_THAT(replay.differences, IsEmpty()) << name;
    EXPECT_THAT(replay.forwards, ::testing::Not(IsEmpty()));
    return replay;
}

// Between two tokens of a text there is at most one forward of prompts, and a short one. And prompts come on: among so
// many forwards of decode rows one of theirs.
TEST(RecordedLoads, WhoDecodesWaitsForOneShortForwardOfPrompts) {
    const Replay replay = recorded("long_prompts", record_long_prompts);
    ASSERT_EQ(replay.limits.prefill_rows_beside, 24);
    int beside = 0, prefills = 0, decodes = 0;
    for (const Replay::Forward& forward : replay.forwards) {
        if (forward.row_class == RowClass::decode) {
            prefills = 0;
            ++decodes;
            EXPECT_EQ(forward.rows.size(), forward.decoding.size()) << "everyone who decodes has a row";
            continue;
        }
        if (forward.decoding.empty()) continue;
        ++beside;
        EXPECT_LE(++prefills, 1) << "two forwards of prompts without one that decodes";
        EXPECT_LE(forward.all_rows(), replay.limits.prefill_rows_beside);
    }
    EXPECT_GE(beside, 8) << "prompts were read while others decoded";
    EXPECT_GT(decodes, beside);
    for (std::size_t ticket = 4; ticket < replay.requests.size(); ++ticket) {
        EXPECT_GE(replay.requests[ticket].admitted, 0);
    }
}

// Where the classes agree no text that decodes waits at all: each forward has a row for everyone, whatever it reads of
// prompts, which is little.
TEST(RecordedLoads, WhoDecodesHasARowInEveryForwardWhereTheClassesAgree) {
    const Replay replay = recorded("mixed_prompts", record_mixed_prompts);
    EXPECT_TRUE(replay.limits.mixes);
    int mixed = 0, decodes = 0, in_a_row = 0;
    for (const Replay::Forward& forward : replay.forwards) {
        if (forward.decoding.empty()) continue;
        for (const std::uint64_t ticket : forward.decoding) {
            EXPECT_THAT(forward.rows, Contains(std::pair(ticket, 1)));
        }
        in_a_row = forward.mixed ? in_a_row + 1 : 0;
        EXPECT_LE(in_a_row, 1) << "two forwards that read prompts, one after the other";
        decodes += forward.mixed ? 0 : 1;
        if (!forward.mixed) continue;
        ++mixed;
        EXPECT_GT(forward.all_rows(), static_cast<std::int32_t>(forward.decoding.size()));
        EXPECT_LE(forward.all_rows(),
                  replay.limits.prefill_rows_beside + static_cast<std::int32_t>(forward.decoding.size()));
    }
    EXPECT_GE(mixed, 8) << "prompts were read while others decoded";
    EXPECT_GT(decodes, mixed);
    for (std::size_t ticket = 4; ticket < replay.requests.size(); ++ticket) {
        EXPECT_GE(replay.requests[ticket].admitted, 0);
    }
}

// Who asks rarely has a turn before all requests of who asks much are done.
TEST(RecordedLoads, NoQueueStarves) {
    const Replay replay = recorded("two_queues", record_two_queues);
    int few = 0;
    std::int64_t last_of_many = 0;
    for (const Replay::Request& request : replay.requests) {
        if (request.queue == 0) last_of_many = std::max(last_of_many, request.admitted);
    }
    for (const Replay::Request& request : replay.requests) {
        if (request.queue == 0) continue;
        ++few;
        EXPECT_LE(request.admitted - request.arrived, 2) << "others had the next places";
        EXPECT_LT(request.admitted, last_of_many) << "the many came first";
    }
    EXPECT_EQ(few, 6);
}

// So many admissions of those above make up for a lower priority.
TEST(RecordedLoads, WhoWaitsRisesAndHasItsTurn) {
    const Replay replay = recorded("priorities", record_priorities);
    constexpr std::uint64_t kRise = 2 * speculative::kPassesToRise;
    int low = 0, later = 0;
    for (const Replay::Request& request : std::span(replay.requests).subspan(1)) {
        if (request.priority > 0) {
            later += request.admitted > static_cast<std::int64_t>(kRise) + 3 ? 1 : 0;
            continue;
        }
        ++low;
        EXPECT_EQ(request.passed_over, kRise);
        EXPECT_LE(request.admitted - request.arrived, static_cast<std::int64_t>(kRise) + 3);
    }
    EXPECT_EQ(low, 3);
    EXPECT_GT(later, 8) << "those of priority 2 did not run out before";
    EXPECT_GT(replay.preemptions, 0);
    EXPECT_GT(replay.cancelled, 0);
    EXPECT_GT(replay.late, 0);
}

}  // namespace
}  // namespace foresay::test
