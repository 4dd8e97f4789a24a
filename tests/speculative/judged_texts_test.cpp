// Stages that judge tokens: the host drops what may not follow, and a device runs ahead meanwhile.
#include <gtest/gtest.h>

#include "kernels/ops_decorator.h"
#include "plugins/host/plugin_host.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;

// Counts forwards, those that began before the host knew their token, and rows of logits that the host has read.
class CountedReads final : public kernels::OpsDecorator {
public:
    explicit CountedReads(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        ++forwards;
        unknown += batch.rows.front().token.is_slot() ? 1 : 0;
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t row) override {
        ++read_rows;
        return OpsDecorator::logits(workspace, row);
    }
    std::int32_t forwards = 0, unknown = 0, read_rows = 0;
};

// Drops the tokens of one remainder: seldom likely ones, or often.
template <int kParts>
struct Dropping {
    static constexpr foresay::Info info{"dropping", "1", "Drops tokens of one remainder.", "Apache-2.0"};
    bool test(const foresay::Context&, std::int32_t id) const { return id % kParts != 1; }
};

// Drops nearly all tokens, so that the candidates seldom tell.
struct Sparing {
    static constexpr foresay::Info info{"sparing", "1", "Drops most tokens.", "Apache-2.0"};
    bool test(const foresay::Context&, std::int32_t id) const { return id % 16 == 0; }
};

std::unique_ptr<samplers::Chain> judged_chain(int which) {
    static const std::shared_ptr<const samplers::StageFactory> factories[] = {
        samplers::linked_factory<Dropping<2000>>(),   samplers::linked_factory<Dropping<4>>(),
        samplers::linked_factory<samplers::Tester>(), samplers::linked_factory<samplers::SoleMasker>(),
        samplers::linked_factory<Sparing>(),          samplers::linked_factory<Dropping<30>>()};
    samplers::StageSpec judge = stage("rule");
    judge.factory = factories[which];
    return make_chain({judge, stage("penalties", {{"frequency", 0.2}}), stage("top_k", {{"k", std::int64_t{40}}}),
                       stage("temperature", {{"value", 0.8}})});
}

// That of a batch, with judged_chain(which).
speculative::BatchRequest judged_request(const std::vector<std::int32_t>& input, std::int32_t tokens,
                                         std::uint64_t seed, int which) {
    return {.input = input,
            .chain = judged_chain(which),
            .max_tokens = tokens,
            .seed = seed,
            .stop = {},
            .ignore_eos = true};
}

// A device samples what the host is likely to choose, and goes on from there. No row of logits crosses where enough of
// the candidates may follow, and every text is the one that the host samples from whole rows.
TEST(JudgedTexts, ADeviceRunsAheadOfStagesThatJudge) {
    constexpr std::int32_t kTokens = 40;
    const std::vector<std::int32_t> input = prompt();
    CountedReads counted(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), counted);
    const auto draft = bundled(fast_backend(), "draft");
    std::vector<std::vector<std::int32_t>> texts;
    for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(which);
        const bool often = which == 1 || which == 2;
        const speculative::GenerateRequest wanted{.input = input, .max_tokens = kTokens, .seed = 5, .ignore_eos = true};
        counted.forwards = 0;
        counted.read_rows = 0;
        speculative::Generator plain =
            make_generator(judged_chain(which), sources(nullptr), off(), context_options(), model);
        texts.push_back(plain.generate(wanted).tokens);
        if (counted.asynchronous()) {
            EXPECT_LT(counted.read_rows, often ? kTokens : 1);
            if (which == 0) {
                EXPECT_LE(counted.forwards, kTokens + 8) << "few guesses are wrong";
            }
        }
        // On the host. Another device may round otherwise.
        if (fast_backend().name != "cuda") {
            speculative::Generator host = make_generator(judged_chain(which), sources(nullptr), off(),
                                                         context_options(), bundled(backends()[1], "target"));
            EXPECT_EQ(host.generate(wanted).tokens, texts.back());
        }
        counted.read_rows = 0;
        speculative::Generator drafting =
            make_generator(judged_chain(which), sources(model_drafter(draft)), fixed(3), context_options(), model);
        const speculative::GenerateResult drafted = drafting.generate(wanted);
        EXPECT_EQ(drafted.tokens, texts.back());
        EXPECT_GT(drafted.speculation.accepted, 0);
        if (counted.asynchronous() && which == 0) {
            EXPECT_EQ(counted.read_rows, 0);
        }
        // A draft does without what seldom drops a likely token, on the host, too.
        if (which < 2) {
            const std::int64_t judged = drafting.chain().reports().front().draft_calls;
            EXPECT_EQ(judged > 0, which == 1) << judged;
        }
    }
    // All together.
    BatchGenerator batch(batch_parts(for_sequences(4), model));
    std::deque<Recorder> sinks(4);
    counted.read_rows = 0;
    for (int which = 0; which < 4; ++which) {
        batch.add(judged_request(input, kTokens, 5, which), sinks[static_cast<std::size_t>(which)]);
    }
    while (batch.step()) {
    }
    for (std::size_t which = 0; which < 4; ++which) EXPECT_EQ(sinks[which].tokens, texts[which]) << which;
    if (counted.asynchronous()) {
        EXPECT_LT(counted.read_rows, 2 * kTokens);
    }
    EXPECT_TRUE(no_page_is_lost(batch));
}

