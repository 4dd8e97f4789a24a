#include "samplers/chain_stages.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "kernels/sampling_steps.h"
#include "samplers/chain_trace.h"
#include "samplers/plugin_call.h"

namespace foresay::samplers {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Dropping one of the kLikely best candidates is likely to change the token. A stage matters when it does so in more
// than kMattering of its calls, as a moving average in which one call weighs kDroppedBlend.
constexpr std::int32_t kLikely = 4;
constexpr double kMattering = 0.03;
constexpr double kDroppedBlend = 0.05;

// Above this a float32 has too little room for the noise: its steps reach a hundredth. A stage may raise logits as far
// as it likes, but only their differences count.
constexpr float kLargest = 65536.0f;

// As many masks of one state are in flight as there are token slots, and some more.
constexpr std::size_t kMasks = kernels::kTokenSlots + 8;

// log of the softmax probability of `token` among candidates, best first; -inf if it is not one of them.
float log_probability(const std::vector<std::int32_t>& ids, const std::vector<float>& logits, std::int32_t token) {
    const auto at = std::ranges::find(ids, token);
    if (at == ids.end()) return -kInfinity;
    std::uint64_t sum = 0;
    for (const float logit : logits) sum += kernels::fixed_weight(logit, logits[0]);
    return logits[static_cast<std::size_t>(at - ids.begin())] - logits[0] - kernels::log_of_fixed(sum);
}

// Subtracts the largest logit from all where a stage has raised it beyond kLargest.
void bring_into_range(const kernels::Candidates& candidates, float largest_before) {
    const float largest = *std::max_element(candidates.logits, candidates.logits + candidates.count);
    if (std::fabs(largest) <= kLargest || std::fabs(largest_before) > kLargest) return;
    for (std::int32_t i = 0; i < candidates.count; ++i) candidates.logits[i] -= largest;
}

// White space as in program text; what is left of control characters is shown as "?".
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : std::string(1, c);
    return one_line(out, out.size());
}

// The stream of keyed random numbers of a stage: a hash of its name (FNV-1a), so that adding or removing other
// stages does not change it.
std::uint32_t stream_of(std::string_view name) {
    std::uint32_t hash = 2166136261u;
    for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
    return hash;
}

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

// Stages are immutable, so chains share those with equal parameters: a stage is made once for a configuration, however
// many sequences run. Not those that have read a file, because the file may have changed since.
std::shared_ptr<const Stage> shared_stage(const std::shared_ptr<const StageFactory>& factory,
                                          const std::vector<ParameterValue>& parameters, const Vocabulary& vocabulary) {
    using Key = std::tuple<const StageFactory*, const Vocabulary*, std::vector<ParameterValue>>;
    static std::mutex mutex;
    static auto& known = *new std::map<Key, std::weak_ptr<const Stage>>();  // never destroyed: stages outlive statics
    const std::vector<ParameterSchema>& schemas = factory->description().parameters;
    bool reads = false;
    for (std::size_t i = 0; i < schemas.size(); ++i)
        reads = reads || (schemas[i].type == ParameterType::file && !std::get<std::string>(parameters[i]).empty());
    if (reads) return factory->create(parameters, vocabulary);
    const Key key(factory.get(), &vocabulary, parameters);
    const auto find = [&]() -> std::shared_ptr<const Stage> {
        std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
        const auto found = known.find(key);
        return found != known.end() ? found->second.lock() : nullptr;
    };
    {
        const std::lock_guard lock(mutex);
        if (auto stage = find()) return stage;
    }
    // Not locked: making a stage may take long. The factory lives as long as its stages, so that no other one has its
    // address.
    std::unique_ptr<Stage> made = factory->create(parameters, vocabulary);
    std::shared_ptr<const Stage> stage(made.release(), [factory](const Stage* old) { delete old; });
    const std::lock_guard lock(mutex);
    if (auto other = find()) return other;
    known[key] = stage;
    return stage;
}

