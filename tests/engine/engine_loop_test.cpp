// Requests of several threads, run together: EngineLoop.
#include "engine/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "tests/app/program.h"
#include "tests/speculative/schedule_replay.h"

namespace foresay::engine {
namespace {

using speculative::FinishReason;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

core::Config config() {
    const std::string text = "target.model = \"" + testing::source("models/python-coder/target-q4_k_m.gguf") +
                             "\"\ntarget.context = 256\nruntime.device = \"cpu\"\nruntime.threads = 1\n";
    return load_config(testing::write_scratch("loop.toml", text));
}

const Engine& engine() {
    static const Engine opened = Engine::open(config());
    return opened;
}

// Keeps what one request says; wait() blocks until its end.
class Answer final : public Sink {
public:
    void token(const speculative::TokenEvent& event) override {
        std::unique_lock lock(mutex_);
        text_ += event.text;
        ++tokens_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return tokens_ != held_at_; });
    }
    void end(const BatchEnd& end) override {
        const std::scoped_lock lock(mutex_);
        EXPECT_FALSE(ended_) << "ended twice";
        ended_ = true;
        finish_ = end.result.finish;
        error_ = end.error;
        changed_.notify_all();
    }
    std::string wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_; });
        return text_;
    }
    void wait_for_tokens(int count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || tokens_ >= count; });
    }
    // Holds the loop up at the token of this number, as no sink should, until release(): what a caller does meanwhile
    // comes before the next token, however slow the machine is.
    void hold_at(int token) { held_at_ = token; }
    void release() {
        const std::scoped_lock lock(mutex_);
        held_at_ = -1;
        changed_.notify_all();
    }
    bool ended() const { return ended_; }
    FinishReason finish() const { return finish_; }
    const std::string& error() const { return error_; }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string text_;
    int tokens_ = 0, held_at_ = -1;
    bool ended_ = false;
    FinishReason finish_ = FinishReason::length;
    std::string error_;
};

constexpr const char* kPrompts[] = {"def add(a, b):\n", "class Stack:\n", "import os\n\n\ndef main():\n"};

BatchRequest request(std::size_t prompt, std::uint64_t seed, std::int32_t count) {
    return {.input = engine().tokenizer().encode(kPrompts[prompt]),
            .chain = {},
            .max_tokens = count,
            .seed = seed,
            .stop = {},
            .stop_tokens = {},
            .ignore_eos = true,
            .queue = {}};
}

std::string alone(std::size_t prompt, std::uint64_t seed, std::int32_t count) {
    speculative::Generator generator = engine().make_generator();
    const std::vector<std::int32_t> input = engine().tokenizer().encode(kPrompts[prompt]);
    return generator.generate({.input = input, .max_tokens = count, .seed = seed, .ignore_eos = true}).text;
}

