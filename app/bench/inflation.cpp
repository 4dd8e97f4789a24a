// foresay bench inflation: checks that inflated models compute what the small ones do, at the cost of the large shape.
//
// First, small and inflated models read the same texts (prompts, and the small target's continuations). They should
// choose the same tokens, and the draft should agree with the target as often. Then plain decoding is timed,
// alternating with random weights in the same shape: both should take the same time.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/bench/bench.h"
#include "app/bench/prompt_runs.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"
#include "core/models/shapes.h"
#include "kernels/sampling.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

constexpr double kAgreement = 0.99;   // least share of equal choices
constexpr double kAcceptance = 0.01;  // largest difference in acceptance between the pairs
constexpr double kSpeed = 0.02;       // largest difference in speed from random weights in the same shape
constexpr std::int32_t kRows = 16;    // rows per forward
constexpr std::int32_t kSpeedPrompt = 64;
constexpr std::size_t kStretch = 16;   // tokens that one model decodes before the other one continues
constexpr std::int64_t kTokens = 128;  // generated after each prompt, and decoded to measure the speed

// The token sampled from one row at each temperature; the first temperature is 0.
using Choices = std::vector<std::int32_t>;

// Samples as the program does, with the noise of the token's position, and with temperature as the only sampler.
class Chooser {
public:
    Chooser(std::int32_t vocabulary, std::uint64_t seed, std::vector<double> temperatures)
        : vocabulary_(vocabulary), seed_(seed), temperatures_(std::move(temperatures)) {}

    const std::vector<double>& temperatures() const { return temperatures_; }

    // From the logits of the row before the token at `index`.
    Choices choose(std::span<const float> logits, std::size_t index) {
        Choices choices;
        for (const double temperature : temperatures_) {
            row_.assign(logits.begin(), logits.end());  // sampling changes it
            kernels::SamplingPlan plan;
            plan.key = {seed_, 0, static_cast<std::uint32_t>(index)};
            plan.vocab = vocabulary_;
            plan.greedy = temperature <= 0.0;
            plan.step_count = plan.greedy ? 0 : 1;
            plan.steps[0].kind = kernels::SamplingStepKind::temperature;
            plan.steps[0].temperature = static_cast<float>(temperature);
            choices.push_back(kernels::sample_row(row_, plan, scratch_).token);
        }
        return choices;
    }

private:
    std::int32_t vocabulary_;
    std::uint64_t seed_;
    std::vector<double> temperatures_;
    std::vector<float> row_;
    kernels::SamplingScratch scratch_;
};

// A small model and its inflated version, each with its own context. `exact` is the small model in float32, the
// reference for both: a backend rounds activations that meet quantised weights, so both may differ from it.
struct Twins {
    std::string shape, quant_type;
    std::optional<kernels::QuantType> head;                 // none: as published files have it
    std::unique_ptr<core::Context> small, exact, inflated;  // exact, inflated: null when the model is not inflated

    // Compared with `exact`, over all rows that predict a token of the text.
    struct Comparison {
        std::int64_t rows = 0, alike = 0;  // the same choice at temperature 0
        double squares = 0.0;              // sum over rows of the mean squared difference of the logits

        double agreement() const { return rows > 0 ? static_cast<double>(alike) / static_cast<double>(rows) : 0.0; }
        double typical() const { return rows > 0 ? std::sqrt(squares / static_cast<double>(rows)) : 0.0; }
        void add(std::span<const float> logits, std::span<const float> exact, bool same) {
            double sum = 0.0;
            for (std::size_t t = 0; t < exact.size(); ++t) {
                const double apart = static_cast<double>(logits[t]) - static_cast<double>(exact[t]);
                sum += apart * apart;
            }
            rows += 1;
            alike += same ? 1 : 0;
            squares += sum / static_cast<double>(exact.size());
        }
    };
    Comparison of_small, of_inflated;
};

struct TwinChoices {
    std::vector<Choices> small, inflated;  // for each row that predicts a token of the text
};

