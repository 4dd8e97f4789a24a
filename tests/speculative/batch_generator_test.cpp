// Many sequences in one batch: who runs when, how sequences end, and that each ends alone. That their bytes are right
// is batch_identity_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/error.h"
#include "kernels/ops_decorator.h"
#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"
#include "speculative/prefix_cache.h"
#include "tests/speculative/batch_requests.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;
using speculative::BatchRequest;
using speculative::FinishReason;
using speculative::Ticket;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ------------------------------------------------------------------------------------------------------- sequences

TEST(BatchGenerator, RunsAsManyAsThereAreSequencesAndTheOthersAfterThem) {
    BatchGenerator batch = make_batch(for_sequences(2));
    Recorder sinks[5];
    for (Recorder& sink : sinks) batch.add(request(8), sink);
    ASSERT_TRUE(batch.step());
    EXPECT_EQ(batch.running(), 2u);
    EXPECT_EQ(batch.waiting(), 3u);
    while (batch.step()) EXPECT_LE(batch.running(), 2u);
    EXPECT_EQ(batch.running() + batch.waiting(), 0u);
    for (const Recorder& sink : sinks) {
        EXPECT_TRUE(sink.ended);
        EXPECT_EQ(sink.tokens, sinks[0].tokens);
        EXPECT_EQ(sink.result.finish, FinishReason::length);
        EXPECT_EQ(sink.tokens.size(), 8u);
    }
}

TEST(BatchGenerator, RefusesWhatCannotRun) {
    BatchGenerator batch = make_batch(for_sequences(2, 64));
    Recorder sink;
    const auto refusal = [&](std::vector<std::int32_t> input) {
        BatchRequest wrong = request(8);
        wrong.input = std::move(input);
        try {
            batch.add(std::move(wrong), sink);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refusal({}), HasSubstr("prompt is empty"));
    EXPECT_THAT(refusal(std::vector<std::int32_t>(65, 5)), HasSubstr("65 tokens long but the context holds 64"));
    EXPECT_THAT(refusal({5, -1}), HasSubstr("token id -1"));
    EXPECT_FALSE(batch.step());
    // A prompt that fills the context has no room for an answer.
    EXPECT_EQ(refusal(std::vector<std::int32_t>(64, 5)), "accepted");
    EXPECT_FALSE(batch.step());
    EXPECT_TRUE(sink.ended);
    EXPECT_EQ(sink.result.finish, FinishReason::length);
    EXPECT_THAT(sink.tokens, IsEmpty());
}

TEST(BatchGenerator, RefusesStopsThatCannotBe) {
    BatchGenerator batch = make_batch(for_sequences(1));
    Recorder sink;
    BatchRequest wrong = request(8);
    wrong.stop_tokens = {7, 1 << 20};
    EXPECT_THROW(batch.add(std::move(wrong), sink), Error);
    wrong = request(8);
    wrong.stop = {""};
    EXPECT_THROW(batch.add(std::move(wrong), sink), Error);
    wrong = request(8);
    wrong.chain = nullptr;
    EXPECT_THROW(batch.check_request(wrong), Error);
    EXPECT_EQ(batch.waiting(), 0u);
}

TEST(BatchGenerator, EndsAtAStopTokenEvenWhereEndTokensDoNot) {
    const std::vector<std::int32_t> all = alone(12, 4);
    BatchGenerator batch = make_batch(for_sequences(1));
    Recorder sink;
    BatchRequest stopped = request(12, 4);
    stopped.stop_tokens = {all[5]};
    batch.add(std::move(stopped), sink);
    while (batch.step()) {
    }
    const auto first = std::ranges::find(all, all[5]);
    EXPECT_EQ(sink.tokens, std::vector<std::int32_t>(all.begin(), first + 1));
    EXPECT_EQ(sink.result.finish, FinishReason::stop);
    EXPECT_EQ(sink.result.stop_string, -1);
}

TEST(BatchGenerator, SaysWhichStopStringEndedTheText) {
    BatchGenerator batch = make_batch(for_sequences(1));
    Recorder whole, cut;
    batch.add(request(24, 4), whole);
    while (batch.step()) {
    }
    BatchRequest stopped = request(24, 4);
    stopped.stop = {"no such text", whole.text.substr(9, 6)};
    batch.add(std::move(stopped), cut);
    while (batch.step()) {
    }
    EXPECT_EQ(cut.result.stop_string, 1);
    EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(whole.text.substr(9, 6))));
    EXPECT_EQ(whole.result.stop_string, -1);
}

