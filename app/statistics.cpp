#include "app/statistics.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/terminal.h"

namespace foresay::app {

using nlohmann::ordered_json;

namespace {

ordered_json rate(std::int64_t accepted, std::int64_t drafted) {
    if (drafted == 0) return nullptr;
    return static_cast<double>(accepted) / static_cast<double>(drafted);
}

template <typename... Values>
std::string text(const char* format, Values... values) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    return line.data();
}

ordered_json speculation(const speculative::GenerateResult& result) {
    const speculative::SpeculationStatistics& statistics = result.speculation;
    ordered_json out;
    out["mode"] = statistics.mode;
    out["rounds"] = statistics.rounds;
    out["drafted"] = statistics.drafted;
    out["accepted"] = statistics.accepted;
    out["acceptance_rate"] = rate(statistics.accepted, statistics.drafted);
    out["mean_run_length"] = result.mean_run_length();
    ordered_json sources = ordered_json::object();
    for (const speculative::SourceStatistics& source : statistics.sources) {
        sources[source.name] = {{"rounds", source.rounds},
                                {"drafted", source.drafted},
                                {"accepted", source.accepted},
                                {"acceptance_rate", rate(source.accepted, source.drafted)}};
    }
    out["sources"] = std::move(sources);
    return out;
}

}  // namespace

std::string completion_json(const speculative::GenerateResult& result, std::uint64_t seed, std::uint64_t branch,
                            double load_ms, const std::string& inflated, const std::string* reasoning,
                            const std::string& unfinished) {
    ordered_json out;
    if (!inflated.empty()) out["inflated"] = inflated;
    out["text"] = result.text;
    if (reasoning != nullptr) out["reasoning"] = *reasoning;
    out["token_ids"] = result.tokens;
    out["prompt_tokens"] = result.prompt_tokens;
    out["completion_tokens"] = result.tokens.size();
    out["finish_reason"] = std::string(speculative::name(result.finish));
    if (!unfinished.empty()) out["unfinished"] = unfinished;
    out["seed"] = seed;
    out["branch"] = branch;
    out["timings"] = {{"load_ms", load_ms},
                      {"prefill_ms", result.prefill_ms},
                      {"ttft_ms", result.ttft_ms},
                      {"decode_ms", result.decode_ms},
                      {"decode_tokens_per_second", result.decode_tokens_per_second}};
    out["speculation"] = speculation(result);
    return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string stage_text(const samplers::StageReport& report) {
    const auto per_token = [&](double ms) {
        return ms / static_cast<double>(std::max<std::int64_t>(report.tokens, 1));
    };
    std::string out = text("%lld %s, %.3f ms per token", static_cast<long long>(report.calls),
                           report.calls == 1 ? "call" : "calls", per_token(report.total_ms));
    if (report.draft_calls > 0) {
        out += text(", %lld for drafts, %.3f ms per token", static_cast<long long>(report.draft_calls),
                    per_token(report.draft_ms));
    }
    out += report.failures == 0   ? std::string(", no failures")
           : report.failures == 1 ? std::string(", 1 failure")
                                  : text(", %lld failures", static_cast<long long>(report.failures));
    return report.hidden ? out + ", hidden from drafts" : out;
}

std::string stage_cost(const samplers::StageReport& report, double token_ms) {
    constexpr double kMuch = 0.05;
    if (report.tokens == 0 || token_ms <= 0.0) return {};
    const auto tokens = static_cast<double>(report.tokens);
    const double sampling = report.total_ms / tokens, drafts = report.draft_ms / tokens;
    if (sampling + drafts <= kMuch * token_ms) return {};
    std::string out = "Sampler '" + report.stage + "' " +
                      text("takes %.2f of the %.2f ms of a token (%.0f %%)", sampling + drafts, token_ms,
                           100.0 * (sampling + drafts) / token_ms);
    if (report.draft_calls > 0) out += text(", %.2f of them for drafts", drafts);
    return out + ".";
}

std::string statistics_line(const speculative::GenerateResult& result, std::int64_t used, std::int64_t capacity,
                            std::int64_t input_tokens, std::size_t columns) {
    const auto& statistics = result.speculation;
    const double accepted = statistics.drafted > 0 ? 100.0 * static_cast<double>(statistics.accepted) /
                                                         static_cast<double>(statistics.drafted)
                                                   : 0.0;
    const std::string context =
        text("context %lld/%lld", static_cast<long long>(used), static_cast<long long>(capacity));
    // `detail` 0 is the context and the reason for the end; each level adds the next most important part.
    const auto line = [&](int detail) {
        std::string out = context;
        if (detail >= 3) {
            out += text(" · input %lld", static_cast<long long>(input_tokens));
            if (detail >= 4 && result.prefill_ms > 0 && input_tokens > 1)
                out += text(" at %.0f/s", static_cast<double>(input_tokens) * 1000.0 / result.prefill_ms);
        }
        if (detail >= 1) {
            out += text(" · output %zu", result.tokens.size());
            if (result.decode_tokens_per_second > 0) out += text(" at %.1f/s", result.decode_tokens_per_second);
        }
        if (statistics.drafted > 0 && detail >= 2) {
            out += text(" · accepted %.0f %%", accepted);
            if (detail >= 5) out += text(" of %lld drafted", static_cast<long long>(statistics.drafted));
            const auto predicted =
                std::ranges::find(statistics.sources, "prediction", &speculative::SourceStatistics::name);
            if (detail >= 6 && predicted != statistics.sources.end() && predicted->drafted > 0) {
                out += text(" (predicted: %lld of %lld)", static_cast<long long>(predicted->accepted),
                            static_cast<long long>(predicted->drafted));
            }
            if (detail >= 6) out += text(", %.1f tokens per round", result.mean_run_length());
        }
        if (result.finish == speculative::FinishReason::length) out += " · cut at the limit";
        if (result.finish == speculative::FinishReason::cancelled) out += " · cancelled";
        return out;
    };
    constexpr int kAll = 6;
    int detail = kAll;
    while (detail > 0 && columns_of(line(detail)) > columns) --detail;
    return line(detail);
}

}  // namespace foresay::app
