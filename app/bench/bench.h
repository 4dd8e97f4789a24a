// app/bench/bench.h: what the benchmarks share, and their entries: one file each.
//
// Every benchmark measures the read bandwidth of the machine in the same run, with the same number of threads, so that
// its results can be quoted as a share of it. Times are medians over runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "app/options.h"
#include "app/session.h"

namespace foresay::app {

void bench_decode(const Options& options);
void bench_verify(const Options& options);
void bench_prefill(const Options& options);
void bench_speculation(const Options& options);
void bench_kernels(const Options& options);
void bench_replay(const Options& options);
void bench_repl(const Options& options);
void bench_inflation(const Options& options);

// Bytes per second that the backend's device reads, or that as many threads as it has read from a buffer far larger than
// any cache. Takes about a quarter second.
double read_bandwidth(kernels::Ops& ops);

// Tokens that a benchmark writes behind a prompt: -n, or what the help says of benchmarks; no more than `most`.
std::int32_t tokens_to_write(const Options& options, std::int32_t most);

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
std::string bench_title(const Session& session);

// Says in a JSON object that its numbers come of inflated models, when they do.
template <class Json>
void label_inflated(Json& out, const Session& session) {
    if (const std::string inflated = session.inflated(); !inflated.empty()) out["inflated"] = inflated;
}

// Cancellation between two measurements: throws Cancelled.
class Cancelled {};
void stop_if_interrupted();

}  // namespace foresay::app