ChainStages::Entry make_entry(const StageSpec& spec, const Vocabulary& vocabulary) {
    ChainStages::Entry entry;
    entry.name = spec.name;
    entry.factory = spec.factory ? spec.factory : find_builtin(spec.name);
    if (!entry.factory) {
        std::string known;
        for (const auto& factory : builtin_factories())
            known += (known.empty() ? "" : ", ") + factory->description().name;
        throw Error("there is no sampler '" + spec.name + "'; the built-in ones are " + known +
                    "; load others as plugins");
    }
    try {
        entry.parameters = complete_parameters(entry.factory->description(), spec.parameters);
        check_needs(entry.factory->description(), spec.parameters);
        entry.stage = shared_stage(entry.factory, entry.parameters, vocabulary);
    } catch (const ParameterError& problem) {
        throw StageError(spec.name, problem.parameter(), problem.what());
    } catch (const Error& problem) {
        throw StageError(spec.name, "", problem.what());
    }
    entry.on_error = spec.on_error;
    entry.stream = stream_of(spec.name);
    entry.state = entry.stage->make_state();
    entry.report.stage = spec.name;
    entry.drafts = std::make_shared<ChainStages::DraftMeter>();
    return entry;
}

}  // namespace

ChainStages::ChainStages(const ChainSpec& spec, const Vocabulary& vocabulary)
    : id_(next_id()), vocabulary_(&vocabulary) {
    if (spec.size() > static_cast<std::size_t>(kernels::kMaxSamplingSteps)) {
        throw Error("a chain has at most " + std::to_string(kernels::kMaxSamplingSteps) + " samplers, this one has " +
                    std::to_string(spec.size()));
    }
    for (const StageSpec& stage : spec) {
        for (const Entry& other : entries_) {
            if (other.name == stage.name)
                throw Error("the chain lists sampler '" + stage.name + "' twice; list it once");
        }
        entries_.push_back(make_entry(stage, vocabulary));
    }
    plan_stages();
}

ChainStages::ChainStages(const ChainStages& live, Following following)
    : id_(live.id_), phase_(Phase::propose), vocabulary_(live.vocabulary_) {
    for (const Entry& from : live.entries_) {
        const bool verify = following == Following::verify;
        const bool only_drops = from.factory->description().traits.masks_only && !from.in_plan();
        if (!verify && !from.clonable()) continue;
        if (following == Following::without_masks && only_drops) continue;
        Entry entry;
        entry.name = from.name;
        entry.factory = from.factory;
        entry.stage = from.stage;
        entry.stream = from.stream;
        entry.report.stage = from.name;
        entry.drafts = from.drafts;
        try {
            if (from.clonable()) entry.state = from.stage->make_state();
        } catch (const Error&) {
            continue;  // the draft does without it, which costs speed at most
        }
        entries_.push_back(std::move(entry));
    }
    plan_stages();
}

void ChainStages::plan_stages() {
    bool cut_found = false;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Stage& stage = *entries_[i].stage;
        greedy_ = greedy_ || stage.greedy();
        if (stage.idle()) continue;
        feedback_ = feedback_ || entries_[i].feedback();
        if (!cut_found && !stage.whole_vocabulary()) {
            cut_found = true;
            cut_before_ = active_.size();
            cut_ = kernels::kCandidateCut;
            if (stage.kind() == StageKind::step) {
                std::vector<kernels::TokenCount> none;
                const kernels::SamplingStep step =
                    entries_[i].state ? kernels::SamplingStep{} : stage.step(nullptr, none);
                if (step.kind == kernels::SamplingStepKind::top_k && step.top_k <= static_cast<std::uint32_t>(cut_)) {
                    cut_ = static_cast<std::int32_t>(step.top_k);
                    cut_replaces_ = true;
                }
            }
        }
        active_.push_back(i);
    }
    counts_.resize(active_.size());
    const auto ids = static_cast<std::size_t>(std::max(vocabulary_->size(), 0));
    place_.assign(ids, 0);
    if (std::ranges::any_of(entries_, [](const Entry& entry) { return entry.can_test(); })) {
        verdicts_.assign(ids, 0);
        saved_logits_.reserve(static_cast<std::size_t>(kernels::kCandidateCut));
    }
}

ChainStages::Stopwatch::Stopwatch(const Entry& entry, Phase phase, Of of) : entry_(entry), phase_(phase), of_(of) {
    if (of == Of::call) ++entry_.report.calls;
}

