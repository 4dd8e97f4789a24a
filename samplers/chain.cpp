#include "samplers/chain.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "samplers/chain_stages.h"
#include "samplers/chain_trace.h"

namespace foresay::samplers {
namespace {

// A host stage whose calls take this long on average is reported as slow: a small model takes a few milliseconds for a
// token.
constexpr double kSlowMs = 0.5;
constexpr std::int64_t kCallsToJudge = 16;

std::string slowness(const StageReport& report) {
    const double mean = report.calls > 0 ? report.total_ms / static_cast<double>(report.calls) : 0.0;
    if (report.calls < kCallsToJudge || mean < kSlowMs) return {};
    char text[160];
    std::snprintf(text, sizeof text, "sampler '%.64s' is slow: %.2f ms per token, at worst %.1f ms",
                  report.stage.c_str(), mean, report.worst_ms);
    return text;
}

}  // namespace

std::span<const std::string_view> default_chain() {
    static constexpr std::array<std::string_view, 4> kNames = {"penalties", "top_k", "top_p", "temperature"};
    return kNames;
}

void set_parameter(ChainSpec& spec, std::string_view name, std::string_view parameter, ParameterValue value) {
    auto stage = std::ranges::find(spec, name, &StageSpec::name);
    if (stage == spec.end()) {
        const auto builtin = builtin_factories();
        const auto place_of = [&](std::string_view other) {
            return std::ranges::find_if(builtin, [&](const auto& f) { return f->description().name == other; });
        };
        if (place_of(name) == builtin.end()) {
            throw Error("the chain has no sampler '" + std::string(name) + "'; add it to sampling.chain");
        }
        // Before the first stage that usually comes later.
        stage = std::ranges::find_if(spec, [&](const StageSpec& other) {
            return place_of(other.name) != builtin.end() && place_of(other.name) > place_of(name);
        });
        stage = spec.insert(stage, {.name = std::string(name), .parameters = {}, .factory = nullptr});
    }
    const auto stated = std::ranges::find_if(stage->parameters, [&](const auto& p) { return p.first == parameter; });
    if (stated != stage->parameters.end()) {
        stated->second = std::move(value);
    } else {
        stage->parameters.emplace_back(parameter, std::move(value));
    }
}

Chain::Chain(const ChainSpec& spec, const Vocabulary& vocabulary)
    : stages_(std::make_unique<ChainStages>(spec, vocabulary)) {}
Chain::~Chain() = default;
Chain::Chain(Chain&&) noexcept = default;
Chain& Chain::operator=(Chain&&) noexcept = default;

void Chain::begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history, std::size_t capacity,
                  std::size_t begun) {
    stages_->begin(seed, branch, history, capacity, begun);
}

Decision Chain::decide(std::span<float> logits) {
    const kernels::SampledToken sampled = stages_->run(logits);
    return {sampled.token, sampled.margin, stages_->failure()};
}

Decision Chain::decide(const kernels::Candidates& candidates, bool ahead) {
    const kernels::SampledToken sampled = stages_->run(candidates, ahead);
    return {sampled.token, sampled.margin, stages_->failure(), stages_->needs_row()};
}

Decision Chain::decide_again(std::span<float> logits, bool ahead) {
    const kernels::SampledToken sampled = stages_->run_again(logits, ahead);
    return {sampled.token, sampled.margin, stages_->failure()};
}

std::unique_ptr<Chain> Chain::duplicate() const { return std::make_unique<Chain>(spec(), stages_->vocabulary()); }
void Chain::accept(std::int32_t token) { stages_->accept(token); }
ChainTrace Chain::trace(std::span<float> logits) { return stages_->trace(logits); }
bool Chain::feedback() const { return stages_->feedback(); }
std::span<const std::int32_t> Chain::history() const { return stages_->history(); }
std::uint64_t Chain::seed() const { return stages_->key().seed; }
std::uint64_t Chain::branch() const { return stages_->key().branch; }
const char* Chain::compile(PlanBuffer& buffer) const { return stages_->compile(buffer); }
bool Chain::compile_prefix(PlanBuffer& buffer) const { return stages_->compile_prefix(buffer); }
const char* Chain::host_stage() const { return stages_->host_stage(); }
bool Chain::greedy() const { return stages_->greedy(); }
bool Chain::forces() const { return stages_->forces(); }

std::vector<StageSpec> Chain::spec() const {
    std::vector<StageSpec> stages;
    for (const ChainStages::Entry& entry : stages_->entries()) {
        StageSpec stage{entry.name, {}, entry.factory, entry.on_error};
        const auto& schema = entry.factory->description().parameters;
        for (std::size_t i = 0; i < schema.size(); ++i)
            stage.parameters.emplace_back(schema[i].name, entry.parameters[i]);
        stages.push_back(std::move(stage));
    }
    return stages;
}

std::vector<StageReport> Chain::reports() const {
    std::vector<StageReport> reports;
    for (const ChainStages::Entry& entry : stages_->entries()) {
        if (entry.kind() == StageKind::step) continue;
        StageReport& report = reports.emplace_back(entry.report);
        report.slow = slowness(entry.report);
        report.tokens = stages_->sampled();
        report.draft_calls = entry.drafts->calls.load(std::memory_order_relaxed);
        report.draft_ms = static_cast<double>(entry.drafts->nanoseconds.load(std::memory_order_relaxed)) / 1e6;
        report.hidden = !entry.factory->description().traits.clonable;
    }
    return reports;
}

std::vector<std::string> Chain::hidden_from_draft() const {
    std::vector<std::string> names;
    for (const ChainStages::Entry& entry : stages_->entries()) {
        if (!entry.factory->description().traits.clonable) names.push_back(entry.name);
    }
    return names;
}

DraftChain::DraftChain() = default;
DraftChain::~DraftChain() = default;
DraftChain::DraftChain(DraftChain&&) noexcept = default;
DraftChain& DraftChain::operator=(DraftChain&&) noexcept = default;

void DraftChain::start(const Chain& live) { follow(live, Following::copies); }
void DraftChain::start_without_masks(const Chain& live) {
    follow(live, live.stages_->masks_matter() ? Following::copies : Following::without_masks);
}
void DraftChain::start_to_verify(const Chain& live) { follow(live, Following::verify); }

void DraftChain::follow(const Chain& live, Following following) {
    if (!stages_ || stages_->id() != live.stages_->id() || following != following_) {
        stages_ = std::make_unique<ChainStages>(*live.stages_, following);
        following_ = following;
        complete_ = stages_->entries().size() == live.stages_->entries().size();
    }
    stages_->follow(*live.stages_);
}

kernels::SampledToken DraftChain::propose(std::span<float> logits) { return stages_->run(logits); }
kernels::SampledToken DraftChain::propose(const kernels::Candidates& candidates) {
    return stages_->run(candidates, true);
}
bool DraftChain::needs_row() const { return stages_->needs_row(); }
kernels::SampledToken DraftChain::propose_again(std::span<float> logits) { return stages_->run_again(logits, true); }
const char* DraftChain::host_stage() const { return stages_->host_stage(); }
void DraftChain::advance(std::int32_t token) { stages_->accept(token); }
const char* DraftChain::compile(PlanBuffer& buffer) const { return stages_->compile(buffer); }
void DraftChain::forced(std::vector<std::int32_t>& tokens) const { stages_->forced(tokens); }
bool DraftChain::compile_prefix(PlanBuffer& buffer) const { return stages_->compile_prefix(buffer); }

}  // namespace foresay::samplers
