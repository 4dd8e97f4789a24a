// The sources of a draft: every lookup takes part, and a second draft model is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "speculative/drafters/drafters.h"
#include "tests/speculative/support.h"

namespace foresay::test {
namespace {

using ::testing::HasSubstr;

// Knows the answer at every position of one parity, and nothing at the others.
class EveryOther final : public speculative::Drafter {
public:
    EveryOther(std::string name, std::vector<std::int32_t> answer, std::size_t parity)
        : name_(std::move(name)), answer_(std::move(answer)), parity_(parity) {}
    std::string_view name() const override { return name_; }
    bool is_lookup() const override { return true; }
    speculative::Proposal look_up(std::span<const std::int32_t> sequence,
                                  std::span<const std::int32_t> draft) override {
        const std::size_t next = sequence.size() + draft.size();
        if (next % 2 != parity_ || next >= answer_.size()) return {};
        return {.token = answer_[next], .chance = 0.95, .length = 8};
    }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& draft) override {
        while (std::ssize(draft.tokens) < task.max_tokens) {
            const speculative::Proposal next = look_up(task.tokens, draft.tokens);
            if (next.token < 0) return;
            draft.tokens.push_back(next.token);
            draft.margins.push_back(1.0f);
        }
    }

private:
    std::string name_;
    std::vector<std::int32_t> answer_;
    std::size_t parity_;
};

TEST(DraftBuilder, UsesEveryLookup) {
    const std::vector<std::int32_t> input = prompt();
    const speculative::GenerateRequest request{.input = input, .max_tokens = 48, .seed = 3};
    std::vector<std::int32_t> answer = input;
    {
        auto plain = make_generator(temperature_chain(0.0), sources(nullptr), off());
        const auto result = plain.generate(request);
        answer.insert(answer.end(), result.tokens.begin(), result.tokens.end());
    }
    for (const auto& mode : {automatic(), fixed(4)}) {
        std::vector<std::unique_ptr<speculative::Drafter>> drafters;
        drafters.push_back(ngram_drafter());
        drafters.push_back(std::make_unique<EveryOther>("even", answer, 0));
        drafters.push_back(std::make_unique<EveryOther>("odd", answer, 1));
        auto generator = make_generator(temperature_chain(0.0), std::move(drafters), mode);
        const auto result = generator.generate(request);
        EXPECT_TRUE(std::ranges::equal(generator.tokens(), answer));
        ASSERT_EQ(result.speculation.sources.size(), 3u);
        for (const std::size_t source : {1u, 2u}) {
            EXPECT_GT(result.speculation.sources[source].accepted, 0) << result.speculation.sources[source].name;
            EXPECT_EQ(result.speculation.sources[source].accepted, result.speculation.sources[source].drafted);
        }
        if (mode.mode == core::SpeculationMode::automatic) {
            // The two complement each other within a draft.
            EXPECT_LT(result.speculation.rounds, 24);
        }
    }
}

TEST(DraftBuilder, RefusesASecondDraftModel) {
    try {
        make_generator(temperature_chain(0.0), sources(random_drafter(1), replay_drafter({}, 0.0, 1)), automatic());
        FAIL() << "the second one is ignored";
    } catch (const Error& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("the sources 'random' and 'replay' cannot draft together"));
    }
}

TEST(Drafters, AreFoundByNameAndAliasAndMadeFromWhatThereIs) {
    EXPECT_EQ(speculative::find_drafter_kind("none"), nullptr);
    const speculative::DrafterKind* ngram = speculative::find_drafter_kind("ngram");
    ASSERT_NE(ngram, nullptr);
    EXPECT_EQ(speculative::find_drafter_kind("suffix"), ngram);
    for (const speculative::DrafterKind& kind : speculative::drafter_kinds()) {
        EXPECT_EQ(speculative::find_drafter_kind(kind.name), &kind);
        EXPECT_FALSE(kind.doc.empty());
        // Without a draft model only the others can be made, and carry the name that statistics show.
        const auto bare = kind.make({.context_length = 64, .draft = nullptr, .draft_context = {}});
        EXPECT_EQ(bare == nullptr, kind.needs_draft_model);
        const auto whole = kind.make(
            {.context_length = 64, .draft = bundled(fast_backend(), "draft"), .draft_context = context_options()});
        ASSERT_NE(whole, nullptr);
        EXPECT_EQ(whole->name(), kind.name);
    }
}

}  // namespace
}  // namespace foresay::test
