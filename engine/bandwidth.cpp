#include "engine/bandwidth.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace foresay::engine {
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

double measure(kernels::Ops& ops) {
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
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> workers;
        const std::size_t share = lanes / static_cast<std::size_t>(threads);
        for (int t = 0; t < threads; ++t) {
            const auto index = static_cast<std::size_t>(t);
            workers.emplace_back([&, index] { sums[index] += read_all(buffer.get() + share * index, share); });
        }
        for (std::thread& worker : workers) worker.join();
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        best = std::max(best, static_cast<double>(kBufferBytes) / time.count());
    }
    volatile std::uint64_t sink = 0;
    for (const std::uint64_t sum : sums) sink = sink + sum;
    return best;
}

}  // namespace

double read_bandwidth(kernels::Ops& ops) {
    static std::mutex mutex;
    static std::map<std::tuple<std::string, std::string, int, bool>, double> measured;
    const kernels::BackendInfo info = ops.describe();
    const std::lock_guard lock(mutex);  // also so that two measurements do not share the memory that they measure
    double& bandwidth = measured[{info.name, info.detail, info.threads, ops.free_memory() >= 0}];
    if (bandwidth <= 0.0) bandwidth = measure(ops);
    return bandwidth;
}

}  // namespace foresay::engine
