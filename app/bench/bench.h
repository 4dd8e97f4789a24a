// app/bench/bench.h: the list of the benchmarks of `foresay bench`, and helpers that they share.
//
// A benchmark is a function and a RegisterBenchmark in its own file; nothing else names it. Like the commands,
// benchmarks are linked as objects (app/command_line/command.h). A benchmark that reports bandwidth also measures the
// machine's read bandwidth, in the same run and with the same number of threads, so that results can be given as a
// share of it. Times are medians over runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/opened_engine.h"
#include "app/options.h"

namespace foresay::app {

// Of `foresay bench batch`.
struct BatchBenchOptions {
    std::vector<std::int32_t> sequences;  // that run at once, one after the other; empty: the benchmark's own
    std::optional<std::int64_t> in, out;  // tokens of each prompt and of each answer
    std::optional<double> arrivals;       // requests per second; none: all at once
};

struct BenchOptions : Options {
    std::optional<std::int64_t> max_tokens;
    std::vector<double> temperatures;  // empty: the benchmark's own
    std::string prompts_file;          // empty: the prompts that come with the program
    int runs = 3;                      // of each measurement
    bool json = false;
    BatchBenchOptions batch;
    std::string url;                       // serve: where the server is
    std::string key;                       // serve: sent as a bearer token; empty: none
    std::string server_model;              // serve: `model` of the requests; empty: they have none
    bool chat = false;                     // serve: chat completions instead of completions
    bool verify = false;                   // serve: compare each answer with the same request alone
    std::string against;                   // serve: the server that is asked alone; empty: the same
    std::optional<std::int64_t> requests;  // serve: with verify, so many of all protocols, instead of a measurement
};

struct Benchmark {
    std::string name;
    std::string doc;  // as help shows it
    // Measures and prints. Throws Cancelled, or Error.
    void (*run)(const BenchOptions& options) = nullptr;
};

struct RegisterBenchmark {
    RegisterBenchmark(std::string name, std::string doc, void (*run)(const BenchOptions& options));
};

// All benchmarks, in alphabetical order.
std::vector<Benchmark> registered_benchmarks();

inline constexpr std::int32_t kDefaultBenchTokens = 128;

// How many texts at once --sequences or --clients asks for, or 1, 4 and 16.
std::vector<std::int32_t> counts_at_once(const BenchOptions& options);

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

// `count` varied token ids without special tokens; the same for the same vocabulary.
std::vector<std::int32_t> some_tokens(std::int32_t vocabulary, std::int32_t count);

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// The heading of a report: "model.gguf, cpu (avx512), 2 threads", and a line about inflation if a model is inflated.
std::string bench_title(const OpenedEngine& engine);

// Marks a JSON object if its numbers come from inflated models.
template <class Json>
void label_inflated(Json& out, const OpenedEngine& engine) {
    if (const std::string inflated = engine.inflated(); !inflated.empty()) out["inflated"] = inflated;
}

// Cancellation between two measurements: throws Cancelled.
class Cancelled {};
void stop_if_interrupted();

}  // namespace foresay::app