// Evaluates `tokens` in all contexts. The first `prompt` tokens are the prompt; rows after it are compared.
TwinChoices read(Twins& twins, std::span<const std::int32_t> tokens, std::size_t prompt, std::int32_t vocabulary,
                 Chooser& chooser) {
    TwinChoices choices;
    for (auto* context : {&twins.small, &twins.exact, &twins.inflated}) {
        if (*context) (*context)->truncate(0);
    }
    for (std::size_t start = 0; start < tokens.size(); start += kRows) {
        stop_if_interrupted();
        const auto rows = tokens.subspan(start, std::min<std::size_t>(kRows, tokens.size() - start));
        for (auto* context : {&twins.small, &twins.exact, &twins.inflated}) {
            if (*context) (*context)->decode(rows);
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto logits = [&](core::Context& context) {
                return context.logits(static_cast<std::int32_t>(i)).first(static_cast<std::size_t>(vocabulary));
            };
            const std::size_t next = start + i + 1;
            if (next < prompt) continue;
            choices.small.push_back(chooser.choose(logits(*twins.small), next));
            if (!twins.inflated) {
                choices.inflated.push_back(choices.small.back());
                continue;
            }
            choices.inflated.push_back(chooser.choose(logits(*twins.inflated), next));
            const std::int32_t wanted = chooser.choose(logits(*twins.exact), next).front();
            twins.of_small.add(logits(*twins.small), logits(*twins.exact), choices.small.back().front() == wanted);
            twins.of_inflated.add(logits(*twins.inflated), logits(*twins.exact),
                                  choices.inflated.back().front() == wanted);
        }
    }
    return choices;
}

// `prompt` and the model's continuation of it at temperature 0.
std::vector<std::int32_t> written(core::Context& context, std::span<const std::int32_t> prompt, std::int32_t count,
                                  const core::Tokenizer& tokenizer, Chooser& chooser) {
    std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
    const auto ends = tokenizer.end_of_text_ids();
    context.truncate(0);
    context.prefill(prompt);
    for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t token = chooser.choose(context.logits(0), tokens.size()).front();
        if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
        tokens.push_back(token);
        if (i + 1 < count) context.decode(std::span(&tokens.back(), 1));
    }
    return tokens;
}

std::unique_ptr<core::Context> context_of(std::shared_ptr<const core::Model> model, std::int32_t length) {
    core::ContextOptions options;
    options.length = std::min(length, model->config().context_length);
    options.decode_rows = kRows;
    options.prefill_rows = std::min(model->ops().prefill_rows(), options.length);
    return std::make_unique<core::Context>(std::move(model), options);
}

std::shared_ptr<const core::Model> load(std::unique_ptr<core::ModelSource> source, kernels::Ops& ops) {
    return core::Model::load(std::shared_ptr<core::ModelSource>(std::move(source)), ops);
}

struct Speed {
    double shape = 0.0, inflated = 0.0;  // tokens per second, medians
    std::string not_measured;            // the reason, if the speed could not be measured
    double ratio = 0.0;                  // median over pairs of neighbouring stretches
};

// Tokens per second of decoding `tokens` one by one.
double decode_rate(core::Context& context, std::span<const std::int32_t> tokens) {
    const Stopwatch watch;
    for (const std::int32_t& token : tokens) context.decode(std::span(&token, 1));
    context.logits(0);  // waits for the device
    return static_cast<double>(tokens.size()) * 1000.0 / watch.ms();
}

// Alternates between both in short stretches, so that a drift of the machine's speed affects both alike.
Speed measure_speed(OpenedEngine& engine, const Twins& twins, std::int32_t count, int runs) {
    Speed speed;
    kernels::Ops& ops = engine.ops();
    auto source = core::ModelSource::random(twins.shape, core::quant_type_by_name(twins.quant_type),
                                            ops.makes_random_weights(), twins.head);
    try {
        core::ContextOptions options;
        options.length = kSpeedPrompt + count;
        const std::int64_t own = ops.free_memory();
        speculative::require_memory(speculative::estimate_memory(*source, options, ops),
                                    own >= 0 ? own : speculative::available_memory(), source->path());
    } catch (const Error& problem) {
        speed.not_measured = problem.what();
        return speed;
    }
    const auto shape = context_of(load(std::move(source), ops), kSpeedPrompt + count);
    const auto inflated = context_of(twins.inflated->shared_model(), kSpeedPrompt + count);
    const std::vector<std::int32_t> prompt = some_tokens(engine.tokenizer().vocab_size(), kSpeedPrompt);
    const std::vector<std::int32_t> tokens = some_tokens(engine.tokenizer().vocab_size(), count);
    std::vector<double> of_shape, of_inflated, ratios;
    for (int run = 0; run < runs; ++run) {
        for (core::Context* context : {shape.get(), inflated.get()}) {
            context->truncate(0);
            context->prefill(prompt);
        }
        for (std::size_t at = 0; at < tokens.size(); at += kStretch) {
            stop_if_interrupted();
            const auto stretch = std::span(tokens).subspan(at, std::min(kStretch, tokens.size() - at));
            const bool shape_first = at / kStretch % 2 == 0;
            double rate = shape_first ? decode_rate(*shape, stretch) : 0.0;
            of_inflated.push_back(decode_rate(*inflated, stretch));
            if (!shape_first) rate = decode_rate(*shape, stretch);
            of_shape.push_back(rate);
            ratios.push_back(of_inflated.back() / rate);
        }
    }
    speed.inflated = median(of_inflated);
    speed.shape = median(of_shape);
    speed.ratio = median(ratios);
    return speed;
}

