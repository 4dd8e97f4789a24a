// A draft for a target, found among made models: folders of published shapes whose weights are a hole in a file.
#include "engine/draft_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "speculative/known_drafts.h"
#include "tests/support/model_folder.h"

namespace foresay::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class FindDraft : public ::testing::Test {
protected:
    void SetUp() override {
        root_ = fs::path(::testing::TempDir()) / ("foresay_drafts_" + std::to_string(::getpid()));
        fs::remove_all(root_);
        fs::create_directories(root_);
    }
    void TearDown() override { fs::remove_all(root_); }

    fs::path make(const std::string& place, const std::string& shape, testing::FolderTokenizer tokenizer = {}) const {
        return testing::write_model_folder(root_ / place, {.shape = shape, .tokenizer = std::move(tokenizer)});
    }

    // Looks in the target's own folder, in root/models and in root/hub.
    FoundDraft find(const fs::path& target) {
        const auto source = core::ModelSource::open(target);
        const core::Tokenizer tokenizer = core::Tokenizer::of(*source);
        const DraftSearch search{
            .folders = {root_ / "models"},
            .hub = root_ / "hub",
            .row_share = 0.05,
            .skipped = [&](const std::string& sentence) { skipped_.push_back(sentence); },
        };
        return find_draft(*source, &tokenizer, target, search);
    }

    fs::path root_;
    std::vector<std::string> skipped_;
};

TEST_F(FindDraft, BesideTheTarget) {
    const fs::path target = make("own/Qwen3-8B", "qwen3-8b");
    make("own/Qwen3-0.6B", "qwen3-0.6b");
    const FoundDraft found = find(target);
    EXPECT_EQ(found.path, root_ / "own/Qwen3-0.6B");
    EXPECT_THAT(found.sentence, AllOf(HasSubstr("known to draft for qwen3-8b"), HasSubstr("it reads 7.9 % of"),
                                      HasSubstr("60 % of its tokens are right (assumed)"), HasSubstr("times as fast"),
                                      Not(HasSubstr("proposed"))));
    // Also when the folder is named with a slash at its end.
    EXPECT_EQ(find(target / "").path, found.path);
}

TEST_F(FindDraft, InTheModelsFolderAndInTheHubsCache) {
    const fs::path target = make("own/Llama-8B", "llama-3.1-8b");
    EXPECT_EQ(find(target).path, "");
    const std::string repository = "hub/models--meta-llama--Llama-3.2-1B-Instruct/";
    make(repository + "snapshots/aaaa", "llama-3.2-1b");
    make(repository + "snapshots/bbbb", "llama-3.2-1b");
    fs::create_directories(root_ / repository / "refs");
    std::ofstream(root_ / repository / "refs/main") << "bbbb";
    const FoundDraft found = find(target);
    EXPECT_EQ(found.path, root_ / repository / "snapshots/bbbb");
    EXPECT_THAT(found.sentence, HasSubstr("72 % of its tokens are right (as stated)"));
    make("models/small/Llama-3.2-1B", "llama-3.2-1b");
    EXPECT_EQ(find(target).path, root_ / "models/small/Llama-3.2-1B") << "which was looked through first";
}

TEST_F(FindDraft, KnownPairsComeFirst) {
    const fs::path target = make("own/target", "qwen3-32b");
    make("own/a", "qwen2.5-coder-0.5b");
    const FoundDraft unknown = find(target);
    EXPECT_EQ(unknown.path, root_ / "own/a");
    EXPECT_THAT(unknown.sentence, HasSubstr("shares the target's tokenizer"));
    make("own/b", "qwen3-1.7b");
    EXPECT_EQ(find(target).path, root_ / "own/b") << "although it is slower";
    make("own/c", "qwen3-0.6b");
    EXPECT_EQ(find(target).path, root_ / "own/c") << "which is expected to gain more";
}

TEST_F(FindDraft, TokensThatDifferAreCounted) {
    const fs::path target = make("own/target", "qwen3-8b");
    make("own/draft", "qwen3-0.6b", {.other_words = 2});
    const FoundDraft found = find(target);
    EXPECT_EQ(found.path, root_ / "own/draft");
    EXPECT_THAT(found.sentence, HasSubstr("; 2 ids will never be proposed"));
}