// A forward has more rows than there are slots: the device samples the first of them, and the host the others, of texts
// whose last token was a guess of the device.
TEST(JudgedTexts, TheHostSamplesRowsBeyondTheSlots) {
    constexpr std::int32_t kTexts = 20, kDraft = 4, kTokens = 24;
    static_assert(kTexts < kernels::kTokenSlots && kTexts * (kDraft + 1) > kernels::kTokenSlots);
    const auto model = bundled(fast_backend(), "target");
    const std::vector<std::int32_t> input = tokenizer().encode("def add(a, b):\n");
    speculative::Generator alone = make_generator(judged_chain(0), sources(nullptr), off(), context_options(), model);
    const std::vector<std::int32_t> text =
        alone.generate({.input = input, .max_tokens = kTokens, .seed = 5, .ignore_eos = true}).tokens;

    core::ContextOptions options = for_sequences(kTexts);
    options.decode_rows = kTexts * (kDraft + 1);
    speculative::BatchParts parts = batch_parts(options, model);
    parts.speculation = fixed(kDraft);
    parts.make_drafter = [](std::int32_t) { return random_drafter(7); };
    BatchGenerator batch(std::move(parts));
    std::deque<Recorder> sinks(kTexts);
    for (Recorder& sink : sinks) batch.add(judged_request(input, kTokens, 5, 0), sink);
    while (batch.step()) {
    }
    for (const Recorder& sink : sinks) EXPECT_EQ(sink.tokens, text);
    EXPECT_GE(batch.counters().drafted, kTexts * kDraft);
    EXPECT_TRUE(no_page_is_lost(batch));
}

// The candidates do not tell the last token of a text, and its row is gone, because others run ahead: the row is made
// again, in the place where it was.
TEST(JudgedTexts, TheLastTokenIsLostWhileOthersRunAhead) {
    const auto model = bundled(fast_backend(), "target");
    const std::vector<std::int32_t> input = tokenizer().encode("def add(a, b):\n");
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(seed);
        const std::int32_t tokens = seed % 2 == 0 ? 2 : 3;
        BatchGenerator plain(batch_parts(for_sequences(1), model));
        Recorder alone;
        plain.add(judged_request(input, tokens, seed, 4), alone);
        while (plain.step()) {
        }
        BatchGenerator batch(batch_parts(for_sequences(2), model));
        Recorder one, other;
        batch.add(judged_request(input, 8, 0, 0), other);
        batch.add(judged_request(input, tokens, seed, 4), one);
        while (batch.step()) {
        }
        EXPECT_EQ(one.tokens, alone.tokens);
        EXPECT_TRUE(no_page_is_lost(batch));
    }
}

