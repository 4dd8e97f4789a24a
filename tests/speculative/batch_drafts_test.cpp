// What a batch drafts: from which sources, for which texts, and that it pays for all of them and for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "speculative/drafters/ngram_drafter.h"
#include "tests/speculative/batch_requests.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;
using speculative::BatchRequest;
using speculative::FinishReason;
using speculative::Ticket;

speculative::BatchParts drafting_parts(std::int32_t sequences, std::int32_t draft_length) {
    speculative::BatchParts parts = batch_parts(for_sequences(sequences));
    parts.speculation = {.mode = core::SpeculationMode::fixed, .draft_length = draft_length};
    parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
    return parts;
}

BatchRequest greedy(std::int32_t max_tokens) {
    BatchRequest made = request(max_tokens);
    made.chain = temperature_chain(0.0);
    return made;
}

std::vector<std::int32_t> greedy_alone(std::int32_t max_tokens) {
    speculative::Generator generator = make_generator(temperature_chain(0.0), sources(nullptr), off());
    return generator.generate({.input = prompt(), .max_tokens = max_tokens, .ignore_eos = true}).tokens;
}

TEST(BatchDrafts, APredictionThatIsRightIsVerifiedInFewForwards) {
    const std::vector<std::int32_t> answer = greedy_alone(64);
    BatchGenerator batch(drafting_parts(3, 8));
    Recorder right, edited, wrong;
    const auto predicted = [&](std::vector<std::int32_t> prediction) {
        BatchRequest made = greedy(64);
        made.prediction = std::move(prediction);
        return made;
    };
    std::vector<std::int32_t> other = answer;
    other.erase(other.begin() + 20, other.begin() + 23);
    other[40] = (other[40] + 1) % 1000;
    other.insert(other.begin() + 8, {997, 998, 999});
    std::vector<std::int32_t> bad(64);
    for (std::size_t i = 0; i < bad.size(); ++i) bad[i] = static_cast<std::int32_t>(1000 + 7 * i);
    batch.add(predicted(answer), right);
    batch.add(predicted(other), edited);
    batch.add(predicted(bad), wrong);
    run(batch);
    EXPECT_EQ(right.tokens, answer);
    EXPECT_EQ(edited.tokens, answer);
    EXPECT_EQ(wrong.tokens, answer);
    // 64 tokens, nine at a time.
    EXPECT_LE(right.result.speculation.rounds, 10);
    EXPECT_LE(edited.result.speculation.rounds, 28);
    EXPECT_GT(right.result.speculation.accepted, 48);
    EXPECT_EQ(right.result.speculation.mode, "fixed");
    ASSERT_EQ(right.result.speculation.sources.size(), 2u);
    EXPECT_EQ(right.result.speculation.sources[0].name, "ngram");
    EXPECT_EQ(right.result.speculation.sources[1].name, "prediction");
    EXPECT_GT(right.result.speculation.sources[1].accepted, 40);
    EXPECT_EQ(right.result.speculation.sources[0].accepted + right.result.speculation.sources[1].accepted,
              right.result.speculation.accepted);
    std::int64_t drafted = 0;
    for (const Recorder* one : {&right, &edited, &wrong}) drafted += one->result.speculation.drafted;
    EXPECT_EQ(batch.counters().drafted, drafted);
}

TEST(BatchDrafts, NoTokenComesAfterItsOwnSinkHasCancelledInTheMiddleOfADraft) {
    const std::vector<std::int32_t> answer = greedy_alone(32);
    BatchGenerator batch(drafting_parts(2, 8));
    Recorder cancelled, other;
    BatchRequest first = greedy(32);
    first.prediction = answer;
    const Ticket ticket = batch.add(std::move(first), cancelled);
    batch.add(greedy(32), other);
    cancelled.on_token = [&] {
        if (cancelled.tokens.size() == 12) batch.cancel(ticket);
    };
    run(batch);
    EXPECT_EQ(cancelled.tokens, std::vector<std::int32_t>(answer.begin(), answer.begin() + 12));
    EXPECT_EQ(cancelled.result.finish, FinishReason::cancelled);
    EXPECT_EQ(other.tokens, answer);
    EXPECT_TRUE(no_page_is_lost(batch));
}

TEST(BatchDrafts, LogprobsAreTheSameWithDrafts) {
    const std::vector<std::int32_t> answer = greedy_alone(24);
    Recorder plain, drafted;
    const auto wanted = [&] {
        BatchRequest made = greedy(24);
        made.logprobs = 3;
        made.prediction = answer;
        return made;
    };
    {
        BatchGenerator batch = make_batch(for_sequences(1));
        batch.add(wanted(), plain);
        run(batch);
    }
    BatchGenerator batch(drafting_parts(1, 8));
    batch.add(wanted(), drafted);
    run(batch);
    EXPECT_GT(drafted.result.speculation.accepted, 10);
    EXPECT_EQ(drafted.logprobs, plain.logprobs);
}