TEST_F(FindDraft, WhatCannotWorkIsLeftOutWithNumbers) {
    const fs::path target = make("own/target", "qwen3-8b");
    make("own/foreign", "qwen3-0.6b", {.prefix = "mot"});
    make("own/large", "qwen3-4b");
    make("own/other", "llama-3.2-1b");
    make("own/huge", "qwen3-14b");
    fs::create_directories(root_ / "own/broken");
    std::ofstream(root_ / "own/broken/draft.gguf") << "GGUF and then nothing";
    std::ofstream(root_ / "own/mmproj-model.gguf") << "images";
    std::ofstream(root_ / "own/draft-00002-of-00003.gguf") << "a later part";
    const FoundDraft found = find(target);
    EXPECT_EQ(found.path, "");
    EXPECT_THAT(found.sentence, AllOf(HasSubstr("no draft model for qwen3-8b is here"),
                                      HasSubstr("`foresay pull Qwen/Qwen3-0.6B-GGUF:Q8_0`"), HasSubstr("qwen3-0.6b")));
    EXPECT_THAT(skipped_, Contains(AllOf(HasSubstr("own/foreign is left out"), HasSubstr("differ in 40 tokens"))));
    EXPECT_THAT(skipped_, Contains(AllOf(HasSubstr("own/large is left out"), HasSubstr("it reads 53 % of"))));
    EXPECT_THAT(skipped_, Contains(AllOf(HasSubstr("own/other is left out"),
                                         HasSubstr("it has 128256 tokens, the target 151936"))));
    EXPECT_THAT(skipped_, Contains(AllOf(HasSubstr("own/huge is left out"), HasSubstr("larger than the target"))));
    EXPECT_THAT(skipped_, Contains(HasSubstr("own/broken/draft.gguf is left out")));
    EXPECT_EQ(skipped_.size(), 5u);
}

TEST_F(FindDraft, NothingIsSaidOfTargetsThatNoOneKnows) {
    const fs::path target = make("own/target", "smollm3-3b");
    const FoundDraft found = find(target);
    EXPECT_EQ(found.path, "");
    EXPECT_EQ(found.sentence, "");
}

TEST_F(FindDraft, NeedsATokenizer) {
    const fs::path target = make("own/target", "qwen3-8b"), draft = make("own/draft", "qwen3-0.6b");
    const auto source = core::ModelSource::open(target);
    EXPECT_EQ(find_draft(*source, nullptr, target, {}).path, "");
    fs::remove(draft / "tokenizer.json");
    EXPECT_EQ(find(target).path, "");
    EXPECT_THAT(skipped_, Contains(HasSubstr("no tokenizer")));
}

TEST(KnownDrafts, AreShapesThatPair) {
    for (const speculative::KnownDraft& pair : speculative::known_drafts()) {
        const core::ModelConfig target = core::published_shape(pair.target), draft = core::published_shape(pair.draft);
        EXPECT_LT(core::active_parameter_count(draft) * 2, core::active_parameter_count(target))
            << pair.target << " " << pair.draft;
        EXPECT_NE(pair.repository.find(':'), std::string_view::npos) << pair.repository;
        EXPECT_GE(pair.acceptance, 0.0);
        EXPECT_LT(pair.acceptance, 1.0);
    }
}

TEST(KnownDrafts, EveryShapeIsRecognised) {
    for (const std::string& name : core::published_shape_names()) {
        core::ModelConfig config = core::published_shape(name);
        EXPECT_EQ(core::published_name(config), name);
        config.shape.layers += 1;
        EXPECT_EQ(core::published_name(config), "");
    }
}

// By hand: with 60 % right, one drafted token is emitted 0.6 times, two 0.96 times.
TEST(ExpectedGain, IsThatOfTheBestLength) {
    const speculative::Gain free = speculative::expected_gain({.acceptance = 0.6, .draft_share = 0.4});
    EXPECT_EQ(free.length, 1);
    EXPECT_NEAR(free.times, 1.6 / 1.4, 1e-9);
    EXPECT_EQ(speculative::expected_gain({.acceptance = 0.6, .draft_share = 0.6}).length, 0);
    EXPECT_EQ(speculative::expected_gain({.acceptance = 0.6, .draft_share = 0.6}).times, 1.0);
    const speculative::Gain two = speculative::expected_gain({.acceptance = 0.6, .draft_share = 0.1, .row_share = 0.1});
    EXPECT_EQ(two.length, 2);
    EXPECT_NEAR(two.times, 1.96 / 1.4, 1e-9);
    // A second row of a mixture that reads 2 of 4 experts reads half as many again.
    const speculative::Gain mixture = speculative::expected_gain(
        {.acceptance = 0.9, .draft_share = 0.0, .experts = 4, .experts_used = 2, .expert_share = 1.0});
    EXPECT_GT(mixture.times, 1.9 / 1.5 - 1e-9);
    EXPECT_LT(mixture.times, speculative::expected_gain({.acceptance = 0.9}).times);
}

}  // namespace
}  // namespace foresay::engine
