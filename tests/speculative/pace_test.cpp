// What speculation is worth on a device of a given pace: the bundled pair's own tokens on recorded prompts, on a clock
// that counts what the host and the device would take (tests/models/paced_ops.h). Nothing is measured, so nothing
// depends on the machine but the last bits of its logits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "speculative/drafters/ngram_drafter.h"
#include "tests/models/paced_ops.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using speculative::GenerateResult;
using speculative::Generator;

struct Prompt {
    std::string id;
    std::vector<std::int32_t> tokens;
};

// Prompts of kinds code and edit.
std::vector<Prompt> prompts() {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/bench/prompts/code.jsonl");
    std::vector<Prompt> all;
    for (std::string line; std::getline(file, line);) {
        const auto json = nlohmann::json::parse(line);
        const std::string kind = json["kind"];
        if (kind != "code" && kind != "edit") continue;
        all.push_back({json["id"], tokenizer().encode(json["prompt"].get<std::string>())});
    }
    return all;
}

// Milliseconds of a forward: of the target by its rows, of the draft.
struct Machine {
    const char* name;
    double up_to_8, up_to_16, wider, draft;
};

void set_pace(const Machine& machine) {
    const std::int32_t layers = bundled(paced_backend(), "target")->config().shape.layers;
    PacedOps::set_pace({.forward = [machine, layers](const kernels::ModelShape& shape, std::int32_t rows) {
        if (shape.layers != layers) return machine.draft;
        return rows <= 8 ? machine.up_to_8 : rows <= 16 ? machine.up_to_16 : machine.wider;
    }});
}

// Proposes a token that is never right, and is sure of it, or not.
class WrongLookup final : public speculative::Drafter {
public:
    explicit WrongLookup(double chance = 0.9) : chance_(chance) {}
    std::string_view name() const override { return "wrong"; }
    bool is_lookup() const override { return true; }
    speculative::Proposal look_up(std::span<const std::int32_t>, std::span<const std::int32_t> draft) override {
        if (!draft.empty()) return {};
        return {.token = 1, .chance = chance_, .length = 8};
    }
    void propose(const speculative::DraftTask&, speculative::DraftedTokens&) override {}

private:
    double chance_;
};

std::unique_ptr<samplers::Chain> chain_of(double temperature) {
    return make_chain(
        {stage("penalties"), stage("top_k"), stage("top_p"), stage("temperature", {{"value", temperature}})});
}

Generator paced(double temperature, const speculative::SpeculationOptions& speculation, bool unsure = false) {
    core::ContextOptions options = context_options();
    options.length = 1024;
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(bundled(paced_backend(), "target"), options);
    parts.chain = chain_of(temperature);
    if (speculation.mode != core::SpeculationMode::off) {
        if (unsure) {
            parts.drafters = sources(std::make_unique<WrongLookup>(0.1));
        } else {
            parts.drafters = sources(model_drafter(bundled(paced_backend(), "draft"), options),
                                     speculative::make_ngram_drafter(options.length));
        }
    }
    parts.tokenizer = &tokenizer();
    parts.end_tokens.assign(tokenizer().end_of_text_ids().begin(), tokenizer().end_of_text_ids().end());
    parts.speculation = speculation;
    parts.now = PacedOps::now;
    return Generator(std::move(parts));
}

GenerateResult run(Generator& generator, std::span<const std::int32_t> prompt) {
    generator.truncate(0);
    return generator.generate({.input = prompt, .max_tokens = 128, .seed = 1});
}

// The geometric mean over all prompts of what speculation gains. FORESAY_PACE_REPORT=1 prints each.
double gain(const Machine& machine, double temperature) {
    set_pace(machine);
    Generator plain = paced(temperature, off());
    Generator speculating = paced(temperature, automatic());
    double logarithms = 0.0;
    int count = 0;
    for (const Prompt& prompt : prompts()) {
        const GenerateResult reference = run(plain, prompt.tokens);
        const GenerateResult result = run(speculating, prompt.tokens);
        EXPECT_EQ(result.tokens, reference.tokens) << prompt.id;
        const double ratio = result.decode_tokens_per_second / reference.decode_tokens_per_second;
        logarithms += std::log(ratio);
        ++count;
        if (std::getenv("FORESAY_PACE_REPORT") == nullptr) continue;
        const speculative::SpeculationStatistics& s = result.speculation;
        std::cout << machine.name << ", " << prompt.id << " at " << temperature << ": " << ratio << " times "
                  << reference.decode_tokens_per_second << " tokens/s, " << result.tokens.size() << " tokens in "
                  << s.rounds << " rounds, drafted " << s.drafted << ", accepted " << s.accepted << ", ms in drafts "
                  << s.draft_ms << ", in verifications " << s.verify_ms << '\n';
    }
    return std::exp(logarithms / count);
}

