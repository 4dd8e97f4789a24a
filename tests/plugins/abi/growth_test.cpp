// Hosts of 1.0 and of 1.1 with plugins of 1.0 and of 1.1. This file and the host's sources are compiled twice: with
// today's header, and with one in which every struct that may grow has grown (grow_header.cmake).

#include <gtest/gtest.h>

#include <chrono>

#include "plugins/host/isolated.h"
#include "plugins/host/plugin_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "samplers/sdk/sampler.h"
#include "tests/plugins/support.h"
#include "tests/samplers/support.h"

namespace foresay::plugins {
namespace {

const std::filesystem::path kFolder = FORESAY_GROWTH_FOLDER;
constexpr bool kNewer = FORESAY_SAMPLER_ABI_MINOR == 1;

std::shared_ptr<const samplers::StageFactory> growth(const std::string& file, bool apart = false) {
    PluginHost host({{}, {}});
    auto factory = host.load("growth", kFolder / (file + ".so"));
    return apart ? isolate(std::move(factory), std::chrono::seconds(30)) : factory;
}

// The candidates that are left of eight, by sampling each away.
std::string left(const std::string& file, const samplers::Parameters& parameters = {}, bool apart = false) {
    const samplers::LetterVocabulary vocabulary(8);
    samplers::Chain chain({{"growth", parameters, growth(file, apart)}, {"temperature", {{"value", 0.0}}, nullptr}},
                          vocabulary);
    std::string found;
    std::vector<float> row = {0.0f, 7.0f, 6.0f, 5.0f, 4.0f, 3.0f, 2.0f, 1.0f};
    chain.begin(0, 0, std::vector<std::int32_t>{1, 2});
    while (true) {
        std::vector<float> copy = row;
        samplers::DraftChain draft;
        draft.start(chain);
        draft.advance(1);
        const samplers::Decision decision = chain.decide(copy);
        if (decision.token < 0) return found + (decision.failure != nullptr ? "" : "?");
        found += static_cast<char>('0' + decision.token);
        row[static_cast<std::size_t>(decision.token)] = -samplers::kInfinity;
        chain.accept(decision.token);
    }
}

TEST(Growth, EveryPairWorks) {
    EXPECT_EQ(left("growth_1_0"), "2460");
    // Only a plugin that knows of 1.1 sees that the host does, too.
    EXPECT_EQ(left("growth_1_1"), kNewer ? "246" : "2460");
    for (const char* file : {"growth_1_0", "growth_1_1"}) {
        EXPECT_EQ(left(file, {{"least", 2.0}}), "24") << file;
        EXPECT_EQ(left(file, {{"least", 2.0}, {"more", std::int64_t{0}}}), "246") << file;
        EXPECT_EQ(growth(file)->description().parameters.at(1).doc, "Added to it.");
        EXPECT_EQ(left(file, {}, true), left(file)) << file << " in a process of its own";
    }
}

#ifndef FORESAY_SANITIZED
// What was compiled from the recorded header passes today's checks.
TEST(Growth, TheOldestPluginPassesTheChecks) {
    const auto results = check_plugin(kFolder / "growth_1_0.so", {.parameters = {{"sound", true}}});
    int passed = 0;
    for (const CheckResult& result : results) {
        EXPECT_NE(result.outcome, CheckResult::Outcome::failed) << result.check << ": " << result.text;
        passed += result.outcome == CheckResult::Outcome::passed ? 1 : 0;
    }
    EXPECT_GE(passed, 14);
}
#endif

TEST(Growth, WhatNeedsANewerHostSaysSo) {
    const std::string error = error_of([] { growth("growth_needs_1_1"); });
    if (kNewer) {
        EXPECT_EQ(error, "no error");
    } else {
        EXPECT_NE(error.find("it needs version 1.1 of the sampler contract, and this program has 1.0; use a newer "
                             "foresay"),
                  std::string::npos)
            << error;
    }
}

}  // namespace
}  // namespace foresay::plugins
