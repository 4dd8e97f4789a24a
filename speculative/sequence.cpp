#include "speculative/sequence.h"

#include <algorithm>
#include <utility>

#include "core/models/given_text.h"
#include "core/text/tokenizer.h"
#include "speculative/drafters/forced_drafter.h"
#include "speculative/failures.h"
#include "speculative/mode_name.h"

namespace foresay::speculative {
namespace {

// A prediction is looked up as if it followed the last tokens of the prompt.
constexpr std::size_t kBeforePrediction = 32;
constexpr std::string_view kModelName = "draft";
constexpr std::int32_t kNoToken = -1;  // ends a prediction: nothing follows it

}  // namespace

Sequence::Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts, bool has_model)
    : parts_(parts),
      has_model_(has_model),
      ticket_(ticket),
      request_(std::move(request)),
      sink_(sink),
      tokens_(std::move(request_.input)),
      room_(parts.target->capacity() - static_cast<std::int32_t>(tokens_.size())),
      text_(parts.tokenizer),
      start_(parts.now()) {
    const auto prompt = static_cast<std::int32_t>(tokens_.size());
    generated_from_ = request_.generated_from < 0 ? prompt : std::min(request_.generated_from, prompt);
    if (request_.max_tokens > 0) room_ = std::min(room_, request_.max_tokens);
    if (request_.logprobs >= 0) {
        const std::int32_t rows = parts.target->model().config().shape.vocab;
        const std::int32_t vocab = parts.tokenizer != nullptr ? std::min(rows, parts.tokenizer->vocab_size()) : rows;
        logprobs_ = std::make_unique<Logprobs>(vocab, request_.logprobs);
    }
    text_.begin(request_.stop);
    result_.prompt_tokens = prompt;
    result_.speculation.mode = mode_name(speculates() ? parts.speculation.mode : core::SpeculationMode::off);
}

void Sequence::admit(core::SequenceId id, std::int32_t held) {
    id_ = id;
    held_ = held;
    if (begun_) return;
    begun_ = true;
    admitted_ = parts_.now();
    result_.cached_tokens = held;
    const auto room = static_cast<std::size_t>(room_);
    tokens_.reserve(tokens_.size() + room);
    result_.tokens.reserve(room);
    result_.text.reserve(room * 8);
    request_.chain->begin(request_.seed, request_.branch, tokens_, tokens_.size() + room,
                          static_cast<std::size_t>(request_.begun));
    on_device_ = !logprobs_ && BatchSampling::runs_on(*parts_.target, *request_.chain);
    if (!speculates()) return;
    draft_.tokens.reserve(core::kMaxDraft);
    draft_.margins.reserve(core::kMaxDraft);
    notes_.reserve(core::kMaxDraft);
    if (parts_.make_drafter) {
        if (!request_.prediction.empty()) predict(room);
        drafter_ = parts_.make_drafter(static_cast<std::int32_t>(searched().size() + room));
        drafter_->begin(searched());
        result_.speculation.sources.push_back({.name = std::string(drafter_->name())});
    }
    if (request_.chain->forces()) {
        forced_ = make_forced_drafter();
        result_.speculation.sources.push_back({.name = std::string(forced_->name())});
    }
    if (has_model_) result_.speculation.sources.push_back({.name = std::string(kModelName)});
}

// In the statistics: the lookup, what is forced, the draft model, as far as there are such.
std::size_t Sequence::source_of(const Note& entry) const {
    if (entry.model) return result_.speculation.sources.size() - 1;
    return entry.forced && drafter_ != nullptr ? 1 : 0;
}

bool Sequence::speculates() const {
    return parts_.speculation.mode != core::SpeculationMode::off &&
           (parts_.make_drafter || has_model_ || request_.chain->forces());
}

// Puts the prediction before the text, as if it followed the last tokens of the prompt.
void Sequence::predict(std::size_t room) {
    searched_.reserve(kBeforePrediction + request_.prediction.size() + 1 + tokens_.size() + room);
    const auto before = tokens_.end() - static_cast<std::ptrdiff_t>(std::min(kBeforePrediction, tokens_.size()));
    searched_.assign(before, tokens_.end());
    searched_.insert(searched_.end(), request_.prediction.begin(), request_.prediction.end());
    searched_.push_back(kNoToken);
    searched_.insert(searched_.end(), tokens_.begin(), tokens_.end());
}

