// What drafts are worth to texts side by side on a processor of a given pace: the bundled pair's own tokens on recorded
// prompts, on a clock that counts what its forwards and the host's sampling would take. Nothing is measured, so nothing
// depends on the machine but the last bits of its logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "speculative/drafters/ngram_drafter.h"
#include "speculative/forward_times.h"
#include "tests/speculative/batch_requests.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;
using speculative::BatchRequest;

// Milliseconds.
struct Pace {
    double forward = 0.0, row = 0.0;  // a forward takes `forward`, and `row` for each row
    double after_another = 0.0;       // more, when the other model ran before: the caches have to be filled again
    double sample = 0.0;              // each row of logits that the host reads
    double first = 0.0;               // each position that the first row of a sequence attends to
    double further = 0.0;             // and that a further row of it does
};
struct Machine {
    Pace target, draft;
};
// Two cores with AVX-512 and the bundled pair (docs/experiments/cpu.md).
constexpr Machine kTwoCores = {{.forward = 0.30, .row = 0.181, .sample = 0.03},
                               {.forward = 0.045, .row = 0.026, .after_another = 0.06, .sample = 0.03}};
// A target whose further rows cost little, and a draft that is small beside it.
constexpr Machine kCheapRows = {{.forward = 3.0, .row = 0.05, .sample = 0.03},
                                {.forward = 0.1, .row = 0.005, .sample = 0.03}};

// The models' forwards, which take their time on one clock, for one caller at a time.
class HostPace final : public kernels::OpsDecorator {
public:
    HostPace(kernels::Ops& inner, const Pace& pace) : OpsDecorator(inner), pace_(pace) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        const auto count = static_cast<double>(batch.rows.size());
        for (std::size_t i = 0; i < batch.rows.size(); ++i) {
            const bool first = i == 0 || batch.rows[i].sequence != batch.rows[i - 1].sequence;
            clock_ += (first ? pace_.first : pace_.further) * batch.rows[i].position;
        }
        clock_ += pace_.forward + pace_.row * count + (last_ != this ? pace_.after_another : 0.0);
        last_ = this;
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        clock_ += pace_.sample;
        return OpsDecorator::logits(workspace, i);
    }
    static double now() { return clock_; }

private:
    static inline double clock_ = 0.0;
    static inline const HostPace* last_ = nullptr;
    Pace pace_;
};

// The last `most` tokens of the recorded prompts; short ones follow others.
std::vector<std::vector<std::int32_t>> prompts(std::int32_t most) {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/bench/prompts/code.jsonl");
    std::vector<std::vector<std::int32_t>> texts;
    for (std::string line; std::getline(file, line);) {
        texts.push_back(tokenizer().encode(nlohmann::json::parse(line)["prompt"].get<std::string>()));
    }
    std::vector<std::vector<std::int32_t>> all;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        std::vector<std::int32_t> tokens = texts[i];
        for (std::size_t next = i + 1; std::ssize(tokens) < most; ++next) {
            const auto& before = texts[next % texts.size()];
            tokens.insert(tokens.begin(), before.begin(), before.end());
        }
        all.emplace_back(tokens.end() - most, tokens.end());
    }
    return all;
}

enum class Sources { none, lookups, both };

struct Timed {
    double ms = 0.0;
    speculative::BatchCounters counters;
    std::vector<std::vector<std::int32_t>> texts;
};

// `sequences` texts of `length` tokens, each after a prompt of its own.
Timed run_batch(const Machine& machine, std::int32_t sequences, std::int32_t length, double temperature,
                Sources sources) {
    HostPace target(fast_backend().ops(), machine.target), draft(fast_backend().ops(), machine.draft);
    core::ContextOptions options = for_sequences(sequences, 512);
    options.decode_rows = std::max(4 * sequences, 33);
    speculative::BatchParts parts =
        batch_parts(options, core::Model::load(core::ModelSource::open(bundled_path("target")), target));
    parts.now = HostPace::now;
    if (sources != Sources::none) {
        parts.speculation = automatic();
        parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
    }
    if (sources == Sources::both) {
        parts.draft = std::make_unique<core::Context>(
            core::Model::load(core::ModelSource::open(bundled_path("draft")), draft), options);
    }
    BatchGenerator batch(std::move(parts));
    const auto inputs = prompts(64);
    std::deque<Recorder> texts;
    const double start = HostPace::now();
    for (std::int32_t i = 0; i < sequences; ++i) {
        batch.add({.input = inputs[static_cast<std::size_t>(i) % inputs.size()],
                   .chain = make_chain({stage("top_k"), stage("temperature", {{"value", temperature}})}),
                   .max_tokens = length,
                   .seed = static_cast<std::uint64_t>(i),
                   .ignore_eos = true},
                  texts.emplace_back());
    }
    while (batch.step()) {
    }
    Timed result;
    result.ms = HostPace::now() - start;
    result.counters = batch.counters();
    for (const Recorder& text : texts) result.texts.push_back(text.tokens);
    return result;
}