// An answer that was interrupted goes on as if it had not been.
TEST(BatchGenerator, TakesUpAnAnswerWhereItWasLeft) {
    const std::vector<std::int32_t> all = alone(24, 6);
    for (const std::size_t done : {1u, 9u, 23u}) {
        BatchGenerator batch = make_batch(for_sequences(2));
        Recorder other, rest;
        BatchRequest again = request(static_cast<std::int32_t>(24 - done), 6);
        again.generated.resize(again.input.size(), 0);
        again.input.insert(again.input.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(done));
        again.generated.resize(again.input.size(), 1);
        batch.add(request(24, 1), other);
        batch.add(std::move(again), rest);
        while (batch.step()) {
        }
        EXPECT_EQ(rest.tokens, std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(done), all.end()));
    }
}

TEST(BatchGenerator, LogprobsAreTheModelsOwnAndTheSameBesideOthers) {
    const auto with = [](std::int32_t most, std::uint64_t seed) {
        BatchRequest wanted = request(10, seed);
        wanted.logprobs = most;
        return wanted;
    };
    Recorder alone_sink, beside, token_only, none;
    {
        BatchGenerator batch = make_batch(for_sequences(1));
        batch.add(with(4, 3), alone_sink);
        while (batch.step()) {
        }
    }
    BatchGenerator batch = make_batch(for_sequences(3));
    batch.add(with(0, 2), token_only);
    batch.add(with(4, 3), beside);
    batch.add(request(10, 3), none);
    while (batch.step()) {
    }
    EXPECT_EQ(beside.tokens, none.tokens) << "logprobs changed the text";
    EXPECT_THAT(none.logprobs, IsEmpty());
    EXPECT_EQ(beside.logprobs, alone_sink.logprobs);
    ASSERT_EQ(token_only.logprobs.size(), 10u);
    for (const auto& entries : token_only.logprobs) EXPECT_EQ(entries.size(), 1u);
    // Against the softmax of a row that a context of its own computes.
    core::Context context(bundled(fast_backend(), "target"), context_options());
    ASSERT_EQ(beside.logprobs.size(), beside.tokens.size());
    for (std::size_t i = 0; i < beside.tokens.size(); ++i) {
        if (i == 0) {
            ASSERT_TRUE(context.prefill(prompt()));
        } else {
            ASSERT_TRUE(context.decode(std::span(beside.tokens).subspan(i - 1, 1)));
        }
        const std::span<float> row = context.logits(0).first(static_cast<std::size_t>(tokenizer().vocab_size()));
        double sum = 0.0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit) - row[0]);
        const auto expected = [&](std::int32_t token) {
            return row[static_cast<std::size_t>(token)] - row[0] - std::log(sum);
        };
        ASSERT_EQ(beside.logprobs[i].size(), 5u);
        EXPECT_EQ(beside.logprobs[i][0].token, beside.tokens[i]);
        std::vector<std::int32_t> order(row.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::partial_sort(order, order.begin() + 4, [&](std::int32_t a, std::int32_t b) {
            const float x = row[static_cast<std::size_t>(a)];
            const float y = row[static_cast<std::size_t>(b)];
            return x > y || (x == y && a < b);
        });
        for (std::size_t k = 0; k < 5; ++k) {
            const speculative::TokenLogprob& entry = beside.logprobs[i][k];
            if (k > 0) {
                EXPECT_EQ(entry.token, order[k - 1]);
            }
            // This context's prompt is prefill rows.
            EXPECT_NEAR(entry.logprob, expected(entry.token), takes_short_prompts_as_decode_rows() ? 1e-2 : 1e-4);
        }
    }
}

