#include "speculative/sequence.h"

#include <algorithm>
#include <utility>

#include "core/models/given_text.h"
#include "core/text/tokenizer.h"
#include "samplers/grammar_stages.h"
#include "speculative/drafters/forced_drafter.h"
#include "speculative/failures.h"
#include "speculative/mode_name.h"
#include "speculative/prediction.h"

namespace foresay::speculative {
namespace {

constexpr std::string_view kModelName = "draft";

// A wrong guess costs a forward, and to wait for the host instead costs a tenth of one or less. Guesses are trusted
// while no larger share of them is wrong, as a moving average in which one weighs kWrongBlend.
constexpr double kMostWrong = 0.08;
constexpr double kWrongBlend = 0.04;

}  // namespace

Sequence::Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts, bool has_model)
    : parts_(parts),
      has_model_(has_model),
      ticket_(ticket),
      request_(std::move(request)),
      speculation_(request_.speculation.value_or(parts.speculation)),
      sink_(sink),
      tokens_(std::move(request_.input)),
      answer_(parts.tokenizer, parts.now) {
    const auto prompt = static_cast<std::int32_t>(tokens_.size());
    request_.generated.resize(tokens_.size());
    rows_ = core::classes_of(request_.generated, parts.short_given);
    std::int32_t room = parts.target->capacity() - prompt;
    if (request_.max_tokens > 0) room = std::min(room, request_.max_tokens);
    if (request_.logprobs >= 0) {
        const std::int32_t rows = parts.target->model().config().shape.vocab;
        const std::int32_t vocab = parts.tokenizer != nullptr ? std::min(rows, parts.tokenizer->vocab_size()) : rows;
        logprobs_ = std::make_unique<Logprobs>(vocab, request_.logprobs);
    }
    if (!request_.ignore_eos || samplers::under_grammar(*request_.chain)) end_tokens_ = parts.end_tokens;
    answer_.begin({.strings = request_.stop, .tokens = end_tokens_, .more_tokens = request_.stop_tokens}, room,
                  parts.now());
    answer_.result.prompt_tokens = prompt;
    const bool drafts =
        drafts_alone() ? request_.drafts->active()
                       : parts.make_drafter || has_model || !request_.prediction.empty() || request_.chain->forces();
    if (!drafts) speculation_.mode = core::SpeculationMode::off;
    answer_.result.speculation.mode = mode_name(mode());
    if (drafts_alone()) answer_.result.speculation = request_.drafts->statistics();
}

void Sequence::draft_with(TextDrafts& drafts, const TimedPlace& place) {
    request_.drafts = &drafts;
    speculation_ = request_.speculation.value_or(parts_.speculation);
    drafts.set_options(speculation_);
    drafts.begin(tokens_, place, *request_.chain, request_.prediction, answer_.room());
    if (!drafts.active()) speculation_.mode = core::SpeculationMode::off;
    answer_.result.speculation = drafts.statistics();
}

void Sequence::admit(core::SequenceId id, std::int32_t held) {
    id_ = id;
    held_ = held;
    if (begun_) return;
    begun_ = true;
    admitted_ = parts_.now();
    answer_.result.cached_tokens = held;
    const auto room = static_cast<std::size_t>(answer_.room());
    tokens_.reserve(tokens_.size() + room);
    rows_.reserve(tokens_.size() + room);
    answer_.reserve();
    request_.chain->begin(request_.seed, request_.branch, tokens_, tokens_.size() + room,
                          static_cast<std::size_t>(request_.begun));
    on_device_ = !logprobs_ && DeviceSampling::runs_on(*parts_.target, *request_.chain);
    if (!speculates()) return;
    draft_.tokens.reserve(core::kMaxDraft);
    draft_.margins.reserve(core::kMaxDraft);
    notes_.reserve(core::kMaxDraft);
    if (drafts_alone()) return;
    const auto add_source = [this](std::string_view name) {
        answer_.result.speculation.sources.push_back({.name = std::string(name)});
    };
    if (parts_.make_drafter) {
        drafter_ = parts_.make_drafter(static_cast<std::int32_t>(tokens_.size() + room));
        drafter_->begin(tokens_);
        add_source(drafter_->name());
    }
    prediction_.predict(tokens_, request_.prediction, room);
    if (prediction_.active()) add_source(prediction_.name());
    if (request_.chain->forces()) {
        forced_ = make_forced_drafter();
        forced_source_ = answer_.result.speculation.sources.size();
        add_source(forced_->name());
    }
    if (has_model_) add_source(kModelName);
}

void Sequence::suspend() {
    id_ = -1;
    held_ = 0;
}

