// Samplers in a process of their own: the same answers, and what is bad for that process is not bad for this one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>

#include "plugins/host/check_subject.h"
#include "plugins/host/isolated.h"
#include "plugins/host/plugin_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "tests/plugins/support.h"
#include "tests/samplers/judging_samplers.h"

namespace foresay::plugins {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Factory = std::shared_ptr<const samplers::StageFactory>;
using OnError = samplers::StageSpec::OnError;

#ifndef FORESAY_SANITIZED  // sanitizers map more memory than a process of a sampler may have

Factory from(const char* file, const char* sampler) {
    return PluginHost({}).load(sampler, std::filesystem::path(FORESAY_BAD_FOLDER) / file);
}
Factory wordlist() { return PluginHost({{FORESAY_PLUGIN_FOLDER}, {}}).load("wordlist"); }

std::vector<float> row_at(std::size_t index) {
    std::mt19937 random(static_cast<unsigned>(index));
    std::vector<float> row(600);
    for (float& logit : row) logit = static_cast<float>(random() % 1000) * 0.01f;
    return row;
}

// Writes up to `most` tokens, and returns them and the failure that ended it.
std::string write(samplers::Chain& chain, std::size_t most) {
    std::string text;
    while (chain.history().size() < most) {
        std::vector<float> row = row_at(chain.history().size());
        const samplers::Decision decision = chain.decide(std::span<float>(row));
        if (decision.failure != nullptr) return text + decision.failure->message;
        text += std::to_string(decision.token) + " ";
        chain.accept(decision.token);
    }
    return text;
}

TEST(Isolated, GivesTheSameText) {
    const CheckVocabulary vocabulary(600);
    const std::vector<std::string> words = {"turn", "in", "x"};
    const std::vector<std::pair<Factory, samplers::Parameters>> all = {
        {wordlist(), {{"forbid", words}}}, {from("wrong.so", "nothing"), {}}, {samplers::find_builtin("mirostat"), {}}};
    for (const auto& [factory, parameters] : all) {
        const auto text = [&](const Factory& used) {
            samplers::Chain chain({{factory->description().name, parameters, used}}, vocabulary);
            std::string out;
            for (std::uint64_t seed = 0; seed < 3; ++seed) {
                chain.begin(seed, 0, std::vector<std::int32_t>{60, 61, 62});
                out += write(chain, 60) + "\n";
            }
            return out;
        };
        EXPECT_EQ(text(isolate(factory, 5s)), text(factory)) << factory->description().name;
    }
}

// What it accepts is told with its next test, and a draft that does not ask tells nothing.
TEST(Isolated, ATestIsOneCall) {
    const CheckVocabulary vocabulary(600);
    samplers::Chain chain({{"wordlist", {{"forbid", std::vector<std::string>{"turn", "in"}}}, isolate(wordlist(), 5s)}},
                          vocabulary);
    chain.begin(1, 0, std::vector<std::int32_t>{60, 61, 62});
    const std::int64_t before = isolated_calls();
    EXPECT_THAT(write(chain, 103), Not(HasSubstr("failed")));
    const std::int64_t tests = chain.reports()[0].calls;
    // The first eight are made twice, then the 16th, the 32nd and so on.
    const std::int64_t checks = 4 + static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(tests)));
    EXPECT_GE(tests, 100);
    EXPECT_EQ(isolated_calls() - before, tests + checks);
    samplers::DraftChain draft;
    for (int round = 0; round < 5; ++round) {
        const std::int64_t calls = isolated_calls();
        draft.start_to_verify(chain);
        for (std::int32_t token = 60; token < 80; ++token) draft.advance(token);
        EXPECT_LE(isolated_calls() - calls, round == 0 ? 2 : 1) << "a state, and that it is a copy";
    }
    // More tokens than one call has room for.
    draft.start(chain);
    samplers::Chain same({{"wordlist", {{"forbid", std::vector<std::string>{"turn", "in"}}}, wordlist()}}, vocabulary);
    same.begin(1, 0, chain.history());
    samplers::DraftChain other;
    other.start(same);
    for (int i = 0; i < 100; ++i) {
        std::vector<float> row = row_at(static_cast<std::size_t>(i)), copy = row;
        if (i % 50 == 49) {
            EXPECT_EQ(draft.propose(std::span<float>(row)).token, other.propose(std::span<float>(copy)).token);
        }
        draft.advance(60 + i);
        other.advance(60 + i);
    }
}