// What the draft model makes faster where lookups draft, too. FORESAY_PACE_REPORT=1 prints what decides it.
double gain_of_the_model(const Machine& machine, std::int32_t sequences, std::int32_t length, double temperature) {
    const Timed plain = run_batch(machine, sequences, length, temperature, Sources::none);
    const Timed lookups = run_batch(machine, sequences, length, temperature, Sources::lookups);
    const Timed both = run_batch(machine, sequences, length, temperature, Sources::both);
    EXPECT_EQ(lookups.texts, plain.texts);
    EXPECT_EQ(both.texts, plain.texts);
    if (std::getenv("FORESAY_PACE_REPORT") != nullptr) {
        std::cout << sequences << " texts of " << length << " at " << temperature << ": lookups "
                  << plain.ms / lookups.ms << " of plain, both " << plain.ms / both.ms;
        for (const Timed* one : {&lookups, &both}) {
            const auto per = [one](std::int64_t count) {
                return static_cast<double>(count) / static_cast<double>(one->counters.tokens);
            };
            const speculative::BatchCounters& c = one->counters;
            std::cout << "; for each token " << per(c.forwards) << " forwards, " << per(c.decode_rows)
                      << " decode rows, " << per(c.draft_rows) << " rows of the draft, " << per(c.drafted)
                      << " drafted, " << per(c.accepted) << " accepted";
        }
        std::cout << '\n';
    }
    return lookups.ms / both.ms;
}

// Where rows and steps cost as much as on two cores, the draft model has little to give to texts side by side: it is
// not asked, and takes nothing from what lookups gain.
TEST(BatchPace, TheDraftModelMakesNothingSlower) {
    for (const std::int32_t sequences : {2, 4}) {
        for (const double temperature : {0.0, 0.6}) {
            EXPECT_GT(gain_of_the_model(kTwoCores, sequences, 160, temperature), 0.98)
                << sequences << " texts at " << temperature;
        }
    }
    EXPECT_GT(gain_of_the_model(kTwoCores, 1, 160, 0.6), 0.94);  // it has read a prompt in vain
}

// Where rows cost little, it is worth its steps.
TEST(BatchPace, TheDraftModelIsAskedWhereItPays) {
    for (const double temperature : {0.0, 0.6}) {
        EXPECT_GT(gain_of_the_model(kCheapRows, 4, 96, temperature), 1.1) << temperature;
    }
}

// What attention adds is measured by itself; where there is no room for that, it follows from the model's shape.
TEST(BatchPace, CostsOfAttendedPositionsAreMeasured) {
    HostPace target(fast_backend().ops(), {.forward = 1.0, .row = 0.2, .first = 0.003, .further = 0.001});
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), target);
    for (const std::int32_t length : {1200, 100}) {
        core::Context context(model, for_sequences(2, length));
        speculative::CostModel costs(16);
        ASSERT_TRUE(speculative::time_forwards(context, costs, 1e6, HostPace::now));
        speculative::time_attention(context, costs, 1e6, HostPace::now);
        EXPECT_NEAR(costs.verify_ms(8), 1.0 + 8 * 0.2, 0.1);
        if (length == 1200) {
            EXPECT_NEAR(costs.first_row_ms(1000), 3.0, 0.05);
            EXPECT_NEAR(costs.further_row_ms(1000), 1.0, 0.05);
        } else {
            EXPECT_GT(costs.further_row_ms(1000), 0.0);
            EXPECT_LT(costs.further_row_ms(1000), 0.2) << "a thousand positions are less than all weights";
        }
        EXPECT_EQ(context.cache().free_pages(), context.cache().pages().pages);
    }
}

// A draft pays for the positions that its rows attend to: a text after many has none where one after few has many.
TEST(BatchPace, ADraftBehindManyPositionsMustPayForThem) {
    HostPace target(fast_backend().ops(), {.forward = 3.0, .row = 0.05, .first = 0.008, .further = 0.008});
    speculative::BatchParts parts =
        batch_parts(for_sequences(3), core::Model::load(core::ModelSource::open(bundled_path("target")), target));
    parts.now = HostPace::now;
    parts.speculation = automatic();
    BatchGenerator batch(std::move(parts));
    const auto predicted = [](std::int32_t prompt, std::int32_t tokens) {
        const auto made = [&] {
            BatchRequest one = request(tokens);
            one.input = prompts(prompt).front();
            return one;
        };
        BatchGenerator alone = make_batch(for_sequences(1));
        Recorder sink;
        alone.add(made(), sink);
        while (alone.step()) {
        }
        BatchRequest with = made();
        with.prediction = sink.tokens;
        return with;
    };
    Recorder near, far;
    const speculative::Ticket ticket = batch.add(predicted(440, 64), far);
    near.on_end = [&] { batch.cancel(ticket); };  // what it does alone is another matter
    batch.add(predicted(16, 200), near);
    while (batch.step()) {
    }
    EXPECT_GT(near.result.speculation.accepted, 150);
    EXPECT_GT(far.tokens.size(), 8u);
    EXPECT_LT(far.result.speculation.drafted, 4);
}

