// foresay bench exchange: what it costs that layers are on several devices: the rows of a step cross from each device
// of the list to the next one, and from one host to another. No model is loaded; the rows are as wide as those of an 8B
// model.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/bench/bench.h"
#include "app/configuration.h"
#include "app/hosts.h"
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

// What was measured, as a table and as objects.
class Crossings {
public:
    void begin(const std::string& from, const std::string& to, const std::string& way) {
        from_ = from;
        to_ = to;
        way_ = way;
        text_ += from + " to " + to + "\n";
    }
    void add(std::int32_t rows, std::size_t bytes, double us) {
        objects_.push_back({{"from", from_}, {"to", to_}, {"rows", rows}, {"bytes", bytes}, {"us", us}, {"way", way_}});
        text_ += format("%6d %9.0f %9.1f %9.2f   ", rows, static_cast<double>(bytes) / 1024.0, us,
                        static_cast<double>(bytes) / us / 1e3) +
                 way_ + "\n";
    }
    void show(std::size_t width, bool json) {
        if (json) return print(nlohmann::ordered_json{{"width", width}, {"crossings", objects_}}.dump() + "\n");
        print("rows of " + std::to_string(width) + " float32 values, from one device to the next\n" + text_);
    }

private:
    std::string from_, to_, way_;
    nlohmann::ordered_json objects_ = nlohmann::ordered_json::array();
    std::string text_ = "  rows       KiB        us      GB/s   by\n";
};

// Between the devices of this host.
void measure_list(const BenchOptions& options, const core::Config& config, const kernels::ModelShape& shape,
                  Crossings& crossings) {
    engine::BackendChoice choice = engine::choose_backend(config);
    choice.rows = false;
    const std::unique_ptr<kernels::Ops> ops = engine::open_backend(config, choice);
    auto& list = static_cast<kernels::SplitOps&>(*ops);
    std::vector<Place> places;
    for (std::size_t d = 0; d < list.size(); ++d) places.emplace_back(list.device(d), shape);
    const auto width = static_cast<std::size_t>(shape.d_model);
    const std::unique_ptr<kernels::HostMemory> host =
        list.allocate_host(width * static_cast<std::size_t>(kMostRows) * sizeof(float));
    const std::span<float> memory(reinterpret_cast<float*>(host->bytes.data()),
                                  width * static_cast<std::size_t>(kMostRows));
    std::ranges::fill(memory, 0.5f);
    for (std::size_t d = 0; d + 1 < places.size(); ++d) {
        crossings.begin(config.devices[d], config.devices[d + 1], "host memory");
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
            crossings.add(rows, crossing.size_bytes(), median(times));
        }
    }
}

// From rank 0 to each of the others: half of there and back, with the messages that announce it.
void measure_hosts(const BenchOptions& options, engine::Hosts& hosts, std::size_t width, Crossings& crossings) {
    for (int rank = 1; rank < hosts.size(); ++rank) {
        crossings.begin(hosts.group().name(0), hosts.group().name(rank), hosts.nccl());
        for (const std::int32_t rows : kWidths) {
            const std::size_t bytes = static_cast<std::size_t>(rows) * width * sizeof(float);
            std::vector<double> times;
            for (int run = 0; run <= options.runs; ++run) {
                stop_if_interrupted();
                std::vector<double> echoes;
                for (std::size_t i = 0; i < kCrossings; ++i) {
                    echoes.push_back(1e6 * hosts.echo_seconds(rank, bytes) / 2.0);
                }
                if (run > 0) times.push_back(median(echoes));
            }
            crossings.add(rows, bytes, median(times));
        }
    }
}

void bench_exchange(const BenchOptions& options) {
    const core::Config config = Configuration(options).config();
    const std::shared_ptr<engine::Hosts>& hosts = other_hosts();
    if (config.devices.size() < 2 && !hosts) {
        throw Error(
            "bench exchange is about several devices; name them, as with --device cuda:0,cpu, or start it on several "
            "hosts");
    }
    const kernels::ModelShape shape = core::published_shape(kShape).shape;
    Crossings crossings;
    if (config.devices.size() > 1) measure_list(options, config, shape, crossings);
    if (hosts) measure_hosts(options, *hosts, static_cast<std::size_t>(shape.d_model), crossings);
    crossings.show(static_cast<std::size_t>(shape.d_model), options.json);
}

const RegisterBenchmark kExchange("exchange", "what rows cost that cross between devices of a list, or hosts",
                                  bench_exchange);

}  // namespace

}  // namespace foresay::app