void Sequence::suspend() {
    id_ = -1;
    held_ = 0;
}

SequenceLoad Sequence::load() const {
    if (paused) return {};
    // Where the classes agree, many rows run best as a prompt's.
    if (parts_.classes_agree) {
        if (missing() > 1) return {.prefill_rows = missing()};
        return {.decode_rows = missing()};
    }
    if (held_ >= generated_from_ ||
        core::class_of_given(generated_from_, parts_.short_given) == kernels::RowClass::decode)
        return {.decode_rows = missing()};
    return {.prefill_rows = generated_from_ - held_};
}

std::span<const std::int32_t> Sequence::next_tokens(std::int32_t count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(held_), static_cast<std::size_t>(count));
}

void Sequence::advance(std::int32_t count) {
    if (!result_.tokens.empty() && samples_after(count)) ++result_.speculation.rounds;
    held_ += count;
}

bool Sequence::ends_text(std::int32_t token) const {
    return !request_.ignore_eos && std::ranges::find(parts_.end_tokens, token) != parts_.end_tokens.end();
}

void Sequence::look_up() {
    proposal_ = {};
    proposal_is_forced_ = false;
    if (drafter_ != nullptr && drafter_->is_lookup()) proposal_ = drafter_->look_up(searched(), draft_.tokens);
    if (forced_ != nullptr) {
        const Proposal forced = forced_->look_up(tokens_, draft_.tokens);
        if (forced.token >= 0 && (proposal_.token < 0 || forced.chance >= proposal_.chance)) {
            proposal_ = forced;
            proposal_is_forced_ = true;
        }
    }
    if (proposal_.token >= parts_.target->model().config().shape.vocab) proposal_ = {};
}

void Sequence::begin_draft(std::int32_t most) {
    draft_.clear();
    notes_.clear();
    survival_ = 1.0;
    limit_ = std::max(0, std::min({most, room_ - 1, core::kMaxDraft}));
    ModelDrafts::begin_round(model_draft);
    proposal_ = {};
    if (limit_ == 0) return;
    if (drafter_ == nullptr || drafter_->is_lookup()) {
        if (forced_ != nullptr) forced_->begin_round(*request_.chain);
        look_up();
        return;
    }
    drafter_->propose({.tokens = searched(), .max_tokens = limit_, .chain = request_.chain.get()}, draft_);
    const std::int32_t vocab = parts_.target->model().config().shape.vocab;
    const auto wrong =
        std::ranges::find_if(draft_.tokens, [vocab](std::int32_t token) { return token < 0 || token >= vocab; });
    draft_.tokens.erase(wrong, draft_.tokens.end());
    cut_draft(limit_);
    notes_.resize(draft_.tokens.size());
    close_draft();
}

void Sequence::note(const Note& entry, std::int32_t token) {
    draft_.tokens.push_back(token);
    notes_.push_back(entry);
    survival_ = entry.survival;
    if (ends_text(token)) close_draft();
    if (draft_is_open()) look_up();
}

void Sequence::take_proposal() {
    note({.survival = survival_ * proposal_.chance, .forced = proposal_is_forced_}, proposal_.token);
}

void Sequence::take_sampled(const kernels::SampledToken& sampled) {
    if (sampled.token < 0 || sampled.token >= parts_.target->model().config().shape.vocab) {
        close_draft();
        return;
    }
    Note entry{.model = true, .match = match_class(proposal_.length), .margin = sampled.margin};
    if (proposal_.token >= 0) entry.view = proposal_.token == sampled.token ? View::same : View::other;
    entry.survival = survival_ * acceptance_.given(entry.match, entry.view, entry.margin);
    note(entry, sampled.token);
}

void Sequence::cut_draft(std::int32_t count) {
    draft_.tokens.resize(std::min(draft_.tokens.size(), static_cast<std::size_t>(count)));
}