// What decoding is meant to gain on one large GPU, where rows up to sixteen cost about what one costs.
TEST(Pace, LongRunsPayWhereRowsCostLittle) {
    const Machine eight = {"8B with the bundled draft", 1.15, 1.25, 2.5, 0.06};
    const Machine seventy = {"70B with a 1B draft", 9.9, 10.5, 21.0, 0.3};
    for (const double temperature : {0.0, 0.6}) {
        EXPECT_GT(gain(eight, temperature), 2.7) << temperature;
        EXPECT_GT(gain(seventy, temperature), 3.2) << temperature;
    }
}

// A batch of one text at a time drafts as a conversation does, and is as fast.
TEST(Pace, OneTextOfABatchIsAsFastAsAConversation) {
    set_pace({"", 1.15, 1.25, 2.5, 0.06});
    constexpr double kTemperature = 0.6;
    core::ContextOptions options = context_options();
    options.length = 1024;
    options.sequences = 2;
    speculative::BatchParts parts = batch_parts(options, bundled(paced_backend(), "target"));
    parts.one_text = true;
    parts.speculation = automatic();
    parts.now = PacedOps::now;
    parts.end_tokens.assign(tokenizer().end_of_text_ids().begin(), tokenizer().end_of_text_ids().end());
    parts.drafters = sources(model_drafter(bundled(paced_backend(), "draft"), options),
                             speculative::make_ngram_drafter(options.length));
    speculative::BatchGenerator batch(std::move(parts));
    Generator conversation = paced(kTemperature, automatic());
    double logarithms = 0.0;
    int count = 0;
    for (const Prompt& prompt : prompts()) {
        const GenerateResult expected = run(conversation, prompt.tokens);
        Recorder text;
        batch.add({.input = prompt.tokens, .chain = chain_of(kTemperature), .max_tokens = 128, .seed = 1}, text);
        while (batch.step()) {
        }
        EXPECT_EQ(text.tokens, expected.tokens) << prompt.id;
        logarithms += std::log(text.result.decode_tokens_per_second / expected.decode_tokens_per_second);
        ++count;
    }
    EXPECT_GT(std::exp(logarithms / count), 0.98);
}

// Draft steps and the verification of their tokens follow one another without the host. The device waits for the host
// once a round, before the first step.
TEST(Pace, ARoundWaitsForTheHostOnce) {
    constexpr std::int32_t kSteps = 6;
    set_pace({"", 1.15, 1.25, 2.5, 0.06});
    const DevicePace pace;
    // How long the device waits when the host must know a token before it enqueues the next step.
    const double round_trip = pace.read + pace.enqueue + pace.start;
    Generator generator = paced(0.6, fixed(kSteps));
    const GenerateResult first = run(generator, prompts().front().tokens);
    PacedOps::idle();
    const GenerateResult result = run(generator, prompts().front().tokens);
    const double waits = PacedOps::idle() / round_trip / static_cast<double>(result.speculation.rounds);
    EXPECT_LT(waits, 1.5);
    EXPECT_EQ(result.tokens, first.tokens);
}

// Plain decoding does not wait for the host at all.
TEST(Pace, PlainDecodingKeepsTheDeviceBusy) {
    set_pace({"", 1.15, 1.25, 2.5, 0.06});
    const DevicePace pace;
    Generator generator = paced(0.6, off());
    run(generator, prompts().front().tokens);
    PacedOps::idle();
    const GenerateResult result = run(generator, prompts().front().tokens);
    EXPECT_LT(PacedOps::idle(), 0.2);  // before the first token
    EXPECT_NEAR(result.decode_tokens_per_second, 1000.0 / (1.15 + pace.sample), 2.0);
}

// Nor does it where drafts are allowed and do not pay, but for a look now and then.
TEST(Pace, SpansWithoutADraftKeepTheDeviceBusy) {
    PacedOps::set_pace({.forward = [](const kernels::ModelShape&, std::int32_t rows) { return 1.0 + 0.2 * rows; }});
    Generator plain = paced(0.6, off());
    Generator useless = paced(0.6, automatic(), true);
    const std::vector<std::int32_t> input = prompts().front().tokens;
    run(plain, input);
    run(useless, input);
    PacedOps::idle();
    const GenerateResult reference = run(plain, input);
    PacedOps::idle();
    const GenerateResult result = run(useless, input);
    const double idle = PacedOps::idle();
    EXPECT_EQ(result.tokens, reference.tokens);
    EXPECT_GT(result.speculation.drafted, 0) << "nothing was ever tried";
    // The device waits for the host where something was drafted: seldom.
    const DevicePace pace;
    const double round_trip = pace.read + pace.enqueue + pace.start;
    EXPECT_LT(idle, round_trip * static_cast<double>(4 * result.speculation.drafted + 16));
    EXPECT_LT(idle, 0.5 * round_trip * static_cast<double>(result.speculation.rounds));
    EXPECT_GT(result.decode_tokens_per_second, 0.97 * reference.decode_tokens_per_second);
}

