// What `foresay plugin check` finds: nothing in the shipped plugin and the built-in samplers, and in each of many wrong
// ones the rule that it breaks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "plugins/host/plugin_check.h"
#include "tests/plugins/support.h"

namespace foresay::plugins {
namespace {

using Outcome = CheckResult::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::filesystem::path kWrong = std::filesystem::path(FORESAY_BAD_FOLDER) / "wrong.so";

std::string failures(const std::vector<CheckResult>& results) {
    std::string out;
    for (const CheckResult& result : results) {
        if (result.outcome == Outcome::failed) out += result.check + ": " + result.text + "\n";
    }
    return out;
}

std::size_t passed(const std::vector<CheckResult>& results) {
    return static_cast<std::size_t>(
        std::ranges::count_if(results, [](const auto& result) { return result.outcome == Outcome::passed; }));
}

#ifndef FORESAY_SANITIZED  // sanitizers report crashes themselves, and keep memory

struct Wrong {
    const char* sampler;
    const char* check;  // that finds it first
    const char* why;
};

constexpr Wrong kAll[] = {
    {"throws", "bounds", "process() fails: it threw an exception: thrown on purpose"},
    {"fails_silently", "bounds", "process() fails: it failed and gave no reason"},
    {"nan", "bounds", "a logit that is not a number"},
    {"infinite", "bounds", "a logit that is not a number, or infinite"},
    {"leaves_none", "bounds", "process() leaves no token"},
    {"invents", "bounds", "a token that it was not given"},
    {"twice", "bounds", "one token twice"},
    {"changes_masked", "bounds", "changes a logit, though the sampler declares that it only masks"},
    {"grows", "bounds", "it returned more candidates than it got"},
    {"writes_beyond", "vocabularies", "it crashes in process(): Segmentation fault"},
    {"reads_three", "vocabularies", "it crashes in process(): Segmentation fault"},
    {"small_table", "vocabularies", "it crashes in create(): Segmentation fault"},
    {"counts", "same again", "asked again about the same row, it gives another answer"},
    {"shares_texts", "alone", "after other texts, it answers differently"},
    {"counts_instances", "alone", "another instance with the same parameters answers differently"},
    {"begin_differs", "memory", "a state that began with the text answers differently from one that accepted it"},
    {"fate", "memory", "whether tokens were drawn or supposed"},
    {"never_forgets", "memory", "a state that begins again remembers the text before"},
    {"clone_shares", "clones", "they share memory"},
    {"clone_empty", "clones", "a copy answers differently"},
    {"neighbours", "judged alone", "test() depends on the o"},
    {"mask_differs", "agreement", "test() and mask() disagree about token"},
    {"process_differs", "agreement", "process() and mask() disagree about token"},
    {"verdict_two", "bounds", "test() answers neither 0 nor 1"},
    {"mask_none", "bounds", "mask() leaves no token"},
    {"mask_beyond", "vocabularies", "it crashes in mask(): Segmentation fault"},
    {"seeded", "randomness", "it depends on the seed"},
    {"clock", "elsewhere", "it answers differently in another process"},
    {"address", "elsewhere", "it answers differently in another process"},
    {"table_order", "elsewhere", "it answers differently in another process"},
    {"caches_by_index", "identity", "with a draft the text is another one (from token "},
    {"forces_other", "forced", "allows a token with other bytes than forced() says must come"},
    {"leaks_states", "leaks", "1,000 texts leave "},
    {"leaks_instances", "leaks", "200 instances leave "},
    {"leaks_files", "leaks", "instances leave files open"},
    {"locale", "process", "it changes the locale"},
    {"signals", "process", "it changes the handler of the signal User defined signal 2"},
    {"environment", "process", "it changes the environment"},
    {"folder", "process", "it changes the current folder"},
    {"prints", "process", "it changes standard output, by writing to it"},
    {"own_thread", "process", "it has threads of its own"},
    {"rounding", "bounds", "it changed the floating-point state in process()"},
    {"shares_scratch", "threads", "with eight states on eight threads, it gives other answers"},
    {"narrow", "parameters", "it crashes in create(): Segmentation fault"},
    {"refuses_silently", "parameters", "it failed and gave no reason"},
    {"any_extension", "extensions", "it answers to any name"},
    {"self_test_fails", "self-test", "two and two are five"},
    {"exits", "vocabularies", "it ends the process, with status "},
    {"accept_fails", "bounds", "accept() fails: it failed and gave no reason"},
};

// Where there is time, with all checks: none that comes before the one that is meant fails.
TEST(PluginCheck, FindsWhatEachWrongSamplerBreaks) {
    const bool all = std::getenv("FORESAY_CHECKS") != nullptr;
    for (const Wrong& wrong : kAll) {
        CheckOptions options{.sampler = wrong.sampler};
        if (!all) options.checks = {wrong.check};
        const std::string found = failures(check_plugin(kWrong, options));
        EXPECT_THAT(found, StartsWith(std::string(wrong.check) + ": ")) << wrong.sampler;
        EXPECT_THAT(found.substr(0, found.find('\n')), HasSubstr(wrong.why)) << wrong.sampler;
    }
}

TEST(PluginCheck, ASamplerThatHangsIsGivenUp) {
    const auto results =
        check_plugin(kWrong, {.sampler = "hangs", .checks = {"vocabularies", "bounds", "threads"}, .seconds = 1});
    EXPECT_EQ(failures(results), "vocabularies: it does not return within 1 s\n");
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[2].text, "a check before did not return");
}

TEST(PluginCheck, LibrariesAreCheckedBeforeTheirSamplers) {
    const std::filesystem::path folder(FORESAY_BAD_FOLDER);
    const auto of = [&](const char* file) {
        return failures(check_plugin(folder / file, {.sampler = "nothing", .checks = {"loads", "exports"}}));
    };
    EXPECT_THAT(of("wrong_library.so"), HasSubstr("ms to load; a plugin has 100 ms"));
    EXPECT_THAT(of("wrong_library.so"),
                AllOf(HasSubstr(" symbols, and should export one; the others are "), HasSubstr("a_helper")));
    EXPECT_THAT(of("bad_flushes.so"), HasSubstr("loads: plugin "));
    EXPECT_THAT(of("bad_flushes.so"), HasSubstr("build and link it without -ffast-math"));
    EXPECT_THAT(of("bad_crashes_on_load.so"), HasSubstr("it crashes when it is loaded"));
    EXPECT_THAT(of("bad_one_name.so"), HasSubstr("it holds two samplers"));
    EXPECT_THAT(failures(check_plugin(folder / "bad_one_name.so", {.checks = {"bounds"}})),
                HasSubstr("it holds two samplers"))
        << "what is not loaded has not passed";
    EXPECT_THAT(error_of([&] { of("bad_no_entry.so"); }), HasSubstr("it does not export 'foresay_sampler_entry'"));
    EXPECT_THAT(error_of([&] { check_plugin(folder / "wrong.so", {.sampler = "none"}); }),
                HasSubstr("holds no sampler 'none'"));
}

#endif

void expect_sound(const std::vector<CheckResult>& results, std::size_t least, const std::string& what) {
    EXPECT_EQ(failures(results), "") << what;
    EXPECT_GE(passed(results), least) << what;
}

TEST(PluginCheck, PassesASamplerThatKeepsTheContract) {
    const auto results = check_plugin(kWrong, {.sampler = "nothing"});
    expect_sound(results, 16, "nothing");
    std::set<std::string> timed;
    for (const CheckResult& result : results) {
        if (result.outcome == Outcome::measured) timed.insert(result.check);
    }
    EXPECT_THAT(timed, ::testing::IsSupersetOf({"process, 128256 candidates", "test, 64 tokens", "mask, 128,256 tokens",
                                                "copy", "accept", "create, 128,256 tokens"}));
}

TEST(PluginCheck, PassesTheShippedPlugins) {
    const std::filesystem::path folder(FORESAY_PLUGIN_FOLDER);
    const std::vector<std::string> words = {"turn", "in in", "f(", "x"};
    expect_sound(check_plugin(folder / "wordlist.so", {.parameters = {{"forbid", words}}}), 14, "wordlist");
    expect_sound(check_plugin(folder / "indent.so", {}), 14, "indent");
    const samplers::Parameters little = {
        {"tokens", std::int64_t{3}}, {"begin", std::string("e")}, {"end", std::string("in")}};
    expect_sound(check_plugin(folder / "budget.so", {.parameters = little}), 14, "budget");
}

// Parameters with which the built-in samplers do something.
samplers::Parameters busy(const std::string& name) {
    if (name == "grammar") return {{"language", std::string("regex")}, {"text", std::string("([a-z ]+[0-9]?;)*")}};
    if (name == "logit_bias") {
        return {{"tokens", std::vector<std::int64_t>{7, 200}}, {"values", std::vector<double>{2.5, -3.0}}};
    }
    if (name == "penalties") return {{"repeat", 1.3}, {"frequency", 0.2}, {"presence", 0.1}};
    static const std::map<std::string, samplers::Parameters> others = {
        {"xtc", {{"probability", 0.5}}},
        {"min_length", {{"tokens", std::int64_t{12}}}},
        {"no_repeat_ngram", {{"size", std::int64_t{2}}}},
        {"dry", {{"multiplier", 0.8}, {"allowed_length", std::int64_t{1}}}},
        {"top_n_sigma", {{"n", 1.0}}},
        {"typical", {{"p", 0.9}}},
        {"tfs", {{"z", 0.9}}},
        {"top_a", {{"a", 0.2}}},
        {"epsilon_cutoff", {{"epsilon", 0.01}}},
        {"eta_cutoff", {{"eta", 0.01}}},
        {"dynatemp", {{"min", 0.5}, {"max", 1.5}}},
        {"smoothing", {{"factor", 0.3}, {"curve", 2.0}}},
        {"skew", {{"skew", 0.3}}}};
    const auto found = others.find(name);
    return found != others.end() ? found->second : samplers::Parameters{};
}

TEST(PluginCheck, PassesTheBuiltInSamplers) {
    for (const auto& factory : samplers::builtin_factories()) {
        const std::string& name = factory->description().name;
        // The one that waits for the clock, only where there is time.
        static const bool all = std::getenv("FORESAY_CHECKS") != nullptr;
        std::vector<std::string> checks;
        for (const auto& [check, doc] : check_names()) {
            if ((all || check != "elsewhere") && check != "timing") checks.push_back(check);
        }
        expect_sound(check_sampler(factory, {.checks = checks, .parameters = busy(name)}), 9, name);
    }
}

}  // namespace
}  // namespace foresay::plugins