// Where one text runs at a time, it has the drafters of a conversation, and the queue and the beginnings of a batch.
TEST(BatchDrafts, OneTextAtATimeIsDraftedForAsAConversation) {
    for (const auto& speculation : {fixed(4), automatic()}) {
        speculative::BatchParts parts = batch_parts(for_sequences(2));
        parts.one_text = true;
        parts.speculation = speculation;
        parts.drafters = sources(model_drafter(bundled(fast_backend(), "draft")), ngram_drafter());
        BatchGenerator batch(std::move(parts));
        std::deque<Recorder> sinks(5);
        const auto make = [](std::uint64_t seed) { return request(32, seed); };
        std::vector<BatchRequest> texts;
        for (std::uint64_t seed = 0; seed < sinks.size(); ++seed) texts.push_back(make(seed));
        texts[1].cache_salt = "another";
        texts[1].logprobs = 1;
        texts[2].speculation = off();
        texts[3].prediction = alone(32, 3);
        texts[4].deadline = 1e18;
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            sinks[i].on_token = [&] { EXPECT_EQ(batch.running(), 1u); };
            batch.add(std::move(texts[i]), sinks[i]);
        }
        run(batch);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            EXPECT_EQ(sinks[i].tokens, alone(32, i)) << i;
            const speculative::SpeculationStatistics& statistics = sinks[i].result.speculation;
            EXPECT_EQ(statistics.mode, i == 2                                             ? "off"
                                       : speculation.mode == core::SpeculationMode::fixed ? "fixed"
                                                                                          : "auto");
            ASSERT_EQ(statistics.sources.size(), i == 2 ? 0u : i == 3 ? 3u : 2u) << i;
            if (i != 2) EXPECT_EQ(statistics.sources[0].name, "draft");
            if (i != 2 && speculation.mode == core::SpeculationMode::fixed) EXPECT_LT(statistics.rounds, 32);
        }
        EXPECT_EQ(sinks[1].logprobs.size(), 32u);
        EXPECT_EQ(sinks[1].result.cached_tokens, 0);
        EXPECT_GT(sinks[3].result.cached_tokens, 0);
        EXPECT_TRUE(no_page_is_lost(batch));
    }
}

// The draft model drafts a token for each text in one forward.
TEST(BatchDrafts, TheDraftModelDraftsForAllInOneForward) {
    CountedOps counted(fast_backend().ops());
    const auto draft = core::Model::load(core::ModelSource::open(bundled_path("draft")), counted);
    speculative::BatchParts parts = batch_parts(for_sequences(4));
    parts.speculation = {.mode = core::SpeculationMode::fixed, .draft_length = 3};
    parts.draft = std::make_unique<core::Context>(draft, for_sequences(4));
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks(4);
    for (std::size_t i = 0; i < sinks.size(); ++i) batch.add(request(32, i), sinks[i]);
    run(batch);
    for (std::size_t i = 0; i < sinks.size(); ++i) {
        EXPECT_EQ(sinks[i].tokens, alone(32, i)) << i;
        const speculative::SpeculationStatistics& statistics = sinks[i].result.speculation;
        EXPECT_GT(statistics.accepted, 4);
        EXPECT_LT(statistics.rounds, 32);
        ASSERT_EQ(statistics.sources.size(), 1u);
        EXPECT_EQ(statistics.sources[0].name, "draft");
        EXPECT_EQ(statistics.sources[0].drafted, statistics.drafted);
    }
    // A forward for each prompt, and three for each round.
    const std::int64_t rounds = batch.counters().forwards;
    EXPECT_LE(std::ssize(counted.rows), 4 + 3 * rounds);
    EXPECT_GT(std::ranges::count_if(counted.rows, [](std::int32_t rows) { return rows >= 4; }), rounds);
    EXPECT_TRUE(no_page_is_lost(batch));
}

// Writes down whose forwards have how many rows.
class LoggedOps final : public kernels::OpsDecorator {
public:
    struct Entry {
        bool draft;
        std::int32_t rows;
    };
    LoggedOps(kernels::Ops& inner, bool draft, std::vector<Entry>& log)
        : OpsDecorator(inner), draft_(draft), log_(log) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        log_.push_back({draft_, static_cast<std::int32_t>(batch.rows.size())});
        OpsDecorator::begin(workspace, batch);
    }

private:
    bool draft_;
    std::vector<Entry>& log_;
};

