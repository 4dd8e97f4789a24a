// foresay bench decode: tokens per second without speculation, free-running (every token sampled by the chain) and
// forced (given tokens, no sampling).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "app/bench/bench.h"
#include "app/interrupt.h"
#include "app/model_report.h"
#include "app/output.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kPrompt = 64;

double free_running(OpenedEngine& engine, std::span<const std::int32_t> prompt, std::int32_t count) {
    speculative::Generator generator = engine.make_generator({});
    speculative::GenerateRequest request;
    request.input = prompt;
    request.max_tokens = count;
    request.ignore_eos = true;
    request.cancel = &interrupted();
    return generator.generate(request).decode_tokens_per_second;
}

double forced(core::Context& context, std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens) {
    context.truncate(0);
    context.prefill(prompt);
    const Stopwatch watch;
    for (const std::int32_t& token : tokens) context.decode(std::span(&token, 1));
    context.logits(0);  // waits for the device
    return static_cast<double>(tokens.size()) * 1000.0 / watch.ms();
}

// That the split of layers was chosen by; 0: there is none, or it was given.
double expected_rate(const OpenedEngine& engine) {
    const std::span<const engine::PlacedLayers> placement = engine.placement();
    if (placement.empty() || !placement.front().share.empty()) return 0.0;
    const double seconds = predicted_seconds(placement);
    return seconds > 0.0 ? 1.0 / seconds : 0.0;
}

void bench_decode(const BenchOptions& options) {
    EngineNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    OpenedEngine engine(options, needs);
    const std::int32_t room = engine.context_length() - kPrompt - 1;
    const auto count = std::max(tokens_to_write(options, room), 1);
    const std::int32_t vocabulary = engine.target().config().shape.vocab;
    const std::vector<std::int32_t> prompt = some_tokens(vocabulary, kPrompt);
    const std::vector<std::int32_t> tokens = some_tokens(vocabulary, count);
    const double bandwidth = engine.read_bandwidth();
    const auto context = engine.make_context();
    std::vector<double> free_rates, forced_rates;
    for (int run = 0; run < options.runs; ++run) {
        stop_if_interrupted();
        free_rates.push_back(free_running(engine, prompt, count));
        forced_rates.push_back(forced(*context, prompt, tokens));
    }
    const double free_rate = median(free_rates), forced_rate = median(forced_rates);
    const auto bytes = static_cast<double>(engine.target().bytes_per_forward());
    const double expected = expected_rate(engine);
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["tokens"] = count;
        out["free_running_tokens_per_second"] = free_rate;
        out["forced_tokens_per_second"] = forced_rate;
        out["bytes_per_token"] = bytes;
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["bandwidth_share"] = forced_rate * bytes / bandwidth;
        if (expected > 0.0) out["expected_tokens_per_second"] = expected;
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine));
    print(format("read bandwidth    %8.1f GB/s\n", bandwidth / 1e9));
    print(format("free-running      %8.1f tokens/s\n", free_rate));
    print(format("forced            %8.1f tokens/s, %.1f GB/s, %.0f %% of the bandwidth\n", forced_rate,
                 forced_rate * bytes / 1e9, 100.0 * forced_rate * bytes / bandwidth));
    if (expected > 0.0) print(format("expected          %8.1f tokens/s, when the layers were placed\n", expected));
}

const RegisterBenchmark kDecode("decode", "tokens per second of plain decoding", bench_decode);

}  // namespace

}  // namespace foresay::app