ChainStages::Stopwatch::~Stopwatch() {
    const auto time = std::chrono::steady_clock::now() - start_;
    if (phase_ == Phase::propose) {
        if (of_ == Of::call) entry_.drafts->calls.fetch_add(1, std::memory_order_relaxed);
        entry_.drafts->nanoseconds.fetch_add(std::chrono::nanoseconds(time).count(), std::memory_order_relaxed);
        return;
    }
    const double ms = std::chrono::duration<double, std::milli>(time).count();
    entry_.report.total_ms += ms;
    entry_.report.worst_ms = std::max(entry_.report.worst_ms, ms);
}

kernels::NoiseKey ChainStages::key() const { return {seed_, branch_, static_cast<std::uint32_t>(history_.size())}; }

void ChainStages::begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history,
                        std::size_t capacity, std::size_t begun) {
    check(begun <= history.size(), "an answer begins before the text");
    ++epoch_;
    answer_ = history.size() - begun;
    seed_ = seed;
    branch_ = branch;
    decided_ = failed_ = false;
    history_.reserve(std::max(capacity, history.size()));
    history_.assign(history.begin(), history.end());
    for (Entry& entry : entries_) {
        if (!entry.state) continue;
        entry.broken.clear();
        entry.broken = entry.state->begin(history_, answer_);
    }
}

void ChainStages::follow(const ChainStages& live) {
    // A draft's history is the live one and what it advanced. Within a generation the live one only grows, so only its
    // new tokens are copied.
    const bool same = epoch_ == live.epoch_ && live_length_ <= live.history_.size();
    history_.reserve(live.history_.capacity());
    history_.resize(same ? live_length_ : 0);
    history_.insert(history_.end(), live.history_.begin() + static_cast<std::ptrdiff_t>(history_.size()),
                    live.history_.end());
    live_length_ = history_.size();
    epoch_ = live.epoch_;
    seed_ = live.seed_;
    branch_ = live.branch_;
    answer_ = live.answer_;
    decided_ = failed_ = false;
    std::size_t at = 0;
    for (Entry& entry : entries_) {
        while (live.entries_[at].name != entry.name) ++at;
        const Entry& from = live.entries_[at];
        if (!entry.state) continue;
        entry.broken = from.broken;
        entry.misled = false;
        if (!entry.broken.empty()) continue;
        const Stopwatch watch(entry, phase_, Stopwatch::Of::state);
        entry.broken = entry.state->copy(*from.state);
    }
}

void ChainStages::accept(std::int32_t token) {
    constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
    const bool drawn = phase_ == Phase::decide;
    const bool known = feedback_ && decided_ && drawn;
    const float probability = known ? scratch_.log_probability(token) : kUnknown;
    history_.push_back(token);
    decided_ = false;
    if (drawn) ++sampled_;
    for (const std::size_t i : active_) {
        Entry& entry = entries_[i];
        if (!entry.state || !entry.broken.empty()) continue;
        AcceptedToken accepted{token, !drawn, kUnknown, kUnknown};
        if (known && entry.feedback()) {
            accepted.log_probability = probability;
            accepted.received_log_probability = log_probability(entry.received_ids, entry.received_logits, token);
        }
        const Stopwatch watch(entry, phase_, Stopwatch::Of::state);
        entry.broken = entry.state->accept(accepted);
        entry.misled = !drawn && !entry.broken.empty();
    }
}

StageContext ChainStages::context_for(const Entry& entry, Phase phase) const {
    return {phase, key(), entry.stream, history_, answer_};
}

std::string_view ChainStages::make_step(const Entry& entry, std::vector<kernels::TokenCount>& counts,
                                        kernels::SamplingStep& step) const {
    if (!entry.broken.empty() && !entry.misled) return entry.broken;
    if (entry.kind() == StageKind::mask) return make_mask(entry, step);
    step = entry.stage->step(entry.state.get(), counts);
    if (step.kind == kernels::SamplingStepKind::xtc) step.xtc.stream = entry.stream;
    return {};
}

