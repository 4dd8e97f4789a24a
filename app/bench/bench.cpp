#include "app/bench/bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "app/interrupt.h"

namespace foresay::app {

namespace {

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

std::vector<std::int32_t> counts_at_once(const BenchOptions& options) {
    return options.batch.sequences.empty() ? std::vector<std::int32_t>{1, 4, 16} : options.batch.sequences;
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