TEST(BatchGenerator, WhoIsUrgentRunsFirst) {
    BatchGenerator batch = make_batch(for_sequences(1));
    std::string order;
    Recorder sinks[5];
    const auto add = [&](int i, std::int32_t priority, const char* queue) {
        BatchRequest next = request(4);
        next.priority = priority;
        next.queue = queue;
        sinks[i].on_end = [&order, i] { order += static_cast<char>('0' + i); };
        batch.add(std::move(next), sinks[i]);
    };
    add(0, 0, "ann");
    ASSERT_TRUE(batch.step());
    add(1, 0, "ann");
    add(2, 0, "ann");
    add(3, 0, "bob");
    add(4, 5, "ann");
    while (batch.step()) {
    }
    EXPECT_EQ(order, "04312") << "first the urgent one, then bob, who has had less than ann";
    EXPECT_EQ(batch.counters().tokens, 20);
    const std::int64_t of_prompts = batch.counters().prefill_rows + batch.counters().cached_tokens;
    EXPECT_EQ(of_prompts + batch.counters().decode_rows, static_cast<std::int64_t>(5 * prompt().size()) + 15);
}

// Where the classes agree, a forward has the rows of all who decode, each with its draft, and a piece of a prompt.
TEST(BatchGenerator, PromptsAreReadInForwardsThatDecodeToo) {
    constexpr std::int32_t kBeside = 16, kDraft = 3;
    if (!core::classes_agree(fast_backend().ops())) GTEST_SKIP() << "the classes of rows differ here";
    CountedOps counted(fast_backend().ops());
    speculative::BatchParts parts =
        batch_parts(for_sequences(3), core::Model::load(core::ModelSource::open(bundled_path("target")), counted));
    parts.classes_agree = true;
    parts.prefill_rows_beside = kBeside;
    BatchGenerator batch(std::move(parts));
    Recorder plain, drafted, reading;
    const std::vector<std::int32_t> answer = alone(200, 1);
    BatchRequest predicted = request(200, 1);
    predicted.prediction = answer;
    predicted.speculation = fixed(kDraft);
    batch.add(request(200), plain);
    batch.add(std::move(predicted), drafted);
    while (plain.tokens.size() < 4 || drafted.tokens.size() < 4) batch.step();
    BatchRequest long_one = request(8, 2);
    for (int i = 0; i < 200; ++i) long_one.input.push_back(300 + i);
    batch.add(std::move(long_one), reading);
    const auto of_prompts = [&] { return batch.counters().prefill_rows + batch.counters().cached_tokens; };
    const std::int64_t forwards = batch.counters().forwards, before_it = of_prompts();
    counted.rows.clear();
    while (reading.tokens.empty()) {
        const std::size_t before = plain.tokens.size(), others = drafted.tokens.size();
        ASSERT_TRUE(batch.step());
        // A backend that is asynchronous may have begun a forward without the new one.
        EXPECT_EQ(plain.tokens.size(), before + 1) << "no text waits for a prompt";
        EXPECT_GT(drafted.tokens.size(), others);
    }
    EXPECT_FALSE(drafted.ended);
    EXPECT_GT(drafted.tokens.size(), plain.tokens.size()) << "drafts go on beside prompts";
    const std::int64_t mixed = batch.counters().mixed_forwards;
    EXPECT_GE(mixed, 200 / kBeside);
    EXPECT_LE(batch.counters().forwards - forwards, 2 * mixed + 1);
    EXPECT_EQ(of_prompts() - before_it, std::ssize(prompt()) + 200);
    EXPECT_LE(std::ranges::max(counted.rows), kBeside + 2 + kDraft);
    EXPECT_GT(std::ranges::max(counted.rows), kBeside + 2) << "a draft beside a prompt";
    run(batch);
    EXPECT_EQ(plain.tokens, alone(200));
    EXPECT_EQ(drafted.tokens, answer);
    EXPECT_TRUE(no_page_is_lost(batch));
}

TEST(BatchGenerator, CancelsBeforeTheNextForward) {
    CountedOps counted(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), counted);
    BatchGenerator batch = make_batch(for_sequences(4), model);
    Recorder kept, cancelled, waiting;
    batch.add(request(20, 1), kept);
    const Ticket ticket = batch.add(request(20, 2), cancelled);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(batch.step());
    EXPECT_EQ(counted.rows.back(), 2);
    const std::size_t before = cancelled.tokens.size();
    EXPECT_GT(before, 0u);
    batch.cancel(ticket);
    EXPECT_FALSE(cancelled.ended);
    ASSERT_TRUE(batch.step());
    EXPECT_EQ(counted.rows.back(), 1) << "the cancelled sequence had a row";
    EXPECT_TRUE(cancelled.ended);
    EXPECT_EQ(cancelled.result.finish, FinishReason::cancelled);
    EXPECT_EQ(cancelled.tokens.size(), before);
    // One that never ran.
    const Ticket late = batch.add(request(20), waiting);
    batch.cancel(late);
    batch.step();
    EXPECT_TRUE(waiting.ended);
    EXPECT_THAT(waiting.tokens, IsEmpty());
    batch.cancel(late);  // ignored
    while (batch.step()) {
    }
    EXPECT_EQ(kept.tokens, alone(20, 1));
}