std::string_view ChainStages::make_mask(const Entry& entry, kernels::SamplingStep& step) const {
    const Stopwatch watch(entry, phase_);
    entry.masks.resize(kMasks);
    entry.last_mask = (entry.last_mask + 1) % kMasks;
    std::vector<std::uint32_t>& bits = entry.masks[entry.last_mask];
    bits.assign((static_cast<std::size_t>(vocabulary_->size()) + 31) / 32, 0);
    if (entry.misled) {
        // Whatever comes after the guess does not matter.
        std::ranges::fill(bits, ~0u);
        step.kind = kernels::SamplingStepKind::mask;
        step.bits = bits;
        return {};
    }
    // A mask decides what is sampled even where it is made for a row of a draft, so it is never told the phase.
    const StageContext context = context_for(entry, Phase::decide);
    const std::string_view wrong = entry.stage->mask(entry.state.get(), context, bits);
    if (!wrong.empty()) return wrong;
    const std::size_t beyond = bits.size() * 32 - static_cast<std::size_t>(vocabulary_->size());
    if (!bits.empty()) bits.back() &= ~0u >> beyond;
    if (std::ranges::all_of(bits, [](std::uint32_t word) { return word == 0; })) return kLeftNone;
    if (is_checked(entry.report.calls)) {
        std::vector<std::uint32_t> again(bits.size(), 0);
        const std::string_view second = entry.stage->mask(entry.state.get(), context, again);
        if (!again.empty()) again.back() &= ~0u >> beyond;
        if (!second.empty() || again != bits) return kTwoAnswers;
    }
    step.kind = kernels::SamplingStepKind::mask;
    step.bits = bits;
    return {};
}

kernels::SampledToken ChainStages::run(std::span<float> logits) {
    failed_ = needs_row_ = false;
    scratch_.start(logits, vocabulary_->size());
    return run_from(0);
}

kernels::SampledToken ChainStages::run(const kernels::Candidates& candidates, bool ahead) {
    failed_ = needs_row_ = false;
    scratch_.start(candidates);
    const std::size_t first = first_left_out(ahead);
    if (first >= cut_before_) return run_from(first);
    const std::int32_t most = kept_before_cut();
    const bool all = candidates.count < most || vocabulary_->size() <= most;
    const float last = candidates.count > 0 ? candidates.logits[candidates.count - 1] : -kInfinity;
    for (std::size_t at = first; at < cut_before_; ++at) {
        Entry& entry = entries_[active_[at]];
        if (!left_out(entry, ahead)) continue;
        const bool runs =
            entry.broken.empty() && entry.can_test() ? test_list(entry, true) : run_stage(entry, counts_[at]);
        if (!runs) return {};
    }
    const std::int32_t left = scratch_.list().count;
    needs_row_ = left < cut_ && (left == 0 || (!all && !missing_are_dropped(last)));
    return needs_row_ ? kernels::SampledToken{.token = -1} : run_from(cut_before_);
}

kernels::SampledToken ChainStages::run_again(std::span<float> logits, bool ahead) {
    failed_ = needs_row_ = false;
    scratch_.start(logits, vocabulary_->size());
    return run_from(0, true, ahead);
}

kernels::SampledToken ChainStages::run_from(std::size_t first, bool planned, bool ahead) {
    forget_tests();
    if (trace_ != nullptr) note_column({}, false);
    for (std::size_t at = first; at < active_.size(); ++at) {
        if (planned && at < cut_before_ && !left_out(entries_[active_[at]], ahead)) continue;
        if (cut_ > 0 && at == cut_before_) {
            if (!test_best(cut_)) return {};
            scratch_.cut(cut_);
            if (trace_ != nullptr) note_column(cut_replaces_ ? entries_[active_[at]].name : "", !cut_replaces_);
            if (cut_replaces_) continue;
        }
        Entry& entry = entries_[active_[at]];
        const std::int64_t failures = entry.report.failures;
        if (!run_stage(entry, counts_[at])) return {};
        if (trace_ != nullptr && !note_stage(entry, failures)) return {};
    }
    kernels::SampledToken sampled;
    if (pending_.empty()) {
        sampled = scratch_.sample(key(), greedy_);
    } else if (!test_winner(sampled)) {
        return {};
    }
    decided_ = true;
    if (sampled.token < 0 && phase_ == Phase::decide) {
        failed_ = true;
        failure_ = {"chain", "no token can follow" + tail_of_text() +
                                 ": the samplers rule out every one, or the model's logits are not numbers"};
    }
    return sampled;
}

