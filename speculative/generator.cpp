// A Generator keeps a conversation: its tokens, and what the cache holds of them and of its other branches
// (BranchCache). An answer is a text of a batch that shares the context (BatchGenerator): it goes on from the sequence
// that the cache holds, and leaves it longer. Several answers to one prompt find it among the texts that are kept.
#include "speculative/generator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "base/error.h"
#include "core/models/given_text.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/batch_generator.h"
#include "speculative/branch_cache.h"
#include "speculative/failures.h"
#include "speculative/text_drafts.h"

namespace foresay::speculative {

std::string_view name(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::deadline:
            return "deadline";
    }
    return "";
}

namespace {

BatchParts batch_parts(const GeneratorParts& parts, std::shared_ptr<core::Context> target) {
    BatchParts own;
    own.target = std::move(target);
    own.shares_target = true;
    own.short_given = core::short_given_tokens(own.target->ops());
    own.classes_agree = own.short_given == 0;
    own.tokenizer = parts.tokenizer;
    own.end_tokens = parts.end_tokens;
    own.make_drafter = parts.make_lookup;
    own.now = parts.now;
    return own;
}

// Receives an answer, and hands it on. What the callback throws is kept until the batch has come to rest.
class AnswerSink final : public Sink {
public:
    using StopWhen = std::function<bool(const TokenEvent&)>;
    AnswerSink(BatchGenerator& batch, const TokenCallback& callback, const StopWhen& stop_when,
               std::exception_ptr& thrown)
        : batch_(batch), callback_(callback), stop_when_(stop_when), thrown_(thrown) {}

    void token(const TokenEvent& event) override {
        shown_ += event.text.size();
        if (thrown_ || stopped_) return;
        try {
            callback_(event);
            stopped_ = event.token >= 0 && stop_when_ && stop_when_(event);
        } catch (...) {
            thrown_ = std::current_exception();
        }
        if (thrown_ || stopped_) batch_.cancel(ticket);
    }
    void end(const BatchEnd& end) override {
        result = end.result;
        result.cached_tokens = 0;
        result.error = end.error;
        if (std::exchange(stopped_, false)) result.finish = FinishReason::stop;
        // The batch does not show what it held back of a text that was cancelled.
        const std::string_view rest = std::string_view(result.text).substr(shown_);
        if (!rest.empty()) token({.token = -1, .text = rest, .drafted = false, .source = {}, .logprobs = {}});
    }

    Ticket ticket{0};
    GenerateResult result;

private:
    BatchGenerator& batch_;
    TokenCallback callback_;
    const StopWhen& stop_when_;
    std::exception_ptr& thrown_;
    std::size_t shown_ = 0;
    bool stopped_ = false;  // by the caller
};

}  // namespace

struct Generator::State {
    std::shared_ptr<core::Context> target;
    std::shared_ptr<samplers::Chain> chain;
    std::function<std::unique_ptr<core::Context>(std::int32_t sequences)> make_draft;  // none: it was made
    std::vector<std::int32_t> never_proposed;
    Now now;
    BatchGenerator batch;
    BranchCache sequence;
    TextDrafts drafts;

    explicit State(GeneratorParts parts)
        : target(std::move(parts.target)),
          chain(std::move(parts.chain)),
          make_draft(std::move(parts.make_draft)),
          never_proposed(std::move(parts.never_proposed)),
          now(parts.now),
          batch(batch_parts(parts, target)),
          sequence(*target, batch.kept()),
          drafts(std::move(parts.drafters), *target, parts.speculation, parts.now) {}

    TimedPlace timed_place() {
        return {.id = sequence.id(), .make_room = [this](std::int32_t rows) { sequence.make_room(rows); }};
    }

    // Appends the input of a request. Returns how many tokens may follow.
    std::int32_t append(const GenerateRequest& request) {
        check_prompt(*target, sequence.size(), request.input);
        for (const std::int32_t token : request.input) sequence.append(token, false);
        const std::int32_t room = target->capacity() - sequence.size();
        return request.max_tokens > 0 ? std::min(room, request.max_tokens) : room;
    }

    // A text of the batch that goes on from the conversation.
    BatchRequest text(const GenerateRequest& request) const {
        BatchRequest text;
        text.input.assign(sequence.tokens().begin(), sequence.tokens().end());
        text.generated.assign(sequence.generated().begin(), sequence.generated().end());
        text.begun = request.begun;
        text.max_tokens = request.max_tokens;
        text.seed = request.seed;
        text.branch = request.branch;
        text.stop.assign(request.stop.begin(), request.stop.end());
        text.ignore_eos = request.ignore_eos;
        text.speculation = drafts.options();
        return text;
    }