double hand_of_clock = 0.0;  // set by hand

// One that waits takes no place, one that is being read evaluates no further chunk, and one that decodes keeps what it
// has.
TEST(BatchGenerator, ADeadlineEndsATextWhereverItIs) {
    core::ContextOptions options = for_sequences(2);
    options.prefill_rows = 16;
    speculative::BatchParts parts = batch_parts(options);
    parts.now = [] { return hand_of_clock; };
    parts.prefill_rows_beside = 16;
    BatchGenerator batch(std::move(parts));
    EXPECT_TRUE(std::isinf(batch.next_deadline()));
    hand_of_clock = 1000.0;
    const auto by = [](BatchRequest made, double deadline) {
        made.deadline = deadline;
        return made;
    };
    const std::vector<std::int32_t> expected = alone(64);
    Recorder decoding, reading, waiting, other;
    batch.add(by(request(64), 1040.0), decoding);
    while (decoding.tokens.size() < 4) batch.step();
    BatchRequest long_one = request(8);
    for (int i = 0; i < 200; ++i) long_one.input.push_back(300 + i);
    batch.add(by(std::move(long_one), 1020.0), reading);
    batch.add(by(request(8, 1), 1010.0), waiting);
    batch.add(request(8, 2), other);
    EXPECT_EQ(batch.next_deadline(), 1010.0);
    // A backend that is asynchronous may have begun the next forward without the new ones.
    for (int i = 0; i < 2 && batch.running() < 2; ++i) batch.step();
    EXPECT_EQ(batch.running(), 2u);
    EXPECT_EQ(batch.waiting(), 2u);
    hand_of_clock = 1009.0;
    batch.step();
    EXPECT_FALSE(waiting.ended);
    hand_of_clock = 1010.0;
    batch.step();
    EXPECT_TRUE(waiting.ended);
    EXPECT_EQ(waiting.result.finish, FinishReason::deadline);
    EXPECT_THAT(waiting.tokens, IsEmpty());
    EXPECT_EQ(waiting.error, "");
    EXPECT_EQ(batch.next_deadline(), 1020.0);
    hand_of_clock = 1020.0;
    const std::int64_t read = batch.counters().prefill_rows;
    batch.step();
    EXPECT_EQ(reading.result.finish, FinishReason::deadline);
    EXPECT_THAT(reading.tokens, IsEmpty());
    EXPECT_LE(batch.counters().prefill_rows, read + 16) << "the other's first chunk at most";
    hand_of_clock = 1040.0;
    batch.step();
    EXPECT_EQ(decoding.result.finish, FinishReason::deadline);
    EXPECT_GE(decoding.tokens.size(), 4u);
    EXPECT_EQ(decoding.tokens,
              std::vector<std::int32_t>(expected.begin(), expected.begin() + std::ssize(decoding.tokens)));
    run(batch);
    EXPECT_EQ(other.tokens, alone(8, 2));
    EXPECT_TRUE(no_page_is_lost(batch));
}

TEST(BatchGenerator, APausedSequenceTakesNoRowsAndLosesNothing) {
    BatchGenerator batch = make_batch(for_sequences(2));
    Recorder paused, other;
    const Ticket ticket = batch.add(request(20, 1), paused);
    batch.add(request(20, 2), other);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(batch.step());
    batch.pause(ticket);
    const std::size_t before = paused.tokens.size();
    while (batch.step()) {
    }
    EXPECT_TRUE(other.ended);
    EXPECT_EQ(paused.tokens.size(), before);
    EXPECT_EQ(batch.running(), 1u);
    batch.resume(ticket);
    while (batch.step()) {
    }
    EXPECT_EQ(paused.tokens, alone(20, 1));
    EXPECT_EQ(other.tokens, alone(20, 2));
}

