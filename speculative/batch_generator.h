// speculative/batch_generator.h: many sequences at once: each has its own prompt, chain, seed and limits, comes and
// goes at any time, and gets the bytes that a Generator gives it alone. The rows of all of them run in shared forwards.
// docs/decisions/019-many-sequences.md has the reasons; engine/engine_loop.h runs one on a thread of its own.
//
//     const Ticket ticket = batch.add(std::move(request), sink);
//     while (batch.step()) {
//     }
//
// n answers to one prompt are n requests that differ in their branch.
//
// Life:     a sequence lives from add() to its sink's end(). The destructor ends none: sinks then hear no more.
// Threads:  one caller at a time; check_request() may be called by any thread. Sinks are called within step(); they may
//           call everything but step().
// Cost:     step() waits for one forward at most, and is O(sequences). Where a device samples and nothing is drafted,
//           the next forward starts before the host looks at the tokens of this one. add() allocates, and so does the
//           step that admits a sequence; nothing is allocated per token once warm, except by `logprobs`.
// Errors:   the constructor, add() and check_request() throw Error. What goes wrong with a sequence ends it alone
//           (BatchEnd::error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cache/page_store.h"
#include "speculative/generator.h"
#include "speculative/schedule_log.h"
#include "speculative/scheduler.h"

namespace foresay::speculative {

class PrefixCache;
class TextDrafts;

// Names a sequence. Never used twice; the first is 1.
enum class Ticket : std::uint64_t {};

struct BatchRequest {
    std::vector<std::int32_t> input;  // the prompt
    // Per token of `input`: 1 when it was generated before, 0 when it was given; empty: all were given. Generated ones
    // are evaluated as decode rows, so that an answer that is taken up again goes on with the bytes that it would have
    // had (without stages that also remember probabilities, like mirostat).
    std::vector<std::uint8_t> generated;
    std::int32_t begun = 0;                  // as GenerateRequest::begun
    std::shared_ptr<samplers::Chain> chain;  // its own: stages keep states
    std::int32_t max_tokens = 256;           // 0 or less: as many as the context holds
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::vector<std::string> stop;          // stop strings
    std::vector<std::int32_t> stop_tokens;  // tokens that end the text, besides the end tokens and always
    bool ignore_eos = false;                // end tokens are tokens like any other, except under a grammar
    // With every token its log-probability and those of the likeliest `logprobs` tokens, of the model's own
    // distribution, before the chain. 0: of the token alone. Negative: none.
    std::int32_t logprobs = -1;
    // Who runs when not all can: a higher priority first. Requests of one priority take turns by `queue` (a user, say),
    // the queue that was served least first. Those that wait rise with time.
    std::int32_t priority = 0;
    std::string queue;
    // When the text ends with what it has, by BatchParts::now; 0: never. One that still waits takes no place then.
    double deadline = 0.0;
    // Prompts that begin alike are evaluated once, if they have the same salt: whether a beginning was known shows in
    // the time to the first token, and never in the text.
    std::string cache_salt;
    bool outlasts = true;  // its pages may be kept outside the cache, on disk too: BatchParts::pages
    // What the caller expects as the answer, if anything: it is drafted from. Costs time only where it is wrong.
    std::vector<std::int32_t> prediction;
    // How this text is drafted for; none: as BatchParts::speculation says. The text is the same.
    std::optional<SpeculationOptions> speculation;
    // Where the target is shared and no other text runs: a sequence of its cache that holds all of `input`, of which
    // row 0 of the target's last forward has the logits. The text grows on it, and with end() it is the caller's again,
    // and holds all tokens but the last. -1: the batch takes one of its own.
    core::SequenceId sequence = -1;
    TextDrafts* drafts = nullptr;  // drafts for this text, which is alone, and have begun; null: the batch does
};

struct BatchEnd {
    // What there was until then. prompt_tokens, cached_tokens, tokens and speculation count what was used.
    const GenerateResult& result;
    const std::string& error;  // one sentence when a stage or the model failed; result.finish then means nothing
};

// Receives one sequence's text. Calls come from step() and must return soon, because all sequences wait, and must not
// throw. At most `max_tokens` events come, so what a slow reader leaves behind is bounded; pause() stops them.
class Sink {
public:
    virtual ~Sink() = default;
    // As the callback of Generator::generate().
    virtual void token(const TokenEvent& event) = 0;
    // The last call. The sequence no longer exists.
    virtual void end(const BatchEnd& end) = 0;
};

struct BatchParts {
    // Its pages, of options().sequences whole contexts, are shared by the texts that run and by beginnings that are
    // kept for later. A text takes pages as it grows. When none is left, the newest of the lowest priority gives its
    // own up and comes back later.
    std::shared_ptr<core::Context> target;
    // Others have sequences in the target's cache, which the batch leaves alone; see BatchRequest::sequence.
    bool shares_target = false;
    // Most that run at once, as far as options().decode_rows and options().sequences + branches reach. 0: as many as
    // those allow.
    std::int32_t most_sequences = 0;
    // Tokens beyond its prompt for which a text finds pages when it is admitted. Fewer: more texts at once, which give
    // their pages up more often.
    std::int32_t sure_growth = kernels::kPagePositions;
    // Segments of given text of at most so many tokens are decode rows (core/models/given_text.h).
    std::int32_t short_given = 0;
    // Prefill rows and decode rows have the same bits, as on a CPU. A forward may then have rows of both.
    bool classes_agree = false;
    bool reuse_prefixes = true;  // of texts that run or have ended
    // Where pages go that leave the cache, and from where they come back; null: they are lost. For reuse_prefixes.
    std::shared_ptr<core::PageStore> pages;
    const core::Tokenizer* tokenizer = nullptr;  // null: token ids only, no text; must outlive the batch
    std::vector<std::int32_t> end_tokens;        // tokens that end a text; none: those of the tokenizer
    // Rows of prompts between two decode forwards, or in one where the classes agree. Fewer: shorter gaps between
    // tokens; more: earlier first tokens.
    std::int32_t prefill_rows_beside = 64;
    // Drafts for each text that does not say otherwise, verified together with the rows of the others. `automatic`: as
    // many as pay, by what the machine and the texts have shown; `fixed`: draft_length for each.
    SpeculationOptions speculation = {.mode = core::SpeculationMode::off};
    // Makes the drafter of one text of at most `capacity` tokens; none: nothing is drafted. Under `automatic` it must
    // be a lookup.
    std::function<std::unique_ptr<Drafter>(std::int32_t capacity)> make_drafter;
    // The draft model, which drafts for many texts in one forward; with as many sequences as run at once, on shared
    // pages. Null: none.
    std::unique_ptr<core::Context> draft;
    std::vector<std::int32_t> never_proposed;      // ids that it must not propose: see pairing.h
    std::shared_ptr<core::PageStore> draft_pages;  // as `pages`, of the draft model
    // One text runs at a time, and is drafted for as a conversation is: by `drafters`, of which at most one is no
    // lookup, with steps that the device runs one after the other (text_drafts.h); make_drafter and draft are then not
    // used. The fastest for one text.
    bool one_text = false;
    std::vector<std::unique_ptr<Drafter>> drafters;
    Now now = steady_now;
    ScheduleWriter schedule_log;  // for those who look into the scheduler; none: nothing is recorded
};

// Since the batch was made.
struct BatchCounters {
    std::int64_t forwards = 0;
    std::int64_t mixed_forwards = 0;  // of those, the ones that read prompts beside rows of texts that decode
    std::int64_t prefill_rows = 0;    // evaluated, as the two below
    std::int64_t decode_rows = 0;
    std::int64_t tokens = 0;           // emitted
    std::int64_t cached_tokens = 0;    // not evaluated again, because another text began alike or the text came back
    std::int64_t drafted = 0;          // tokens verified
    std::int64_t accepted = 0;         // of those
    std::int64_t restored_tokens = 0;  // of the cached ones, those that came from BatchParts::pages
    std::int64_t preemptions = 0;      // times that a text gave its pages up
    std::int64_t draft_rows = 0;       // evaluated by the draft model
    std::int64_t draft_cached_tokens = 0;    // that it need not evaluate: as cached_tokens
    std::int64_t draft_restored_tokens = 0;  // of those, the ones that came from BatchParts::draft_pages
    // Milliseconds of all steps that had a forward, and of these:
    double step_ms = 0.0;
    double target_ms = 0.0;  // the target's forwards and what the device samples from them
    double draft_ms = 0.0;   // the draft model
    double sample_ms = 0.0;  // the host samples, and hands texts to their sinks
    // All else: admission, schedule, row budget, lookups.
    double schedule_ms() const { return step_ms - target_ms - draft_ms - sample_ms; }
};

class BatchGenerator {
public:
    explicit BatchGenerator(BatchParts parts);
    ~BatchGenerator();
    BatchGenerator(BatchGenerator&&) noexcept;
    BatchGenerator& operator=(BatchGenerator&&) noexcept;

