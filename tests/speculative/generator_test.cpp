// The generator: streaming, stops, limits, cancellation, truncation, statistics.

#include "speculative/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/speculative/support.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

using speculative::FinishReason;
using speculative::GenerateRequest;
using speculative::GenerateResult;
using speculative::Generator;

std::vector<std::int32_t> tokens_of(const Generator& generator) {
    return {generator.tokens().begin(), generator.tokens().end()};
}

// Plain decoding: what everything else has to equal.
GenerateResult plain(const GenerateRequest& request, double temperature = 0.6) {
    return make_generator(temperature_chain(temperature), nullptr, off()).generate(request);
}

TEST(Generator, PlainDecodingIsTheArgmaxAtTemperatureZero) {
    const auto input = prompt();
    const GenerateResult result = plain({.input = input, .max_tokens = 12}, 0.0);
    core::Context context(bundled(fast_backend(), "target"), context_options());
    ASSERT_TRUE(context.prefill(input));
    for (const std::int32_t token : result.tokens) {
        const std::span<const float> logits = context.logits(0);
        EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
        ASSERT_TRUE(context.decode(std::span(&token, 1)));
    }
    EXPECT_EQ(result.tokens.size(), 12u);
    EXPECT_EQ(result.finish, FinishReason::length);
    EXPECT_EQ(result.prompt_tokens, std::ssize(input));
    EXPECT_EQ(result.text, tokenizer().decode(result.tokens));
}

TEST(Generator, StreamsWhatItReturns) {
    const auto input = prompt();
    Generator generator =
        make_generator(temperature_chain(0.8), model_drafter(bundled(fast_backend(), "draft")), fixed(4));
    std::string text;
    std::vector<std::int32_t> tokens;
    std::int64_t drafted = 0;
    const GenerateResult result =
        generator.generate({.input = input, .max_tokens = 60, .seed = 3}, [&](const speculative::TokenEvent& event) {
            text += event.text;
            if (event.token >= 0) tokens.push_back(event.token);
            if (event.drafted) {
                ++drafted;
                EXPECT_EQ(event.source, "draft");
            }
        });
    EXPECT_EQ(text, result.text);
    EXPECT_EQ(tokens, result.tokens);
    EXPECT_EQ(drafted, result.speculation.accepted);
    EXPECT_GT(drafted, 0);
    EXPECT_GT(result.decode_tokens_per_second, 0.0);
    EXPECT_GE(result.ttft_ms, result.prefill_ms);
}

TEST(Generator, FixedLengthDraftsExactlyThatManyTokens) {
    const auto input = prompt();
    for (const std::int32_t length : {1, 3, 7}) {
        Generator generator = make_generator(temperature_chain(0.0), random_drafter(1), fixed(length));
        const GenerateResult result = generator.generate({.input = input, .max_tokens = 20, .ignore_eos = true});
        // Random tokens are practically never right: one token per round, full drafts until the limit cuts them.
        std::int64_t expected = 0;
        for (std::int64_t emitted = 1; emitted < 20; ++emitted)
            expected += std::min<std::int64_t>(length, 19 - emitted);
        EXPECT_EQ(result.speculation.rounds, 19);
        EXPECT_EQ(result.speculation.drafted, expected) << length;
        EXPECT_EQ(result.speculation.accepted, 0);
        EXPECT_EQ(result.speculation.mode, "fixed");
    }
}

TEST(Generator, ReplayIsAcceptedWhole) {
    const auto input = prompt();
    const GenerateRequest request{.input = input, .max_tokens = 61, .seed = 5, .ignore_eos = true};
    const GenerateResult expected = plain(request, 0.9);
    std::vector<std::int32_t> sequence = input;
    sequence.insert(sequence.end(), expected.tokens.begin(), expected.tokens.end());
    Generator generator = make_generator(temperature_chain(0.9), replay_drafter(sequence, 0.0, 1), fixed(5));
    const GenerateResult result = generator.generate(request);
    EXPECT_EQ(result.tokens, expected.tokens);
    EXPECT_EQ(result.speculation.rounds, 10);  // 1 token of the prompt, then rounds of 6
    EXPECT_EQ(result.speculation.drafted, 50);
    EXPECT_EQ(result.speculation.accepted, 50);
    EXPECT_DOUBLE_EQ(result.mean_run_length(), 6.1);
    ASSERT_EQ(result.speculation.sources.size(), 1u);
    EXPECT_EQ(result.speculation.sources[0].name, "replay");
    EXPECT_EQ(result.speculation.sources[0].accepted, 50);
}

