// speculative/batch_generator.h: many sequences at once: each has its own prompt, chain, seed and limits, comes and
// goes at any time, and gets the bytes that a Generator gives it alone. The rows of all of them run in shared forwards.
// Sequences do not speculate yet. docs/decisions/019-many-sequences.md has the reasons.
//
//     const Ticket ticket = batch.add(std::move(request), sink);
//     while (batch.step()) {
//     }
//
// Life:     a sequence lives from add() to its sink's end(). The destructor ends none: sinks then hear no more.
// Threads:  one caller at a time. Sinks are called within step(); they may call everything but step().
// Cost:     step() is one forward at most, and O(sequences). add() allocates, and so does the step that admits a
//           sequence; nothing is allocated per token once warm.
// Errors:   the constructor and add() throw Error. What goes wrong with a sequence ends it alone (BatchEnd::error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "speculative/generator.h"
#include "speculative/scheduler.h"

namespace foresay::speculative {

// Names a sequence. Never used twice.
enum class Ticket : std::uint64_t {};

struct BatchRequest {
    std::vector<std::int32_t> input;         // the prompt
    std::unique_ptr<samplers::Chain> chain;  // its own: stages keep states
    std::int32_t max_tokens = 256;           // 0 or less: as many as the context holds
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::vector<std::string> stop;  // stop strings
    bool ignore_eos = false;        // end tokens are tokens like any other
};

struct BatchEnd {
    const GenerateResult& result;  // what there was until then
    const std::string& error;      // one sentence when a stage or the model failed; result.finish then means nothing
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
    // options().sequences of them run at once, as far as options().decode_rows reaches; others wait.
    std::unique_ptr<core::Context> target;
    const core::Tokenizer* tokenizer = nullptr;  // null: token ids only, no text; must outlive the batch
    std::vector<std::int32_t> end_tokens;        // tokens that end a text; none: those of the tokenizer
    // Rows of prompts between two decode forwards. Fewer: shorter gaps between tokens; more: earlier first tokens.
    std::int32_t prefill_rows_beside = 64;
    Now now = steady_now;
};

class BatchGenerator {
public:
    explicit BatchGenerator(BatchParts parts);
    ~BatchGenerator();
    BatchGenerator(BatchGenerator&&) noexcept;
    BatchGenerator& operator=(BatchGenerator&&) noexcept;

    // A new sequence after all others. `sink` must live until its end(). Throws Error for a prompt that cannot run
    // (empty, longer than the context, or with ids that the model lacks) and for an empty stop string.
    Ticket add(BatchRequest request, Sink& sink);
    // No token comes any more; end() comes in the next step(), before its forward. A ticket that has ended is ignored,
    // here and below.
    void cancel(Ticket ticket);
    // From the next step() on the sequence keeps its place and takes no rows, until resume().
    void pause(Ticket ticket);
    void resume(Ticket ticket);

    // Ends what was cancelled, admits what waits, and runs one forward. False: there was nothing to evaluate, because
    // no sequence is left or all are paused.
    bool step();

    std::size_t running() const;  // sequences with pages, the paused ones included
    std::size_t waiting() const;  // sequences that wait for pages
    core::Context& target();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::speculative