// A paused text has the pages that another one needs: nothing else would ever give them back.
TEST(BatchGenerator, APausedTextDoesNotKeepOthersFromTheirPages) {
    core::ContextOptions options = for_sequences(1);
    options.branches = 1;
    BatchGenerator batch = make_batch(options);
    Recorder slow, other;
    speculative::BatchRequest first = request(8);
    while (first.input.size() < 400) first.input.push_back(first.input[first.input.size() % 7]);
    speculative::BatchRequest second = request(8);
    while (second.input.size() < 200) second.input.push_back(second.input[second.input.size() % 5]);
    const speculative::Ticket ticket = batch.add(std::move(first), slow);
    while (slow.tokens.empty()) ASSERT_TRUE(batch.step());
    batch.pause(ticket);
    batch.add(std::move(second), other);
    while (batch.step()) {
    }
    EXPECT_TRUE(other.ended) << batch.waiting() << " texts wait, and step() says that there is nothing to evaluate";
}

TEST(BatchGenerator, SinksMayAddAndCancel) {
    BatchGenerator batch = make_batch(for_sequences(3));
    Recorder first, second, third;
    batch.add(request(12, 1), first);
    const Ticket ticket = batch.add(request(12, 2), second);
    // In the same forward, after the first sequence's token and before the second one's.
    first.on_token = [&] {
        if (first.tokens.size() == 4) batch.cancel(ticket);
    };
    second.on_end = [&] { batch.add(request(12, 3), third); };
    while (batch.step()) {
    }
    EXPECT_EQ(first.tokens, alone(12, 1));
    EXPECT_EQ(second.tokens.size(), 3u) << "no token comes after cancel()";
    EXPECT_EQ(second.result.finish, FinishReason::cancelled);
    EXPECT_EQ(third.tokens, alone(12, 3));
}

// -------------------------------------------------------------------------------------------- beginnings and pages

// `count` tokens of a text that is long enough.
std::vector<std::int32_t> long_prompt(std::size_t count) {
    std::string text;
    while (text.size() < 8 * count) text += "def read_" + std::to_string(text.size()) + "(path):\n    return path\n\n";
    std::vector<std::int32_t> tokens = tokenizer().encode(text);
    tokens.resize(count);
    return tokens;
}

BatchRequest request_of(std::vector<std::int32_t> input, std::int32_t max_tokens, std::uint64_t seed = 0) {
    BatchRequest made = request(max_tokens, seed);
    made.input = std::move(input);
    return made;
}

std::vector<std::int32_t> alone_of(const std::vector<std::int32_t>& input, std::int32_t max_tokens,
                                   std::uint64_t seed = 0) {
    speculative::Generator generator = make_generator(temperature_chain(0.8), sources(nullptr), off());
    return generator.generate({.input = input, .max_tokens = max_tokens, .seed = seed, .ignore_eos = true}).tokens;
}

core::ContextOptions with_branches(std::int32_t sequences, std::int32_t branches) {
    core::ContextOptions options = for_sequences(sequences);
    options.branches = branches;
    return options;
}

TEST(BatchGenerator, ABeginningThatIsKnownIsNotEvaluatedAgain) {
    const std::vector<std::int32_t> input = long_prompt(200);
    BatchGenerator batch = make_batch(with_branches(2, 2));
    Recorder first, again, turned;
    batch.add(request_of(input, 16, 1), first);
    run(batch);
    EXPECT_EQ(first.result.cached_tokens, 0);
    EXPECT_EQ(batch.counters().prefill_rows, 200);
    batch.add(request_of(input, 16, 2), again);
    run(batch);
    EXPECT_EQ(again.result.cached_tokens, 199) << "all but the last, whose logits are wanted";
    EXPECT_EQ(batch.counters().prefill_rows, 201);
    EXPECT_EQ(again.tokens, alone_of(input, 16, 2));
    // Another end after the same beginning, and a page that is shared in part.
    std::vector<std::int32_t> other = input;
    for (std::size_t i = 150; i < other.size(); ++i) other[i] = input[i - 100];
    batch.add(request_of(other, 16, 3), turned);
    run(batch);
    EXPECT_EQ(turned.result.cached_tokens, 150);
    EXPECT_EQ(turned.tokens, alone_of(other, 16, 3));
    EXPECT_EQ(first.tokens, alone_of(input, 16, 1));
    EXPECT_TRUE(no_page_is_lost(batch));
}