// An expected text is drafted from, also where no drafter is configured, and found again after a change. It changes no
// token, and a wrong one is hardly drafted from.
TEST(Generator, APredictionIsDraftedFromAndChangesNothing) {
    const auto input = prompt();
    GenerateRequest request{.input = input, .max_tokens = 96, .seed = 5, .ignore_eos = true};
    const GenerateResult expected = plain(request, 0.6);
    std::vector<std::int32_t> changed = expected.tokens;
    changed[30] = changed[30] == 7 ? 8 : 7;
    changed.erase(changed.begin() + 60, changed.begin() + 63);
    const std::vector<std::int32_t> wrong(300, 11);
    for (const auto& options : {automatic(), fixed(4)}) {
        for (const bool with_ngram : {false, true}) {
            Generator generator =
                make_generator(temperature_chain(0.6), sources(with_ngram ? ngram_drafter() : nullptr), options);
            request.prediction = changed;
            const GenerateResult found = generator.generate(request);
            EXPECT_EQ(found.tokens, expected.tokens);
            const speculative::SourceStatistics& source = found.speculation.sources.back();
            EXPECT_EQ(source.name, "prediction");
            // What pays is measured, so only a fixed draft gives the same numbers on every machine.
            if (!with_ngram && options.mode == core::SpeculationMode::fixed) {
                EXPECT_GT(source.accepted, 40);
                EXPECT_LT(found.speculation.rounds, 60);
            }
            request.prediction = wrong;
            generator.truncate(0);
            EXPECT_EQ(generator.generate(request).tokens, expected.tokens);
            request.prediction = {};
            generator.truncate(0);
            const GenerateResult without = generator.generate(request);
            EXPECT_EQ(without.tokens, expected.tokens);
            EXPECT_EQ(without.speculation.sources.size(), with_ngram ? 1u : 0u);
        }
    }
    Generator off_generator = make_generator(temperature_chain(0.6), sources(nullptr), off());
    request.prediction = changed;
    const GenerateResult none = off_generator.generate(request);
    EXPECT_EQ(none.tokens, expected.tokens);
    EXPECT_EQ(none.speculation.drafted, 0);
}

// Ends inside a draft: whatever ends the text, what was computed after it leaves no trace.
TEST(Generator, EndsInsideADraftLeaveNoTrace) {
    const auto input = prompt();
    const GenerateRequest request{.input = input, .max_tokens = 40, .seed = 2, .ignore_eos = true};
    const GenerateResult whole = plain(request);
    std::vector<std::int32_t> sequence = input;
    sequence.insert(sequence.end(), whole.tokens.begin(), whole.tokens.end());
    for (std::size_t end = 1; end < 40; end += 3) {
        // The token at `end` becomes an end token: the text has to stop at its first occurrence.
        const std::int32_t end_token = whole.tokens[end];
        const auto first = std::ranges::find(whole.tokens, end_token);
        const std::vector<std::int32_t> expected(whole.tokens.begin(), first + 1);
        for (const std::int32_t length : {0, 1, 4, 16}) {
            speculative::GeneratorParts parts;
            parts.target = std::make_unique<core::Context>(bundled(fast_backend(), "target"), context_options());
            parts.chain = temperature_chain(0.6);
            if (length > 0) parts.drafters.push_back(replay_drafter(sequence, 0.0, 1));
            parts.tokenizer = &tokenizer();
            parts.end_tokens = {end_token};
            parts.speculation = length > 0 ? fixed(length) : off();
            Generator generator(std::move(parts));
            GenerateRequest stopping = request;
            stopping.ignore_eos = false;
            const GenerateResult result = generator.generate(stopping);
            ASSERT_EQ(result.tokens, expected) << "end " << end << ", length " << length;
            EXPECT_EQ(result.finish, FinishReason::stop);
            EXPECT_EQ(tokens_of(generator).size(), input.size() + expected.size());
            EXPECT_LT(generator.target().length(), std::ssize(tokens_of(generator)));
            // The next turn is the same after either.
            const auto more = tokenizer().encode("\n\n# next\n", {.add_special = false});
            GenerateRequest next{.input = more, .max_tokens = 12, .seed = 9, .ignore_eos = true};
            static std::vector<std::vector<std::int32_t>> reference(40);
            const GenerateResult turn = generator.generate(next);
            if (length == 0) reference[end] = turn.tokens;
            EXPECT_EQ(turn.tokens, reference[end]) << "second turn, end " << end << ", length " << length;
        }
    }
}