// Tests, and cannot accept each token.
template <bool kCrashes>
struct Picky {
    static constexpr foresay::Info info{"picky", "1", "Refuses tokens.", "Apache-2.0"};
    struct State {
        int accepted = 0;
    };
    void begin(State& state, const foresay::Text&) const { state.accepted = 0; }
    void accept(State& state, std::int32_t) const {
        if (++state.accepted < 12) return;
        if (kCrashes) std::raise(SIGSEGV);
        throw std::runtime_error("enough");
    }
    bool test(const State& state, const foresay::Context&, std::int32_t id) const {
        return (id + state.accepted) % 3 != 0;
    }
};

// Though the token is told later, it is at the same place that the text ends, or goes on without the sampler.
TEST(Isolated, ATokenThatCannotBeAcceptedFailsTheNextOne) {
    const CheckVocabulary vocabulary(600);
    const auto text = [&](const Factory& factory, OnError on_error) {
        samplers::Chain chain({{"picky", {}, factory, on_error}}, vocabulary);
        chain.begin(1, 0, {});
        return write(chain, 30);
    };
    const Factory here = samplers::linked_factory<Picky<false>>();
    const Factory crashes = isolate(samplers::linked_factory<Picky<true>>(), 5s);
    for (const OnError on_error : {OnError::stop, OnError::skip}) {
        const std::string plain = text(here, on_error);
        EXPECT_EQ(text(isolate(here, 5s), on_error), plain);
        if (on_error == OnError::skip) {
            EXPECT_EQ(text(crashes, on_error), plain);
            continue;
        }
        const std::size_t at = plain.find("sampler 'picky' failed: ");
        ASSERT_NE(at, plain.npos) << plain;
        EXPECT_THAT(plain, HasSubstr("enough"));
        EXPECT_EQ(text(crashes, on_error),
                  plain.substr(0, at) + "sampler 'picky' failed: it crashed in accept(): Segmentation fault");
    }
}

// What has state, is copied, tests, masks and processes, by the kit.
TEST(Isolated, KeepsTheContract) {
    const auto results = check_sampler(
        isolate(from("wrong.so", "nothing"), 5s),
        {.checks = {"bounds", "same again", "alone", "memory", "clones", "agreement", "identity", "threads"}});
    for (const CheckResult& result : results)
        EXPECT_EQ(result.outcome, CheckResult::Outcome::passed) << result.check << ": " << result.text;
}

class IsolatedTrouble : public ::testing::Test {
protected:
    // A text whose sampler does `deed` at its tenth token.
    std::string text(const std::string& deed, OnError on_error = OnError::stop) {
        samplers::Chain chain({{"trouble",
                                {{"deed", deed}, {"at", std::int64_t{10}}},
                                isolate(from("trouble.so", "trouble"), 300ms),
                                on_error}},
                              vocabulary_);
        chain.begin(1, 0, {});
        return write(chain, 20);
    }
    const CheckVocabulary vocabulary_{600};
};

TEST_F(IsolatedTrouble, CostsItsOwnProcess) {
    const std::string sound = text("none");
    const auto why = [&](const std::string& deed) {
        const std::string all = text(deed);
        const std::size_t at = all.find("sampler 'trouble' failed: ");
        EXPECT_NE(at, all.npos) << deed << " " << all;
        EXPECT_THAT(sound, StartsWith(all.substr(0, at))) << "nothing that was said before is lost";
        return at == all.npos ? all : all.substr(at + 26);
    };
    EXPECT_EQ(why("segfault"), "it crashed in process(): Segmentation fault");
    EXPECT_EQ(why("abort"), "it crashed in process(): Aborted");
    EXPECT_EQ(why("overflow"), "it crashed in process(): Segmentation fault");
    EXPECT_EQ(why("_exit"), "process() ended its process");
    EXPECT_EQ(why("exit"), "process() ended its process");
    EXPECT_EQ(why("hang"), "process() did not return within 300 ms");
    EXPECT_EQ(why("leak"), "it used up the 1024 MiB of memory that it may have, in process(): std::bad_alloc");
    // The policy decides: the stage is left out, and the text goes on.
    EXPECT_EQ(text("segfault", OnError::skip), text("none", OnError::skip));
}