// False: the generation has to stop.
bool ChainStages::run_stage(Entry& entry, std::vector<kernels::TokenCount>& counts) {
    if (!entry.broken.empty()) return fail(entry, entry.broken);
    if (entry.kind() == StageKind::process) return test_all() && run_process(entry);
    if (entry.can_test()) {
        if (!scratch_.whole()) return test_list(entry);
        pending_.push_back(static_cast<std::size_t>(&entry - entries_.data()));
        return true;
    }
    if (entry.compares_row() && scratch_.whole()) {
        if (!test_all()) return false;
        forget_tests();  // a test that comes later asks about each token again
    }
    kernels::SamplingStep step;
    if (const std::string_view wrong = make_step(entry, counts, step); !wrong.empty()) return fail(entry, wrong);
    scratch_.apply(step, key());
    return true;
}

bool ChainStages::fail(Entry& entry, std::string_view why) {
    ++entry.report.failures;
    entry.report.last_failure = why;
    if (why == kLeftNone) entry.report.last_failure += tail_of_text();
    if (phase_ == Phase::propose || entry.on_error == StageSpec::OnError::skip) return true;
    failed_ = true;
    failure_.stage = entry.name;
    failure_.message = "sampler '" + entry.name + "' failed: " + entry.report.last_failure;
    return false;
}

// " after \"...the end of the text\"", with which a sentence goes on.
std::string ChainStages::tail_of_text() const {
    constexpr std::size_t kBytes = 40, kTokens = 40;
    std::string tail;
    const std::size_t first = history_.size() - std::min(history_.size(), kTokens);
    for (std::size_t i = first; i < history_.size(); ++i) tail += vocabulary_->text(history_[i]);
    const bool whole = first == 0 && tail.size() <= kBytes;
    if (tail.size() > kBytes) tail.erase(0, tail.size() - kBytes);
    while (!tail.empty() && (static_cast<unsigned char>(tail[0]) & 0xc0) == 0x80) tail.erase(0, 1);
    if (tail.empty()) return {};
    return std::string(" after \"") + (whole ? "" : "...") + escaped(tail) + "\"";
}

// Runs a stage that transforms the candidates. False: the generation has to stop.
bool ChainStages::run_process(Entry& entry) {
    const Stopwatch watch(entry, phase_);
    kernels::Candidates candidates = scratch_.list();
    if (candidates.count == 0) return true;
    const std::int32_t count = candidates.count;
    saved_ids_.assign(candidates.ids, candidates.ids + count);
    saved_logits_.assign(candidates.logits, candidates.logits + count);
    if (entry.feedback() && phase_ == Phase::decide) {
        entry.received_ids = saved_ids_;
        entry.received_logits = saved_logits_;
    }
    const std::string_view wrong = call_process(entry, candidates);
    if (wrong.empty()) {
        note_dropped(entry, candidates, count);
        bring_into_range(candidates, saved_logits_[0]);
        scratch_.set_list(candidates.count);
        return true;
    }
    std::copy_n(saved_ids_.data(), count, candidates.ids);
    std::copy_n(saved_logits_.data(), count, candidates.logits);
    scratch_.set_list(count);
    return fail(entry, wrong);
}

std::string_view ChainStages::call_process(Entry& entry, kernels::Candidates& candidates) {
    const StageContext context = context_for(entry, phase_);
    std::string_view wrong = entry.stage->process(entry.state.get(), context, candidates);
    if (wrong.empty()) wrong = check_result(entry, candidates);
    if (!wrong.empty() || phase_ != Phase::decide || !is_checked(entry.report.calls)) return wrong;
    return answers_again(entry, context, candidates) ? std::string_view() : kTwoAnswers;
}

