// foresay bench speculation: completes each prompt of a file without and with speculation, alternating, on one loaded
// model. Both must give the same tokens; the ratio of their decoding times is the gain.
#include <map>
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/prompt_runs.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

struct Measured {
    double plain = 0.0, speculative = 0.0;  // tokens per second, medians
    std::size_t tokens = 0;
    std::int64_t drafted = 0, accepted = 0, rounds = 0;
    double draft_ms = 0.0, verify_ms = 0.0;  // of the last run
    double per_round(double value) const { return rounds > 0 ? value / static_cast<double>(rounds) : 0.0; }
    double ratio() const { return plain > 0 ? speculative / plain : 0.0; }
};

// Results of one kind of prompt. Rates are all tokens divided by all time.
struct Kind {
    std::vector<double> ratios;
    double tokens = 0.0, plain_seconds = 0.0, seconds = 0.0;

    void add(const Measured& measured) {
        ratios.push_back(measured.ratio());
        tokens += static_cast<double>(measured.tokens);
        plain_seconds += static_cast<double>(measured.tokens) / measured.plain;
        seconds += static_cast<double>(measured.tokens) / measured.speculative;
    }
    double plain() const { return tokens / plain_seconds; }
    double speculative() const { return tokens / seconds; }
};

Measured measure(speculative::Generator& plain, speculative::Generator& speculating,
                 std::span<const std::int32_t> prompt, const PromptRun& run, int runs, const std::string& id) {
    Measured out;
    std::vector<double> plain_rates, rates;
    for (int i = 0; i < runs; ++i) {
        const auto reference = run_prompt(plain, prompt, run);
        const auto result = run_prompt(speculating, prompt, run);
        if (result.tokens != reference.tokens) {
            throw Error("prompt " + id + ": speculation changed the text; this is a bug in foresay, please report it");
        }
        if (reference.decode_tokens_per_second > 0) plain_rates.push_back(reference.decode_tokens_per_second);
        if (result.decode_tokens_per_second > 0) rates.push_back(result.decode_tokens_per_second);
        out.tokens = result.tokens.size();
        out.drafted = result.speculation.drafted;
        out.accepted = result.speculation.accepted;
        out.rounds = result.speculation.rounds;
        out.draft_ms = result.speculation.draft_ms;
        out.verify_ms = result.speculation.verify_ms;
    }
    out.plain = median(plain_rates);
    out.speculative = median(rates);
    return out;
}

nlohmann::ordered_json to_json(const Prompt& prompt, double temperature, const Measured& measured) {
    nlohmann::ordered_json out;
    out["id"] = prompt.id;
    out["kind"] = prompt.kind;
    out["temperature"] = temperature;
    out["tokens"] = measured.tokens;
    out["plain_tokens_per_second"] = measured.plain;
    out["speculative_tokens_per_second"] = measured.speculative;
    out["ratio"] = measured.ratio();
    out["rounds"] = measured.rounds;
    out["drafted"] = measured.drafted;
    out["accepted"] = measured.accepted;
    out["draft_ms"] = measured.draft_ms;
    out["verify_ms"] = measured.verify_ms;
    return out;
}

void bench_speculation(const BenchOptions& options) {
    const std::vector<Prompt> prompts = bench_prompts(options);
    OpenedEngine engine(options, EngineNeeds{});
    if (!engine.draft() && !engine.has_source("ngram")) {
        throw Error("there is no source of drafts; name a draft model with --draft PATH");
    }
    if (engine.config().speculation_mode == core::SpeculationMode::off) {
        throw Error("speculation is off; use --speculation auto or a number");
    }
    const double bandwidth = engine.read_bandwidth();
    PromptRun run;
    run.max_tokens = tokens_to_write(options, engine.context_length());
    run.seed = engine.config().seed;
    nlohmann::ordered_json out;
    label_inflated(out, engine);
    out["bandwidth_bytes_per_second"] = bandwidth;
    out["prompts"] = nlohmann::ordered_json::array();
    if (!options.json) {
        print(bench_title(engine) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9));
        print(
            "prompt       kind   temperature  tokens   plain/s   spec./s   ratio  accepted  a round: tokens  draft ms  "
            "verify ms\n");
    }
    std::map<std::string, Kind> by_kind;
    Kind all;
    for (const double temperature : bench_temperatures(options)) {
        set_temperature(engine, temperature);
        speculative::Generator plain = engine.make_generator({});
        speculative::Generator speculating = engine.make_generator();
        for (const Prompt& prompt : prompts) {
            const std::vector<std::int32_t> tokens = engine.tokenizer().encode(prompt.text);
            const Measured measured = measure(plain, speculating, tokens, run, options.runs, prompt.id);
            if (measured.ratio() <= 0.0) continue;  // the model ended the text at once
            all.add(measured);
            by_kind[prompt.kind].add(measured);
            out["prompts"].push_back(to_json(prompt, temperature, measured));
            if (options.json) continue;
            print(format("%-12s %-8s %9.2f %7zu %9.1f %9.1f %7.2f %7.0f %% %15.2f %9.3f %10.3f\n", prompt.id.c_str(),
                         prompt.kind.c_str(), temperature, measured.tokens, measured.plain, measured.speculative,
                         measured.ratio(),
                         measured.drafted > 0
                             ? 100.0 * static_cast<double>(measured.accepted) / static_cast<double>(measured.drafted)
                             : 0.0,
                         measured.per_round(static_cast<double>(measured.tokens)),
                         measured.per_round(measured.draft_ms), measured.per_round(measured.verify_ms)));
        }
    }
    out["geometric_mean"] = geometric_mean(all.ratios);
    for (const auto& [name, kind] : by_kind) {
        out["geometric_mean_by_kind"][name] = geometric_mean(kind.ratios);
        out["plain_tokens_per_second_by_kind"][name] = kind.plain();
        out["speculative_tokens_per_second_by_kind"][name] = kind.speculative();
    }
    if (options.json) {
        print(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        return;
    }
    print(format("geometric mean %.2f", geometric_mean(all.ratios)));
    for (const auto& [name, kind] : by_kind) print(format(", %s %.2f", name.c_str(), geometric_mean(kind.ratios)));
    print("\nall tokens over all time, without and with speculation:");
    const char* separator = "";
    for (const auto& [name, kind] : by_kind) {
        print(format("%s %s %.1f to %.1f/s", separator, name.c_str(), kind.plain(), kind.speculative()));
        separator = ",";
    }
    print("\nevery text equals that of plain decoding\n");
}

const RegisterBenchmark kSpeculation("speculation", "what speculation gains over plain decoding", bench_speculation);

}  // namespace

}  // namespace foresay::app