TEST_F(IsolatedTrouble, HasNoFilesAndNoNetwork) {
    EXPECT_EQ(text("file"), text("none"));
    EXPECT_EQ(text("socket"), text("none"));
    // The same code, not isolated, has both.
    for (const char* deed : {"file", "socket"}) {
        samplers::Chain chain({{"trouble", {{"deed", std::string(deed)}}, from("trouble.so", "trouble")}}, vocabulary_);
        chain.begin(1, 0, {});
        EXPECT_THAT(write(chain, 2), HasSubstr("it could")) << deed;
    }
}

// A stage with state, whose process ends.
class IsolatedGrief : public ::testing::Test {
protected:
    std::unique_ptr<samplers::Chain> chain(const Factory& factory, const char* deed, OnError on_error) const {
        return std::make_unique<samplers::Chain>(
            samplers::ChainSpec{{"grief", {{"deed", std::string(deed)}, {"at", std::int64_t{13}}}, factory, on_error}},
            vocabulary_);
    }
    // A text of 30 tokens. `drafted`: a draft runs three tokens ahead before each of them.
    static std::string text(samplers::Chain& chain, bool drafted) {
        std::string out;
        chain.begin(1, 0, std::vector<std::int32_t>{60, 61, 62});
        samplers::DraftChain draft;
        while (chain.history().size() < 30) {
            if (drafted) {
                draft.start(chain);
                for (std::size_t i = 0; i < 3; ++i) {
                    std::vector<float> row = row_at(chain.history().size() + i);
                    draft.advance(std::max(draft.propose(std::span<float>(row)).token, 0));
                }
            }
            const std::size_t before = chain.history().size();
            out += write(chain, before + 1);
            if (chain.history().size() == before) break;
        }
        return out;
    }
    const CheckVocabulary vocabulary_{600};
    const Factory here_ = from("grief.so", "grief"), apart_ = isolate(here_, 2s);
};

// What it knew of the text is there again in another process: only the token at which it crashed goes without it, as
// where a sampler in this process fails.
TEST_F(IsolatedGrief, GoesOnInAnotherProcess) {
    const std::string skipped = text(*chain(here_, "throw", OnError::skip), false);
    EXPECT_NE(skipped, text(*chain(here_, "none", OnError::skip), false)) << "the sampler matters at this token";
    const auto apart = chain(apart_, "segfault", OnError::skip);
    for (const bool drafted : {false, true}) {
        EXPECT_EQ(text(*apart, drafted), skipped) << drafted;
        EXPECT_EQ(apart->reports()[0].failures, drafted ? 2 : 1);
        EXPECT_EQ(apart->reports()[0].last_failure, "it crashed in process(): Segmentation fault");
    }
}

// The answer ends, and the next one begins with another process.
TEST_F(IsolatedGrief, StopsTheAnswerAndBeginsTheNext) {
    const std::string sound = text(*chain(here_, "none", OnError::stop), false);
    for (const bool drafted : {false, true}) {
        const auto apart = chain(apart_, "segfault", OnError::stop);
        const std::string first = text(*apart, drafted);
        const std::size_t at = first.find("sampler 'grief' failed: it crashed in process(): Segmentation fault");
        ASSERT_NE(at, first.npos) << first;
        EXPECT_GT(at, 0u);
        EXPECT_THAT(sound, StartsWith(first.substr(0, at)));
        EXPECT_EQ(text(*apart, drafted), first);
    }
}

