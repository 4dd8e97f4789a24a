#include "server/metrics.h"

#include <algorithm>

#include "server/json.h"

namespace foresay::server {

namespace {

constexpr std::array kSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,   0.2,  0.5,
                                 1.0,   2.0,   5.0,   10.0, 20.0, 50.0, 100.0, 500.0};

std::string number(double value) { return Json(value).dump(); }

// A label's value, as Prometheus quotes it.
std::string label(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '\n') {
            out += "\\n";
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace

void Histogram::add(double value) {
    const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<std::size_t>(place)].fetch_add(1, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
    double sum = sum_.load(std::memory_order_relaxed);
    while (!sum_.compare_exchange_weak(sum, sum + value, std::memory_order_relaxed)) {
    }
}

void Histogram::append_to(std::string& out, const std::string& name, const std::string& labels) const {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < bounds_.size(); ++i) {
        below += counts_[i].load(std::memory_order_relaxed);
        out += name + "_bucket{" + labels + ",le=\"" + number(bounds_[i]) + "\"} " + std::to_string(below) + "\n";
    }
    below += counts_[bounds_.size()].load(std::memory_order_relaxed);
    out += name + "_bucket{" + labels + ",le=\"+Inf\"} " + std::to_string(below) + "\n";
    out += name + "_sum{" + labels + "} " + number(sum_.load(std::memory_order_relaxed)) + "\n";
    out += name + "_count{" + labels + "} " + std::to_string(below) + "\n";
}

Metrics::Metrics() : first_token_(kSeconds), next_token_(kSeconds), request_(kSeconds), queue_(kSeconds) {}

void Metrics::first_token(double seconds) { first_token_.add(seconds); }
void Metrics::next_token(double seconds) { next_token_.add(seconds); }

void Metrics::end_text(const BackendEnd& end, std::int64_t tokens, const std::string& api, double seconds) {
    static constexpr std::array<const char*, 5> kFinish = {"stop", "length", "cancelled", "error", "deadline"};
    generated_tokens_ += static_cast<std::uint64_t>(tokens);
    cached_tokens_ += static_cast<std::uint64_t>(end.cached_tokens);
    rounds_ += static_cast<std::uint64_t>(end.speculation.rounds);
    request_.add(seconds);
    queue_.add(end.queue_ms / 1e3);
    const std::lock_guard lock(mutex_);
    ++requests_[{kFinish[static_cast<std::size_t>(end.finish)], api}];
    for (const speculative::SourceStatistics& source : end.speculation.sources) {
        auto& [drafted, accepted] = drafts_[source.name];
        drafted += static_cast<std::uint64_t>(source.drafted);
        accepted += static_cast<std::uint64_t>(source.accepted);
    }
}

void Metrics::count_response(int status) {
    const std::lock_guard lock(mutex_);
    ++responses_[status];
}

std::string Metrics::text(const std::string& model, const std::string& version, const std::string& fingerprint,
                          const Gauges& gauges) const {
    std::string out;
    const std::string name = "model_name=" + label(model);
    const auto head = [&](const std::string& metric, const char* type, const char* help) {
        out += "# HELP " + metric + " " + help + "\n# TYPE " + metric + " " + type + "\n";
    };
    const auto one = [&](const std::string& metric, const char* type, const char* help, const std::string& value) {
        head(metric, type, help);
        out += metric + "{" + name + "} " + value + "\n";
    };
    // Ours, and vLLM's name for the same.
    const auto both = [&](const std::string& metric, const std::string& alias, const char* type, const char* help,
                          const std::string& value) {
        one("foresay_" + metric, type, help, value);
        one("vllm:" + alias, type, help, value);
    };
    const auto histogram = [&](const std::string& metric, const std::string& alias, const char* help,
                               const Histogram& values) {
        for (const std::string& full : {"foresay_" + metric, "vllm:" + alias}) {
            head(full, "histogram", help);
            values.append_to(out, full, name);
        }
    };
    const auto text_of = [](const auto& value) { return std::to_string(value); };
    head("foresay_build_info", "gauge", "Which program serves which model.");
    out += "foresay_build_info{" + name + ",version=" + label(version) + ",fingerprint=" + label(fingerprint) + "} 1\n";
    both("requests_running", "num_requests_running", "gauge", "Texts that are being generated.",
         text_of(gauges.running));
    both("requests_waiting", "num_requests_waiting", "gauge", "Texts that wait for a place.", text_of(gauges.waiting));
    one("foresay_requests_running_limit", "gauge", "Most texts that are generated at once.",
        text_of(gauges.most_running));
    one("foresay_connections", "gauge", "Open connections.", text_of(gauges.connections));
    one("foresay_clients_stalled_total", "counter", "Clients that were given up because they did not read.",
        text_of(gauges.stalled));
    both("prompt_tokens_total", "prompt_tokens_total", "counter", "Tokens of prompts.", text_of(prompt_tokens_.load()));
    both("prefix_hit_tokens_total", "prefix_cache_hits_total", "counter",
         "Tokens of prompts that the cache held already.", text_of(cached_tokens_.load()));
    both("prefix_queried_tokens_total", "prefix_cache_queries_total", "counter",
         "Tokens of prompts that were looked for in the cache.", text_of(prompt_tokens_.load()));
    const double used = gauges.cache.pages == 0
                            ? 0.0
                            : static_cast<double>(gauges.cache.pages_used) / static_cast<double>(gauges.cache.pages);
    both("kv_cache_usage", "kv_cache_usage_perc", "gauge", "Share of the KV cache that running texts hold, 0 to 1.",
         text_of(used));
    both("preemptions_total", "num_preemptions_total", "counter", "Times that a text gave its place in the cache up.",
         text_of(gauges.cache.preemptions));
    one("foresay_pages_stored_total", "counter", "Pages that left the KV cache and were kept.",
        text_of(gauges.cache.kept.stored));
    one("foresay_pages_from_host_total", "counter", "Pages that came back from host memory.",
        text_of(gauges.cache.kept.from_host));
    one("foresay_pages_from_disk_total", "counter", "Pages that came back from files.",
        text_of(gauges.cache.kept.from_disk));
    one("foresay_pages_to_disk_total", "counter", "Pages that were written to files.",
        text_of(gauges.cache.kept.to_disk));
    one("foresay_pages_dropped_total", "counter", "Pages that had room in no tier.",
        text_of(gauges.cache.kept.dropped));
    one("foresay_pages_host_bytes", "gauge", "Host memory for pages.", text_of(gauges.cache.kept.host_bytes));
    one("foresay_pages_disk_bytes", "gauge", "Bytes of the files of pages, as last counted.",
        text_of(gauges.cache.kept.disk_bytes));
    both("generated_tokens_total", "generation_tokens_total", "counter", "Tokens that were generated.",
         text_of(generated_tokens_.load()));
    histogram("ttft_seconds", "time_to_first_token_seconds", "From a request to its first token.", first_token_);
    histogram("inter_token_seconds", "inter_token_latency_seconds", "From a token to the next.", next_token_);
    histogram("request_seconds", "e2e_request_latency_seconds", "From a request to the end of a text.", request_);
    histogram("queue_seconds", "request_queue_time_seconds", "Until a text found its place.", queue_);
    both("speculation_rounds_total", "spec_decode_num_drafts_total", "counter",
         "Forwards of the target after a prompt.", text_of(rounds_.load()));
    const std::lock_guard lock(mutex_);
    std::uint64_t drafted = 0, accepted = 0;
    head("foresay_speculation_drafted_tokens_total", "counter", "Tokens that were proposed and verified.");
    for (const auto& [source, counts] : drafts_) {
        out += "foresay_speculation_drafted_tokens_total{" + name + ",source=" + label(source) + "} " +
               text_of(counts.first) + "\n";
        drafted += counts.first;
        accepted += counts.second;
    }
    head("foresay_speculation_accepted_tokens_total", "counter", "Of those, the tokens that were right.");
    for (const auto& [source, counts] : drafts_) {
        out += "foresay_speculation_accepted_tokens_total{" + name + ",source=" + label(source) + "} " +
               text_of(counts.second) + "\n";
    }
    one("vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens that were proposed and verified.",
        text_of(drafted));
    one("vllm:spec_decode_num_accepted_tokens_total", "counter", "Of those, the tokens that were right.",
        text_of(accepted));
    head("foresay_requests_total", "counter", "Texts that have ended.");
    for (const auto& [key, count] : requests_) {
        out += "foresay_requests_total{" + name + ",finish=" + label(key.first) + ",api=" + label(key.second) + "} " +
               text_of(count) + "\n";
    }
    // As vLLM counts: by its reasons, and only what was not cut off from without.
    head("vllm:request_success_total", "counter", "Texts that have ended by themselves or by their limit.");
    for (const char* reason : {"stop", "length"}) {
        std::uint64_t count = 0;
        for (const auto& [key, of_key] : requests_) count += key.first == reason ? of_key : 0;
        out += "vllm:request_success_total{" + name + ",finished_reason=\"" + reason + "\"} " + text_of(count) + "\n";
    }
    head("foresay_responses_total", "counter", "Answers by their status.");
    for (const auto& [status, count] : responses_) {
        out += "foresay_responses_total{" + name + ",status=\"" + text_of(status) + "\"} " + text_of(count) + "\n";
    }
    return out;
}

}  // namespace foresay::server
