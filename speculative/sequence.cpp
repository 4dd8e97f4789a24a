#include "speculative/sequence.h"

#include <algorithm>
#include <utility>

#include "core/text/tokenizer.h"
#include "speculative/failures.h"
#include "speculative/mode_name.h"

namespace foresay::speculative {
namespace {

// A draft ends where it survives with less than this chance: no row is that cheap.
constexpr double kLeastSurvival = 0.05;
// A prediction is looked up as if it followed the last tokens of the prompt.
constexpr std::size_t kBeforePrediction = 32;
constexpr std::int32_t kNoToken = -1;  // ends a prediction: nothing follows it

}  // namespace

Sequence::Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts)
    : parts_(parts),
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
    const bool speculates = parts.speculation.mode != core::SpeculationMode::off && parts.make_drafter;
    result_.speculation.mode = mode_name(speculates ? parts.speculation.mode : core::SpeculationMode::off);
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
    request_.chain->begin(request_.seed, request_.branch, tokens_, tokens_.size() + room);
    on_device_ = !logprobs_ && BatchSampling::runs_on(*parts_.target, *request_.chain);
    if (parts_.speculation.mode == core::SpeculationMode::off || !parts_.make_drafter) return;
    if (!request_.prediction.empty()) {
        searched_.reserve(2 * kBeforePrediction + request_.prediction.size() + tokens_.capacity());
        const auto before = tokens_.end() - static_cast<std::ptrdiff_t>(std::min(kBeforePrediction, tokens_.size()));
        searched_.assign(before, tokens_.end());
        searched_.insert(searched_.end(), request_.prediction.begin(), request_.prediction.end());
        searched_.push_back(kNoToken);
        searched_.insert(searched_.end(), tokens_.begin(), tokens_.end());
    }
    drafter_ = parts_.make_drafter(static_cast<std::int32_t>(searched().size() + room));
    drafter_->begin(searched());
    draft_.tokens.reserve(core::kMaxDraft);
    draft_.margins.reserve(core::kMaxDraft);
    chances_.reserve(core::kMaxDraft);
    result_.speculation.sources.push_back({.name = std::string(drafter_->name())});
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
    if (held_ < generated_from_) return {.prefill_rows = generated_from_ - held_};
    return {.decode_rows = missing()};
}

std::span<const std::int32_t> Sequence::next_tokens(std::int32_t count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(held_), static_cast<std::size_t>(count));
}

void Sequence::advance(std::int32_t count) {
    if (!result_.tokens.empty() && samples_after(count)) ++result_.speculation.rounds;
    held_ += count;
}

void Sequence::draft(std::int32_t most, bool fixed) {
    draft_.clear();
    chances_.clear();
    const std::int32_t limit = std::min({most, room_ - 1, core::kMaxDraft});
    if (drafter_ == nullptr || limit < 1) return;
    const auto ends_text = [this](std::int32_t token) {
        return !request_.ignore_eos && std::ranges::find(parts_.end_tokens, token) != parts_.end_tokens.end();
    };
    if (drafter_->is_lookup()) {
        double survival = 1.0;
        while (drafted() < limit) {
            const Proposal next = drafter_->look_up(searched(), draft_.tokens);
            survival *= next.chance;
            if (next.token < 0 || (!fixed && survival < kLeastSurvival)) break;
            draft_.tokens.push_back(next.token);
            chances_.push_back(survival);
            if (ends_text(next.token)) break;
        }
    } else {
        drafter_->propose({.tokens = searched(), .max_tokens = limit, .chain = request_.chain.get()}, draft_);
    }
    const std::int32_t vocab = parts_.target->model().config().shape.vocab;
    const auto wrong =
        std::ranges::find_if(draft_.tokens, [vocab](std::int32_t token) { return token < 0 || token >= vocab; });
    cut_draft(std::min(limit, static_cast<std::int32_t>(wrong - draft_.tokens.begin())));
    chances_.resize(draft_.tokens.size(), 0.0);
}

void Sequence::cut_draft(std::int32_t count) {
    draft_.tokens.resize(std::min(draft_.tokens.size(), static_cast<std::size_t>(count)));
}

RowSource Sequence::start_sampling(BatchSampling& sampling) {
    return sampling.add(*request_.chain, ahead_, draft_.tokens);
}

void Sequence::drop_draft(core::Context& context) {
    if (!draft_.tokens.empty()) context.truncate(held_, id_);
    draft_.clear();
}

void Sequence::sample(core::Context& context, std::int32_t row, RowSource source) {
    if (result_.tokens.empty()) result_.prefill_ms = parts_.now() - admitted_;
    const auto drafted_now = static_cast<std::int64_t>(draft_.tokens.size());
    const AcceptOutcome outcome = accept_tokens(
        context, *request_.chain, draft_.tokens, source,
        [&](std::int32_t token, bool agreed) {
            if (result_.tokens.empty()) {
                first_ = parts_.now();
                result_.ttft_ms = first_ - start_;
            }
            return emit(token, agreed);
        },
        row,
        [&](std::span<const float> logits) {
            if (logprobs_) logprobs_->read(logits);
        });
    held_ += std::max(outcome.emitted, 1) - 1;
    drop_draft(context);
    SpeculationStatistics& statistics = result_.speculation;
    if (drafted_now > 0) {
        SourceStatistics& source_statistics = statistics.sources.front();
        ++source_statistics.rounds;
        for (auto* entry : {&statistics.drafted, &source_statistics.drafted}) *entry += drafted_now;
        for (auto* entry : {&statistics.accepted, &source_statistics.accepted}) *entry += outcome.accepted;
    }
    broken = outcome.end == AcceptEnd::broken;
    if (broken) end(FinishReason::stop, broken_logits(context.model()));
    if (outcome.end == AcceptEnd::failure) end(FinishReason::stop, no_token(outcome.failure));
    if (over_) end(result_.finish);
}

// True when the text ends here.
bool Sequence::emit(std::int32_t token, bool drafted) {
    tokens_.push_back(token);
    if (!searched_.empty()) searched_.push_back(token);
    result_.tokens.push_back(token);
    --room_;
    const auto among = [token](const std::vector<std::int32_t>& ids) {
        return std::ranges::find(ids, token) != ids.end();
    };
    const bool is_end = (!request_.ignore_eos && among(parts_.end_tokens)) || among(request_.stop_tokens);
    const std::string_view text = is_end ? std::string_view{} : text_.push(token);
    result_.text += text;
    result_.finish = is_end || text_.stopped() ? FinishReason::stop : FinishReason::length;
    result_.stop_string = text_.stopped_by();
    TokenEvent event{.token = token, .text = text, .drafted = drafted, .source = {}, .logprobs = {}};
    if (drafted) event.source = drafter_->name();
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
