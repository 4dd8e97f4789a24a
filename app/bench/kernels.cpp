// foresay bench kernels: the time of each stage of the op vocabulary at several widths, over all layers of a model or a
// shape, with the weight bytes per second and the multiply-accumulates per second that it reaches.
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/metered_ops.h"
#include "app/output.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kPrompt = 64;
constexpr std::int32_t kWidths[] = {1, 2, 4, 8, 16};
constexpr int kSteps = 10;  // per run

}  // namespace

void bench_kernels(const Options& options) {
    SessionNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    needs.meter = true;
    Session session(options, needs);
    MeteredOps& meter = *session.meter();
    const auto context = session.make_context();
    const std::vector<std::int32_t> tokens = some_tokens(session.target().config().shape.vocab, kPrompt);
    context->prefill(tokens);
    const double bandwidth = read_bandwidth(session.ops().describe().threads);
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text = "stage          rows   ms/step     GB/s  of read   GMAC/s\n";
    for (const std::int32_t width : kWidths) {
        meter.reset();
        const int steps = kSteps * options.runs;
        for (int step = 0; step < steps; ++step) {
            stop_if_interrupted();
            context->decode(std::span(tokens).first(static_cast<std::size_t>(width)));
            context->truncate(kPrompt);
        }
        for (int i = 0; i < kMeteredStages; ++i) {
            const auto stage = static_cast<MeteredStage>(i);
            const StageMeter& measured = meter.meter(stage);
            if (measured.calls == 0 || measured.ms <= 0.0) continue;
            const double rate = static_cast<double>(measured.weight_bytes) / (measured.ms / 1000.0);
            const double macs = static_cast<double>(measured.macs) / (measured.ms / 1000.0);
            rows.push_back({{"stage", std::string(name(stage))},
                            {"rows", width},
                            {"ms_per_step", measured.ms / steps},
                            {"bytes_per_second", rate},
                            {"macs_per_second", macs}});
            text += format("%-14s %4d %9.3f %8.1f %6.0f %% %8.0f\n", std::string(name(stage)).c_str(), width,
                           measured.ms / steps, rate / 1e9, 100.0 * rate / bandwidth, macs / 1e9);
        }
    }
    if (options.json) {
        nlohmann::ordered_json out;
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["stages"] = std::move(rows);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(session) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9) + text);
}

}  // namespace foresay::app
