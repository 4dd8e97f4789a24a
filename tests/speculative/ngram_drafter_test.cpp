// N-gram lookup against a search of the whole text, and after the sequence went back.

#include "speculative/drafters/ngram_drafter.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/speculative/support.h"

namespace foresay::test {
namespace {

using speculative::DraftedTokens;
using speculative::Proposal;

std::vector<std::int32_t> random_text(std::size_t length, int alphabet, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> text;
    while (text.size() < length) {
        // Copies of earlier pieces between new tokens.
        if (text.size() > 20 && random() % 3 == 0) {
            const std::size_t from = random() % (text.size() - 10);
            for (std::size_t i = 0; i < 8 && text.size() < length; ++i) text.push_back(text[from + i]);
        } else {
            text.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(alphabet)));
        }
    }
    return text;
}

// Length of the longest earlier occurrence of the end of `text`.
std::int32_t longest_match(std::span<const std::int32_t> text) {
    std::int32_t best = 0;
    const std::int32_t size = static_cast<std::int32_t>(text.size());
    for (std::int32_t end = 1; end < size; ++end) {
        std::int32_t length = 0;
        while (length < end &&
               text[static_cast<std::size_t>(end - 1 - length)] == text[static_cast<std::size_t>(size - 1 - length)])
            ++length;
        best = std::max(best, length);
    }
    return best;
}

TEST(NgramDrafter, FollowsTheLongestMatch) {
    const std::vector<std::int32_t> text = random_text(400, 40, 1);
    const auto drafter = speculative::make_ngram_drafter(512);
    drafter->begin({});
    for (std::size_t length = 1; length <= text.size(); ++length) {
        const std::span<const std::int32_t> sequence = std::span(text).first(length);
        const Proposal proposal = drafter->look_up(sequence, {});
        const std::int32_t longest = longest_match(sequence);
        ASSERT_EQ(std::min(proposal.length, 32), std::min(longest, 32)) << length;
        if (proposal.token < 0) continue;
        // The proposed token did follow such a match.
        bool seen = false;
        const std::size_t common = static_cast<std::size_t>(std::min(longest, 32));
        for (std::size_t end = common; end < length; ++end) {
            seen = seen ||
                   (text[end] == proposal.token &&
                    std::equal(text.begin() + static_cast<std::ptrdiff_t>(end - common),
                               text.begin() + static_cast<std::ptrdiff_t>(end),
                               sequence.end() - std::ssize(sequence) + static_cast<std::ptrdiff_t>(length - common)));
        }
        ASSERT_TRUE(seen) << length;
        EXPECT_GT(proposal.chance, 0.0);
        EXPECT_LT(proposal.chance, 1.0);
    }
}

TEST(NgramDrafter, PrefersTheLatestOfEquals) {
    const std::vector<std::int32_t> text = {1, 2, 3, 9, 1, 2, 4, 9, 5, 1, 2};
    const auto drafter = speculative::make_ngram_drafter(64);
    drafter->begin(text);
    EXPECT_EQ(drafter->look_up(text, {}).token, 4);
}

// Rewinding and continuing gives the same proposals as a fresh drafter.
TEST(NgramDrafter, RewindRestoresEveryPrefix) {
    const std::vector<std::int32_t> text = random_text(300, 8, 2);
    std::mt19937 random(3);
    const auto wandering = speculative::make_ngram_drafter(512);
    wandering->begin({});
    for (int round = 0; round < 200; ++round) {
        const std::size_t length = 1 + random() % text.size();
        wandering->rewind(static_cast<std::int32_t>(random() % (length + 1)));
        // Other tokens in between, rewound again.
        const std::size_t elsewhere = random() % length;
        wandering->rewind(static_cast<std::int32_t>(elsewhere));
        std::vector<std::int32_t> other(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(elsewhere));
        other.resize(elsewhere + 5, 3);
        wandering->begin(other);
        const std::span<const std::int32_t> sequence = std::span(text).first(length);
        wandering->begin(sequence);
        const auto fresh = speculative::make_ngram_drafter(16);
        fresh->begin(sequence);
        std::vector<std::int32_t> drafted;
        for (int i = 0; i < 6; ++i) {
            const Proposal a = wandering->look_up(sequence, drafted);
            const Proposal b = fresh->look_up(sequence, drafted);
            ASSERT_EQ(a.token, b.token) << length << " + " << i;
            if (b.token < 0) break;
            drafted.push_back(i == 3 ? 1 : b.token);
        }
    }
}