bool ChainStages::answers_again(Entry& entry, const StageContext& context, kernels::Candidates& candidates) {
    const std::int32_t count = candidates.count;
    first_ids_.assign(candidates.ids, candidates.ids + count);
    first_logits_.assign(candidates.logits, candidates.logits + count);
    std::copy(saved_ids_.begin(), saved_ids_.end(), candidates.ids);
    std::copy(saved_logits_.begin(), saved_logits_.end(), candidates.logits);
    candidates.count = static_cast<std::int32_t>(saved_ids_.size());
    const std::string_view wrong = entry.stage->process(entry.state.get(), context, candidates);
    // Bits, because -0 and 0 are two answers, too.
    return wrong.empty() && candidates.count == count &&
           std::equal(first_ids_.begin(), first_ids_.end(), candidates.ids) &&
           std::memcmp(first_logits_.data(), candidates.logits, first_logits_.size() * sizeof(float)) == 0;
}

// How the stage's result breaks the contract; empty when it does not.
std::string_view ChainStages::check_result(const Entry& entry, const kernels::Candidates& result) {
    const bool masks_only = entry.factory->description().traits.masks_only;
    for (std::size_t i = 0; i < saved_ids_.size(); ++i)
        place_[static_cast<std::size_t>(saved_ids_[i])] = static_cast<std::int32_t>(i) + 1;
    std::string_view wrong;
    bool any = false;
    for (std::int32_t i = 0; i < result.count && wrong.empty(); ++i) {
        const std::int32_t id = result.ids[i];
        const float logit = result.logits[i];
        std::int32_t* place = id >= 0 && id < vocabulary_->size() ? &place_[static_cast<std::size_t>(id)] : nullptr;
        if (place == nullptr || *place == 0) {
            wrong = "it returned a token that it was not given, or one token twice";
        } else if (std::isnan(logit) || logit == kInfinity) {
            wrong = "it returned a logit that is not a number, or infinite";
        } else if (masks_only && logit != -kInfinity && logit != saved_logits_[static_cast<std::size_t>(*place - 1)]) {
            wrong = "it changed a logit, though it declares that it only masks";
        } else {
            *place = 0;
            any = any || logit != -kInfinity;
        }
    }
    for (const std::int32_t id : saved_ids_) place_[static_cast<std::size_t>(id)] = 0;
    if (wrong.empty() && !any) wrong = kLeftNone;
    return wrong;
}

bool ChainStages::forces() const {
    return std::ranges::any_of(active_, [&](std::size_t i) { return entries_[i].stage->forces(); });
}

void ChainStages::forced(std::vector<std::int32_t>& tokens) const {
    tokens.clear();
    for (const std::size_t i : active_) {
        const Entry& entry = entries_[i];
        if (!entry.stage->forces() || !entry.broken.empty()) continue;
        std::string_view bytes;
        // It only guides a draft, so a failure here costs nothing but time.
        if (!entry.stage->forced(entry.state.get(), context_for(entry, Phase::decide), bytes).empty()) continue;
        if (bytes.empty()) continue;
        constexpr std::size_t kMost = 256;  // longer than any draft
        const std::string text(bytes.substr(0, kMost));
        std::optional<std::vector<std::int32_t>> found;
        try {
            found = vocabulary_->tokens(text);
        } catch (const Error&) {  // a text that takes the tokenizer too long
            return;
        }
        if (!found) return;
        // A tokenizer may add a blank, or not take bytes that are no characters: only tokens that spell the text count.
        std::size_t spelt = 0;
        for (const std::int32_t token : *found) {
            const std::string_view own = vocabulary_->text(token);
            if (own.empty() || !std::string_view(text).substr(spelt).starts_with(own)) break;
            spelt += own.size();
            tokens.push_back(token);
        }
        if (!tokens.empty()) return;
    }
}

std::size_t ChainStages::first_left_out(bool ahead) const {
    std::size_t at = 0;
    while (at < active_.size() && !left_out(entries_[active_[at]], ahead)) ++at;
    return at;
}

const char* ChainStages::host_stage() const {
    const std::size_t at = first_left_out(of_draft());
    return at < active_.size() ? entries_[active_[at]].name.c_str() : nullptr;
}

