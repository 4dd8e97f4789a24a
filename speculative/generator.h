// speculative/generator.h: one sequence: text in, text out, speculation inside.
//
// A sequence is one growing list of tokens, input and generated, of which the KV cache holds all but at most the last.
// The target's own chain samples every emitted token, so tokens depend on (sequence, seed, branch) only.
//
// Life:     one Generator per conversation; generate() appends and returns, truncate() goes back, switch_to() moves to
//           another branch of the conversation. Branches stay in the cache while it has room.
// Threads:  one caller at a time; the cancel flag may be set from any thread or signal handler.
// Cost:     a round is one forward of the target, plus the drafter's steps; no allocation per token once warm.
// Errors:   the constructor throws Error for drafters that cannot work together, generate() for an input that is longer
//           than the context and for a stage of the chain that fails; of several answers, each has its own error. The
//           sequence stays usable.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
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
    std::int32_t max_draft = 16;    // automatic: longest draft
    std::int32_t draft_length = 4;  // fixed: tokens drafted each round
};

struct GeneratorParts {
    std::unique_ptr<core::Context> target;
    std::unique_ptr<samplers::Chain> chain;
    std::vector<std::unique_ptr<Drafter>> drafters;  // none: plain decoding; at most one is not a lookup
    // Makes the lookup of one of several answers, a text of at most `capacity` tokens; none: they draft from a
    // prediction alone.
    std::function<std::unique_ptr<Drafter>(std::int32_t capacity)> make_lookup;
    // Makes the draft model's context for several answers, with as many sequences as there may be answers; none: no
    // model drafts for them. Called once, when several answers are first wanted.
    std::function<std::unique_ptr<core::Context>(std::int32_t sequences)> make_draft;
    std::vector<std::int32_t> never_proposed;    // ids that it must not propose: see pairing.h
    const core::Tokenizer* tokenizer = nullptr;  // null: token ids only, no text; must outlive the generator
    std::vector<std::int32_t> end_tokens;        // tokens that end the text; none: those of the tokenizer
    SpeculationOptions speculation;
    Now now = steady_now;
};

// The log-probability of a token in the model's own distribution: natural logarithm, before any stage of the chain.
struct TokenLogprob {
    std::int32_t token = 0;
    float logprob = 0.0f;
    bool operator==(const TokenLogprob&) const = default;
};

// One emitted token.
struct TokenEvent {
    std::int32_t token = 0;   // -1: no token, only the text that was held back until the end
    std::string_view text;    // characters that this token completes, except those that may begin a stop string
    bool drafted = false;     // proposed by a drafter and accepted
    std::string_view source;  // the drafter's name when drafted
    // That of the token, then of the likeliest tokens, best first. Where they were asked for: BatchRequest::logprobs.
    std::span<const TokenLogprob> logprobs;
};

struct GenerateRequest {
    std::span<const std::int32_t> input;  // appended to the sequence; may be empty
    std::int32_t max_tokens = 256;        // 0 or less: as many as the context holds
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    // So many of the last tokens of the sequence, input included, belong to the answer already: text that it is made to
    // begin with. Stages are told where the answer begins.
    std::int32_t begun = 0;
    std::span<const std::string> stop;  // stop strings
    bool ignore_eos = false;            // end tokens are tokens like any other, except under a grammar
    // What the caller expects as the answer, if anything: it is drafted from. Costs time only where it is wrong.
    std::span<const std::int32_t> prediction;
    const std::atomic<bool>* cancel = nullptr;  // polled between forwards, and between a prompt's stages
    // Called after the callback, with every token; true: the text ends with it. For generate() only.
    std::function<bool(const TokenEvent&)> stop_when;
};

// deadline: BatchRequest::deadline.
enum class FinishReason : std::uint8_t { stop, length, cancelled, deadline };
std::string_view name(FinishReason reason);  // the word above

