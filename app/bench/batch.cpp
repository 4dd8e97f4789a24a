// foresay bench batch: many sequences at once, with and without speculation: how fast they are together, when the first
// token of each comes, and how long its readers wait between two tokens.
#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/bench/bench.h"
#include "app/bench/prompt_runs.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"
#include "engine/batch.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDefaultIn = 128;
constexpr int kRequestsEach = 4;  // with --arrivals, for each sequence that runs at once

// The times of one request, in milliseconds since the start.
class Times final : public speculative::Sink {
public:
    explicit Times(const Stopwatch& watch) : watch_(watch) {}
    void token(const speculative::TokenEvent& event) override {
        if (event.token >= 0) tokens.push_back(watch_.ms());
    }
    void end(const speculative::BatchEnd& end) override {
        error = end.error;
        finished = watch_.ms();
    }

    double arrival = 0.0, finished = -1.0;
    std::vector<double> tokens;
    std::string error;

private:
    const Stopwatch& watch_;
};

// Prompts of `length` tokens: the end of each is a prompt of the file, after others of it.
std::vector<std::vector<std::int32_t>> make_prompts(OpenedEngine& engine, const BenchOptions& options,
                                                    std::int32_t length) {
    std::vector<std::vector<std::int32_t>> prompts;
    if (!engine.has_tokenizer()) {
        const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, length + 1024);
        for (std::int32_t i = 0; i < 1024; ++i) {
            prompts.emplace_back(tokens.begin() + i, tokens.begin() + i + length);
        }
        return prompts;
    }
    std::vector<std::vector<std::int32_t>> texts;
    for (const Prompt& prompt : bench_prompts(options)) texts.push_back(engine.tokenizer().encode(prompt.text));
    for (std::size_t i = 0; i < texts.size(); ++i) {
        std::vector<std::int32_t> tokens = texts[i];
        for (std::size_t next = i + 1; tokens.size() < static_cast<std::size_t>(length); ++next) {
            const std::vector<std::int32_t>& before = texts[next % texts.size()];
            tokens.insert(tokens.begin(), before.begin(), before.end());
        }
        prompts.emplace_back(tokens.end() - length, tokens.end());
    }
    return prompts;
}

double percentile(std::vector<double> values, double share) {
    if (values.empty()) return 0.0;
    std::ranges::sort(values);
    return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

struct Measured {
    double rate = 0.0;  // tokens per second while all sequences decode; with arrivals: of the whole run
    double first_50 = 0.0, first_99 = 0.0, gap_99 = 0.0;  // ms
    double scheduling = 0.0;                              // share of the time that no forward and no chain took
    std::int64_t drafted = 0, accepted = 0;
};

Measured measure(OpenedEngine& engine, const std::vector<std::vector<std::int32_t>>& prompts,
                 const BatchBenchOptions& wanted, std::int32_t sequences, std::int32_t out, bool speculate) {
    const std::int64_t length = static_cast<std::int64_t>(prompts[0].size()) + out;
    speculative::BatchGenerator batch = engine.make_batch(
        {.sequences = sequences, .cache_tokens = sequences * (length + 128), .kept_texts = 0, .speculate = speculate});
    const double rate = wanted.arrivals.value_or(0.0);
    const std::size_t requests = static_cast<std::size_t>(rate > 0.0 ? kRequestsEach * sequences : sequences);
    const Stopwatch watch;
    std::deque<Times> times;
    bool busy = true;
    while (busy || times.size() < requests) {
        stop_if_interrupted();
        while (times.size() < requests) {
            const double due = rate > 0.0 ? 1000.0 * static_cast<double>(times.size()) / rate : 0.0;
            if (watch.ms() < due) {
                if (!busy) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(due - watch.ms()));
                break;
            }
            Times& sink = times.emplace_back(watch);
            sink.arrival = std::max(due, 0.0);
            batch.add({.input = prompts[(times.size() - 1) % prompts.size()],
                       .chain = engine.make_chain(),
                       .max_tokens = out,
                       .seed = times.size(),
                       .stop = {},
                       .stop_tokens = {},
                       .ignore_eos = true,
                       .queue = {},
                       .cache_salt = {},
                       .prediction = {},
                       .speculation = {}},
                      sink);
        }
        busy = batch.step();
    }
    Measured result;
    std::vector<double> firsts, gaps;
    double all_started = 0.0, first_done = watch.ms();
    for (const Times& one : times) {
        if (!one.error.empty()) throw Error(one.error);
        firsts.push_back(one.tokens.front() - one.arrival);
        for (std::size_t i = 1; i < one.tokens.size(); ++i) gaps.push_back(one.tokens[i] - one.tokens[i - 1]);
        all_started = std::max(all_started, one.tokens.front());
        first_done = std::min(first_done, one.tokens.back());
    }
    if (rate > 0.0) {
        all_started = 0.0;
        first_done = 0.0;
        for (const Times& one : times) first_done = std::max(first_done, one.tokens.back());
    }
    double emitted = 0.0;
    for (const Times& one : times) {
        emitted += static_cast<double>(
            std::ranges::count_if(one.tokens, [&](double ms) { return ms > all_started && ms <= first_done; }));
    }
    if (first_done > all_started) result.rate = 1000.0 * emitted / (first_done - all_started);
    result.first_50 = percentile(firsts, 0.5);
    result.first_99 = percentile(firsts, 0.99);
    result.gap_99 = percentile(gaps, 0.99);
    const speculative::BatchCounters& counters = batch.counters();
    if (counters.step_ms > 0.0) result.scheduling = counters.schedule_ms() / counters.step_ms;
    result.drafted = counters.drafted;
    result.accepted = counters.accepted;
    return result;
}

