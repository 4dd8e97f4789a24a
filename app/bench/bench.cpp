#include "app/bench/bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "app/interrupt.h"

namespace foresay::app {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 20;
constexpr int kPasses = 5;

using Lane = std::uint64_t __attribute__((vector_size(32)));

// Summing keeps the compiler from removing the loads; eight independent sums keep many loads in flight.
std::uint64_t read_all(const Lane* data, std::size_t lanes) {
    std::array<Lane, 8> sums{};
    for (std::size_t i = 0; i + sums.size() <= lanes; i += sums.size()) {
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += data[i + j];
    }
    Lane sum{};
    for (const Lane& part : sums) sum += part;
    return sum[0] + sum[1] + sum[2] + sum[3];
}

std::vector<Benchmark>& benchmarks() {
    static std::vector<Benchmark> all;  // in a function, so that it exists when the first file registers
    return all;
}

}  // namespace

RegisterBenchmark::RegisterBenchmark(std::string name, std::string doc, void (*run)(const BenchOptions& options)) {
    benchmarks().push_back({std::move(name), std::move(doc), run});
}

std::vector<Benchmark> registered_benchmarks() {
    std::vector<Benchmark> all = benchmarks();
    std::sort(all.begin(), all.end(), [](const Benchmark& a, const Benchmark& b) { return a.name < b.name; });
    return all;
}

double read_bandwidth(kernels::Ops& ops) {
    if (const double device = ops.read_bandwidth(); device > 0.0) return device;
    const int threads = std::max(ops.describe().threads, 1);
    const std::size_t lanes = kBufferBytes / sizeof(Lane);
    const std::unique_ptr<Lane, void (*)(void*)> buffer(static_cast<Lane*>(std::aligned_alloc(64, kBufferBytes)),
                                                        std::free);
    if (!buffer) return 0.0;
    std::uint64_t* words = reinterpret_cast<std::uint64_t*>(buffer.get());
    for (std::size_t i = 0; i < kBufferBytes / sizeof(std::uint64_t); ++i)
        words[i] = i;  // reading untouched pages would not read memory
    double best = 0.0;
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
    for (int pass = 0; pass < kPasses; ++pass) {
        const Stopwatch watch;
        std::vector<std::thread> workers;
        const std::size_t share = lanes / static_cast<std::size_t>(threads);
        for (int t = 0; t < threads; ++t) {
            const auto index = static_cast<std::size_t>(t);
            workers.emplace_back([&, index] { sums[index] += read_all(buffer.get() + share * index, share); });
        }
        for (std::thread& worker : workers) worker.join();
        best = std::max(best, static_cast<double>(kBufferBytes) / (watch.ms() / 1000.0));
    }
    volatile std::uint64_t sink = 0;
    for (const std::uint64_t sum : sums) sink = sink + sum;
    return best;
}

std::int32_t tokens_to_write(const BenchOptions& options, std::int32_t most) {
    return static_cast<std::int32_t>(std::min<std::int64_t>(options.max_tokens.value_or(kDefaultBenchTokens), most));
}

double median(std::vector<double> values) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double geometric_mean(const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) sum += std::log(value);
    return values.empty() ? 0.0 : std::exp(sum / static_cast<double>(values.size()));
}

std::vector<std::int32_t> some_tokens(std::int32_t vocabulary, std::int32_t count) {
    std::vector<std::int32_t> tokens;
    std::uint64_t state = 12345;
    const std::int32_t low = std::min(vocabulary / 4, 256);  // special tokens are among the first and the last
    const std::int32_t span = std::max(1, vocabulary / 2 - low);
    for (std::int32_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens.push_back(low + static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(span)));
    }
    return tokens;
}

std::string format(const char* pattern, ...) {
    std::array<char, 512> text{};
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text.data(), text.size(), pattern, arguments);
    va_end(arguments);
    return text.data();
}

std::string bench_title(const OpenedEngine& engine) {
    std::string title = engine.target().source().path() + ", " + engine.backend() + "\n";
    const std::string inflated = engine.inflated();
    if (!inflated.empty()) {
        title += "inflated: " + inflated + "; every number below is of small models at the cost of these shapes\n";
    }
    return title;
}

void stop_if_interrupted() {
    if (interrupted()) throw Cancelled();
}

}  // namespace foresay::app
