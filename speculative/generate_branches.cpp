// Several answers to one prompt at once: they are texts of a batch that shares the generator's context and begins with
// what the cache holds of the prompt. As many run at once as have room to their ends, so that none gives its pages up.
// Without room for two, generate() writes one after the other.
#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "base/error.h"
#include "core/models/given_text.h"
#include "speculative/generator_state.h"

namespace foresay::speculative {
namespace {

// Receives one answer, and hands it on. What the callback throws is kept until the batch has come to rest.
class AnswerSink final : public Sink {
public:
    AnswerSink(std::size_t index, const BranchCallback& callback, std::exception_ptr& thrown)
        : index_(index), callback_(callback), thrown_(thrown) {}

    void token(const TokenEvent& event) override {
        shown_ += event.text.size();
        if (!callback_ || thrown_) return;
        try {
            callback_(index_, event);
        } catch (...) {
            thrown_ = std::current_exception();
        }
    }
    void end(const BatchEnd& end) override {
        result = end.result;
        error = end.error;
        // The batch does not show what it held back of a text that was cancelled.
        const std::string_view rest = std::string_view(result.text).substr(shown_);
        if (!rest.empty()) token({.token = -1, .text = rest, .drafted = false, .source = {}, .logprobs = {}});
    }

    GenerateResult result;
    std::string error;

private:
    std::size_t index_;
    const BranchCallback& callback_;
    std::exception_ptr& thrown_;
    std::size_t shown_ = 0;
};

}  // namespace

BatchGenerator& Generator::State::batch() {
    if (side_by_side) return *side_by_side;
    BatchParts own;
    own.target = std::shared_ptr<core::Context>(std::shared_ptr<void>(), parts.target.get());  // which it does not own
    own.shares_target = true;
    own.short_given = core::short_given_tokens(target().ops());
    own.classes_agree = own.short_given == 0;
    own.tokenizer = parts.tokenizer;
    own.end_tokens = parts.end_tokens;
    own.make_drafter = parts.make_lookup;
    if (parts.make_draft) {
        const core::ContextOptions& options = target().options();
        try {
            own.draft = parts.make_draft(options.sequences + options.branches);
            own.never_proposed = parts.never_proposed;
        } catch (const Error&) {
            // No memory is left for it: lookups draft alone.
        }
    }
    own.now = parts.now;
    side_by_side = std::make_unique<BatchGenerator>(std::move(own));
    return *side_by_side;
}

// The sequence is the prompt, the cache holds it, and there is room for `most` answers at once.
std::vector<GenerateResult> Generator::State::answer_side_by_side(const GenerateRequest& request,
                                                                  std::span<const std::uint64_t> branches,
                                                                  std::size_t most, const BranchCallback& callback) {
    const std::vector<std::int32_t> prompt(sequence.tokens().begin(), sequence.tokens().end());
    // The prompt's last row is evaluated again, for its logits: in its own class.
    const bool decodes = sequence.last_class() == kernels::RowClass::decode;
    const auto generated_from = static_cast<std::int32_t>(prompt.size()) - (decodes ? 1 : 0);
    BatchGenerator& together = batch();
    target().take_slots_of(nullptr);
    const core::SequenceId copy = sequence.fork();
    check(copy >= 0, "room was made for every branch");
    together.keep(copy, prompt, generated_from);

    std::exception_ptr thrown;
    std::deque<AnswerSink> sinks;
    std::vector<Ticket> tickets;
    bool stopped = false;
    const auto stop = [&] {
        if (!std::exchange(stopped, true)) std::ranges::for_each(tickets, [&](Ticket t) { together.cancel(t); });
    };
    const auto failed = [](const AnswerSink& sink) { return !sink.error.empty(); };
    try {
        do {
            while (!stopped && sinks.size() < branches.size() && together.running() + together.waiting() < most) {
                AnswerSink& sink = sinks.emplace_back(sinks.size(), callback, thrown);
                tickets.push_back(together.add({.input = prompt,
                                                .generated_from = generated_from,
                                                .begun = request.begun,
                                                .chain = parts.chain->duplicate(),
                                                .max_tokens = request.max_tokens,
                                                .seed = request.seed,
                                                .branch = branches[sinks.size() - 1],
                                                .stop = {request.stop.begin(), request.stop.end()},
                                                .stop_tokens = {},
                                                .ignore_eos = request.ignore_eos,
                                                .queue = {},
                                                .cache_salt = {},
                                                .prediction = {request.prediction.begin(), request.prediction.end()},
                                                .speculation = parts.speculation},
                                               sink));
            }
            if (request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed)) stop();
            if (thrown || std::ranges::any_of(sinks, failed)) stop();
        } while (together.step() || (!stopped && sinks.size() < branches.size()));
    } catch (...) {
        stop();
        together.step();
        together.forget();
        throw;
    }
    std::vector<GenerateResult> results(branches.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
        if (i >= sinks.size()) {  // cancelled before it began
            results[i].finish = FinishReason::cancelled;
            results[i].prompt_tokens = sequence.size();
            continue;
        }
        results[i] = std::move(sinks[i].result);
        results[i].cached_tokens = 0;
        std::vector<std::int32_t> whole = prompt;
        whole.insert(whole.end(), results[i].tokens.begin(), results[i].tokens.end());
        const core::SequenceId held = together.take(whole, generated_from);
        if (held >= 0) sequence.park(held, results[i].tokens);
    }
    together.forget();
    if (thrown) std::rethrow_exception(thrown);
    const auto first = std::ranges::find_if(sinks, failed);
    if (first != sinks.end()) throw Error(first->error);
    return results;
}

std::vector<GenerateResult> Generator::generate_branches(const GenerateRequest& request,
                                                         std::span<const std::uint64_t> branches,
                                                         const BranchCallback& callback) {
    State& s = *state_;
    const double start = s.parts.now();
    s.check_input(request.input);
    for (const std::int32_t token : request.input) s.sequence.append(token, false);
    const std::vector<std::int32_t> prompt(s.sequence.tokens().begin(), s.sequence.tokens().end());
    const std::vector<std::uint8_t> generated(s.sequence.generated().begin(), s.sequence.generated().end());
    std::int32_t room = s.target().capacity() - s.sequence.size();
    if (request.max_tokens > 0) room = std::min(room, request.max_tokens);
    const bool ready = room > 0 && s.sequence.evaluate(request.cancel);
    const auto wanted = static_cast<std::int32_t>(branches.size());
    const std::int32_t count = ready ? s.sequence.room_for_branches(wanted, room) : 0;
    std::vector<GenerateResult> results;
    if (count >= 2) {
        const double prefill_ms = s.parts.now() - start;
        results = s.answer_side_by_side(request, branches, static_cast<std::size_t>(count), callback);
        for (GenerateResult& result : results) {
            result.prefill_ms += prefill_ms;
            result.ttft_ms += prefill_ms;
        }
    } else {
        for (std::size_t i = 0; i < branches.size(); ++i) {
            switch_to(prompt, generated);
            GenerateRequest one = request;
            one.input = {};
            one.branch = branches[i];
            results.push_back(generate(one, [&](const TokenEvent& event) {
                if (callback) callback(i, event);
            }));
        }
    }
    switch_to(prompt, generated);
    return results;
}

}  // namespace foresay::speculative
