// foresay bench kernels: the time of each op at several widths, over all layers of a model or a shape, with the weight
// bytes and the multiply-accumulates per second that it reaches.
#include <array>
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/metered_ops.h"
#include "app/output.h"
#include "core/models/forward.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kPrompt = 64;
constexpr std::int32_t kWidths[] = {1, 2, 4, 8, 16};
constexpr int kSteps = 10;  // per run

using Meters = std::array<OpMeter, kMeteredOps>;

// The time of each op within whole forwards, from the meter.
Meters measure_forwards(core::Context& context, std::span<const std::int32_t> tokens, int steps, MeteredOps& meter) {
    meter.reset();
    for (int step = 0; step < steps; ++step) {
        stop_if_interrupted();
        context.decode(tokens);
        context.truncate(kPrompt);
    }
    Meters meters;
    for (int i = 0; i < kMeteredOps; ++i) meters[static_cast<std::size_t>(i)] = meter.meter(static_cast<ForwardOp>(i));
    return meters;
}

// A device runs its ops asynchronously, so timing a call is meaningless. Instead, each op runs for all layers in turn,
// many times, with one wait after each pass.
Meters measure_device(OpenedEngine& engine, core::Context& context, std::span<const std::int32_t> tokens, int steps) {
    kernels::Ops& ops = engine.ops();
    kernels::Workspace& act = context.workspace();
    const core::Model& model = engine.target();
    const auto rows = static_cast<std::int64_t>(tokens.size());
    context.decode(tokens);  // leaves the batch in the workspace, which the ops below reuse
    context.truncate(kPrompt);
    Meters meters;
    for (int i = 0; i < kMeteredOps; ++i) {
        OpMeter& meter = meters[static_cast<std::size_t>(i)];
        const auto op = static_cast<ForwardOp>(i);
        const auto counted = [&](const kernels::PreparedOp& prepared) {
            meter.calls += 1;
            meter.weight_bytes += static_cast<std::int64_t>(prepared.bytes_read(rows));
            meter.macs += prepared.macs_per_row * rows;
        };
        const auto pass = [&] {
            for (const core::Model::Op& called : model.forward_ops()) {
                if (called.kind != op) continue;
                core::run_op(ops, called, act, context.cache().pages());
                counted(*called.prepared);
            }
            ops.wait(act);
        };
        for (int warm = 0; warm < 3; ++warm) pass();
        meter = {};
        const Stopwatch watch;
        for (int step = 0; step < steps; ++step) pass();
        meter.ms = watch.ms();
        stop_if_interrupted();
    }
    return meters;
}

// Milliseconds to sample from one row on a device: greedily, or with top-k, top-p and temperature.
double measure_sampling(OpenedEngine& engine, core::Context& context, bool greedy, int steps) {
    kernels::SamplingPlan plan;
    plan.key = {.seed = 1, .branch = 0, .index = kPrompt};
    plan.greedy = greedy;
    if (!greedy) {
        using Kind = kernels::SamplingStepKind;
        for (const kernels::SamplingStep& step :
             {kernels::SamplingStep{.kind = Kind::top_k, .top_k = 40},
              kernels::SamplingStep{.kind = Kind::top_p, .top_p = 0.95f},
              kernels::SamplingStep{.kind = Kind::temperature, .temperature = 0.8f}}) {
            plan.steps[plan.step_count++] = step;
        }
    }
    kernels::Workspace& act = context.workspace();
    const std::int32_t slot = 0;
    double ms = 0.0;
    for (const bool warm : {true, false}) {
        const Stopwatch watch;
        for (int step = 0; step < steps; ++step) engine.ops().sample(act, {&plan, 1}, {&slot, 1});
        engine.ops().wait(act);
        if (!warm) ms = watch.ms() / steps;
    }
    return ms;
}

void bench_kernels(const BenchOptions& options) {
    EngineNeeds needs;
    needs.draft = false;
    needs.tokenizer = false;
    needs.meter = true;
    OpenedEngine engine(options, needs);
    const auto context = engine.make_context();
    const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, kPrompt);
    context->prefill(tokens);
    const double bandwidth = engine.read_bandwidth();
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text = "op             rows   ms/step     GB/s  of read   GMAC/s\n";
    for (const std::int32_t width : kWidths) {
        const int steps = kSteps * options.runs;
        const auto batch = std::span(tokens).first(static_cast<std::size_t>(width));
        const Meters meters = engine.ops().asynchronous() ? measure_device(engine, *context, batch, steps)
                                                          : measure_forwards(*context, batch, steps, *engine.meter());
        for (int i = 0; i < kMeteredOps; ++i) {
            const auto op = static_cast<ForwardOp>(i);
            const OpMeter& measured = meters[static_cast<std::size_t>(i)];
            if (measured.calls == 0 || measured.ms <= 0.0) continue;
            const double rate = static_cast<double>(measured.weight_bytes) / (measured.ms / 1000.0);
            const double macs = static_cast<double>(measured.macs) / (measured.ms / 1000.0);
            rows.push_back({{"stage", std::string(name(op))},
                            {"rows", width},
                            {"ms_per_step", measured.ms / steps},
                            {"bytes_per_second", rate},
                            {"macs_per_second", macs}});
            text += format("%-14s %4d %9.3f %8.1f %6.0f %% %8.0f\n", std::string(name(op)).c_str(), width,
                           measured.ms / steps, rate / 1e9, 100.0 * rate / bandwidth, macs / 1e9);
        }
    }
    for (const bool greedy : {true, false}) {
        if (!engine.ops().asynchronous()) break;
        context->decode(std::span(tokens).first(1));
        const double ms = measure_sampling(engine, *context, greedy, 10 * kSteps * options.runs);
        context->truncate(kPrompt);
        const char* what = greedy ? "sample, the best" : "sample, top 40";
        rows.push_back({{"stage", what}, {"rows", 1}, {"ms_per_step", ms}});
        text += format("%-14s %4d %9.4f\n", what, 1, ms);
    }
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["bandwidth_bytes_per_second"] = bandwidth;
        out["stages"] = std::move(rows);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine) + format("read bandwidth %.1f GB/s\n", bandwidth / 1e9) + text);
}

const RegisterBenchmark kKernels("kernels", "the time of each op, and the share of the bandwidth it reaches",
                                 bench_kernels);

}  // namespace

}  // namespace foresay::app
