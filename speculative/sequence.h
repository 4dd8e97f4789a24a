// speculative/sequence.h: one text of a BatchGenerator: all that belongs to it and to no other.
// Private to speculative/batch_generator.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "speculative/batch_generator.h"
#include "speculative/text_stream.h"

namespace foresay::speculative {

class Sequence {
public:
    Sequence(Ticket ticket, BatchRequest request, Sink& sink, const BatchParts& parts);

    Ticket ticket() const { return ticket_; }
    core::SequenceId id() const { return id_; }
    bool admitted() const { return id_ >= 0; }
    bool ended() const { return ended_; }

    // Takes pages: `id` is an empty sequence of the context. Makes room for everything that the text can become.
    void admit(core::SequenceId id);
    // Tokens of the sequence that the context does not hold yet, the next `count` of them.
    std::span<const std::int32_t> next_tokens(std::int32_t count) const;
    SequenceLoad load() const;
    // The next `count` tokens were evaluated.
    void advance(std::int32_t count);
    // Samples from logit row `row` of the context's last forward, and emits what was sampled.
    void sample(core::Context& context, std::int32_t row);
    // Whether the logits of the last of `count` next tokens are wanted.
    bool samples_after(std::int32_t count) const;
    // Tokens that may still be emitted.
    std::int32_t room() const { return room_; }
    void end(FinishReason finish, std::string error = {});

    bool cancelled = false;
    bool paused = false;

private:
    bool emit(std::int32_t token);

    const BatchParts& parts_;
    Ticket ticket_;
    BatchRequest request_;
    Sink& sink_;
    core::SequenceId id_ = -1;
    bool ended_ = false;
    std::vector<std::int32_t> tokens_;  // the prompt and what was emitted
    std::int32_t prompt_ = 0;           // of those, the prompt
    std::int32_t held_ = 0;             // of those, in the cache
    std::int32_t room_ = 0;
    TextStream text_;
    GenerateResult result_;
    double start_ = 0.0;     // ms; when it was added
    double admitted_ = 0.0;  // when it got pages
    double first_ = 0.0;     // when the first token was known
};

}  // namespace foresay::speculative
