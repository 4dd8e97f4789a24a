// Several answers to one prompt at once: each round is one forward with a row for every unfinished branch. By law 1 a
// row does not depend on the others. Branches are forks of the prompt's sequence; as many as fit the cache make a
// group, and groups follow one another. Without room for two branches, generate() computes one alone.
#include <chrono>

#include "base/error.h"
#include "speculative/accept.h"
#include "speculative/failures.h"
#include "speculative/generator_state.h"

namespace foresay::speculative {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point start, Clock::time_point end) {
    return std::chrono::duration<double, std::milli>(end - start).count();
}

struct Branch {
    std::size_t index = 0;  // in the caller's list
    core::SequenceId sequence = -1;
    std::unique_ptr<samplers::Chain> chain;
    TextStream text;
    GenerateResult result;
    std::int32_t room = 0;  // tokens that may still be emitted
    bool done = false;
};

// Branches that are generated together.
class Group {
public:
    Group(core::Context& target, const GenerateRequest& request, std::span<const std::int32_t> ends,
          const BranchCallback& callback)
        : target_(target), request_(request), ends_(ends), callback_(callback) {}

    std::vector<Branch>& branches() { return branches_; }

    // Samples from a row of logits, which is left in an unspecified state. False: the logits are not finite.
    bool step(Branch& branch, std::span<float> logits) {
        if (!all_finite(logits)) return false;
        const samplers::Decision decision = branch.chain->decide(logits);
        if (decision.token < 0) throw Error(no_token(decision.failure));
        branch.chain->accept(decision.token);
        branch.result.tokens.push_back(decision.token);
        --branch.room;
        const bool end = !request_.ignore_eos && std::ranges::find(ends_, decision.token) != ends_.end();
        const std::string_view text = end ? std::string_view{} : branch.text.push(decision.token);
        branch.result.text += text;
        if (callback_) callback_(branch.index, {.token = decision.token, .text = text});
        if (end || branch.text.stopped()) {
            finish(branch, FinishReason::stop);
        } else if (branch.room == 0) {
            finish(branch, FinishReason::length);
        }
        return true;
    }

    // One forward. Throws only what step() throws.
    enum class Round : std::uint8_t { more, done, broken };
    Round round() {
        if (request_.cancel != nullptr && request_.cancel->load(std::memory_order_relaxed)) {
            for (Branch& branch : branches_) {
                if (!branch.done) finish(branch, FinishReason::cancelled);
            }
        }
        rows_.clear();
        for (const Branch& branch : branches_) {
            if (!branch.done) rows_.push_back(kernels::TokenRef::id(branch.result.tokens.back()));
        }
        if (rows_.empty()) return Round::done;
        static constexpr std::int32_t kFirst = 0;
        segments_.clear();
        for (const Branch& branch : branches_) {
            if (branch.done) continue;
            segments_.push_back({.sequence = branch.sequence,
                                 .tokens = std::span(rows_).subspan(segments_.size(), 1),
                                 .logit_rows = std::span(&kFirst, 1)});
        }
        check(target_.evaluate(kernels::RowClass::decode, segments_), "room was made for every branch");
        std::int32_t row = 0;
        for (Branch& branch : branches_) {
            if (branch.done) continue;
            ++branch.result.speculation.rounds;
            if (!step(branch, target_.logits(row++))) return Round::broken;
        }
        return Round::more;
    }

    void first_sampled(Clock::time_point now) { first_ = now; }

private:
    void finish(Branch& branch, FinishReason reason) {
        GenerateResult& result = branch.result;
        branch.done = true;
        result.finish = reason;
        result.decode_ms = ms_between(first_, Clock::now());
        if (result.decode_ms > 0.0 && !result.tokens.empty()) {
            result.decode_tokens_per_second = 1000.0 * static_cast<double>(result.tokens.size() - 1) / result.decode_ms;
        }
        const std::string rest = branch.text.finish();
        if (rest.empty()) return;
        result.text += rest;
        if (callback_) callback_(branch.index, {.token = -1, .text = rest});
    }

