#include "speculative/sequence.h"

#include <algorithm>
#include <utility>

#include "core/text/tokenizer.h"
#include "speculative/failures.h"

namespace foresay::speculative {

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
    result_.speculation.mode = "off";
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

void Sequence::sample(core::Context& context, std::int32_t row) {
    const bool first = result_.tokens.empty();
    if (first) result_.prefill_ms = parts_.now() - admitted_;
    const AcceptOutcome outcome = accept_tokens(
        context, *request_.chain, {}, RowSource::logits,
        [&](std::int32_t token, bool) {
            if (first) {
                first_ = parts_.now();
                result_.ttft_ms = first_ - start_;
            }
            return emit(token);
        },
        row,
        [&](std::span<const float> logits) {
            if (logprobs_) logprobs_->read(logits);
        });
    if (outcome.end == AcceptEnd::failure) end(FinishReason::stop, no_token(outcome.failure));
    broken = outcome.end == AcceptEnd::broken;
    if (broken) end(FinishReason::stop, broken_logits(context.model()));
    if (outcome.end == AcceptEnd::stop) end(result_.finish);
}

// True when the text ends here.
bool Sequence::emit(std::int32_t token) {
    tokens_.push_back(token);
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
    TokenEvent event{.token = token, .text = text, .drafted = false, .source = {}, .logprobs = {}};
    if (logprobs_) event.logprobs = logprobs_->of(token);
    sink_.token(event);
    return result_.finish == FinishReason::stop || room_ == 0;
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
