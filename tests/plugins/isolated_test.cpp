// Samplers in a process of their own: the same answers, and what is bad for that process is not bad for this one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "plugins/host/check_subject.h"
#include "plugins/host/isolated.h"
#include "plugins/host/plugin_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "tests/plugins/support.h"

namespace foresay::plugins {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
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
    EXPECT_EQ(why("leak"), "std::bad_alloc");
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

// A stage with state, whose process is killed: the next text begins with another one.
TEST(IsolatedState, BeginsAgainAfterItsProcessHasEnded) {
    const CheckVocabulary vocabulary(600);
    samplers::Chain chain({{"nothing", {}, isolate(from("wrong.so", "nothing"), 2s)}}, vocabulary);
    chain.begin(1, 0, {});
    const std::string first = write(chain, 8);
    for (int round = 0; round < 2; ++round) {
        chain.begin(1, 0, {});
        EXPECT_EQ(write(chain, 8), first);
    }
}

TEST(Isolated, WhatACallCosts) {
    Subject plain(wordlist(), {{"forbid", std::vector<std::string>{"turn"}}}, 16384);
    Subject apart(isolate(wordlist(), 5s), {{"forbid", std::vector<std::string>{"turn"}}}, 16384);
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