// From what the target made of the draft, and for the statistics.
void Sequence::learn(const AcceptOutcome& outcome, Acceptance& everyone) {
    SpeculationStatistics& statistics = result_.speculation;
    if (draft_.tokens.empty()) {
        acceptance_.relax();
        return;
    }
    const auto verified = static_cast<std::int32_t>(draft_.tokens.size());
    statistics.drafted += verified;
    statistics.accepted += outcome.accepted;
    bool seen[3] = {};
    for (std::int32_t i = 0; i < verified; ++i) {
        const Note& entry = notes_[static_cast<std::size_t>(i)];
        const std::size_t at = source_of(entry);
        SourceStatistics& source = statistics.sources[at];
        if (!std::exchange(seen[at], true)) ++source.rounds;
        ++source.drafted;
        if (i < outcome.accepted) ++source.accepted;
        // The target has not judged tokens after the first rejection or after the end of the text.
        const bool judged = i < outcome.accepted || (i == outcome.accepted && outcome.emitted > outcome.accepted);
        if (!entry.model || !judged) continue;
        for (Acceptance* one : {&acceptance_, &everyone}) {
            one->observe(entry.match, entry.view, entry.margin, i < outcome.accepted);
        }
    }
}

RowSource Sequence::start_sampling(BatchSampling& sampling) {
    return sampling.add(*request_.chain, ahead_, draft_.tokens);
}

void Sequence::drop_draft(core::Context& context) {
    if (!draft_.tokens.empty()) context.truncate(held_, id_);
    draft_.clear();
}

void Sequence::sample(core::Context& context, std::int32_t row, RowSource source, Acceptance& everyone) {
    if (result_.tokens.empty()) result_.prefill_ms = parts_.now() - admitted_;
    std::size_t depth = 0;
    const AcceptOutcome outcome = accept_tokens(
        context, *request_.chain, draft_.tokens, source,
        [&](std::int32_t token, bool agreed) {
            if (result_.tokens.empty()) {
                first_ = parts_.now();
                result_.ttft_ms = first_ - start_;
            }
            return emit(token, agreed, depth++);
        },
        row,
        [&](std::span<const float> logits) {
            if (logprobs_) logprobs_->read(logits);
        });
    held_ += std::max(outcome.emitted, 1) - 1;
    learn(outcome, everyone);
    drop_draft(context);
    broken = outcome.end == AcceptEnd::broken;
    if (broken) end(FinishReason::stop, broken_logits(context.model()));
    if (outcome.end == AcceptEnd::failure) end(FinishReason::stop, no_token(outcome.failure));
    if (over_) end(result_.finish);
}

// True when the text ends here.
bool Sequence::emit(std::int32_t token, bool drafted, std::size_t depth) {
    tokens_.push_back(token);
    if (!searched_.empty()) searched_.push_back(token);
    result_.tokens.push_back(token);
    --room_;
    const bool is_end =
        ends_text(token) || std::ranges::find(request_.stop_tokens, token) != request_.stop_tokens.end();
    const std::string_view text = is_end ? std::string_view{} : text_.push(token);
    result_.text += text;
    result_.finish = is_end || text_.stopped() ? FinishReason::stop : FinishReason::length;
    result_.stop_string = text_.stopped_by();
    TokenEvent event{.token = token, .text = text, .drafted = drafted, .source = {}, .logprobs = {}};
    if (drafted) {
        const Note& entry = notes_[depth];
        event.source = entry.model ? kModelName : entry.forced ? forced_->name() : drafter_->name();
    }
    if (logprobs_) event.logprobs = logprobs_->of(token);
    sink_.token(event);
    over_ = result_.finish == FinishReason::stop || room_ == 0;
    return over_ || cancelled;  // by its own sink: the rest of the draft is not wanted
}

void Sequence::end(FinishReason finish, std::string error) {
    ended_ = true;
    result_.finish = finish;
    if (!result_.tokens.empty()) {
        result_.decode_ms = parts_.now() - first_;
        if (result_.decode_ms > 0.0) {
            result_.decode_tokens_per_second =
                1000.0 * static_cast<double>(result_.tokens.size() - 1) / result_.decode_ms;
        }
    }
    const std::string rest = text_.finish();
    if (!rest.empty() && !cancelled) {
        sink_.token({.token = -1, .text = rest, .drafted = false, .source = {}, .logprobs = {}});
    }
    result_.text += rest;
    sink_.end({.result = result_, .error = error});
}

}  // namespace foresay::speculative
