// speculative/generator.h: a session: text in, text out, speculation inside. What the program talks to.
//
// The session is one growing list of tokens, input and generated, of which the cache holds all but at most the last.
// Every emitted token was drawn by the target's own chain, so tokens depend on (session, seed, branch) only.
//
// Life:     one Generator per conversation; generate() appends and returns, truncate() goes back, switch_to() goes to
//           another branch of the conversation, which stays in the cache while there is room.
// Threads:  one caller at a time; the cancel flag may be set from any thread or signal handler.
// Cost:     a round is one forward of the target, plus the drafter's steps; no allocation per token once warm.
// Errors:   the constructor and generate() throw Error for a world that is wrong (the input is longer than the
//           context, a stage of the chain fails); the session stays usable.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/models/context.h"
#include "speculative/clock.h"
#include "speculative/drafter.h"

namespace foresay::core {
class Tokenizer;
}
namespace foresay::samplers {
class Chain;
}

namespace foresay::speculative {

struct SpeculationOptions {
    core::SpeculationMode mode = core::SpeculationMode::automatic;
    std::int32_t max_draft = 16;    // automatic: longest run
    std::int32_t draft_length = 4;  // fixed: exactly so many tokens a round
};

struct GeneratorParts {
    std::unique_ptr<core::Context> target;
    std::unique_ptr<samplers::Chain> chain;
    std::vector<std::unique_ptr<Drafter>> drafters;  // none: plain decoding; at most one of each kind takes part
    const core::Tokenizer* tokenizer = nullptr;      // null: token ids only, no text; must outlive the generator
    std::vector<std::int32_t> end_tokens;            // tokens that end the text
    SpeculationOptions speculation;
    Now now = steady_now;
};

// One emitted token.
struct TokenEvent {
    std::int32_t token = 0;   // -1: no token, only the text that was held back until the end
    std::string_view text;    // characters that this token completes, stop strings held back; may be empty
    bool drafted = false;     // proposed by a drafter and confirmed
    std::string_view source;  // the drafter's name when drafted
};

struct GenerateRequest {
    std::span<const std::int32_t> input;  // appended to the session; may be empty
    std::int32_t max_tokens = 256;        // 0 or less: as many as the context holds
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::span<const std::string> stop;          // stop strings
    bool ignore_eos = false;                    // end tokens are tokens like any other
    const std::atomic<bool>* cancel = nullptr;  // polled between forwards
};

enum class FinishReason : std::uint8_t { stop, length, cancelled };
std::string_view name(FinishReason reason);  // "stop", "length", "cancelled"

struct SourceStatistics {
    std::string name;
    std::int64_t rounds = 0;    // with tokens of this source; a round may have tokens of several
    std::int64_t drafted = 0;   // tokens verified
    std::int64_t accepted = 0;  // of them emitted
};

struct SpeculationStatistics {
    std::string mode;         // "auto", "off", "fixed"
    std::int64_t rounds = 0;  // target forwards after the prompt
    std::int64_t drafted = 0;
    std::int64_t accepted = 0;
    double draft_ms = 0.0;   // spent in drafters
    double verify_ms = 0.0;  // spent in target forwards
    std::vector<SourceStatistics> sources;
};

struct GenerateResult {
    std::vector<std::int32_t> tokens;  // everything drawn, an end token included
    std::string text;                  // cut before a stop string; invalid bytes as U+FFFD
    FinishReason finish = FinishReason::length;
    std::int64_t prompt_tokens = 0;         // length of the session when the first token was drawn
    double prefill_ms = 0.0;                // the forwards of the input
    double ttft_ms = 0.0;                   // from the call to the first token
    double decode_ms = 0.0;                 // from the first token to the last
    double decode_tokens_per_second = 0.0;  // tokens after the first over decode_ms; 0 when there are none
    SpeculationStatistics speculation;
    double mean_run_length() const {
        return speculation.rounds > 0 ? static_cast<double>(tokens.size()) / static_cast<double>(speculation.rounds)
                                      : 0.0;
    }
};

// A token of one of several answers, by its place among them.
using BranchCallback = std::function<void(std::size_t index, const TokenEvent&)>;
using LogitsVisitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
using TokenCallback = std::function<void(const TokenEvent&)>;

class Generator {
public:
    explicit Generator(GeneratorParts parts);
    ~Generator();
    Generator(Generator&&) noexcept;
    Generator& operator=(Generator&&) noexcept;

    // Appends request.input to the session and generates. When it throws because the input does not fit, the session is
    // as it was; when a stage of the chain fails, the tokens emitted before stay.
    GenerateResult generate(const GenerateRequest& request, const TokenCallback& callback = {});

    // Appends `input` to the session and evaluates it, so that a later generate() need not: for text that is known before
    // an answer is wanted. Changes nothing about what is generated. In small steps, between which `cancel` is looked at:
    // false when cancelled or when the context is too short; the session then ends where the cache does.
    bool prepare(std::span<const std::int32_t> input, const std::atomic<bool>* cancel = nullptr);

    // Appends request.input to the session and generates an answer for each of `branches`, in whose stead request.branch
    // is not looked at. Each is what generate() yields with that branch, but all are drawn side by side, from rows of one
    // forward and on branches of one cache, as far as the cache has room. The session is then the prompt; switch_to()
    // finds each answer in the cache.
    std::vector<GenerateResult> generate_branches(const GenerateRequest& request,
                                                  std::span<const std::uint64_t> branches,
                                                  const BranchCallback& callback = {});

    // The session: all tokens, input and generated.
    std::span<const std::int32_t> tokens() const;
    std::span<const std::uint8_t> drawn() const;  // per token: 1 when it was generated, 0 when it was input
    std::int32_t held() const;                    // of them in the cache
    std::int32_t capacity() const;                // positions of the context
    // Forgets every token from index `length` on: /undo, /retry, /clear (0).
    void truncate(std::int32_t length);

    // The session becomes these tokens, of which `drawn` says which were generated. What the cache holds of them, of this
    // or of another branch, is not computed again.
    void switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> drawn);
    // For each index from `from` (at least 1) to the end of the session: the logits that its token was drawn from.
    void visit_logits(std::int32_t from, const LogitsVisitor& visit);

    void set_speculation(const SpeculationOptions& options);
    const SpeculationOptions& speculation() const;
    samplers::Chain& chain();
    // Replaces the chain between two generations.
    void set_chain(std::unique_ptr<samplers::Chain> chain);
    core::Context& target();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::speculative
