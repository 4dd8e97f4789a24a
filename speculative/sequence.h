// speculative/sequence.h: one text of a BatchGenerator: all that belongs to it and to no other.
// For the files that implement it (batch_state.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "speculative/accept.h"
#include "speculative/acceptance.h"
#include "speculative/batch_generator.h"
#include "speculative/device_sampling.h"
#include "speculative/emission.h"
#include "speculative/logprobs.h"
#include "speculative/model_drafts.h"
#include "speculative/prediction.h"
#include "speculative/prefix_cache.h"
#include "speculative/row_budget.h"
#include "speculative/text_drafts.h"

namespace foresay::speculative {

class Sequence {
public:
    // `has_model`: a draft model drafts, too.
    Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts, bool has_model);

    Ticket ticket() const { return ticket_; }
    const std::string& queue() const { return request_.queue; }
    std::int32_t priority() const { return request_.priority; }
    double deadline() const { return request_.deadline; }  // 0: none
    core::SequenceId id() const { return id_; }
    core::SequenceId lent() const { return request_.sequence; }  // that it grows on, and gives back; -1: none
    bool ended() const { return ended_; }
    // The prompt and what was emitted.
    std::span<const std::int32_t> tokens() const { return tokens_; }
    std::int32_t held() const { return held_; }  // tokens in the cache
    std::int32_t missing() const { return static_cast<std::int32_t>(tokens_.size()) - held_; }
    // Tokens that may still be emitted.
    std::int32_t room() const { return answer_.room(); }
    // What decides the bits of its keys and values.
    PrefixKey key() const { return {tokens_, rows_, request_.cache_salt, request_.outlasts}; }

    // Takes a sequence of the context, which holds the first `held` tokens. The first time, it makes room for
    // everything that the text can become.
    void admit(core::SequenceId id, std::int32_t held);
    // Gives that sequence back: the context holds nothing of the text any more.
    void suspend();
    // The next `count` tokens that the context does not hold yet.
    std::span<const std::int32_t> next_tokens(std::int32_t count) const;
    SequenceLoad load() const;
    // The next `count` tokens were evaluated.
    void advance(std::int32_t count);
    // Samples from logit row `row` of the context's last forward and those after it, one for each drafted token, and
    // emits what was sampled. The cache then holds what became text, without its last token.
    void sample(core::Context& context, std::int32_t row, RowSource source, Acceptance& everyone);
    // Before sample(), where the host decides: what the first of those rows yields, and nothing of the text changes.
    // From the row, for several sequences at once; or from the candidates of logit row `row`.
    void decide_first(std::span<float> logits);
    void decide_first(core::Context& context, std::int32_t row);
    // The token that was decided so; none: sample() will do it.
    const DecidedRow* decided() const { return decided_ ? &*decided_ : nullptr; }
    // Whether the text goes on after a token that was decided so.
    bool goes_on() const {
        return !decided_ || (decided_->decision.token >= 0 && !answer_.ends_text(decided_->decision.token));
    }
    // The same for one that was cancelled since: the cache forgets the draft.
    void drop_draft(core::Context& context);
    // Where the device can sample: starts it on the next rows.
    RowSource start_sampling(DeviceSampling& sampling);
    // A row whose text is gone is sampled like the next one of this text, for which that means nothing.
    RowSource fill_row(DeviceSampling& sampling);
    bool samples_on_device() const { return on_device_; }
    // Whether the logits of the last of `count` next tokens are wanted.
    bool samples_after(std::int32_t count) const { return count == missing(); }
    void end(FinishReason finish, std::string error = {});

    // ---- the draft of a round
    // How this text is drafted for; `off` where nothing drafts.
    core::SpeculationMode mode() const { return speculation_.mode; }
    // As many tokens as its options allow in one draft.
    std::int32_t longest_draft() const {
        return mode() == core::SpeculationMode::fixed ? speculation_.draft_length : speculation_.max_draft;
    }
    // A draft of up to `most` tokens after the text begins, with nothing in it. Sources of tests that are no lookups
    // fill it.
    void begin_draft(std::int32_t most);
    // What the lookup has for its next token; token -1: nothing.
    const Proposal& proposal() const { return proposal_; }
    bool proposal_is_forced() const {
        return forced_ != nullptr && proposal_.token >= 0 && proposer_ == forced_source_;
    }
    // The draft's next token: the proposal, or one of the draft model.
    void take_proposal();
    void take_sampled(const kernels::SampledToken& sampled);
    void close_draft() { limit_ = drafted(); }
    bool draft_is_open() const { return drafted() < limit_; }
    // Whether the draft model may have its next token. In a round in which it once had none, only lookups go on.
    bool model_may_draft() const { return draft_is_open() && !model_is_done_; }
    // The chance that all of the draft is emitted, and that all up to this token are.
    double survival() const { return survival_; }
    double chance(std::int32_t depth) const { return notes_[static_cast<std::size_t>(depth)].survival; }
    std::int32_t draft_room() const { return limit_ - drafted(); }
    // What is known of the draft model's hits.
    const Acceptance& acceptance() const { return acceptance_; }
    // The chance that the draft model's next token is right.
    double model_chance() const { return acceptance_.expected(match_class(proposal_.length)); }
    std::int32_t drafted() const { return static_cast<std::int32_t>(draft_.tokens.size()); }
    void cut_draft(std::int32_t count);