TEST(Generator, StopStringsCutTheTextNotTheTokens) {
    const auto input = prompt();
    const GenerateRequest request{.input = input, .max_tokens = 60, .seed = 0, .ignore_eos = true};
    const GenerateResult whole = plain(request, 0.0);
    ASSERT_GT(whole.text.size(), 30u);
    const std::vector<std::string> stops = {whole.text.substr(18, 5)};
    const std::string expected = whole.text.substr(0, whole.text.find(stops[0]));
    for (const std::int32_t length : {0, 1, 3, 8}) {
        Generator generator = make_generator(temperature_chain(0.0),
                                             length > 0 ? model_drafter(bundled(fast_backend(), "draft")) : nullptr,
                                             length > 0 ? fixed(length) : off());
        GenerateRequest stopping = request;
        stopping.stop = stops;
        std::string streamed;
        const GenerateResult result =
            generator.generate(stopping, [&](const speculative::TokenEvent& event) { streamed += event.text; });
        EXPECT_EQ(result.text, expected);
        EXPECT_EQ(streamed, expected);
        EXPECT_EQ(result.finish, FinishReason::stop);
        // Exactly the tokens that the stop string needed are sampled.
        const std::string sampled = tokenizer().decode(result.tokens);
        EXPECT_NE(sampled.find(stops[0]), std::string::npos);
        const std::string before = tokenizer().decode(std::span(result.tokens).first(result.tokens.size() - 1));
        EXPECT_EQ(before.find(stops[0]), std::string::npos);
    }
}

TEST(Generator, TheContextEndsTheText) {
    const auto input = prompt();
    const std::int32_t capacity = static_cast<std::int32_t>(input.size()) + 20;
    core::ContextOptions options = context_options();
    options.length = capacity;
    const GenerateRequest request{.input = input, .max_tokens = 0, .seed = 1, .ignore_eos = true};
    std::vector<std::int32_t> expected;
    for (const std::int32_t length : {0, 1, 5, 16}) {
        Generator generator = make_generator(
            temperature_chain(0.6), length > 0 ? model_drafter(bundled(fast_backend(), "draft"), options) : nullptr,
            length > 0 ? fixed(length) : off(), options);
        const GenerateResult result = generator.generate(request);
        EXPECT_EQ(result.tokens.size(), 20u);
        EXPECT_EQ(result.finish, FinishReason::length);
        if (length == 0) expected = result.tokens;
        EXPECT_EQ(result.tokens, expected);
        // Full: there is no room for another turn, and more input does not fit.
        const GenerateResult none = generator.generate({.max_tokens = 5});
        EXPECT_TRUE(none.tokens.empty());
        EXPECT_EQ(none.finish, FinishReason::length);
        const std::int32_t token = 10;
        EXPECT_THROW(generator.generate({.input = std::span(&token, 1)}), Error);
        EXPECT_EQ(std::ssize(tokens_of(generator)), capacity);
        // Going back makes room again, and the same text.
        generator.truncate(static_cast<std::int32_t>(input.size()));
        EXPECT_EQ(generator.generate({.max_tokens = 0, .seed = 1, .ignore_eos = true}).tokens, expected);
    }
}

TEST(Generator, TurnsDependOnTheSequenceOnly) {
    const auto first = prompt();
    const auto second = tokenizer().encode("\n    # then\n", {.add_special = false});
    Generator plain_generator = make_generator(temperature_chain(0.7), nullptr, off());
    Generator fast =
        make_generator(temperature_chain(0.7), model_drafter(bundled(fast_backend(), "draft")), automatic());
    const auto expected_1 = plain_generator.generate({.input = first, .max_tokens = 30, .seed = 4}).tokens;
    const auto expected_2 = plain_generator.generate({.input = second, .max_tokens = 30, .seed = 4}).tokens;
    EXPECT_EQ(fast.generate({.input = first, .max_tokens = 30, .seed = 4}).tokens, expected_1);
    EXPECT_EQ(fast.generate({.input = second, .max_tokens = 30, .seed = 4}).tokens, expected_2);
    // A fresh generator over the same tokens gives the same text: on a host, prefill and decode rows are equal.
    std::vector<std::int32_t> whole = tokens_of(fast);
    whole.resize(whole.size() - expected_2.size());
    if (fast_backend().name == "cpu") {
        EXPECT_EQ(plain({.input = whole, .max_tokens = 30, .seed = 4}, 0.7).tokens, expected_2);
    }
    // Undo and retry with another branch, then back to branch 0.
    const std::int32_t turn = static_cast<std::int32_t>(first.size() + expected_1.size());
    fast.truncate(turn);
    const auto other = fast.generate({.input = second, .max_tokens = 30, .seed = 4, .branch = 1}).tokens;
    EXPECT_NE(other, expected_2);
    fast.truncate(turn);
    EXPECT_EQ(fast.generate({.input = second, .max_tokens = 30, .seed = 4}).tokens, expected_2);
    // Continuing without input continues the text: one long generation is the sum of two short ones.
    Generator halves =
        make_generator(temperature_chain(0.7), model_drafter(bundled(fast_backend(), "draft")), fixed(3));
    auto tokens = halves.generate({.input = first, .max_tokens = 13, .seed = 4, .ignore_eos = true}).tokens;
    const auto rest = halves.generate({.max_tokens = 17, .seed = 4, .ignore_eos = true}).tokens;
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    EXPECT_EQ(tokens, plain({.input = first, .max_tokens = 30, .seed = 4, .ignore_eos = true}, 0.7).tokens);
}