// A text of 900 tokens with a prediction, by that without one, on two cores.
TEST(BatchPace, APredictionWithFewChangedLinesPaysAndAWrongOneCostsLittle) {
    HostPace target(fast_backend().ops(), kTwoCores.target);
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), target);
    struct Text {
        double ms = 0.0;
        Recorder sink;
    };
    const auto timed = [&](double temperature, std::size_t which, const std::vector<std::int32_t>& prediction) {
        speculative::BatchParts parts = batch_parts(for_sequences(1, 2048), model);
        parts.now = HostPace::now;
        parts.speculation = prediction.empty() ? off() : automatic();
        BatchGenerator batch(std::move(parts));
        Text text;
        double begin = 0.0;
        text.sink.on_token = [&] {
            if (begin == 0.0) begin = HostPace::now();
        };
        batch.add({.input = prompts(64)[which],
                   .chain = make_chain({stage("top_k"), stage("temperature", {{"value", temperature}})}),
                   .max_tokens = 900,
                   .seed = which,
                   .ignore_eos = true,
                   .prediction = prediction},
                  text.sink);
        run(batch);
        text.ms = HostPace::now() - begin;
        text.sink.on_token = {};
        return text;
    };
    for (const auto& [temperature, least] : {std::pair(0.6, 1.8), std::pair(1.0, 1.7)}) {
        const Text plain = timed(temperature, 0, {});
        const Text right = timed(temperature, 0, edited_lines(plain.sink.text));
        const Text wrong = timed(temperature, 0, tokenizer().encode(timed(temperature, 1, {}).sink.text));
        EXPECT_EQ(right.sink.tokens, plain.sink.tokens);
        EXPECT_EQ(wrong.sink.tokens, plain.sink.tokens);
        EXPECT_GT(plain.ms / right.ms, least) << temperature;
        EXPECT_GT(plain.ms / wrong.ms, 0.97) << temperature;
        if (std::getenv("FORESAY_PACE_REPORT") == nullptr) continue;
        std::cout << "prediction at " << temperature << ": right " << plain.ms / right.ms << ", wrong "
                  << plain.ms / wrong.ms << '\n';
    }
}

struct Beside {
    double ms = 0.0, longest_gap = 0.0;  // between two tokens of those who decode
    std::vector<std::vector<std::int32_t>> texts;
    std::int64_t forwards = 0;
};

// Three texts decode while long prompts come one after the other.
Beside prompts_beside(const Machine& machine, bool mixes) {
    HostPace target(fast_backend().ops(), machine.target);
    core::ContextOptions options = for_sequences(5, 512);
    options.prefill_rows = 128;
    speculative::BatchParts parts =
        batch_parts(options, core::Model::load(core::ModelSource::open(bundled_path("target")), target));
    parts.now = HostPace::now;
    parts.classes_agree = mixes;
    BatchGenerator batch(std::move(parts));
    Beside result;
    std::deque<Recorder> texts;
    const double start = HostPace::now();
    const auto add = [&](std::int32_t length, std::int32_t tokens) {
        const auto which = texts.size();
        BatchRequest made = request(tokens, which);
        made.input = prompts(length)[which];
        batch.add(std::move(made), texts.emplace_back());
    };
    for (int i = 0; i < 3; ++i) {
        add(16, 120);
        texts.back().on_token = [&result, last = 0.0]() mutable {
            if (last > 0.0) result.longest_gap = std::max(result.longest_gap, HostPace::now() - last);
            last = HostPace::now();
        };
    }
    while (texts[2].tokens.size() < 4) batch.step();
    for (bool more = true; more || texts.size() < 9; more = batch.step()) {
        if (texts.size() < 9 && batch.running() + batch.waiting() < 5) add(200, 2);
    }
    result.ms = HostPace::now() - start;
    result.forwards = batch.counters().forwards;
    for (const Recorder& text : texts) result.texts.push_back(text.tokens);
    return result;
}

// A forward with rows of both reads the weights once, and no text that decodes waits for one that reads prompts only.
TEST(BatchPace, ForwardsWithPromptsAndDecodeRowsSaveTimeAndShortenGaps) {
    for (const Machine& machine : {kTwoCores, kCheapRows}) {
        const Beside separate = prompts_beside(machine, false);
        const Beside mixed = prompts_beside(machine, true);
        EXPECT_EQ(mixed.texts, separate.texts);
        EXPECT_LT(mixed.forwards, separate.forwards);
        EXPECT_LT(mixed.ms, separate.ms);
        EXPECT_LT(mixed.longest_gap, separate.longest_gap);
        if (std::getenv("FORESAY_PACE_REPORT") == nullptr) continue;
        std::cout << "apart " << separate.forwards << " forwards, " << separate.ms << " ms, longest gap "
                  << separate.longest_gap << "; mixed " << mixed.forwards << ", " << mixed.ms << ", "
                  << mixed.longest_gap << '\n';
    }
}

}  // namespace
}  // namespace foresay::test