    // ---- where it has drafts of its own (BatchRequest::drafts, BatchParts::one_text)
    bool drafts_alone() const { return request_.drafts != nullptr; }
    // Before it is first admitted: has `drafts` begin for it. `place`: the sequence of the cache that it will take.
    void draft_with(TextDrafts& drafts, const TimedPlace& place);
    // A draft after the text, of what pays or of as many tokens as its options say.
    void draft_alone();
    // The slot of one more row of its draft, whose token is still being sampled; negative: there is none.
    std::int32_t open_slot() const { return drafts_alone() ? request_.drafts->open() : -1; }
    // After the forward: that token is known. False: there was none.
    bool close_alone();
    // Whether its next round, too, is one without a draft, which may begin before the token of this one is known.
    bool rests_alone() { return request_.drafts->rests(text()); }
    // Before and after sample(): what the round took. Not of the prompt.
    void count_alone(double verify_ms);
    void observe_alone(double verify_ms, double round_ms, double emit_ms);

    std::span<const std::int32_t> draft_tokens() const { return draft_.tokens; }
    const samplers::Chain& chain() const { return *request_.chain; }
    // What is known of the draft model's hits, at first of other texts.
    void learn_from(const Acceptance& others) { acceptance_ = others; }
    DraftedText model_draft;
    // What drafting has lost for this text alone; pauses its drafts.
    RowLedger ledger;
    // For a round in which it drafts what pays: what that took, and what came of it.
    struct Round {
        std::int32_t steps = 0;  // of the draft model
        std::int32_t rows = 0;   // verified
        std::int32_t accepted = 0;
        std::int32_t emitted = 0;
        double own_ms = 0.0;           // what attention adds to each of those rows
        bool first = false;            // there was no token of the answer before it
        std::int32_t model_rows = 0;   // of the rows, those of tokens of the draft model
        std::int32_t model_gains = 0;  // of those, the accepted ones that no lookup proposed, too
    } round;
    bool has_tokens() const { return !answer_.result.tokens.empty(); }             // of its answer
    std::int64_t accepted() const { return answer_.result.speculation.accepted; }  // in all rounds

    bool cancelled = false;
    bool paused = false;
    bool gave_way = false;           // its pages went to another one while it was paused; it waits until it is not
    bool broken = false;             // its logits were not finite, so its keys and values are no good
    bool wrong_guess = false;        // the forward that runs ahead began with another token
    bool lost = false;               // its next row is decided before a forward runs ahead
    bool waits_for_another = false;  // which is evaluating a beginning of its prompt
    std::uint64_t passed_over = 0;   // admissions of others while it waited

private:
    // What is known of a token of the draft.
    struct Note {
        double survival = 0.0;
        std::size_t source = 0;  // of the statistics
        bool model = false;      // that is the draft model
        int match = 0;
        View view = View::alone;
        float margin = 0.0f;
    };

    bool speculates() const { return mode() != core::SpeculationMode::off; }
    TextDrafts::Text text() const {
        return {.tokens = tokens_, .chain = request_.chain.get(), .end_tokens = end_tokens_, .room = answer_.room()};
    }
    void take_alone();
    bool emit(std::int32_t token, bool drafted, std::size_t depth);
    void look_up();
    void note(const Note& entry, std::int32_t token);
    void learn(const AcceptOutcome& outcome, Acceptance& everyone);

    const BatchParts& parts_;
    bool has_model_;
    Ticket ticket_;
    BatchRequest request_;
    SpeculationOptions speculation_;
    Sink& sink_;
    core::SequenceId id_ = -1;
    bool begun_ = false;  // it was admitted before
    bool ended_ = false;
    std::vector<std::int32_t> tokens_;
    std::vector<kernels::RowClass> rows_;  // the class of each token
    std::int32_t held_ = 0;
    std::span<const std::int32_t> end_tokens_;
    Emission answer_;
    std::unique_ptr<Logprobs> logprobs_;  // null: none are wanted
    std::unique_ptr<Drafter> drafter_;    // null: nothing is drafted from the text itself
    PredictionLookup prediction_;
    std::unique_ptr<Drafter> forced_;  // null: the chain forces nothing
    std::size_t forced_source_ = 0;
    DraftedTokens draft_;
    std::vector<Note> notes_;  // of each token of the draft
    Proposal proposal_;
    std::size_t proposer_ = 0;  // its source
    double survival_ = 1.0;
    std::int32_t limit_ = 0;
    bool model_is_done_ = false;  // in this round
    Acceptance acceptance_;
    samplers::DraftChain ahead_;
    std::optional<DecidedRow> decided_;  // by decide_first()
    bool on_device_ = false;
    RowSource source_ = RowSource::logits;  // of its last row
    bool guessed_ = false;                  // the device has sampled a guess there, trusted or not
    double wrong_guesses_ = 0.0;            // moving share
    bool cut_ = false;                      // rows of the cache after held_ are to go
    double admitted_ = 0.0;                 // ms; when it was first admitted
};

}  // namespace foresay::speculative