TEST(Generator, CancellationKeepsWhatWasSaid) {
    const auto input = prompt();
    const GenerateRequest request{.input = input, .max_tokens = 40, .seed = 6, .ignore_eos = true};
    const GenerateResult whole = plain(request);
    Generator generator =
        make_generator(temperature_chain(0.6), model_drafter(bundled(fast_backend(), "draft")), fixed(3));
    std::atomic<bool> cancel = false;
    GenerateRequest cancelled = request;
    cancelled.cancel = &cancel;
    int seen = 0;
    const GenerateResult part = generator.generate(cancelled, [&](const speculative::TokenEvent&) {
        if (++seen == 10) cancel = true;
    });
    EXPECT_EQ(part.finish, FinishReason::cancelled);
    ASSERT_GE(part.tokens.size(), 10u);
    ASSERT_LT(part.tokens.size(), 15u);
    EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()));
    EXPECT_TRUE(whole.text.starts_with(part.text));
    // Going on gives the rest.
    const std::int32_t left = 40 - static_cast<std::int32_t>(part.tokens.size());
    const GenerateResult rest = generator.generate({.max_tokens = left, .seed = 6, .ignore_eos = true});
    std::vector<std::int32_t> tokens = part.tokens;
    tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(tokens, whole.tokens);
    // Cancelled before anything happened: the input stays, nothing is sampled.
    Generator never = make_generator(temperature_chain(0.6), nullptr, off());
    EXPECT_TRUE(never.generate(cancelled).tokens.empty());
    EXPECT_EQ(tokens_of(never), input);
    EXPECT_EQ(never.generate({.max_tokens = 40, .seed = 6, .ignore_eos = true}).tokens, whole.tokens);
}

TEST(Generator, PreparedInputChangesNothing) {
    const auto input = prompt();
    const auto more = tokenizer().encode("\n    # then\n", {.add_special = false});
    std::vector<std::int32_t> both = input;
    both.insert(both.end(), more.begin(), more.end());
    const auto expected = plain({.input = both, .max_tokens = 30, .seed = 5}).tokens;
    for (const bool drafting : {false, true}) {
        Generator generator =
            drafting ? make_generator(temperature_chain(0.6), model_drafter(bundled(fast_backend(), "draft")), fixed(3))
                     : make_generator(temperature_chain(0.6), nullptr, off());
        const std::vector<std::uint8_t> given(both.size(), 0);
        ASSERT_TRUE(generator.prepare(input));
        EXPECT_EQ(generator.held(), static_cast<std::int32_t>(input.size()));
        ASSERT_TRUE(generator.prepare({}));
        // As the rest of the input, as all of it, and when what was prepared is not what comes.
        EXPECT_EQ(generator.generate({.input = more, .max_tokens = 30, .seed = 5}).tokens, expected);
        generator.truncate(0);
        ASSERT_TRUE(generator.prepare(both));
        EXPECT_EQ(generator.generate({.max_tokens = 30, .seed = 5}).tokens, expected);
        generator.truncate(0);
        ASSERT_TRUE(generator.prepare(more));
        generator.switch_to(both, given);
        EXPECT_EQ(generator.generate({.max_tokens = 30, .seed = 5}).tokens, expected);
        // Cancelled, the sequence is what the cache holds; too long, it stays as it is.
        generator.truncate(0);
        const std::atomic<bool> cancel = true;
        EXPECT_FALSE(generator.prepare(both, &cancel));
        EXPECT_EQ(generator.tokens().size(), static_cast<std::size_t>(generator.held()));
        EXPECT_FALSE(generator.prepare(std::vector<std::int32_t>(1000, both[1])));
        generator.switch_to(both, given);
        EXPECT_EQ(generator.generate({.max_tokens = 30, .seed = 5}).tokens, expected);
    }
}

