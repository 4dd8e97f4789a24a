// app/bench/bench.h: the benchmarks of `foresay bench`, one file each, and what they share.
//
// A benchmark is a function and a RegisterBenchmark in its own file; nothing else names it. Like the commands they are
// linked as objects (app/command_line/command.h).
// Every benchmark measures the read bandwidth of the machine in the same run, with the same number of threads, so that
// its results can be quoted as a share of it. Times are medians over runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/opened_engine.h"
#include "app/options.h"

namespace foresay::app {

struct BenchOptions : Options {
    std::optional<std::int64_t> max_tokens;
    std::vector<double> temperatures;  // empty: the benchmark's own
    std::string prompts_file;          // empty: the prompts that come with the program
    int runs = 3;                      // of each measurement
    bool json = false;
};

struct Benchmark {
    std::string name;
    std::string doc;  // as help shows it
    // Measures and prints. Throws Cancelled, and what is wrong.
    void (*run)(const BenchOptions& options) = nullptr;
};

struct RegisterBenchmark {
    RegisterBenchmark(std::string name, std::string doc, void (*run)(const BenchOptions& options));
};

// All of them, in alphabetical order.
std::vector<Benchmark> registered_benchmarks();

// Bytes per second that the backend's device reads, or that as many threads as it has read from a buffer far larger
// than any cache. Takes about a quarter second.
double read_bandwidth(kernels::Ops& ops);

inline constexpr std::int32_t kDefaultBenchTokens = 128;

// Tokens that a benchmark generates after a prompt: -n, or the default; no more than `most`.
std::int32_t tokens_to_write(const BenchOptions& options, std::int32_t most);

class Stopwatch {
public:
    double ms() const {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double median(std::vector<double> values);  // 0 of nothing
double geometric_mean(const std::vector<double>& values);

// `count` token ids that are neither special nor all alike; the same for the same vocabulary.
std::vector<std::int32_t> some_tokens(std::int32_t vocabulary, std::int32_t count);

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// "model.gguf, cpu (avx512), 2 threads": the head of a report, with a line that says so when a model is inflated.
std::string bench_title(const OpenedEngine& engine);

// Says in a JSON object that its numbers come of inflated models, when they do.
template <class Json>
void label_inflated(Json& out, const OpenedEngine& engine) {
    if (const std::string inflated = engine.inflated(); !inflated.empty()) out["inflated"] = inflated;
}

// Cancellation between two measurements: throws Cancelled.
class Cancelled {};
void stop_if_interrupted();

}  // namespace foresay::app