TEST_F(IsolatedGrief, CrashesInADraftChangeNoText) {
    const std::string sound = text(*chain(here_, "none", OnError::stop), false);
    EXPECT_EQ(text(*chain(apart_, "segfault_in_draft", OnError::stop), true), sound);
}

TEST_F(IsolatedGrief, NamesACrashInAState) {
    const auto apart = chain(apart_, "segfault_in_accept", OnError::stop);
    const std::string plain = text(*apart, false);
    EXPECT_THAT(plain, HasSubstr("sampler 'grief' failed: it crashed in accept(): Segmentation fault"));
    EXPECT_EQ(text(*apart, true), plain) << "copies crash earlier, in a draft";
}

// Pids of processes that have this parent.
std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != name.npos) continue;
        const std::string stat = read_file(entry.path() / "stat");
        const std::size_t end = stat.rfind(')');
        if (end == stat.npos) continue;
        char state = 0;
        int owner = 0;
        if (std::sscanf(stat.c_str() + end + 1, " %c %d", &state, &owner) == 2 && owner == parent && state != 'Z')
            found.push_back(static_cast<pid_t>(std::stoi(name)));
    }
    return found;
}

// However the program ends, and though the thread that made the sampler has ended before.
TEST_F(IsolatedGrief, EndsWithTheProgram) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t program = ::fork();
    if (program == 0) {
        std::unique_ptr<samplers::Chain> made;
        std::thread([&] { made = chain(isolate(here_, 2s), "none", OnError::stop); }).join();
        const std::string written = text(*made, false);
        const ssize_t ignored = ::write(ready[1], written.data(), 1);
        static_cast<void>(ignored);
        ::pause();
        ::_exit(0);
    }
    char byte = 0;
    ::close(ready[1]);
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the process has answered";
    ::close(ready[0]);
    const std::vector<pid_t> own = children_of(program);
    EXPECT_EQ(own.size(), 1u);
    ::kill(program, SIGKILL);
    ::waitpid(program, nullptr, 0);
    bool gone = false;
    for (int i = 0; i < 3000 && !gone; ++i) {
        gone = std::ranges::all_of(own, [](pid_t pid) {
            const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
            return stat.empty() || stat.find(") Z ") != stat.npos;
        });
        std::this_thread::sleep_for(10ms);
    }
    EXPECT_TRUE(gone);
}

TEST(Isolated, WhatACallCosts) {
    Subject plain(from("wrong.so", "shares_scratch"), {}, 16384);
    Subject apart(isolate(from("wrong.so", "shares_scratch"), 5s), {}, 16384);
    std::mt19937_64 random(1);
    const Row row = plain.row(random);
    const auto microseconds = [&](const Subject& subject) {
        const Place at{1, 0, std::vector<std::int32_t>(2000, 65), 0};
        const auto state = subject.begin(at);
        const samplers::StageContext context = subject.context(at);
        std::vector<std::int32_t> ids(row.ids.size());
        std::vector<float> logits(row.ids.size());
        constexpr int kCalls = 2000;
        std::vector<double> times;
        for (int i = 0; i < kCalls; ++i) {
            std::ranges::copy(row.ids, ids.begin());
            std::ranges::copy(row.logits, logits.begin());
            kernels::Candidates list{ids.data(), logits.data(), static_cast<std::int32_t>(ids.size())};
            const auto start = std::chrono::steady_clock::now();
            EXPECT_EQ(subject.stage().process(state.get(), context, list), "");
            times.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
        }
        std::ranges::sort(times);
        return std::pair(times[kCalls / 20], times[kCalls / 2]);
    };
    const auto [here_best, here] = microseconds(plain);
    const auto [apart_best, isolated] = microseconds(apart);
    std::printf(
        "a call with 512 candidates and 2,000 tokens of history, fastest 5 %% and median: %.2f and %.2f us, isolated "
        "%.2f and %.2f us\n",
        here_best, here, apart_best, isolated);
    RecordProperty("isolated_us", std::to_string(isolated));
}

#endif

}  // namespace
}  // namespace foresay::plugins