// A second turn: the prompt of the first and its answer, then more. Where classes differ, the answer's rows are other
// ones than a prompt's.
TEST(BatchGenerator, AnAnswerIsKnownWhereItsRowsHaveTheSameClass) {
    const std::vector<std::int32_t> input = long_prompt(100);
    for (const bool agree : {false, true}) {
        if (agree && !core::classes_agree(fast_backend().ops())) continue;
        speculative::BatchParts parts = batch_parts(with_branches(1, 1));
        parts.classes_agree = agree;
        parts.short_given = 0;  // or the prompt's rows were decode rows, too
        BatchGenerator batch(std::move(parts));
        Recorder first, second, marked;
        batch.add(request_of(input, 30, 1), first);
        run(batch);
        std::vector<std::int32_t> turn = input;
        turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
        turn.insert(turn.end(), {7, 8, 9});
        batch.add(request_of(turn, 8, 2), second);
        run(batch);
        // The last token of an answer is not in the cache.
        EXPECT_EQ(second.result.cached_tokens, agree ? 129 : 100);
        EXPECT_EQ(second.tokens, alone_of(turn, 8, 2));
        BatchRequest again = request_of(turn, 8, 2);
        again.generated.resize(100, 0);
        again.generated.resize(turn.size(), 1);
        batch.add(std::move(again), marked);
        run(batch);
        EXPECT_GE(marked.result.cached_tokens, agree ? 132 : 100);
        EXPECT_EQ(marked.tokens.size(), 8u);
    }
}

TEST(BatchGenerator, TextsOfAnotherSaltAreUnknown) {
    BatchGenerator batch = make_batch(with_branches(2, 2));
    Recorder ann, bob;
    BatchRequest first = request_of(long_prompt(100), 4);
    BatchRequest second = request_of(long_prompt(100), 4);
    first.cache_salt = "ann";
    second.cache_salt = "bob";
    batch.add(std::move(first), ann);
    run(batch);
    batch.add(std::move(second), bob);
    run(batch);
    EXPECT_EQ(bob.result.cached_tokens, 0);
    EXPECT_EQ(bob.tokens, ann.tokens);
}

TEST(BatchGenerator, ManyOnOnePromptEvaluateItOnceAndHoldItsPagesOnce) {
    // Four pages and four rows; an answer stays within the fifth page.
    const std::vector<std::int32_t> input = long_prompt(260);
    constexpr std::int32_t kTexts = 50;
    // 72 pages for 50 texts of 5 pages each.
    core::ContextOptions options = with_branches(9, kTexts);
    options.decode_rows = kTexts;
    BatchGenerator batch = make_batch(options);
    core::KvCache& cache = batch.target().cache();
    ASSERT_EQ(cache.pages().pages, 72);
    std::deque<Recorder> sinks(kTexts);
    for (std::size_t i = 0; i < sinks.size(); ++i) batch.add(request_of(input, 6, i), sinks[i]);
    std::size_t most = 0;
    std::int32_t pages = 0;
    while (batch.step()) {
        most = std::max(most, batch.running());
        pages = std::max(pages, cache.pages().pages - cache.free_pages());
    }
    EXPECT_EQ(most, sinks.size());
    // Fewer where the first has ended before the last has its page: how many rows a forward takes is a matter of time.
    EXPECT_LE(pages, 4 + kTexts);
    EXPECT_GT(pages, 4 + kTexts / 2);
    // They did not wait for the last chunk, of four rows.
    EXPECT_EQ(batch.counters().prefill_rows, 260 + (kTexts - 1) * 4);
    EXPECT_EQ(batch.counters().preemptions, 0);
    for (std::size_t i = 0; i < sinks.size(); i += 7) EXPECT_EQ(sinks[i].tokens, alone_of(input, 6, i)) << i;
    EXPECT_TRUE(no_page_is_lost(batch));
}

TEST(BatchGenerator, GivesPagesUpWhenThereAreNoneAndComesBack) {
    for (const bool agree : {false, true}) {
        if (agree && !core::classes_agree(fast_backend().ops())) continue;
        // 8 pages, and four texts that need 4 pages each in the end.
        speculative::BatchParts parts = batch_parts(with_branches(1, 7));
        parts.classes_agree = agree;
        BatchGenerator batch(std::move(parts));
        std::deque<Recorder> sinks(4);
        std::vector<std::vector<std::int32_t>> inputs;
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            inputs.push_back(long_prompt(40 + i));
            inputs.back()[0] = static_cast<std::int32_t>(100 + i);
            batch.add(request_of(inputs.back(), 180, i), sinks[i]);
        }
        std::size_t most = 0;
        while (batch.step()) most = std::max(most, batch.running());
        EXPECT_GE(most, 3u);
        EXPECT_GT(batch.counters().preemptions, 0);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            EXPECT_EQ(sinks[i].tokens, alone_of(inputs[i], 180, i)) << i;
            EXPECT_EQ(sinks[i].result.prompt_tokens, static_cast<std::int64_t>(inputs[i].size()));
        }
        EXPECT_TRUE(no_page_is_lost(batch));
    }
}