SequenceLoad Sequence::load() const {
    if (paused || missing() == 0) return {};
    // Where the classes agree, many rows run best as a prompt's.
    if (parts_.classes_agree) {
        if (missing() > 1) return {.prefill_rows = missing()};
        return {.decode_rows = missing()};
    }
    const auto next = rows_.begin() + held_;
    const auto end = std::find_if(next, rows_.end(), [next](kernels::RowClass one) { return one != *next; });
    const auto rows = static_cast<std::int32_t>(end - next);
    if (*next == kernels::RowClass::decode) return {.decode_rows = rows};
    return {.prefill_rows = rows};
}

std::span<const std::int32_t> Sequence::next_tokens(std::int32_t count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(held_), static_cast<std::size_t>(count));
}

void Sequence::advance(std::int32_t count) {
    if (!answer_.result.tokens.empty() && samples_after(count)) ++answer_.result.speculation.rounds;
    held_ += count;
}

// All lookups are asked, so that they follow the draft. What is forced wins where others are as sure.
void Sequence::look_up() {
    proposal_ = {};
    const std::int32_t vocab = parts_.target->model().config().shape.vocab;
    const auto ask = [&](Drafter& lookup, std::size_t source) {
        const Proposal found = lookup.look_up(tokens_, draft_.tokens);
        if (found.token < 0 || found.token >= vocab) return;
        if (proposal_.token >= 0 && found.chance <= proposal_.chance) return;
        proposal_ = found;
        proposer_ = source;
    };
    if (forced_ != nullptr) ask(*forced_, forced_source_);
    if (drafter_ != nullptr && drafter_->is_lookup()) ask(*drafter_, 0);
    if (prediction_.active()) ask(prediction_, drafter_ != nullptr ? 1 : 0);
}

void Sequence::begin_draft(std::int32_t most) {
    draft_.clear();
    notes_.clear();
    survival_ = 1.0;
    round = {};
    model_is_done_ = false;
    guessed_ = false;  // the host may sample what follows: then no slot has its token
    limit_ = std::max(0, std::min({most, answer_.room() - 1, core::kMaxDraft}));
    ModelDrafts::begin_round(model_draft);
    proposal_ = {};
    if (limit_ == 0) return;
    if (drafter_ == nullptr || drafter_->is_lookup()) {
        if (forced_ != nullptr) forced_->begin_round(*request_.chain);
        look_up();
        return;
    }
    drafter_->propose({.tokens = tokens_, .max_tokens = limit_, .chain = request_.chain.get()}, draft_);
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
    if (answer_.ends_text(token)) close_draft();
    if (draft_is_open()) look_up();
}

void Sequence::take_proposal() {
    note({.survival = survival_ * proposal_.chance, .source = proposer_}, proposal_.token);
}

void Sequence::take_sampled(const kernels::SampledToken& sampled) {
    if (sampled.token < 0 || sampled.token >= parts_.target->model().config().shape.vocab) {
        model_is_done_ = true;
        return;
    }
    Note entry{.source = answer_.result.speculation.sources.size() - 1,
               .model = true,
               .match = match_class(proposal_.length),
               .margin = sampled.margin};
    if (proposal_.token >= 0) entry.view = proposal_.token == sampled.token ? View::same : View::other;
    entry.survival = survival_ * acceptance_.given(entry.match, entry.view, entry.margin);
    note(entry, sampled.token);
}

void Sequence::draft_alone() {
    request_.drafts->draft(text(), (source_ == RowSource::tokens || source_ == RowSource::guesses) && !lost);
    take_alone();
}

bool Sequence::close_alone() {
    if (!drafts_alone() || !request_.drafts->close()) return false;
    cut_ = true;
    take_alone();
    return true;
}

void Sequence::take_alone() {
    const std::span<const std::int32_t> tokens = request_.drafts->tokens();
    draft_.tokens.assign(tokens.begin(), tokens.end());
    notes_.clear();
    for (std::int32_t i = 0; i < drafted(); ++i) notes_.push_back({.source = request_.drafts->source(i)});
}

void Sequence::count_alone(double verify_ms) {
    answer_.result.speculation.verify_ms += verify_ms;
    answer_.result.speculation.draft_ms += request_.drafts->draft_ms();
}

void Sequence::observe_alone(double verify_ms, double round_ms, double emit_ms) {
    if (round.emitted > 0) request_.drafts->observe(round.accepted, round.emitted, verify_ms, round_ms, emit_ms);
}

void Sequence::cut_draft(std::int32_t count) {
    draft_.tokens.resize(std::min(draft_.tokens.size(), static_cast<std::size_t>(count)));
}

