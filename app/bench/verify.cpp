// foresay bench verify: the time of one step with 1, 2, 4, ... rows and logits for all of them, after prompts of
// several lengths that fit the context; with --sequences, of one step with rows of several sequences.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/bench/bench.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDepths[] = {64, 4096, 32768};
constexpr double kMinimumMs = 150.0;  // per width and run
constexpr std::int32_t kWidths[] = {1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64};

// Milliseconds of one step of `width` rows after the prompt: the median over enough steps to be stable.
double step_ms(core::Context& context, std::span<const std::int32_t> tokens, std::int32_t width) {
    const std::int32_t start = context.length();
    std::vector<double> times;
    double sum = 0.0;
    while (sum < kMinimumMs || times.size() < 5) {
        const Stopwatch watch;
        context.decode(tokens.first(static_cast<std::size_t>(width)));
        context.logits(width - 1);  // waits for the device
        times.push_back(watch.ms());
        sum += times.back();
        context.truncate(start);
    }
    return median(times);
}

// Of a forward with rows of several sequences.
constexpr std::int32_t kDepthsOfMany[] = {64, 1024};
constexpr std::int32_t kRowsOfEach[] = {1, 2, 4, 8};
constexpr std::int32_t kMostRows = 128;

// Milliseconds of one step with `rows` rows of each sequence.
double step_of_many_ms(core::Context& context, std::span<const core::SequenceId> sequences,
                       std::span<const kernels::TokenRef> tokens, std::int32_t rows) {
    std::vector<std::int32_t> wanted(static_cast<std::size_t>(rows));
    std::iota(wanted.begin(), wanted.end(), 0);
    std::vector<core::Segment> segments;
    for (const core::SequenceId sequence : sequences) {
        segments.push_back({sequence, tokens.first(wanted.size()), wanted});
    }
    const std::int32_t start = context.length(sequences[0]);
    std::vector<double> times;
    double sum = 0.0;
    while (sum < kMinimumMs || times.size() < 5) {
        stop_if_interrupted();
        const Stopwatch watch;
        if (!context.evaluate(kernels::RowClass::decode, segments)) throw Error("the rows do not fit the KV cache");
        context.logits(rows * static_cast<std::int32_t>(sequences.size()) - 1);  // waits for the device
        times.push_back(watch.ms());
        sum += times.back();
        for (const core::SequenceId sequence : sequences) context.truncate(start, sequence);
    }
    return median(times);
}

void bench_sequences(const BenchOptions& options) {
    EngineNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    needs.sequences = std::ranges::max(options.batch.sequences);
    OpenedEngine engine(options, needs);
    const double bandwidth = engine.read_bandwidth();
    std::vector<std::int32_t> depths(std::begin(kDepthsOfMany), std::end(kDepthsOfMany));
    if (options.batch.in) depths = {static_cast<std::int32_t>(*options.batch.in)};
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    std::string text = "sequences   depth  rows of each    step ms     tok/s    GB/s\n";
    for (const std::int32_t count : options.batch.sequences) {
        for (const std::int32_t depth : depths) {
            const std::int32_t length = depth + kRowsOfEach[std::size(kRowsOfEach) - 1];
            if (length > engine.context_length()) {
                if (!options.batch.in) break;
                throw UsageError("--in " + std::to_string(depth) + ": with the rows that is more than the " +
                                 std::to_string(engine.context_length()) + " positions of the context; use --context");
            }
            const auto context = engine.make_context(count, length, std::max(count, kMostRows));
            const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, length);
            std::vector<kernels::TokenRef> refs;
            for (const std::int32_t token : tokens) refs.push_back(kernels::TokenRef::id(token));
            std::vector<core::SequenceId> sequences = {0};
            while (sequences.size() < static_cast<std::size_t>(count)) {
                sequences.push_back(context->cache().create());
            }
            for (const core::SequenceId sequence : sequences) {
                if (!context->prefill(std::span(tokens).first(static_cast<std::size_t>(depth)), sequence,
                                      &interrupted())) {
                    throw Cancelled();
                }
            }
            for (const std::int32_t rows : kRowsOfEach) {
                if (rows > 1 && rows * count > kMostRows) break;
                std::vector<double> times;
                for (int run = 0; run < options.runs; ++run) {
                    times.push_back(step_of_many_ms(*context, sequences, refs, rows));
                }
                const double ms = median(times);
                const double tokens_per_second = 1000.0 * count * rows / ms;
                const double rate = engine.target().bytes_per_forward(rows * count) / ms * 1000.0;
                steps.push_back({{"sequences", count},
                                 {"depth", depth},
                                 {"rows_of_each", rows},
                                 {"step_ms", ms},
                                 {"rows_per_second", tokens_per_second},
                                 {"bytes_per_second", rate}});
                text += format("%9d  %6d  %12d %10.3f %9.0f %7.1f\n", count, depth, rows, ms, tokens_per_second,
                               rate / 1e9);
            }
        }
    }
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["steps"] = std::move(steps);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9) + text);
}

void bench_verify(const BenchOptions& options) {
    if (!options.batch.sequences.empty()) return bench_sequences(options);
    EngineNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    needs.decode_rows = kWidths[std::size(kWidths) - 1];
    OpenedEngine engine(options, needs);
    const auto context = engine.make_context();
    const double bandwidth = engine.read_bandwidth();
    const auto bytes = static_cast<double>(engine.target().bytes_per_forward());
    const auto macs = static_cast<double>(engine.target().macs_per_row());
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text = " depth  rows    step ms   of width 1    GB/s   GMAC/s\n";
    for (const std::int32_t depth : kDepths) {
        if (depth + kWidths[std::size(kWidths) - 1] > context->capacity()) break;
        const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, depth);
        if (!context->prefill(std::span(tokens).subspan(static_cast<std::size_t>(context->length())), 0,
                              &interrupted())) {
            throw Cancelled();
        }
        std::vector<std::vector<double>> times(std::size(kWidths));
        for (int run = 0; run < options.runs; ++run) {
            for (std::size_t i = 0; i < std::size(kWidths); ++i) {
                stop_if_interrupted();
                times[i].push_back(step_ms(*context, tokens, kWidths[i]));
            }
        }
        const double single = median(times[0]);
        for (std::size_t i = 0; i < std::size(kWidths); ++i) {
            const double ms = median(times[i]);
            const double rate = engine.target().bytes_per_forward(kWidths[i]) / ms / 1e6;
            const double mac_rate = macs * kWidths[i] / ms / 1e6;
            rows.push_back({{"depth", depth},
                            {"rows", kWidths[i]},
                            {"step_ms", ms},
                            {"bytes_per_second", rate * 1e9},
                            {"macs_per_second", mac_rate * 1e9}});
            text += format("%6d  %4d %10.3f %9.2f x %9.1f %8.0f\n", depth, kWidths[i], ms, ms / single, rate, mac_rate);
        }
    }
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["bytes_per_step"] = bytes;
        out["macs_per_row"] = macs;
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["steps"] = std::move(rows);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9) + text);
}

const RegisterBenchmark kVerify("verify", "the time of one step by its number of rows", bench_verify);

}  // namespace

}  // namespace foresay::app