// The first row beyond the slots is that of a text that was paused, and is sampled like one of the first text, whose
// guess is wrong meanwhile.
TEST(JudgedTexts, TheFirstRowBeyondTheSlotsIsGone) {
    constexpr std::int32_t kPaused = 44, kTexts = kernels::kTokenSlots + kPaused + 1, kTokens = kPaused + 4;
    const auto model = bundled(fast_backend(), "target");
    const std::vector<std::int32_t> input = tokenizer().encode("def add(a, b):\n");
    BatchGenerator plain(batch_parts(for_sequences(1), model));
    Recorder alone;
    plain.add(judged_request(input, kTokens, 1, 5), alone);
    while (plain.step()) {
    }
    core::ContextOptions options = for_sequences(kTexts, 64);
    options.prefill_rows = 1024;  // all prompts at once
    options.decode_rows = kTexts;
    BatchGenerator batch(batch_parts(options, model));
    std::deque<Recorder> sinks(kTexts);
    std::vector<speculative::Ticket> tickets;
    for (Recorder& sink : sinks) {
        tickets.push_back(batch.add(judged_request(input, kTokens, 1, tickets.empty() ? 5 : 0), sink));
    }
    while (sinks.back().tokens.size() < 2) ASSERT_TRUE(batch.step());
    for (std::int32_t i = 0; i < kPaused; ++i) {
        batch.pause(tickets[static_cast<std::size_t>(kernels::kTokenSlots + i)]);
        batch.step();
    }
    for (const speculative::Ticket ticket : tickets) batch.cancel(ticket);
    batch.step();
    ASSERT_GE(sinks.front().tokens.size(), 40u);
    EXPECT_EQ(sinks.front().tokens,
              std::vector(alone.tokens.begin(), alone.tokens.begin() + std::ssize(sinks.front().tokens)));
    EXPECT_TRUE(no_page_is_lost(batch));
}

// `indent` leaves few of the likely candidates where a line begins, and a schema allows few tokens anywhere. Neither
// costs a forward: each begins before the host knows its token, and no row crosses.
TEST(JudgedTexts, FewTokensThatMayFollowCostNoForward) {
    constexpr std::int32_t kTokens = 120;
    samplers::StageSpec indent = stage("indent");
    indent.factory = plugins::PluginHost({{FORESAY_PLUGIN_FOLDER}, {}}).load("indent");
    const samplers::StageSpec schema =
        stage("grammar", {{"language", std::string("json_schema")},
                          {"after", std::string("free")},
                          {"text", std::string(R"({"type":"array","minItems":30,"items":{"type":"object","required":
                              ["name","line"],"additionalProperties":false,"properties":{"name":{"type":"string",
                              "maxLength":9},"line":{"type":"integer"}}}})")}});
    const std::vector<std::int32_t> input =
        tokenizer().encode("class Stack:\n    def __init__(self, items):\n        self.items = items\n\n    def ");
    CountedReads counted(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), counted);
    for (const samplers::StageSpec& judge : {indent, schema}) {
        SCOPED_TRACE(judge.name);
        const auto chain = [&judge] {
            return make_chain({judge, stage("top_k"), stage("top_p"), stage("temperature", {{"value", 0.6}})});
        };
        const speculative::GenerateRequest wanted{.input = input, .max_tokens = kTokens, .seed = 5, .ignore_eos = true};
        counted.forwards = counted.unknown = counted.read_rows = 0;
        speculative::Generator plain = make_generator(chain(), sources(nullptr), off(), context_options(), model);
        const std::vector<std::int32_t> text = plain.generate(wanted).tokens;
        EXPECT_EQ(text.size(), static_cast<std::size_t>(kTokens));
        if (counted.asynchronous()) {
            EXPECT_LE(counted.forwards, kTokens + 1);
            EXPECT_GE(counted.unknown, kTokens - 4);
            EXPECT_EQ(counted.read_rows, 0);
        }
        if (fast_backend().name != "cuda") {
            speculative::Generator host =
                make_generator(chain(), sources(nullptr), off(), context_options(), bundled(backends()[1], "target"));
            EXPECT_EQ(host.generate(wanted).tokens, text);
        }
    }
}

}  // namespace
}  // namespace foresay::test