TEST(PrefixCache, FindsTheLongestBeginningAndDropsWhatWasNotUsedForLongest) {
    core::Context context(bundled(fast_backend(), "target"), with_branches(2, 4));
    core::KvCache& cache = context.cache();
    speculative::PrefixCache kept({.cache = &cache, .ops = &context.ops()});
    const std::vector<std::int32_t> text = long_prompt(200);
    const std::vector<kernels::RowClass> given(200, kernels::RowClass::prefill);
    std::vector<kernels::RowClass> answer = given;
    std::fill(answer.begin() + 30, answer.end(), kernels::RowClass::decode);
    const auto key = [&](std::size_t count) { return speculative::PrefixKey{std::span(text).first(count), given, {}}; };
    const auto keep = [&](std::size_t count, std::int32_t token) {
        const core::SequenceId id = cache.create();
        std::vector<std::int32_t> own(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count));
        if (token >= 0) own[0] = token;
        EXPECT_TRUE(context.prefill(own, id));
        kept.keep(id, {own, given, {}});
        return id;
    };
    cache.drop(0);
    const core::SequenceId shorter = keep(70, -1);
    EXPECT_EQ(kept.find(key(200)).sequence, shorter);
    EXPECT_EQ(kept.find(key(200)).length, 70);
    EXPECT_EQ(kept.find({text, answer, {}}).length, 30) << "later rows have another class";
    const core::SequenceId other = keep(130, 5);
    EXPECT_EQ(kept.find(key(200)).sequence, shorter);
    keep(150, -1);  // makes the one of 70 superfluous
    EXPECT_EQ(kept.texts(), 2u);
    EXPECT_EQ(kept.find(key(200)).length, 150);
    EXPECT_EQ(kept.evictable_pages(), 6);
    EXPECT_EQ(cache.free_pages(), 10);
    ASSERT_TRUE(kept.evict_page());  // of the other one, by its end
    EXPECT_EQ(cache.length(other), 128);
    EXPECT_EQ(cache.free_pages(), 11);
    ASSERT_TRUE(kept.evict_page());
    ASSERT_TRUE(kept.evict_page());
    EXPECT_EQ(kept.texts(), 1u);
    // A page that a running text shares is not free when it is dropped here.
    const core::SequenceId fork = cache.fork(kept.find(key(200)).sequence);
    EXPECT_EQ(kept.evictable_pages(), 0);
    while (kept.evict_page()) {
    }
    EXPECT_EQ(cache.free_pages(), 13);
    cache.drop(fork);
    EXPECT_EQ(cache.free_pages(), 16);
}

// Makes logit row `row` of one forward not finite.
class BrokenOps final : public kernels::OpsDecorator {
public:
    explicit BrokenOps(kernels::Ops& inner) : OpsDecorator(inner) {}
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        const std::span<float> row = OpsDecorator::logits(workspace, i);
        if (i == broken) row[7] = std::numeric_limits<float>::quiet_NaN();
        return row;
    }
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        kernels::SampledToken token = OpsDecorator::sampled(workspace, slot);
        if (slot == broken) token.finite = false;
        return token;
    }
    std::int32_t broken = -1;
};

TEST(BatchGenerator, LogitsThatAreNotFiniteEndTheirOwnSequence) {
    BrokenOps ops(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), ops);
    BatchGenerator batch = make_batch(for_sequences(3), model);
    Recorder first, broken, third;
    batch.add(request(16, 1), first);
    batch.add(request(16, 2), broken);
    batch.add(request(16, 3), third);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(batch.step());
    ops.broken = 1;
    ASSERT_TRUE(batch.step());
    ops.broken = -1;
    EXPECT_TRUE(broken.ended);
    EXPECT_THAT(broken.error, HasSubstr("logits are not finite"));
    EXPECT_FALSE(broken.tokens.empty());
    EXPECT_EQ(broken.result.tokens, broken.tokens);
    while (batch.step()) {
    }
    EXPECT_EQ(first.tokens, alone(16, 1));
    EXPECT_EQ(third.tokens, alone(16, 3));
    EXPECT_TRUE(first.error.empty());
}