    core::Context& target_;
    const GenerateRequest& request_;
    std::span<const std::int32_t> ends_;
    const BranchCallback& callback_;
    std::vector<Branch> branches_;
    std::vector<kernels::TokenRef> rows_;
    std::vector<core::Segment> segments_;
    Clock::time_point first_ = Clock::now();
};

}  // namespace

std::vector<GenerateResult> Generator::generate_branches(const GenerateRequest& request,
                                                         std::span<const std::uint64_t> branches,
                                                         const BranchCallback& callback) {
    State& s = *state_;
    s.check_input(request.input);
    for (const std::int32_t token : request.input) s.sequence.append(token, false);
    const std::vector<std::int32_t> prompt(s.sequence.tokens().begin(), s.sequence.tokens().end());
    const std::vector<std::uint8_t> generated(s.sequence.generated().begin(), s.sequence.generated().end());
    std::int32_t room = s.target().capacity() - s.sequence.size();
    if (request.max_tokens > 0) room = std::min(room, request.max_tokens);

    std::vector<GenerateResult> results(branches.size());
    std::size_t next = 0;
    while (next < branches.size()) {
        switch_to(prompt, generated);
        const auto start = Clock::now();
        const std::int32_t wanted = static_cast<std::int32_t>(branches.size() - next);
        const bool ready = room > 0 && s.sequence.evaluate(request.cancel);
        const std::int32_t count = ready ? s.sequence.room_for_branches(wanted, room) : 0;
        if (count < 2) {
            // A single branch always has room, and can use speculation.
            GenerateRequest one = request;
            one.input = {};
            one.branch = branches[next];
            const std::size_t index = next;
            results[next++] = generate(one, [&](const TokenEvent& event) {
                if (callback) callback(index, event);
            });
            continue;
        }
        const double prefill_ms = ms_between(start, Clock::now());
        const std::span<float> row = s.target().logits(0);
        const std::vector<float> first(row.begin(), row.end());
        Group group(s.target(), request, s.parts.end_tokens, callback);
        for (std::int32_t i = 0; i < count; ++i) {
            Branch branch{.index = next + static_cast<std::size_t>(i),
                          .sequence = s.sequence.fork(),
                          .chain = s.parts.chain->duplicate(),
                          .text = TextStream(s.parts.tokenizer),
                          .room = room};
            check(branch.sequence >= 0, "room was made for every branch");
            branch.text.begin(request.stop);
            branch.chain->begin(request.seed, branches[branch.index], prompt,
                                prompt.size() + static_cast<std::size_t>(room),
                                static_cast<std::size_t>(request.begun));
            branch.result.prompt_tokens = s.sequence.size();
            branch.result.prefill_ms = prefill_ms;
            branch.result.speculation.mode = "off";
            group.branches().push_back(std::move(branch));
        }
        const auto release = [&](bool keep) {
            for (Branch& branch : group.branches()) {
                if (keep) {
                    s.sequence.park(branch.sequence, branch.result.tokens);
                } else {
                    s.target().cache().drop(branch.sequence);
                }
            }
        };
        try {
            bool broken = false;
            group.first_sampled(Clock::now());
            std::vector<float> logits;
            for (Branch& branch : group.branches()) {
                logits = first;
                broken = broken || !group.step(branch, logits);
                branch.result.ttft_ms = ms_between(start, Clock::now());
            }
            auto state = Group::Round::more;
            while (!broken && state == Group::Round::more) state = group.round();
            if (broken || state == Group::Round::broken) s.fail_broken();
        } catch (...) {
            release(false);
            throw;
        }
        release(true);
        for (Branch& branch : group.branches()) results[branch.index] = std::move(branch.result);
        next += static_cast<std::size_t>(count);
    }
    switch_to(prompt, generated);
    return results;
}

}  // namespace foresay::speculative