TEST(EngineLoop, AnswersRequestsOfManyThreadsWithTheBytesThatEachHasAlone) {
    std::string expected[3][2];
    for (std::size_t prompt = 0; prompt < 3; ++prompt) {
        for (std::uint64_t seed = 0; seed < 2; ++seed) expected[prompt][seed] = alone(prompt, seed, 24);
    }
    EXPECT_NE(expected[0][0], expected[0][1]);
    EngineLoop loop(engine(), {.sequences = 3});
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&, caller] {
            for (std::uint64_t i = 0; i < 4; ++i) {
                const auto answer = std::make_shared<Answer>();
                loop.add(request((caller + i) % 3, i % 2, 24), answer);
                EXPECT_EQ(answer->wait(), expected[(caller + i) % 3][i % 2]);
                EXPECT_EQ(answer->error(), "");
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    loop.stop();
    const LoopStatus status = loop.status();
    EXPECT_EQ(status.waiting, 0u);
    EXPECT_EQ(status.counters.tokens, 12 * 24);
}

// A device that fails after the end of another text, in the same step: this sink throws in its place.
TEST(EngineLoop, EndsEachOnceWhereAStepFails) {
    class Failing final : public Sink {
    public:
        explicit Failing(const Answer& other) : other_(other) {}
        void token(const speculative::TokenEvent&) override {
            if (other_.ended()) throw Error("the device has failed");
        }
        void end(const BatchEnd& end) override { error.set_value(end.error); }
        std::promise<std::string> error;

    private:
        const Answer& other_;
    };
    EngineLoop loop(engine(), {.sequences = 2});
    const auto cancelled = std::make_shared<Answer>();
    const auto failing = std::make_shared<Failing>(*cancelled);
    cancelled->hold_at(3);
    loop.add(request(1, 1, 200), failing);
    const Ticket ticket = loop.add(request(0, 1, 200), cancelled);
    cancelled->wait_for_tokens(3);
    loop.cancel(ticket);
    cancelled->release();
    EXPECT_EQ(failing->error.get_future().get(), "the device has failed");
    loop.stop();
    EXPECT_EQ(cancelled->finish(), FinishReason::cancelled);
    EXPECT_EQ(cancelled->error(), "");
}

TEST(EngineLoop, CancelsAndPauses) {
    EngineLoop loop(engine(), {.sequences = 2});
    const auto cancelled = std::make_shared<Answer>();
    const auto other = std::make_shared<Answer>();
    cancelled->hold_at(3);
    const Ticket ticket = loop.add(request(0, 1, 200), cancelled);
    const Ticket paused = loop.add(request(1, 1, 24), other);
    loop.pause(paused);
    cancelled->wait_for_tokens(3);
    loop.cancel(ticket);
    cancelled->release();
    cancelled->wait();
    EXPECT_EQ(cancelled->finish(), FinishReason::cancelled);
    loop.cancel(ticket);  // ignored
    loop.resume(paused);
    EXPECT_EQ(other->wait(), alone(1, 1, 24));
}

// The deadline of one that waits comes, although nothing runs that would wake the loop.
TEST(EngineLoop, ADeadlineComesWhileAllArePaused) {
    EngineLoop loop(engine(), {.sequences = 1});
    const auto first = std::make_shared<Answer>();
    const auto late = std::make_shared<Answer>();
    first->hold_at(1);
    const Ticket paused = loop.add(request(0, 1, 24), first);
    first->wait_for_tokens(1);  // it has the place
    loop.pause(paused);
    BatchRequest hurried = request(1, 1, 24);
    hurried.deadline = speculative::steady_now() + 20.0;
    loop.add(std::move(hurried), late);
    first->release();
    EXPECT_EQ(late->wait(), "");
    EXPECT_EQ(late->finish(), FinishReason::deadline);
    loop.resume(paused);
    EXPECT_EQ(first->wait(), alone(0, 1, 24));
}

TEST(EngineLoop, RefusesAtOnce) {
    EngineLoop loop(engine());
    const auto answer = std::make_shared<Answer>();
    BatchRequest wrong = request(0, 0, 8);
    wrong.input.assign(300, 5);
    try {
        loop.add(std::move(wrong), answer);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("300 tokens long but the context holds 256"));
    }
    EXPECT_EQ(loop.status().waiting, 0u);
}

TEST(EngineLoop, EveryRequestEndsWhenItStops) {
    std::vector<std::shared_ptr<Answer>> answers;
    EngineLoop loop(engine(), {.sequences = 2});
    std::vector<Ticket> tickets;
    for (std::uint64_t i = 0; i < 5; ++i) {
        answers.push_back(std::make_shared<Answer>());
        if (i == 0) answers[0]->hold_at(1);
        tickets.push_back(loop.add(request(0, i, 200), answers.back()));
    }
    answers[0]->wait_for_tokens(1);
    for (const Ticket ticket : tickets) loop.pause(ticket);  // or some could end before
    answers[0]->release();
    loop.stop();
    for (const auto& answer : answers) {
        answer->wait();
        EXPECT_EQ(answer->finish(), FinishReason::cancelled);
    }
    EXPECT_THROW(loop.add(request(0, 0, 8), answers[0]), Error);
}