    // A new sequence after all others. `sink` must live until its end(). Throws what check_request() throws.
    Ticket add(BatchRequest request, Sink& sink);
    // Throws Error for a prompt that cannot run (empty, longer than the context, or with ids that the model lacks), for
    // ids of stop tokens or of a prediction that the model lacks, for an empty stop string and for a request without a
    // chain.
    void check_request(const BatchRequest& request) const;
    // No token comes any more; end() comes in the next step(), before its forward. A ticket that has ended is ignored,
    // here and below.
    void cancel(Ticket ticket);
    // From the next step() on the sequence keeps its place and takes no rows, until resume().
    void pause(Ticket ticket);
    void resume(Ticket ticket);

    // Ends what was cancelled or is past its deadline, admits what waits, and runs one forward. False: there was
    // nothing to evaluate, because no sequence is left or all are paused.
    bool step();
    // The first deadline of all sequences, by BatchParts::now; infinity: none has one. A caller that sleeps while all
    // are paused calls step() then.
    double next_deadline() const;

    // Drops the beginnings that are kept for later texts. What BatchParts::pages and draft_pages hold stays.
    void forget();
    // Stores the beginnings that are kept, and has them written to disk where there is one: before the program ends.
    void store_pages();
    // The beginnings that are kept. Where the target is shared, its other users keep theirs there, too.
    PrefixCache& kept();
    // Gives it a draft model, where it has none: as BatchParts::draft and never_proposed.
    void add_draft(std::unique_ptr<core::Context> draft, std::vector<std::int32_t> never_proposed);

    std::size_t running() const;  // sequences with pages, the paused ones included
    std::size_t waiting() const;  // sequences that wait for pages
    const BatchCounters& counters() const;
    core::PageCounters pages() const;  // of BatchParts::pages and draft_pages
    // Pages of the KV cache: all, and those that sequences hold. What is only kept for later texts counts as free.
    // Cost: linear in the pages that are kept.
    std::int32_t kv_pages() const;
    std::int32_t kv_pages_used() const;
    core::Context& target();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::speculative