// Whether the stage has dropped one of the best of the `count` candidates in saved_*.
void ChainStages::note_dropped(Entry& entry, const kernels::Candidates& result, std::int32_t count) {
    bool dropped = false;
    for (std::int32_t i = 0; i < std::min(count, kLikely) && !dropped; ++i) {
        const std::int32_t id = saved_ids_[static_cast<std::size_t>(i)];
        // Stages usually keep the order: the candidate is at its old place or before it.
        std::int32_t at = std::min(i, result.count - 1);
        while (at >= 0 && result.ids[at] != id) --at;
        dropped = at < 0 || result.logits[at] == -kInfinity;
    }
    note_dropped(entry, dropped);
}

void ChainStages::note_dropped(Entry& entry, bool dropped) {
    entry.likely_dropped += kDroppedBlend * ((dropped ? 1.0 : 0.0) - entry.likely_dropped);
}

bool ChainStages::masks_matter() const {
    return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.likely_dropped > kMattering; });
}

std::int32_t ChainStages::kept_before_cut() const {
    constexpr std::int32_t kFew = 24;
    return std::min(cut_ + std::max(cut_ / 2, kFew), kernels::kCandidateCut);
}

const char* ChainStages::compile(PlanBuffer& buffer) const {
    if (const char* name = host_stage()) return name;
    begin_plan(buffer);
    for (std::size_t at = 0; at < active_.size(); ++at) {
        if (cut_ > 0 && at == cut_before_) {
            buffer.plan.cut_at = buffer.plan.step_count;
            if (cut_replaces_) continue;
        }
        if (const char* name = add_step(at, buffer)) return name;
    }
    return nullptr;
}

bool ChainStages::compile_prefix(PlanBuffer& buffer) const {
    const bool ahead = of_draft();
    const std::size_t first = first_left_out(ahead);
    if (first == active_.size() || cut_ == 0) return false;
    bool only_drop = true;
    for (std::size_t at = first; at < active_.size(); ++at) {
        const Entry& entry = entries_[active_[at]];
        if (at < cut_before_ && entry.compares_row()) return false;  // with what the host would drop before
        if (!left_out(entry, ahead)) continue;
        if (at < cut_before_ && !entry.judges()) return false;
        only_drop = only_drop && entry.factory->description().traits.masks_only;
    }
    begin_plan(buffer);
    kernels::SamplingPlan& plan = buffer.plan;
    const bool before_cut = first < cut_before_;
    buffer.guess = only_drop && !ahead;
    plan.keep = true;
    if (before_cut) plan.cut = kept_before_cut();
    for (std::size_t at = 0; at < active_.size(); ++at) {
        if (at == cut_before_) plan.cut_at = plan.step_count;
        if (at == (before_cut ? cut_before_ : first)) {
            plan.keep_at = plan.step_count;
            if (!buffer.guess) break;
        }
        if (at == cut_before_ && before_cut) {
            plan.steps[plan.step_count++] = {.kind = kernels::SamplingStepKind::top_k,
                                             .top_k = static_cast<std::uint32_t>(cut_)};
        }
        if ((at == cut_before_ && cut_replaces_) || left_out(entries_[active_[at]], ahead)) continue;
        if (add_step(at, buffer) != nullptr) return false;
    }
    if (!buffer.guess) plan.greedy = true;  // its token is not used, so noise would be wasted
    return true;
}

void ChainStages::begin_plan(PlanBuffer& buffer) const {
    kernels::SamplingPlan& plan = buffer.plan;
    plan.key = key();
    plan.vocab = vocabulary_->size();
    plan.cut = cut_;
    plan.cut_at = 0;
    plan.greedy = greedy_;
    plan.keep = false;
    plan.keep_at = kernels::kMaxSamplingSteps;
    plan.step_count = 0;
    buffer.guess = false;
}

const char* ChainStages::add_step(std::size_t at, PlanBuffer& buffer) const {
    const Entry& entry = entries_[active_[at]];
    const std::int32_t step = buffer.plan.step_count++;
    buffer.plan.steps[step] = {};  // it may hold lists of a stage that is gone
    return make_step(entry, buffer.counts[step], buffer.plan.steps[step]).empty() ? nullptr : entry.name.c_str();
}

}  // namespace foresay::samplers