Measured median_of(std::vector<Measured> runs) {
    const auto middle = [&](auto member) {
        std::vector<double> values;
        for (const Measured& run : runs) values.push_back(run.*member);
        return median(values);
    };
    Measured result = runs.front();
    result.rate = middle(&Measured::rate);
    result.first_50 = middle(&Measured::first_50);
    result.first_99 = middle(&Measured::first_99);
    result.gap_99 = middle(&Measured::gap_99);
    result.scheduling = middle(&Measured::scheduling);
    return result;
}

void bench_batch(const BenchOptions& options) {
    EngineNeeds needs;
    needs.speculating = true;
    needs.tokenizer = false;
    const BatchBenchOptions& wanted = options.batch;
    const std::vector<std::int32_t> counts = counts_at_once(options);
    needs.sequences = std::ranges::max(counts);
    OpenedEngine engine(options, needs);
    const auto in = static_cast<std::int32_t>(wanted.in.value_or(kDefaultIn));
    const std::int32_t room = engine.context_length() - in;
    if (room < 2) {
        throw Error("prompts of " + std::to_string(in) + " tokens leave no room in a context of " +
                    std::to_string(engine.context_length()) + "; give a smaller --in or a larger --context");
    }
    const std::int32_t out =
        std::max(2, wanted.out ? static_cast<std::int32_t>(std::min<std::int64_t>(*wanted.out, room))
                               : tokens_to_write(options, room));
    const std::vector<std::vector<std::int32_t>> prompts = make_prompts(engine, options, in);
    if (!options.temperatures.empty()) set_temperature(engine, options.temperatures.front());
    std::vector<bool> modes = {false};
    if (engine.speculation().mode != core::SpeculationMode::off && !engine.config().sources.empty()) {
        modes.push_back(true);
    }
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text =
        "sequences  speculation   tokens/s  to plain   first token p50    p99   gap p99   scheduling  "
        "accepted/drafted\n";
    for (const std::int32_t sequences : counts) {
        // Taking turns, because the machine may drift.
        std::vector<std::vector<Measured>> runs(modes.size());
        for (int run = 0; run < options.runs; ++run) {
            for (std::size_t mode = 0; mode < modes.size(); ++mode) {
                runs[mode].push_back(measure(engine, prompts, wanted, sequences, out, modes[mode]));
            }
        }
        for (std::size_t mode = 0; mode < modes.size(); ++mode) {
            // Of runs beside each other, because the machine may drift.
            std::vector<double> ratios;
            for (std::size_t run = 0; run < runs[mode].size(); ++run) {
                if (runs[0][run].rate > 0.0) ratios.push_back(runs[mode][run].rate / runs[0][run].rate);
            }
            const double ratio = median(ratios);
            const Measured found = median_of(runs[mode]);
            const char* const name = modes[mode] ? "on" : "off";
            rows.push_back({{"sequences", sequences},
                            {"speculation", modes[mode]},
                            {"tokens_per_second", found.rate},
                            {"to_plain", ratio},
                            {"first_token_p50_ms", found.first_50},
                            {"first_token_p99_ms", found.first_99},
                            {"gap_p99_ms", found.gap_99},
                            {"scheduling_share", found.scheduling},
                            {"drafted", found.drafted},
                            {"accepted", found.accepted}});
            text +=
                format("%9d  %-11s %10.1f  %8.3f  %13.1f ms %6.1f %6.1f ms  %8.2f %%  %10lld/%lld\n", sequences, name,
                       found.rate, ratio, found.first_50, found.first_99, found.gap_99, 100.0 * found.scheduling,
                       static_cast<long long>(found.accepted), static_cast<long long>(found.drafted));
        }
    }
    if (options.json) {
        nlohmann::ordered_json result;
        label_inflated(result, engine);
        result["in"] = in;
        result["out"] = out;
        if (wanted.arrivals) result["arrivals_per_second"] = *wanted.arrivals;
        result["runs"] = std::move(rows);
        print(result.dump() + "\n");
        return;
    }
    print(bench_title(engine) + format("%d tokens in, %d out", in, out) +
          (wanted.arrivals ? format(", %.3g requests a second\n", *wanted.arrivals) : std::string("\n")) + text);
}

const RegisterBenchmark kBatch("batch", "many sequences at once, with and without speculation", bench_batch);

}  // namespace

}  // namespace foresay::app