struct SourceStatistics {
    std::string name;
    std::int64_t rounds = 0;    // with tokens of this source; a round may have tokens of several
    std::int64_t drafted = 0;   // tokens verified
    std::int64_t accepted = 0;  // accepted of those
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
    std::vector<std::int32_t> tokens;  // everything sampled, an end token included
    std::string text;                  // cut before a stop string; invalid bytes as U+FFFD
    FinishReason finish = FinishReason::length;
    std::string error;                      // a sentence where a stage of the chain failed and ended it; of several
    std::int32_t stop_string = -1;          // index of the stop string that ended the text; -1: none did
    std::int64_t prompt_tokens = 0;         // length of the sequence when the first token was sampled
    std::int64_t cached_tokens = 0;         // of those, in the cache when it began; of sequences of a batch
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

// What save_pages() wrote or load_pages() brought back.
struct SavedPages {
    std::int32_t tokens = 0;  // load_pages(): that the cache holds now and did not hold before
    std::int64_t bytes = 0;   // of the file
};

// A token of answer `index` of generate_branches().
using BranchCallback = std::function<void(std::size_t index, const TokenEvent&)>;
using LogitsVisitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
using TokenCallback = std::function<void(const TokenEvent&)>;

class Generator {
public:
    explicit Generator(GeneratorParts parts);
    ~Generator();
    Generator(Generator&&) noexcept;
    Generator& operator=(Generator&&) noexcept;

    // Appends request.input to the sequence and generates. When it throws because the input does not fit, the sequence
    // is unchanged; when a stage of the chain fails, the tokens emitted before stay.
    GenerateResult generate(const GenerateRequest& request, const TokenCallback& callback = {});

    // Appends `input` to the sequence and evaluates it, so that a later generate() need not: for text that is known
    // before an answer is wanted. What is generated stays the same. Works in small steps and polls `cancel` between
    // them. False when cancelled or when the context is too short; the sequence then ends where the cache does.
    bool prepare(std::span<const std::int32_t> input, const std::atomic<bool>* cancel = nullptr);

    // Appends request.input to the sequence and generates an answer for each of `branches`; request.branch is ignored.
    // Each answer equals that of generate() with that branch, but all are computed together, as rows of one forward and
    // with shared pages of the cache, as far as the cache has room. Each is drafted for, by lookups and by the draft
    // model. Afterwards the sequence is the prompt, and switch_to() finds each answer in the cache. Where a stage of
    // the chain fails, that answer alone ends: with what it has, and GenerateResult::error.
    std::vector<GenerateResult> generate_branches(const GenerateRequest& request,
                                                  std::span<const std::uint64_t> branches,
                                                  const BranchCallback& callback = {});

    // The sequence: all tokens, input and generated.
    std::span<const std::int32_t> tokens() const;
    std::span<const std::uint8_t> generated() const;  // per token: 1 when it was generated, 0 when it was input
    std::int32_t held() const;                        // how many of them the cache holds
    std::int32_t capacity() const;                    // positions of the context
    // Drops the tokens from index `length` on: /undo, /retry, /clear (0).
    void truncate(std::int32_t length);

    // Empties sequence and cache: a later text finds nothing of earlier ones.
    void forget();

    // The sequence becomes `tokens`; `generated` says which of them were generated. Tokens that the cache holds, for
    // this or another branch of the conversation, are not evaluated again.
    void switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated);
    // Writes what the target's cache holds of the sequence to a file, and brings back what such a file has of it: the
    // first tokens that both have in common. They need not be evaluated then; what is generated stays the same.
    // `fingerprint`: what the bytes of a page depend on besides the text (Engine::page_fingerprint()).
    // Errors: Error with the path. A file that holds other bytes than were written ends the loading where it differs.
    SavedPages save_pages(const std::filesystem::path& path, std::string_view fingerprint);
    SavedPages load_pages(const std::filesystem::path& path, std::string_view fingerprint);

    // For each index from `from` (at least 1) to the end of the sequence, or of `count` tokens: the logits that its
    // token was sampled from. What follows them leaves the cache.
    void visit_logits(std::int32_t from, const LogitsVisitor& visit);
    void visit_logits(std::int32_t from, std::int32_t count, const LogitsVisitor& visit);

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
