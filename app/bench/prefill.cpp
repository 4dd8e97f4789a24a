// foresay bench prefill: tokens per second of prefill, for prompts of several lengths.
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "core/models/given_text.h"

namespace foresay::app {

namespace {
constexpr std::int32_t kLengths[] = {20, 64, 128, 256, 512, 2048, 8192, 32768};
constexpr double kLongest = 4000.0;  // milliseconds; lengths that should take longer are skipped
void bench_prefill(const BenchOptions& options) {
    EngineNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    OpenedEngine engine(options, needs);
    const auto context = engine.make_context();
    const double bandwidth = engine.read_bandwidth();
    const auto macs = static_cast<double>(engine.target().macs_per_row());
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text = "tokens        ms   tokens/s   GMAC/s\n";
    double expected_ms = 0.0, before = 1.0;  // of the last length
    for (const std::int32_t length : kLengths) {
        if (length > context->capacity() || (length > 512 && expected_ms * length / before > kLongest)) break;
        const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, length);
        std::vector<double> times;
        for (int run = 0; run <= options.runs; ++run) {
            stop_if_interrupted();
            context->truncate(0);
            const Stopwatch watch;
            if (!core::evaluate_given(*context, tokens, 0, &interrupted())) throw Cancelled();
            context->logits(0);                        // waits for the device
            if (run > 0) times.push_back(watch.ms());  // the first one warms up
        }
        const double ms = median(times);
        expected_ms = ms;
        before = length;
        rows.push_back({{"tokens", length}, {"ms", ms}, {"tokens_per_second", length * 1000.0 / ms}});
        text += format("%6d %9.1f %10.1f %8.0f\n", length, ms, length * 1000.0 / ms, macs * length / ms / 1e6);
    }
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["macs_per_token"] = macs;
        out["prompts"] = std::move(rows);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9) + text);
}

const RegisterBenchmark kPrefill("prefill", "tokens per second of prefill", bench_prefill);

}  // namespace

}  // namespace foresay::app