// From what the target made of the draft, and for the statistics.
void Sequence::learn(const AcceptOutcome& outcome, Acceptance& everyone) {
    if (draft_.tokens.empty()) {
        acceptance_.relax();
        return;
    }
    const auto verified = static_cast<std::int32_t>(draft_.tokens.size());
    const auto note = [this](std::int32_t i) -> const Note& { return notes_[static_cast<std::size_t>(i)]; };
    answer_.count(verified, outcome.accepted, [&](std::int32_t i) { return note(i).source; });
    for (std::int32_t i = 0; i < verified; ++i) {
        // The target has not judged tokens after the first rejection or after the end of the text.
        const bool judged = i < outcome.accepted || (i == outcome.accepted && outcome.emitted > outcome.accepted);
        if (!note(i).model) continue;
        ++round.model_rows;
        if (i < outcome.accepted && note(i).view != View::same) ++round.model_gains;
        if (!judged) continue;
        for (Acceptance* one : {&acceptance_, &everyone}) {
            one->observe(note(i).match, note(i).view, note(i).margin, i < outcome.accepted);
        }
    }
}

RowSource Sequence::start_sampling(DeviceSampling& sampling) {
    source_ = sampling.add(*request_.chain, ahead_, draft_.tokens);
    guessed_ = source_ == RowSource::guesses;
    if (guessed_ && wrong_guesses_ > kMostWrong) source_ = RowSource::candidates;
    return source_;
}

RowSource Sequence::fill_row(DeviceSampling& sampling) { return sampling.add(*request_.chain, ahead_, {}); }

void Sequence::decide_first(std::span<float> logits) {
    decided_ = decide_row(*request_.chain, logits, [&](std::span<const float> row) {
        if (logprobs_) logprobs_->read(row);
    });
}

void Sequence::decide_first(core::Context& context, std::int32_t row) {
    decided_ = decide_slot(context, *request_.chain, row, RowSource::candidates, false);
}

void Sequence::drop_draft(core::Context& context) {
    decided_.reset();
    if (std::exchange(cut_, false) || !draft_.tokens.empty()) context.truncate(held_, id_);
    draft_.clear();
}

void Sequence::sample(core::Context& context, std::int32_t row, RowSource source, Acceptance& everyone) {
    if (answer_.result.tokens.empty()) answer_.result.prefill_ms = parts_.now() - admitted_;
    std::size_t depth = 0;
    const AcceptOutcome outcome = accept_tokens(
        context, *request_.chain, draft_.tokens, source,
        [&](std::int32_t token, bool agreed) { return emit(token, agreed, depth++); }, row,
        [&](std::span<const float> logits) {
            if (logprobs_) logprobs_->read(logits);
        },
        decided_ ? &*decided_ : nullptr);
    held_ += std::max(outcome.emitted, 1) - 1;
    const bool again = lost;
    lost = outcome.end == AcceptEnd::lost;
    if (lost) {  // its row is made again, in its place: a forward that runs ahead may have none of this text
        --held_;
        cut_ = true;
        if (!answer_.result.tokens.empty()) --answer_.result.speculation.rounds;
    }
    wrong_guess = lost;
    if (guessed_ && !again && (lost || outcome.emitted > 0)) {
        const bool wrong = lost || context.ops().sampled(context.workspace(), row).token != tokens_.back();
        wrong_guess = lost || (wrong && source == RowSource::guesses);
        wrong_guesses_ += kWrongBlend * ((wrong || outcome.asked_row ? 1.0 : 0.0) - wrong_guesses_);
    }
    learn(outcome, everyone);
    drop_draft(context);
    broken = outcome.end == AcceptEnd::broken;
    if (broken) end(FinishReason::stop, broken_logits(context.model()));
    if (outcome.end == AcceptEnd::failure) end(FinishReason::stop, no_token(outcome.failure));
    if (answer_.over()) end(answer_.result.finish);
}

// True when the text ends here.
bool Sequence::emit(std::int32_t token, bool drafted, std::size_t depth) {
    tokens_.push_back(token);
    rows_.push_back(kernels::RowClass::decode);
    TokenEvent event{.token = token, .text = answer_.push(token), .drafted = drafted, .source = {}, .logprobs = {}};
    if (drafted) event.source = answer_.result.speculation.sources[notes_[depth].source].name;
    if (logprobs_) event.logprobs = logprobs_->of(token);
    sink_.token(event);
    return answer_.over() || cancelled;  // by its own sink: the rest of the draft is not wanted
}

void Sequence::end(FinishReason finish, std::string error) {
    ended_ = true;
    answer_.result.finish = finish;
    const std::string rest = answer_.finish();
    if (!rest.empty() && !cancelled) {
        sink_.token({.token = -1, .text = rest, .drafted = false, .source = {}, .logprobs = {}});
    }
    sink_.end({.result = answer_.result, .error = error});
}

}  // namespace foresay::speculative