// While texts decode, the draft model reads a long prompt in pieces.
TEST(BatchDrafts, TheDraftModelReadsALongPromptPieceByPieceBesideOthers) {
    constexpr std::int32_t kBeside = 32, kPrompt = 240;
    std::vector<LoggedOps::Entry> log;
    LoggedOps target_ops(fast_backend().ops(), false, log), draft_ops(fast_backend().ops(), true, log);
    speculative::BatchParts parts =
        batch_parts(for_sequences(2), core::Model::load(core::ModelSource::open(bundled_path("target")), target_ops));
    parts.speculation = fixed(3);
    parts.prefill_rows_beside = kBeside;
    parts.draft = std::make_unique<core::Context>(
        core::Model::load(core::ModelSource::open(bundled_path("draft")), draft_ops), for_sequences(2));
    BatchGenerator batch(std::move(parts));
    Recorder first, second;
    const Ticket ticket = batch.add(request(400), first);
    while (first.tokens.size() < 4) batch.step();
    BatchRequest made = request(24, 1);
    while (std::ssize(made.input) < kPrompt) made.input.push_back(300 + static_cast<std::int32_t>(made.input.size()));
    batch.add(std::move(made), second);
    log.clear();
    while (!second.ended) batch.step();
    EXPECT_FALSE(first.ended) << "they ran beside each other";
    std::int32_t most = 0, sum = 0, all = 0;
    for (const LoggedOps::Entry& entry : log) {
        if (!entry.draft) {
            most = std::max(most, std::exchange(sum, 0));
        } else if (entry.rows > 12) {  // steps have fewer
            sum += entry.rows;
            all += entry.rows;
        }
    }
    EXPECT_EQ(most, kBeside);
    EXPECT_GT(all, kPrompt - kBeside);
    EXPECT_GT(second.result.speculation.accepted, 0);
    batch.cancel(ticket);
    run(batch);
    EXPECT_TRUE(no_page_is_lost(batch));
}

// Until the draft model has read a text, lookups draft for it.
TEST(BatchDrafts, LookupsDraftWhileTheDraftModelReads) {
    const std::vector<std::int32_t> answer = greedy_alone(48);
    speculative::BatchParts parts = batch_parts(for_sequences(2));
    parts.speculation = fixed(6);
    parts.prefill_rows_beside = 1;  // a token in a round: the text is over before the prompt is read
    parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), for_sequences(2));
    BatchGenerator batch(std::move(parts));
    Recorder first, second;
    for (Recorder* sink : {&first, &second}) {
        BatchRequest predicted = greedy(48);
        predicted.prediction = answer;
        batch.add(std::move(predicted), *sink);
    }
    run(batch);
    for (const Recorder* sink : {&first, &second}) {
        EXPECT_EQ(sink->tokens, answer);
        EXPECT_LE(sink->result.speculation.rounds, 10);
        EXPECT_EQ(sink->result.speculation.sources.back().drafted, 0) << "the draft model has read it";
    }
}

// Under `auto` the bytes are the same whatever is drafted, and a text that comes back drafts again.
TEST(BatchDrafts, DraftsWhatPaysFromBothSources) {
    speculative::BatchParts parts = drafting_parts(2, 4);
    parts.speculation = {.mode = core::SpeculationMode::automatic};
    parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), for_sequences(2));
    parts.now = free_rows();
    BatchGenerator batch(std::move(parts));
    Recorder first, second;
    BatchRequest predicted = greedy(48);
    predicted.prediction = greedy_alone(48);
    batch.add(std::move(predicted), first);
    batch.add(request(48, 2), second);
    run(batch);
    EXPECT_EQ(first.tokens, greedy_alone(48));
    EXPECT_EQ(second.tokens, alone(48, 2));
    EXPECT_EQ(first.result.speculation.mode, "auto");
    ASSERT_EQ(first.result.speculation.sources.size(), 3u);  // and the prediction
    EXPECT_GT(first.result.speculation.accepted, 10);
}

// Each text is drafted for as its request says, whatever the batch does by itself and the others want.
TEST(BatchDrafts, EachTextIsDraftedForAsItsRequestSays) {
    const std::vector<std::int32_t> answer = greedy_alone(48);
    for (const core::SpeculationMode of_batch :
         {core::SpeculationMode::off, core::SpeculationMode::fixed, core::SpeculationMode::automatic}) {
        speculative::BatchParts parts = drafting_parts(4, 2);
        parts.speculation.mode = of_batch;
        parts.now = free_rows();
        BatchGenerator batch(std::move(parts));
        Recorder plain, told, paying, unsaid;
        const auto predicted = [&](std::optional<speculative::SpeculationOptions> speculation) {
            BatchRequest made = greedy(48);
            made.prediction = answer;
            made.speculation = speculation;
            return made;
        };
        batch.add(predicted(off()), plain);
        batch.add(predicted(fixed(6)), told);
        batch.add(predicted(automatic()), paying);
        batch.add(predicted({}), unsaid);
        run(batch);
        for (const Recorder* one : {&plain, &told, &paying, &unsaid}) EXPECT_EQ(one->tokens, answer);
        EXPECT_EQ(plain.result.speculation.mode, "off");
        EXPECT_EQ(plain.result.speculation.drafted, 0);
        EXPECT_EQ(told.result.speculation.mode, "fixed");
        EXPECT_LE(told.result.speculation.rounds, 8);  // of seven tokens each
        EXPECT_EQ(paying.result.speculation.mode, "auto");
        EXPECT_GT(paying.result.speculation.accepted, 24);
        EXPECT_EQ(unsaid.result.speculation.drafted > 0, of_batch != core::SpeculationMode::off);
        EXPECT_TRUE(no_page_is_lost(batch));
    }
}

