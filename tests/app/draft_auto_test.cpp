// draft.model = "auto" as a user meets it: which models it finds, what it says, and that it changes no text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/app/pairings.h"
#include "tests/app/program.h"
#include "tests/app/small_model.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DraftAuto : public ::testing::Test {
protected:
    void SetUp() override {
        fs::remove_all(folder());
        fs::create_directories(folder());
        write(folder() / "target.gguf", true);
    }
    void TearDown() override { fs::remove_all(scratch() / "hub"); }

    static fs::path folder() { return scratch() / "auto"; }
    // A target, or a draft that reads about a third of its bytes.
    static void write(const fs::path& path, bool target) {
        fs::create_directories(path.parent_path());
        const char* shape = target ? "llama-3.1-8b" : "llama-3.2-1b";
        write_small_model(path, Family::llama3, core::published_shape(shape).shape, !target, target);
    }
    static Outcome complete(std::vector<std::string> more, const std::string& log = "error") {
        Call call;
        call.arguments = {"complete",     "--model",   (folder() / "target.gguf").string(),
                          "-p",           "def f(x):", "-n",
                          "12",           "--seed",    "1",
                          "--ignore-eos", "--json",    "--device",
                          "cpu",          "--threads", "1"};
        call.arguments.insert(call.arguments.end(), more.begin(), more.end());
        call.environment = {{"FORESAY_LOG", log}};
        return run(call);
    }
    static std::string tokens(const Outcome& outcome) {
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        return nlohmann::json::parse(outcome.out).at("token_ids").dump();
    }
};

TEST_F(DraftAuto, IsTheDefaultOfATarget) {
    const std::string plain = tokens(complete({}));
    write(folder() / "draft.gguf", false);
    const Outcome found = complete({}, "info");
    EXPECT_EQ(tokens(found), plain);
    EXPECT_THAT(found.error, AllOf(HasSubstr("draft: " + (folder() / "draft.gguf").string()),
                                   HasSubstr("shares the target's tokenizer"), HasSubstr("times as fast"),
                                   HasSubstr("loading the draft")));
    EXPECT_EQ(complete({}).error, "") << "a program that reads errors asked for none";
    for (const char* none : {"none", ""}) {
        const Outcome without = complete({"--draft", none}, "info");
        EXPECT_EQ(tokens(without), plain);
        EXPECT_THAT(without.error, Not(HasSubstr("draft.gguf")));
    }
    EXPECT_THAT(complete({"--speculation", "off"}, "info").error, Not(HasSubstr("draft.gguf")));
    EXPECT_THAT(complete({"--draft", "auto"}, "info").error, HasSubstr("loading the draft"));
    // In a configuration as well, where a relative path would start at its folder.
    std::ofstream(folder() / "alone.toml") << "[target]\nmodel = \"target.gguf\"\n";
    std::ofstream(folder() / "auto.toml") << "[target]\nmodel = \"target.gguf\"\n[draft]\nmodel = \"auto\"\n";
    std::ofstream(folder() / "none.toml") << "[target]\nmodel = \"target.gguf\"\n[draft]\nmodel = \"none\"\n";
    for (const std::string name : {"alone", "auto", "none"}) {
        Call call;
        call.arguments = {"complete", (folder() / (name + ".toml")).string(), "-p", "x", "-n", "2", "--device", "cpu"};
        call.environment = {{"FORESAY_LOG", "info"}};
        const Outcome outcome = run(call);
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_EQ(outcome.error.find("loading the draft") != std::string::npos, name != "none") << outcome.error;
    }
}

TEST_F(DraftAuto, LooksInItsFoldersAndInTheHubsCache) {
    write(scratch() / "more/draft.gguf", false);
    EXPECT_THAT(complete({}, "info").error, Not(HasSubstr("loading the draft")));
    EXPECT_THAT(complete({"--set", "draft.folders=[\"" + (scratch() / "more").string() + "\"]"}, "info").error,
                HasSubstr("loading the draft"));
    const fs::path model = scratch() / "hub/models--org--small-GGUF";
    write(model / "blobs/0123", false);
    fs::create_directories(model / "snapshots/abc");
    fs::create_directories(model / "refs");
    fs::create_symlink("../../blobs/0123", model / "snapshots/abc/small-q4_k_m.gguf");
    std::ofstream(model / "refs/main") << "abc";
    EXPECT_THAT(complete({}, "info").error,
                HasSubstr("draft: " + (model / "snapshots/abc/small-q4_k_m.gguf").string()));
    fs::remove_all(scratch() / "more");
}

TEST_F(DraftAuto, BrokenCandidatesAreSkippedInSilence) {
    const std::string plain = tokens(complete({}));
    std::ofstream(folder() / "a.gguf") << "GGUF and then nothing";
    // Readable, but its last weights are NaN.
    write(folder() / "b.gguf", false);
    {
        std::fstream file(folder() / "b.gguf", std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(-64, std::ios::end);
        file << std::string(64, '\xff');
        file.seekp(-int{144 * 4}, std::ios::end);
        file << std::string(144 * 4, '\xff');
    }
    const Outcome outcome = complete({});
    EXPECT_EQ(tokens(outcome), plain);
    EXPECT_EQ(outcome.error, "");
    const Outcome verbose = complete({}, "debug");
    EXPECT_EQ(tokens(verbose), plain);
    EXPECT_THAT(verbose.error, AllOf(HasSubstr("a.gguf is left out"), HasSubstr("b.gguf is left out"),
                                     HasSubstr("NaN or infinities")));
    // Asked for by name, it is an error.
    EXPECT_EQ(complete({"--draft", (folder() / "b.gguf").string()}).status, 1);
}

TEST_F(DraftAuto, OfAnotherVocabularyIsRefusedWithNumbers) {
    write_small_model(folder() / "draft.gguf", Family::qwen2, core::published_shape("qwen2.5-coder-1.5b").shape, true,
                      false);
    EXPECT_THAT(complete({}, "debug").error,
                AllOf(HasSubstr("draft.gguf is left out"), HasSubstr(" tokens"), Not(HasSubstr("loading the draft"))));
    const Outcome asked = complete({"--draft", (folder() / "draft.gguf").string()});
    EXPECT_EQ(asked.status, 1);
    EXPECT_THAT(asked.error, AllOf(HasSubstr("cannot draft for"), HasSubstr("the vocabularies differ in")));
}

TEST_F(DraftAuto, InAConversation) {
    write(folder() / "draft.gguf", false);
    Call call;
    call.arguments = {"chat",     "--lines", "--no-save",
                      "--device", "cpu",     "--threads",
                      "1",        "--model", (folder() / "target.gguf").string()};
    call.input = "/draft\n/draft none\n/draft on\n/model " + source("models/python-coder/draft-q8_0.gguf") +
                 "\n/draft on\n/quit\n";
    const Outcome outcome = run(call);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::vector<std::string> models;
    std::istringstream lines(outcome.error);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("draft model ")) models.push_back(fs::path(line.substr(12)).filename());
    }
    EXPECT_EQ(models, (std::vector<std::string>{"draft.gguf", "none", "draft.gguf", "none", "none"})) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("no draft model was found for this target; /draft PATH loads one"));
}

}  // namespace
}  // namespace foresay::testing