// What comes from other threads stands in the record in the order in which it took effect.
TEST(EngineLoop, WhatItsSchedulerDecidesIsDecidedAgainFromARecord) {
    test::ScheduleRecord record;
    std::vector<std::shared_ptr<Answer>> answers(9);
    for (auto& answer : answers) answer = std::make_shared<Answer>();
    {
        EngineLoop loop(engine(), {.sequences = 2, .schedule_log = record.writer()});
        std::vector<std::thread> callers;
        for (std::size_t caller = 0; caller < 3; ++caller) {
            callers.emplace_back([&, caller] {
                for (std::size_t i = 0; i < 3; ++i) {
                    BatchRequest one = request(caller, i, 16);
                    one.priority = static_cast<std::int32_t>(i % 2);
                    one.queue = std::to_string(caller);
                    if (i == 1) one.deadline = speculative::steady_now() + 5.0;
                    const auto& answer = answers[3 * caller + i];
                    const Ticket ticket = loop.add(std::move(one), answer);
                    if (i != 2) continue;
                    loop.pause(ticket);
                    loop.resume(ticket);
                    if (caller == 2) loop.cancel(ticket);
                }
            });
        }
        for (std::thread& caller : callers) caller.join();
        for (const auto& answer : answers) answer->wait();
    }
    const test::Replay replay = test::replay_schedule(record.text());
    EXPECT_THAT(replay.differences, IsEmpty());
    EXPECT_EQ(replay.most, 2u);
    EXPECT_EQ(replay.requests.size(), 10u) << "the first ticket is 1";
    EXPECT_GT(replay.admissions, 0);
}

TEST(EngineLoop, TakesAChainOfTheRequest) {
    samplers::ChainSpec spec = engine().chain_spec();
    samplers::set_parameter(spec, "temperature", "value", 0.0);
    const std::int32_t token = engine().tokenizer().encode(" x", {.add_special = false}).back();
    samplers::set_parameter(spec, "logit_bias", "tokens", std::vector<std::int64_t>{token});
    samplers::set_parameter(spec, "logit_bias", "values", std::vector<double>{100.0});
    EngineLoop loop(engine());
    BatchRequest biased = request(0, 0, 8);
    biased.chain = engine().make_chain(spec);
    const auto answer = std::make_shared<Answer>();
    loop.add(std::move(biased), answer);
    std::string expected;
    for (int i = 0; i < 8; ++i) expected += engine().tokenizer().bytes(token);
    EXPECT_EQ(answer->wait(), expected);
}

// What one program has evaluated, the next one finds on the disk.
TEST(EngineLoop, PagesOutlastTheProgramOnDisk) {
    const std::filesystem::path folder = testing::scratch() / "pages of texts";
    std::filesystem::remove_all(folder);  // of a run before, with --gtest_repeat
    const Engine keeping = [&] {
        const std::string text = "target.model = \"" + testing::source("models/python-coder/target-q4_k_m.gguf") +
                                 "\"\ndraft.model = \"" + testing::source("models/python-coder/draft-q8_0.gguf") +
                                 "\"\nspeculation.mode = \"fixed\"\n" +
                                 "target.context = 256\nruntime.device = \"cpu\"\nruntime.threads = 1\n" +
                                 "[cache]\nhost_mib = 1\nfolder = \"" + folder.string() + "\"\n";
        return Engine::open(load_config(testing::write_scratch("keeping.toml", text)));
    }();
    std::string prompt;
    for (int i = 0; i < 15; ++i) prompt += "def read_" + std::to_string(i) + "(path):\n    return path\n\n";
    const auto answer_of = [&](speculative::BatchCounters* counters) {
        EngineLoop loop(keeping, {.sequences = 2});
        BatchRequest one = request(0, 3, 16);
        one.input = keeping.tokenizer().encode(prompt);
        EXPECT_GT(one.input.size(), 2u * kernels::kPagePositions);
        const auto answer = std::make_shared<Answer>();
        loop.add(std::move(one), answer);
        std::string text = answer->wait();
        loop.stop();
        *counters = loop.status().counters;
        return text;
    };
    speculative::BatchCounters first, second;
    const std::string text = answer_of(&first);
    EXPECT_EQ(answer_of(&second), text);
    EXPECT_EQ(first.restored_tokens, 0);
    EXPECT_EQ(first.draft_restored_tokens, 0);
    EXPECT_GE(second.restored_tokens, 2 * kernels::kPagePositions);
    EXPECT_GE(second.draft_restored_tokens, 2 * kernels::kPagePositions);
    EXPECT_THAT(keeping.page_fingerprint(), HasSubstr("cpu"));
    EXPECT_NE(keeping.draft_page_fingerprint(), keeping.page_fingerprint());
}

}  // namespace
}  // namespace foresay::engine