// Fails at the tenth token of the answer to prompt().
struct Failing {
    static constexpr Info info{"failing", "1", "Fails.", "Apache-2.0"};
    Failing(detail::NoParameters, Host) {}
    void process(const Context& context, foresay::Candidates&) const {
        if (context.index() == prompt().size() + 9) throw std::runtime_error("the answer is 42");
    }
};

TEST(BatchGenerator, AStageThatFailsEndsItsOwnSequence) {
    BatchGenerator batch = make_batch(for_sequences(3));
    Recorder first, failing, third;
    batch.add(request(16, 1), first);
    BatchRequest wrong = request(16, 2);
    samplers::StageSpec stage_that_fails = stage("failing");
    stage_that_fails.factory = samplers::make_plugin_factory(&detail::Adapter<Failing>::sampler, nullptr, "test");
    wrong.chain = make_chain({stage_that_fails, stage("temperature", {{"value", 0.8}})});
    batch.add(std::move(wrong), failing);
    batch.add(request(16, 3), third);
    while (batch.step()) {
    }
    EXPECT_TRUE(failing.ended);
    EXPECT_EQ(failing.error, "sampler 'failing' failed: the answer is 42");
    EXPECT_EQ(failing.tokens.size(), 9u);
    EXPECT_EQ(first.tokens, alone(16, 1));
    EXPECT_EQ(third.tokens, alone(16, 3));
    EXPECT_TRUE(no_page_is_lost(batch));
}

// Notes the threads that it is called on. The first call waits for one on another thread, though not for ever.
struct Meeting {
    static constexpr Info info{"meeting", "1", "Waits for a second thread.", "Apache-2.0"};
    Meeting(detail::NoParameters, Host) {}
    void process(const Context&, foresay::Candidates&) const {
        std::unique_lock lock(mutex);
        threads.insert(std::this_thread::get_id());
        met.notify_all();
        if (std::exchange(waited, true)) return;
        met.wait_for(lock, std::chrono::seconds(20), [] { return threads.size() > 1; });
    }
    static inline std::mutex mutex;
    static inline std::condition_variable met;
    static inline std::set<std::thread::id> threads;
    static inline bool waited = true;
};

// On a host, texts are sampled at once on the backend's threads, and say their tokens in order.
TEST(BatchGenerator, TextsAreSampledOnAllThreadsAtOnce) {
    if (fast_backend().ops().asynchronous()) GTEST_SKIP() << "the device samples";
    if (fast_backend().ops().describe().threads < 2) GTEST_SKIP() << "there is one thread";
    BatchGenerator batch = make_batch(for_sequences(4));
    std::deque<Recorder> sinks(4);
    std::string order;
    for (std::size_t i = 0; i < sinks.size(); ++i) {
        BatchRequest made = request(16, i);
        samplers::StageSpec meeting = stage("meeting");
        meeting.factory = samplers::make_plugin_factory(&detail::Adapter<Meeting>::sampler, nullptr, "test");
        made.chain = make_chain({meeting, stage("temperature", {{"value", 0.8}})});
        sinks[i].on_token = [&order, i] { order += static_cast<char>('0' + i); };
        batch.add(std::move(made), sinks[i]);
    }
    while (sinks.back().tokens.empty()) batch.step();  // not all may have been admitted at once
    order.clear();
    Meeting::threads.clear();
    Meeting::waited = false;
    batch.step();
    EXPECT_GE(Meeting::threads.size(), 2u);
    EXPECT_EQ(order, "0123");
    // One that is cancelled by another's sink has been sampled, and says nothing.
    const std::size_t said = sinks[3].tokens.size();
    sinks[0].on_token = [&] { batch.cancel(Ticket{4}); };
    run(batch);
    EXPECT_EQ(sinks[3].tokens.size(), said);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(sinks[i].tokens, alone(16, i)) << i;
    EXPECT_TRUE(no_page_is_lost(batch));
}

}  // namespace
}  // namespace foresay::test