struct BatchRun {
    double idle_ms = 0.0;  // of the device, while all texts decode
    double ms = 0.0;       // likewise
    double tokens = 0.0;
    std::vector<std::vector<std::int32_t>> texts;
    speculative::BatchCounters counters;
};

// Texts whose tokens the host decides, and the time that handing on a token takes it.
struct HostWork {
    std::size_t with_logprobs = 0, with_feedback = 0;
    double token_ms = 0.0;
};

// `sequences` texts of `tokens` tokens, each after a prompt of its own. The device's time of a forward grows with its
// rows.
BatchRun run_batch(std::int32_t sequences, const speculative::SpeculationOptions& speculation, bool wrong_drafts,
                   std::int32_t tokens = 96, const HostWork& work = {}) {
    PacedOps::set_pace({.forward = [](const kernels::ModelShape&, std::int32_t rows) { return 1.0 + 0.2 * rows; }});
    core::ContextOptions options = for_sequences(sequences, 512);
    options.decode_rows = 64;
    speculative::BatchParts parts = batch_parts(options, bundled(paced_backend(), "target"));
    parts.speculation = speculation;
    parts.now = PacedOps::now;
    if (wrong_drafts) parts.make_drafter = [](std::int32_t) { return std::make_unique<WrongLookup>(); };
    speculative::BatchGenerator batch(std::move(parts));
    std::deque<Recorder> texts;
    const std::vector<Prompt> all = prompts();
    for (std::int32_t i = 0; i < sequences; ++i) {
        samplers::ChainSpec chain = {stage("top_k"), stage("temperature", {{"value", 0.6}})};
        if (texts.size() < work.with_feedback) chain.push_back(stage("mirostat"));
        speculative::BatchRequest request{.input = all[static_cast<std::size_t>(i) % all.size()].tokens,
                                          .chain = make_chain(chain),
                                          .max_tokens = tokens,
                                          .seed = static_cast<std::uint64_t>(i),
                                          .ignore_eos = true};
        if (texts.size() < work.with_logprobs) request.logprobs = 2;
        Recorder& text = texts.emplace_back();
        if (work.token_ms > 0.0) text.on_token = [&work] { PacedOps::pass(work.token_ms); };
        batch.add(std::move(request), text);
    }
    const auto all_decode = [&] {
        return std::ranges::none_of(texts, [](const Recorder& r) { return r.tokens.empty(); });
    };
    while (!all_decode()) batch.step();
    BatchRun run;
    PacedOps::idle();
    const double start = PacedOps::now();
    const std::int64_t before = batch.counters().tokens;
    while (batch.running() == static_cast<std::size_t>(sequences)) batch.step();
    run.idle_ms = PacedOps::idle();
    run.ms = PacedOps::now() - start;
    run.tokens = static_cast<double>(batch.counters().tokens - before);
    while (batch.step()) {
    }
    for (const Recorder& text : texts) run.texts.push_back(text.tokens);
    run.counters = batch.counters();
    return run;
}

// As a single text, a batch that decodes plainly does not wait for the host; nor does one whose drafts do not pay, but
// for a look now and then.
TEST(Pace, ABatchKeepsTheDeviceBusy) {
    const BatchRun plain = run_batch(5, off(), false);
    EXPECT_LT(plain.idle_ms, 0.2);
    EXPECT_NEAR(plain.ms / (plain.tokens / 5.0), 2.0 + DevicePace().sample, 0.05);
    const BatchRun useless = run_batch(5, automatic(), true);
    EXPECT_EQ(useless.texts, plain.texts);
    EXPECT_LT(useless.ms / useless.tokens, 1.03 * plain.ms / plain.tokens);
    EXPECT_GT(useless.counters.drafted, 0) << "nothing was ever tried";
}

// Where the host decides the tokens of some, the device waits for these decisions and for nothing that follows from
// them, of these texts or of others.
TEST(Pace, TextsThatNeedTheHostDoNotStopTheOthers) {
    constexpr double kTokenMs = 0.05;
    const DevicePace pace;
    const double round_trip = pace.read + pace.enqueue + pace.start;
    for (const HostWork& some : {HostWork{.with_logprobs = 1}, HostWork{.with_feedback = 1}}) {
        HostWork slow = some;
        slow.token_ms = kTokenMs;
        const BatchRun quick = run_batch(5, off(), false, 96, some);
        const BatchRun run = run_batch(5, off(), false, 96, slow);
        EXPECT_EQ(run.texts, quick.texts);
        EXPECT_EQ(run.counters.forwards, quick.counters.forwards);
        const double forwards = run.tokens / 5.0;
        EXPECT_LT(run.idle_ms, 1.2 * round_trip * forwards) << "5 tokens to hand on take " << 5 * kTokenMs;
        EXPECT_LT(run.ms / forwards, 2.0 + pace.sample + 1.2 * round_trip);
    }
}