    using Begin = std::function<BatchRequest(std::size_t index)>;
    std::vector<GenerateResult> write(const GenerateRequest& request, std::size_t count, std::size_t most,
                                      const Begin& begin, const BranchCallback& callback);
    std::vector<GenerateResult> write_side_by_side(const GenerateRequest& request,
                                                   std::span<const std::uint64_t> branches, std::size_t most,
                                                   const BranchCallback& callback);
    GenerateResult generate(const GenerateRequest& request, const TokenCallback& callback);
    void add_draft();
};

// Has the batch write `count` texts, `most` of them at once. begin() says what one is.
std::vector<GenerateResult> Generator::State::write(const GenerateRequest& request, std::size_t count, std::size_t most,
                                                    const Begin& begin, const BranchCallback& callback) {
    std::exception_ptr thrown;
    std::deque<AnswerSink> answers;
    bool stopped = false;
    const auto stop = [&] {
        if (std::exchange(stopped, true)) return;
        for (const AnswerSink& answer : answers) batch.cancel(answer.ticket);
    };
    try {
        do {
            while (!stopped && answers.size() < count && batch.running() + batch.waiting() < most) {
                const std::size_t index = answers.size();
                const auto hand_on = [&callback, index](const TokenEvent& event) { callback(index, event); };
                AnswerSink& answer = answers.emplace_back(batch, hand_on, request.stop_when, thrown);
                answer.ticket = batch.add(begin(index), answer);
            }
            if (request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed)) stop();
            if (thrown) stop();
        } while (batch.step() || (!stopped && answers.size() < count));
    } catch (...) {
        stop();
        batch.step();
        throw;
    }
    if (thrown) std::rethrow_exception(thrown);
    std::vector<GenerateResult> results(count);
    for (std::size_t i = 0; i < count; ++i) {
        if (i < answers.size()) {
            results[i] = std::move(answers[i].result);
        } else {  // cancelled before it began
            results[i].finish = FinishReason::cancelled;
            results[i].prompt_tokens = sequence.size();
        }
    }
    return results;
}

// The cache holds the conversation, and has room for `most` answers at once. Afterwards it holds each answer, too.
std::vector<GenerateResult> Generator::State::write_side_by_side(const GenerateRequest& request,
                                                                 std::span<const std::uint64_t> branches,
                                                                 std::size_t most, const BranchCallback& callback) {
    add_draft();
    target->take_slots_of(nullptr);
    sequence.keep_copy();
    const auto begin = [&](std::size_t index) {
        BatchRequest one = text(request);
        one.chain = chain->duplicate();
        one.branch = branches[index];
        one.prediction.assign(request.prediction.begin(), request.prediction.end());
        return one;
    };
    return write(request, branches.size(), most, begin, callback);
}

void Generator::State::add_draft() {
    if (!make_draft) return;
    const core::ContextOptions& options = target->options();
    try {
        batch.add_draft(std::exchange(make_draft, {})(options.sequences + options.branches), never_proposed);
    } catch (const Error&) {
        // No memory is left for it: lookups draft alone.
    }
}

// The cache goes on with the answer: one text, with the conversation's own chain and drafts.
GenerateResult Generator::State::generate(const GenerateRequest& request, const TokenCallback& callback) {
    const double start = now();
    const std::int32_t room = append(request);
    drafts.begin(sequence.tokens(), timed_place(), *chain, request.prediction, room);
    const bool ready = sequence.evaluate(request.cancel);
    if (!ready || room < 1) {
        GenerateResult none;
        none.finish = ready ? FinishReason::length : FinishReason::cancelled;
        none.prompt_tokens = sequence.size();
        none.speculation = drafts.statistics();
        return none;
    }
    const double prefill_ms = now() - start;
    const auto begin = [&](std::size_t) {
        BatchRequest one = text(request);
        one.sequence = sequence.lend();
        one.chain = chain;
        one.drafts = &drafts;
        return one;
    };
    const auto hand_on = [&](std::size_t, const TokenEvent& event) {
        if (event.token >= 0) sequence.append(event.token, true);
        if (callback) callback(event);
    };
    GenerateResult result = std::move(write(request, 1, 1, begin, hand_on).front());
    result.prefill_ms += prefill_ms;
    result.ttft_ms += prefill_ms;
    return result;
}

