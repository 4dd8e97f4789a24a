// foresay bench exchange: what it costs that layers are on several devices: the rows of a step cross from each device
// of the list to the next one. No model is loaded; the rows are as wide as those of an 8B model.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/bench.h"
#include "app/configuration.h"
#include "app/output.h"
#include "base/error.h"
#include "core/models/shapes.h"
#include "engine/backend.h"
#include "kernels/split_ops.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kWidths[] = {1, 2, 4, 8, 16, 32, 64, 512};
constexpr std::int32_t kMostRows = 512;
constexpr std::size_t kCrossings = 64;  // of a measurement
constexpr const char* kShape = "llama-3.1-8b";

// A device with a forward of some rows begun.
class Place {
public:
    Place(kernels::Ops& ops, const kernels::ModelShape& shape)
        : ops_(ops), workspace_(ops.allocate_workspace(shape, kMostRows, 1)) {}

    void begin(std::int32_t rows) {
        rows_.assign(static_cast<std::size_t>(rows), {});
        for (std::int32_t t = 0; t < rows; ++t) rows_[static_cast<std::size_t>(t)].position = t;
        ops_.begin(*workspace_, {.row_class = kernels::RowClass::prefill,
                                 .rows = rows_,
                                 .sequences = std::span(&view_, 1),
                                 .logit_rows = {}});
    }
    void read(std::span<float> to) { ops_.read_rows(*workspace_, to); }
    void write(std::span<const float> from) { ops_.write_rows(*workspace_, from); }

private:
    kernels::Ops& ops_;
    std::unique_ptr<kernels::Workspace> workspace_;
    std::vector<kernels::Row> rows_;
    std::vector<std::int32_t> pages_ = std::vector<std::int32_t>(kMostRows / kernels::kPagePositions);
    kernels::SequenceView view_{.pages = pages_, .length = 0};
};

// Microseconds of one crossing: the median.
double crossing_us(Place& from, Place& to, std::span<float> memory) {
    std::vector<double> times;
    for (std::size_t i = 0; i < kCrossings; ++i) {
        const Stopwatch watch;
        from.read(memory);
        to.write(memory);
        times.push_back(1000.0 * watch.ms());
    }
    return median(times);
}

void bench_exchange(const BenchOptions& options) {
    const core::Config config = Configuration(options).config();
    if (config.devices.size() < 2) {
        throw Error("bench exchange is about several devices; name them, as with --device cuda:0,cpu");
    }
    engine::BackendChoice choice = engine::choose_backend(config);
    choice.rows = false;
    const std::unique_ptr<kernels::Ops> ops = engine::open_backend(config, choice);
    auto& list = static_cast<kernels::SplitOps&>(*ops);
    const kernels::ModelShape shape = core::published_shape(kShape).shape;
    std::vector<Place> places;
    for (std::size_t d = 0; d < list.size(); ++d) places.emplace_back(list.device(d), shape);
    const auto width = static_cast<std::size_t>(shape.d_model);
    const std::unique_ptr<kernels::HostMemory> host =
        list.allocate_host(width * static_cast<std::size_t>(kMostRows) * sizeof(float));
    const std::span<float> memory(reinterpret_cast<float*>(host->bytes.data()),
                                  width * static_cast<std::size_t>(kMostRows));
    std::ranges::fill(memory, 0.5f);

    nlohmann::ordered_json crossings = nlohmann::ordered_json::array();
    std::string text = "  rows       KiB        us      GB/s   by\n";
    for (std::size_t d = 0; d + 1 < places.size(); ++d) {
        text += config.devices[d] + " to " + config.devices[d + 1] + "\n";
        for (const std::int32_t rows : kWidths) {
            const std::span<float> crossing = memory.first(static_cast<std::size_t>(rows) * width);
            std::vector<double> times;
            for (int run = 0; run <= options.runs; ++run) {  // the first warms up
                stop_if_interrupted();
                places[d].begin(rows);
                places[d + 1].begin(rows);
                places[d].write(crossing);
                const double us = crossing_us(places[d], places[d + 1], crossing);
                if (run > 0) times.push_back(us);
            }
            const double us = median(times);
            const auto bytes = static_cast<double>(crossing.size_bytes());
            crossings.push_back({{"from", config.devices[d]},
                                 {"to", config.devices[d + 1]},
                                 {"rows", rows},
                                 {"bytes", crossing.size_bytes()},
                                 {"us", us},
                                 {"way", "host memory"}});
            text += format("%6d %9.0f %9.1f %9.2f   host memory\n", rows, bytes / 1024.0, us, bytes / us / 1e3);
        }
    }
    if (options.json) {
        print(nlohmann::ordered_json{{"width", width}, {"crossings", std::move(crossings)}}.dump() + "\n");
        return;
    }
    print("rows of " + std::to_string(width) + " float32 values, from one device to the next\n" + text);
}

const RegisterBenchmark kExchange("exchange", "what rows cost that cross between the devices of a list",
                                  bench_exchange);

}  // namespace

}  // namespace foresay::app