TEST(Generator, RefusesWhatCannotBeDone) {
    Generator generator = make_generator(temperature_chain(0.6), nullptr, off());
    EXPECT_THROW(generator.generate({}), Error);
    const std::vector<std::int32_t> outside = {0, 16384};
    EXPECT_THROW(generator.generate({.input = outside}), Error);
    const std::vector<std::int32_t> negative = {-1};
    EXPECT_THROW(generator.generate({.input = negative}), Error);
    const std::vector<std::int32_t> many(513, 5);
    EXPECT_THROW(generator.generate({.input = many}), Error);
    EXPECT_TRUE(generator.tokens().empty());
    EXPECT_EQ(generator.generate({.input = prompt(), .max_tokens = 3}).tokens.size(), 3u);
}

// A draft cache shorter than the sequence continues with a window of it.
TEST(Generator, ADraftWithAShortMemoryOnlyCostsSpeed) {
    const auto input = prompt();
    const GenerateRequest request{.input = input, .max_tokens = 150, .seed = 8, .ignore_eos = true};
    core::ContextOptions small = context_options();
    small.length = 48;
    Generator generator =
        make_generator(temperature_chain(0.6), model_drafter(bundled(fast_backend(), "draft"), small), fixed(6));
    const GenerateResult result = generator.generate(request);
    EXPECT_EQ(result.tokens, plain(request).tokens);
    EXPECT_GT(result.speculation.accepted, 20);
}

// A conversation that was saved with its keys and values goes on as if it had not been left, and evaluates nothing
// again.
TEST(Generator, PagesOfASavedConversationComeBack) {
    const core::testing::TemporaryDirectory folder;
    const std::filesystem::path file = folder.path() / "talk.pages";
    std::vector<std::int32_t> input = prompt();
    const std::vector<std::int32_t> once = input;
    for (int i = 0; i < 3; ++i) input.insert(input.end(), once.begin(), once.end());
    const auto make = [] { return make_generator(temperature_chain(0.8), sources(nullptr), off()); };
    const auto more = [](speculative::Generator& generator) {
        const std::vector<std::int32_t> next = tokenizer().encode("\nclass Reader:\n");
        return generator.generate({.input = next, .max_tokens = 20, .seed = 2, .ignore_eos = true}).tokens;
    };
    speculative::Generator first = make();
    EXPECT_THROW(first.save_pages(file, "m"), Error) << "nothing is there yet";
    first.generate({.input = input, .max_tokens = 60, .seed = 1, .ignore_eos = true});
    const speculative::SavedPages saved = first.save_pages(file, "m");
    EXPECT_EQ(saved.tokens, first.held());
    EXPECT_GT(saved.tokens, kernels::kPagePositions);
    EXPECT_EQ(saved.bytes, static_cast<std::int64_t>(std::filesystem::file_size(file)));
    const std::vector<std::int32_t> tokens(first.tokens().begin(), first.tokens().end());
    const std::vector<std::uint8_t> generated(first.generated().begin(), first.generated().end());
    const std::vector<std::int32_t> expected = more(first);

    const auto resumed = [&](std::size_t length, const std::string& fingerprint, std::string* why = nullptr) {
        speculative::Generator generator = make();
        generator.switch_to(std::span(tokens).first(length), std::span(generated).first(length));
        try {
            const std::int32_t loaded = generator.load_pages(file, fingerprint).tokens;
            EXPECT_EQ(loaded, generator.held());
        } catch (const Error& problem) {
            if (why != nullptr) *why = problem.what();
        }
        const std::int32_t held = generator.held();
        if (length == tokens.size()) {
            EXPECT_EQ(more(generator), expected);
        }
        return held;
    };
    EXPECT_EQ(resumed(tokens.size(), "m"), saved.tokens);
    EXPECT_EQ(resumed(90, "m"), 90);
    std::string why;
    EXPECT_EQ(resumed(tokens.size(), "another", &why), 0);
    EXPECT_THAT(why, ::testing::AllOf(::testing::HasSubstr(file.string()), ::testing::HasSubstr("another model")));
    // The second page is damaged: the first one counts.
    const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(size - 20).put('?').put('!');
    EXPECT_EQ(resumed(tokens.size(), "m", &why),
              (saved.tokens - 1) / kernels::kPagePositions * kernels::kPagePositions);
    EXPECT_THAT(why, ::testing::HasSubstr("is damaged"));
    // A file of something else is not replaced.
    const std::filesystem::path notes = folder.write("notes.pages", "dear diary");
    EXPECT_THROW(first.save_pages(notes, "m"), Error);
    EXPECT_EQ(std::filesystem::file_size(notes), 10u);
}

}  // namespace
}  // namespace foresay::test