// A forward that is full, or nearly, has no room for drafts that make up for the look, so nothing interrupts it.
TEST(Pace, AFullBatchDoesNotLookForDrafts) {
    constexpr std::int32_t kTokens = 48;
    const DevicePace pace;
    // How long the device waits where the next forward is not begun before the host knows the tokens of the last one.
    const double round_trip = pace.read + pace.enqueue + pace.start;
    for (const std::int32_t texts : {kernels::kTokenSlots, kernels::kTokenSlots - 12}) {
        const BatchRun plain = run_batch(texts, off(), false, kTokens);
        const BatchRun full = run_batch(texts, automatic(), true, kTokens);
        EXPECT_EQ(full.texts, plain.texts);
        EXPECT_LT(full.idle_ms, plain.idle_ms + 1.5 * round_trip) << texts;
    }
    // A control: where half of the rows are left, a look now and then.
    constexpr std::int32_t kHalf = kernels::kTokenSlots / 2;
    EXPECT_GT(run_batch(kHalf, automatic(), true, 3 * kTokens).idle_ms,
              run_batch(kHalf, off(), false, 3 * kTokens).idle_ms + 2.5 * round_trip);
}

// A text of 900 tokens, in a conversation or a batch.
GenerateResult long_text(std::size_t which, double temperature, const std::vector<std::int32_t>& prediction,
                         bool in_batch) {
    constexpr std::int32_t kTokens = 900;
    core::ContextOptions options = context_options();
    options.length = 2048;
    const std::vector<std::int32_t> input = prompts()[which].tokens;
    if (!in_batch) {
        speculative::GeneratorParts parts;
        parts.target = std::make_unique<core::Context>(bundled(paced_backend(), "target"), options);
        parts.chain = chain_of(temperature);
        parts.tokenizer = &tokenizer();
        parts.speculation = prediction.empty() ? off() : automatic();
        parts.now = PacedOps::now;
        Generator generator(std::move(parts));
        return generator.generate(
            {.input = input, .max_tokens = kTokens, .seed = which, .ignore_eos = true, .prediction = prediction});
    }
    speculative::BatchParts parts = batch_parts(options, bundled(paced_backend(), "target"));
    parts.speculation = automatic();
    parts.now = PacedOps::now;
    speculative::BatchGenerator batch(std::move(parts));
    Recorder text;
    batch.add({.input = input,
               .chain = chain_of(temperature),
               .max_tokens = kTokens,
               .seed = which,
               .ignore_eos = true,
               .prediction = prediction},
              text);
    while (batch.step()) {
    }
    return text.result;
}

// A file before an edit is a prediction of the file after it. The answer to something else is a wrong one.
TEST(Pace, APredictionWithFewChangedLinesPaysAndAWrongOneCostsLittle) {
    set_pace({"", 1.15, 1.25, 2.5, 0.06});
    for (const double temperature : {0.6, 1.0}) {
        const GenerateResult plain = long_text(0, temperature, {}, false);
        const std::vector<std::int32_t> right = edited_lines(plain.text);
        const std::vector<std::int32_t> wrong = tokenizer().encode(long_text(1, temperature, {}, false).text);
        for (const bool in_batch : {false, true}) {
            const auto gain = [&](const std::vector<std::int32_t>& prediction) {
                const GenerateResult found = long_text(0, temperature, prediction, in_batch);
                EXPECT_EQ(found.tokens, plain.tokens);
                const double ratio = found.decode_tokens_per_second / plain.decode_tokens_per_second;
                if (std::getenv("FORESAY_PACE_REPORT") != nullptr) {
                    const speculative::SpeculationStatistics& s = found.speculation;
                    std::cout << "prediction at " << temperature << (in_batch ? " in a batch: " : ": ") << ratio
                              << " times " << plain.decode_tokens_per_second << " tokens/s, " << s.rounds
                              << " rounds, drafted " << s.drafted << ", accepted " << s.accepted << '\n';
                }
                return ratio;
            };
            EXPECT_GT(gain(right), 4.5) << temperature << (in_batch ? " in a batch" : "");
            EXPECT_GT(gain(wrong), 0.97) << temperature << (in_batch ? " in a batch" : "");
        }
    }
}

}  // namespace
}  // namespace foresay::test