const char* verdict(bool good) { return good ? "yes" : "NO"; }

// The engine's target and draft with their small versions, and the counts of their choices.
class Controls {
public:
    Controls(OpenedEngine& engine, const BenchOptions& options)
        : engine_(engine), options_(options), chooser_(make_chooser(engine, options)) {
        target_ = make_twins(engine.config().target_model, engine.shared_target(), options.inflate, options.quant_type);
        if (engine.draft() != nullptr) {
            draft_ = make_twins(engine.config().draft_model, engine.shared_draft(), options.inflate_draft,
                                options.draft_quant_type);
            draft_->head = engine.draft_head();
        }
        right_.resize(chooser_.temperatures().size());
    }

    void read_texts() {
        const std::int32_t vocabulary = engine_.tokenizer().vocab_size();
        const auto longest = static_cast<std::size_t>(target_.small->capacity());
        for (const Prompt& prompt : bench_prompts(options_)) {
            std::vector<std::int32_t> input = engine_.tokenizer().encode(prompt.text);
            if (input.empty() || input.size() >= longest) continue;
            const auto count = std::min<std::size_t>(static_cast<std::size_t>(options_.max_tokens.value_or(kTokens)),
                                                     longest - input.size());
            const std::vector<std::int32_t> text =
                written(*target_.small, input, static_cast<std::int32_t>(count), engine_.tokenizer(), chooser_);
            const TwinChoices target = read(target_, text, input.size(), vocabulary, chooser_);
            if (!draft_) continue;
            const TwinChoices draft = read(*draft_, text, input.size(), vocabulary, chooser_);
            for (std::size_t row = 0; row < target.small.size(); ++row) {
                places_ += 1;
                for (std::size_t t = 0; t < right_.size(); ++t) {
                    right_[t][0] += target.small[row][t] == draft.small[row][t] ? 1 : 0;
                    right_[t][1] += target.inflated[row][t] == draft.inflated[row][t] ? 1 : 0;
                }
            }
        }
    }

    void print_report(bool as_json) {
        std::string text = bench_title(engine_);
        nlohmann::ordered_json out;
        label_inflated(out, engine_);
        report_twins("target", target_, text, out);
        if (draft_) report_twins("draft", *draft_, text, out);
        report_acceptance(text, out);
        report_speed("target", target_, text, out);
        if (draft_) report_speed("draft", *draft_, text, out);
        print(as_json ? out.dump() + "\n" : text);
    }

private:
    static Chooser make_chooser(const OpenedEngine& engine, const BenchOptions& options) {
        std::vector<double> temperatures = bench_temperatures(options);
        temperatures.insert(temperatures.begin(), 0.0);
        return Chooser(engine.tokenizer().vocab_size(), engine.config().seed, std::move(temperatures));
    }

    Twins make_twins(const std::filesystem::path& path, std::shared_ptr<const core::Model> model,
                     const std::string& shape, const std::string& quant_type) {
        Twins twins{.shape = shape, .quant_type = quant_type};
        twins.small = context_of(load(core::ModelSource::open(path), engine_.ops()), engine_.context_length());
        if (shape.empty()) return twins;
        auto exact = core::ModelSource::decoded(core::ModelSource::open(path));
        twins.exact = context_of(load(std::move(exact), engine_.ops()), engine_.context_length());
        twins.inflated = context_of(std::move(model), engine_.context_length());
        return twins;
    }

