// server/metrics.h: what the server has done, as Prometheus reads it.
//
// Threads:  any.
// Cost:     an atomic addition for each count; text() is linear in the number of names.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "core/cache/page_store.h"
#include "server/backend.h"

namespace foresay::server {

// Counts of values by upper bound.
class Histogram {
public:
    explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}
    void add(double value);
    // Lines of NAME_bucket, NAME_sum and NAME_count. `labels`: "model_name=\"x\"".
    void append_to(std::string& out, const std::string& name, const std::string& labels) const;

private:
    static constexpr std::size_t kMost = 24;
    std::span<const double> bounds_;
    std::array<std::atomic<std::uint64_t>, kMost> counts_{};
    std::atomic<std::uint64_t> count_{0};
    std::atomic<double> sum_{0.0};
};

class Metrics {
public:
    Metrics();

    void count_prompt(std::int64_t tokens) { prompt_tokens_ += static_cast<std::uint64_t>(tokens); }
    void first_token(double seconds);
    void next_token(double seconds);
    void end_text(const BackendEnd& end, std::int64_t tokens, const std::string& api, double seconds);
    // kClientGone: the client went before its answer was there, so that it got no status.
    static constexpr int kClientGone = 499;
    void count_response(int status);

    struct Gauges {
        std::size_t running = 0, waiting = 0, most_running = 0, connections = 0;
        std::uint64_t stalled = 0;
        CacheStatus cache;
    };
    // In the text format of Prometheus, with vLLM's names for the same numbers.
    std::string text(const std::string& model, const std::string& version, const std::string& fingerprint,
                     const Gauges& gauges) const;

private:
    std::atomic<std::uint64_t> prompt_tokens_{0}, cached_tokens_{0}, generated_tokens_{0};
    std::atomic<std::uint64_t> rounds_{0};
    Histogram first_token_, next_token_, request_, queue_;
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, std::string>, std::uint64_t> requests_;  // by finish and api
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> drafts_;  // drafted and accepted, by source
    std::map<int, std::uint64_t> responses_;
};

}  // namespace foresay::server
