// What speculation is worth on a device of a given pace: the bundled pair's own tokens on recorded prompts, on a clock
// that counts what the host and the device would take (tests/models/paced_ops.h). Nothing is measured, so nothing
// depends on the machine but the last bits of its logits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

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

Generator paced(double temperature, const speculative::SpeculationOptions& speculation, bool unsure = false) {
    core::ContextOptions options = context_options();
    options.length = 1024;
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(bundled(paced_backend(), "target"), options);
    parts.chain = make_chain(
        {stage("penalties"), stage("top_k"), stage("top_p"), stage("temperature", {{"value", temperature}})});
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

// `sequences` texts of 96 tokens, each after a prompt of its own. The device's time of a forward grows with its rows.
BatchRun run_batch(std::int32_t sequences, const speculative::SpeculationOptions& speculation, bool wrong_drafts) {
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
        batch.add({.input = all[static_cast<std::size_t>(i) % all.size()].tokens,
                   .chain = make_chain({stage("top_k"), stage("temperature", {{"value", 0.6}})}),
                   .max_tokens = 96,
                   .seed = static_cast<std::uint64_t>(i),
                   .ignore_eos = true},
                  texts.emplace_back());
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

}  // namespace
}  // namespace foresay::test