Generator::Generator(GeneratorParts parts) {
    check(parts.target != nullptr && parts.chain != nullptr, "a generator needs a target and a chain");
    state_ = std::make_unique<State>(std::move(parts));
    state_->drafts.warm_up(state_->timed_place(), state_->chain->forces());
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

GenerateResult Generator::generate(const GenerateRequest& request, const TokenCallback& callback) {
    GenerateResult result = state_->generate(request, callback);
    if (!result.error.empty()) throw Error(result.error);
    return result;
}

std::vector<GenerateResult> Generator::generate_branches(const GenerateRequest& request,
                                                         std::span<const std::uint64_t> branches,
                                                         const BranchCallback& callback) {
    State& s = *state_;
    const double start = s.now();
    const std::int32_t room = s.append(request);
    const std::vector<std::int32_t> prompt(s.sequence.tokens().begin(), s.sequence.tokens().end());
    const std::vector<std::uint8_t> generated(s.sequence.generated().begin(), s.sequence.generated().end());
    const BranchCallback hand_on = [&callback](std::size_t index, const TokenEvent& event) {
        if (callback) callback(index, event);
    };
    const bool ready = room > 0 && s.sequence.evaluate(request.cancel);
    const auto wanted = static_cast<std::int32_t>(branches.size());
    const std::int32_t count = ready ? s.sequence.room_for_branches(wanted, room) : 0;
    std::vector<GenerateResult> results;
    if (count >= 2) {
        const double prefill_ms = s.now() - start;
        results = s.write_side_by_side(request, branches, static_cast<std::size_t>(count), hand_on);
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
            results.push_back(s.generate(one, [&](const TokenEvent& event) { hand_on(i, event); }));
        }
    }
    switch_to(prompt, generated);
    return results;
}

std::span<const std::int32_t> Generator::tokens() const { return state_->sequence.tokens(); }
std::int32_t Generator::capacity() const { return state_->target->capacity(); }

std::span<const std::uint8_t> Generator::generated() const { return state_->sequence.generated(); }
std::int32_t Generator::held() const { return state_->sequence.held(); }

bool Generator::prepare(std::span<const std::int32_t> input, const std::atomic<bool>* cancel) {
    constexpr std::int32_t kStep = 64;  // tokens between two checks of `cancel`
    State& s = *state_;
    if (s.sequence.size() + static_cast<std::int64_t>(input.size()) > s.target->capacity()) return false;
    if (s.sequence.size() + input.size() == 0) return true;
    check_prompt(*s.target, s.sequence.size(), input);
    for (const std::int32_t token : input) s.sequence.append(token, false);
    if (s.sequence.held() == s.sequence.size() || s.sequence.evaluate(cancel, kStep)) return true;
    truncate(s.sequence.held());
    return false;
}

void Generator::switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
    state_->drafts.rewind(state_->sequence.switch_to(tokens, generated));
}

SavedPages Generator::save_pages(const std::filesystem::path& path, std::string_view fingerprint) {
    return state_->sequence.save(path, fingerprint);
}

SavedPages Generator::load_pages(const std::filesystem::path& path, std::string_view fingerprint) {
    return state_->sequence.load(path, fingerprint);
}

void Generator::visit_logits(std::int32_t from, const LogitsVisitor& visit) {
    state_->sequence.visit_logits(from, visit);
}

void Generator::visit_logits(std::int32_t from, std::int32_t count, const LogitsVisitor& visit) {
    state_->sequence.visit_logits(from, visit, from + count);
}

void Generator::truncate(std::int32_t length) {
    length = std::max(0, length);
    state_->sequence.truncate(length);
    state_->drafts.rewind(length);
}

void Generator::forget() {
    truncate(0);
    state_->drafts.forget();
    state_->batch.forget();
}

void Generator::set_speculation(const SpeculationOptions& options) {
    state_->drafts.set_options(options);
    state_->drafts.warm_up(state_->timed_place(), state_->chain->forces());
}
const SpeculationOptions& Generator::speculation() const { return state_->drafts.options(); }
samplers::Chain& Generator::chain() { return *state_->chain; }
void Generator::set_chain(std::unique_ptr<samplers::Chain> chain) { state_->chain = std::move(chain); }
core::Context& Generator::target() { return *state_->target; }

}  // namespace foresay::speculative