    std::int32_t speed_tokens() const {
        const std::int64_t room = target_.small->model().config().context_length - kSpeedPrompt;
        return static_cast<std::int32_t>(
            std::clamp<std::int64_t>(options_.max_tokens.value_or(kTokens), 1, std::max<std::int64_t>(room, 1)));
    }

    static void report_twins(const char* what, const Twins& twins, std::string& text, nlohmann::ordered_json& out) {
        if (!twins.inflated) return;
        const Twins::Comparison &inflated = twins.of_inflated, &small = twins.of_small;
        const bool good = inflated.agreement() >= kAgreement;
        out[what] = {{"shape", twins.shape},
                     {"encoding", twins.quant_type},
                     {"rows", inflated.rows},
                     {"agreement", inflated.agreement()},
                     {"agrees", good},
                     {"agreement_of_small", small.agreement()},
                     {"typical_logit_difference", inflated.typical()},
                     {"typical_logit_difference_of_small", small.typical()}};
        text += format(
            "%-7s the choice of the small model in float32 in %.2f %% of %lld rows (at least %.0f %%: %s), logits "
            "%.3f apart\n        the small model itself %.2f %%, %.3f\n",
            what, 100.0 * inflated.agreement(), static_cast<long long>(inflated.rows), 100.0 * kAgreement,
            verdict(good), inflated.typical(), 100.0 * small.agreement(), small.typical());
    }

    void report_acceptance(std::string& text, nlohmann::ordered_json& out) const {
        // The first temperature, 0, only serves the agreement.
        for (std::size_t t = 1; places_ > 0 && t < right_.size(); ++t) {
            const double small = static_cast<double>(right_[t][0]) / static_cast<double>(places_);
            const double inflated = static_cast<double>(right_[t][1]) / static_cast<double>(places_);
            const bool good = std::abs(small - inflated) <= kAcceptance;
            const double temperature = chooser_.temperatures()[t];
            out["acceptance"].push_back({{"temperature", temperature},
                                         {"rows", places_},
                                         {"small", small},
                                         {"inflated", inflated},
                                         {"within_limit", good}});
            text += format(
                "pair    the draft is right in %.2f %% of %lld rows at temperature %.2f, the small pair in "
                "%.2f %% (within %.0f %%: %s)\n",
                100.0 * inflated, static_cast<long long>(places_), temperature, 100.0 * small, 100.0 * kAcceptance,
                verdict(good));
        }
    }

    void report_speed(const char* what, const Twins& twins, std::string& text, nlohmann::ordered_json& out) {
        if (!twins.inflated) return;
        const Speed speed = measure_speed(engine_, twins, speed_tokens(), options_.runs);
        if (!speed.not_measured.empty()) {
            text += format("%-7s speed not compared: %s\n", what, speed.not_measured.c_str());
            return;
        }
        const bool good = std::abs(speed.ratio - 1.0) <= kSpeed;
        out[what]["tokens_per_second"] = speed.inflated;
        out[what]["shape_tokens_per_second"] = speed.shape;
        out[what]["speed_ratio"] = speed.ratio;
        out[what]["speed_within_limit"] = good;
        text += format(
            "%-7s plain decoding %.1f tokens/s, random weights in this shape %.1f, ratio %.3f (within %.0f "
            "%%: %s)\n",
            what, speed.inflated, speed.shape, speed.ratio, 100.0 * kSpeed, verdict(good));
    }

    OpenedEngine& engine_;
    const BenchOptions& options_;
    Chooser chooser_;
    Twins target_;
    std::optional<Twins> draft_;
    std::int64_t places_ = 0;                         // rows compared
    std::vector<std::array<std::int64_t, 2>> right_;  // by temperature, rows in which draft and target agree:
                                                      // the small pair, the inflated pair
};

void bench_inflation(const BenchOptions& options) {
    if (options.inflate.empty() && options.inflate_draft.empty()) {
        throw UsageError("bench inflation compares inflated models with their originals; name a shape with --inflate");
    }
    OpenedEngine engine(options, EngineNeeds{});
    Controls controls(engine, options);
    controls.read_texts();
    controls.print_report(options.json);
}

const RegisterBenchmark kInflation("inflation", "whether inflated models behave like the small ones", bench_inflation);

}  // namespace

}  // namespace foresay::app