// Sure of a token that is never right.
class WrongLookup final : public speculative::Drafter {
public:
    std::string_view name() const override { return "wrong"; }
    bool is_lookup() const override { return true; }
    speculative::Proposal look_up(std::span<const std::int32_t>, std::span<const std::int32_t> draft) override {
        if (!draft.empty()) return {};
        return {.token = 1, .chance = 0.9, .length = 8};
    }
    void propose(const speculative::DraftTask&, speculative::DraftedTokens&) override {}
};

// What the others gain hides nothing: a text whose drafts are wrong is soon left in peace, and theirs go on.
TEST(BatchDrafts, ATextThatIsDraftedForBadlyIsLeftInPeace) {
    constexpr std::int32_t kTokens = 180;
    const std::vector<std::int32_t> answer = greedy_alone(kTokens);
    TimedOps timed(fast_backend().ops(), 1.0, 0.2);
    speculative::BatchParts parts =
        batch_parts(for_sequences(4), core::Model::load(core::ModelSource::open(bundled_path("target")), timed));
    parts.speculation = {.mode = core::SpeculationMode::automatic, .max_draft = 2};
    parts.now = TimedOps::now;
    int made = 0;
    parts.make_drafter = [&made](std::int32_t capacity) -> std::unique_ptr<speculative::Drafter> {
        if (made++ == 0) return std::make_unique<WrongLookup>();
        return speculative::make_ngram_drafter(capacity);
    };
    BatchGenerator batch(std::move(parts));
    Recorder bad;
    std::deque<Recorder> good(3);
    batch.add(greedy(kTokens / 3), bad);
    for (Recorder& sink : good) {
        BatchRequest predicted = greedy(kTokens);
        predicted.prediction = answer;
        batch.add(std::move(predicted), sink);
    }
    run(batch);
    EXPECT_EQ(bad.tokens, std::vector<std::int32_t>(answer.begin(), answer.begin() + kTokens / 3));
    EXPECT_GT(bad.result.speculation.drafted, 2) << "nothing was ever tried";
    EXPECT_LT(bad.result.speculation.drafted, kTokens / 3 / 2);
    for (const Recorder& sink : good) {
        EXPECT_EQ(sink.tokens, answer);
        EXPECT_GT(sink.result.speculation.accepted, kTokens / 2);
    }
}

// A device samples as many rows as it has slots: no more are drafted where further rows seem to be free.
TEST(BatchDrafts, DraftsNoMoreThanTheDeviceSamples) {
    const std::vector<std::int32_t> answer = greedy_alone(24);
    CountedOps counted(fast_backend().ops());
    core::ContextOptions options = for_sequences(12);
    options.decode_rows = 128;
    speculative::BatchParts parts =
        batch_parts(options, core::Model::load(core::ModelSource::open(bundled_path("target")), counted));
    parts.now = free_rows();
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks(12);
    for (Recorder& sink : sinks) {
        BatchRequest made = greedy(24);
        made.prediction = answer;
        made.speculation = automatic();
        batch.add(std::move(made), sink);
    }
    run(batch);
    for (const Recorder& sink : sinks) EXPECT_EQ(sink.tokens, answer);
    EXPECT_EQ(counted.most_logits > kernels::kTokenSlots, !counted.asynchronous());
}

// A prediction is drafted from where the batch has no other source.
TEST(BatchDrafts, APredictionIsASourceOfItsOwn) {
    const std::vector<std::int32_t> answer = greedy_alone(32);
    BatchGenerator batch = make_batch(for_sequences(2));
    Recorder predicted, other;
    BatchRequest made = greedy(32);
    made.prediction = answer;
    made.speculation = fixed(7);
    batch.add(std::move(made), predicted);
    batch.add(greedy(32), other);
    run(batch);
    EXPECT_EQ(predicted.tokens, answer);
    EXPECT_EQ(other.tokens, answer);
    ASSERT_EQ(predicted.result.speculation.sources.size(), 1u);
    EXPECT_EQ(predicted.result.speculation.sources[0].name, "prediction");
    EXPECT_LE(predicted.result.speculation.rounds, 6);
    EXPECT_EQ(other.result.speculation.drafted, 0);
}

}  // namespace
}  // namespace foresay::test
