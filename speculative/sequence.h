// speculative/sequence.h: one text of a BatchGenerator: all that belongs to it and to no other.
// Private to speculative/batch_generator.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "speculative/accept.h"
#include "speculative/batch_generator.h"
#include "speculative/logprobs.h"
#include "speculative/prefix_cache.h"
#include "speculative/text_stream.h"

namespace foresay::speculative {

class Sequence {
public:
    Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts);

    Ticket ticket() const { return ticket_; }
    const std::string& queue() const { return request_.queue; }
    std::int32_t priority() const { return request_.priority; }
    core::SequenceId id() const { return id_; }
    bool ended() const { return ended_; }
    // The prompt and what was emitted.
    std::span<const std::int32_t> tokens() const { return tokens_; }
    // Tokens from this index on are evaluated as decode rows, those before it as prefill rows.
    std::int32_t generated_from() const { return generated_from_; }
    std::int32_t held() const { return held_; }  // tokens in the cache
    std::int32_t missing() const { return static_cast<std::int32_t>(tokens_.size()) - held_; }
    // Tokens that may still be emitted.
    std::int32_t room() const { return room_; }
    // What decides the bits of its keys and values.
    PrefixKey key() const { return {tokens_, generated_from_, request_.cache_salt}; }

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
    // Samples from logit row `row` of the context's last forward, and emits what was sampled.
    void sample(core::Context& context, std::int32_t row);
    // Whether the logits of the last of `count` next tokens are wanted.
    bool samples_after(std::int32_t count) const { return count == missing(); }
    void end(FinishReason finish, std::string error = {});

    bool cancelled = false;
    bool paused = false;
    bool broken = false;             // its logits were not finite, so its keys and values are no good
    bool waits_for_another = false;  // which is evaluating a beginning of its prompt
    std::uint64_t passed_over = 0;   // admissions of others while it waited

private:
    bool emit(std::int32_t token);

    const BatchParts& parts_;
    Ticket ticket_;
    BatchRequest request_;
    Sink& sink_;
    core::SequenceId id_ = -1;
    bool begun_ = false;  // it was admitted before
    bool ended_ = false;
    std::vector<std::int32_t> tokens_;
    std::int32_t generated_from_ = 0;
    std::int32_t held_ = 0;
    std::int32_t room_ = 0;
    TextStream text_;
    std::unique_ptr<Logprobs> logprobs_;  // null: none are wanted
    GenerateResult result_;
    double start_ = 0.0;     // ms; when it was added
    double admitted_ = 0.0;  // when it was first admitted
    double first_ = 0.0;     // when the first token was known
};

}  // namespace foresay::speculative