TEST(NgramDrafter, LearnsHowFarToTrustTheText) {
    std::vector<std::int32_t> faithful;
    for (int i = 0; i < 300; ++i) faithful.push_back(i % 7);
    const auto copying = speculative::make_ngram_drafter(512);
    copying->begin(faithful);
    EXPECT_GT(copying->look_up(faithful, {}).chance, 0.97);
    // Every third token is new: what followed a token once never follows it again.
    std::vector<std::int32_t> fickle;
    for (int i = 0; i < 300; ++i) fickle.push_back(i % 3 == 2 ? 1000 + i : i % 3);
    const auto doubting = speculative::make_ngram_drafter(512);
    fickle.resize(299);
    doubting->begin(fickle);
    EXPECT_LT(doubting->look_up(fickle, {}).chance, 0.2);
}

TEST(NgramDrafter, EndsADraftAfterAnEndToken) {
    const std::vector<std::int32_t> text = {1, 2, 3, 4, 5, 6, 1, 2, 3};
    const std::vector<std::int32_t> ends = {5};
    const auto drafter = speculative::make_ngram_drafter(64);
    drafter->begin(text);
    DraftedTokens drafted;
    drafter->propose({.tokens = text, .max_tokens = 8, .end_tokens = ends}, drafted);
    EXPECT_EQ(drafted.tokens, (std::vector<std::int32_t>{4, 5}));
    drafted.clear();
    drafter->propose({.tokens = text, .max_tokens = 8}, drafted);
    EXPECT_EQ(drafted.tokens, (std::vector<std::int32_t>{4, 5, 6, 1, 2, 3, 4, 5}));
}

// Alone or with a draft model, through turns, undo and retry: the text is that of plain decoding.
TEST(NgramSource, TextNeverDependsOnIt) {
    const auto first =
        tokenizer().encode("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\n");
    const auto second = tokenizer().encode("\n\ndef mul(a, b):\n", {.add_special = false});
    for (const double temperature : {0.0, 0.7}) {
        auto plain = make_generator(temperature_chain(temperature), nullptr, off());
        auto alone = make_generator(temperature_chain(temperature), ngram_drafter(), automatic());
        auto both =
            make_generator(temperature_chain(temperature),
                           sources(model_drafter(bundled(fast_backend(), "draft")), ngram_drafter()), automatic());
        std::int64_t taken = 0;
        for (int retry = 0; retry < 3; ++retry) {
            for (const auto& input : {first, second}) {
                const speculative::GenerateRequest request{
                    .input = input, .max_tokens = 70, .seed = 3, .branch = static_cast<std::uint64_t>(retry)};
                const auto expected = plain.generate(request);
                const auto found = alone.generate(request);
                EXPECT_EQ(found.tokens, expected.tokens);
                const auto mixed = both.generate(request);
                EXPECT_EQ(mixed.tokens, expected.tokens);
                ASSERT_EQ(mixed.speculation.sources.size(), 2u);
                const auto& counts = mixed.speculation.sources;
                EXPECT_EQ(counts[0].drafted + counts[1].drafted, mixed.speculation.drafted);
                EXPECT_EQ(counts[0].accepted + counts[1].accepted, mixed.speculation.accepted);
                EXPECT_EQ(counts[1].name, "ngram");
                taken += counts[1].accepted + found.speculation.accepted;
            }
            // Back to somewhere within the first turn.
            for (auto* generator : {&plain, &alone, &both}) {
                generator->truncate(static_cast<std::int32_t>(first.size()) + 10 * retry);
            }
        }
        EXPECT_GT(taken, 100);
    }
}

}  // namespace
}  // namespace foresay::test
