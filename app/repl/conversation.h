// app/repl/conversation.h: a conversation as a list of turns that can be retried, undone and cleared. The generator's
// cache follows: what two states share is never computed again.
//
// Life:     answer() appends a turn; retry() replaces the last one; undo() brings back the state before whatever was
//           done last.
// Errors:   answer() and retry() throw Error when the text does not fit the context; the conversation is then as before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text/chat_format.h"
#include "core/text/tokenizer.h"
#include "speculative/generator.h"

namespace foresay::app {

struct Turn {
    std::vector<std::int32_t> input;   // tokens of what was said, with markup if the style has any
    std::vector<std::int32_t> answer;  // tokens that were drawn and stay in the conversation
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    bool ended = false;  // the model closed its answer itself
};

class Conversation {
public:
    Conversation(speculative::Generator& generator, const core::Tokenizer& tokenizer, core::ChatFormat format);

    struct Limits {
        std::int32_t max_tokens = 256;  // 0: to the end of the context
        std::uint64_t seed = 0;
        std::uint64_t branch = 0;
        const std::atomic<bool>* cancel = nullptr;
    };
    struct Answer {
        speculative::GenerateResult result;
        std::int64_t input_tokens = 0;
    };

    // Says `text` and generates the answer.
    Answer answer(const std::string& text, const Limits& limits, const speculative::TokenCallback& show);
    // The last turn's answer again: with `seed` and branch 0, or with the turn's own seed and the next branch that was
    // not used yet for it. There must be a turn.
    Answer retry(std::optional<std::uint64_t> seed, const Limits& limits, const speculative::TokenCallback& show);
    bool undo();   // false: nothing was done yet
    void clear();  // an empty conversation

    bool empty() const { return turns_.empty(); }
    const std::vector<Turn>& turns() const { return turns_; }
    std::int64_t tokens() const;  // of the whole conversation
    core::ChatFormat format() const { return format_; }
    void set_format(core::ChatFormat format) { format_ = format; }  // of the turns to come

private:
    std::vector<std::int32_t> encode(const std::string& text) const;
    std::vector<std::int32_t> document() const;
    Answer generate(Turn turn, const Limits& limits, const speculative::TokenCallback& show);
    std::uint64_t unused_branch(std::uint64_t seed, const std::vector<std::int32_t>& prompt) const;

    speculative::Generator& generator_;
    core::Tokenizer tokenizer_;
    core::ChatFormat format_;
    std::vector<Turn> turns_;
    std::vector<std::vector<Turn>> past_;  // for undo
    // The highest branch drawn so far, by seed and by the tokens in front of the answer.
    std::map<std::pair<std::uint64_t, std::vector<std::int32_t>>, std::uint64_t> branches_;
};

}  // namespace foresay::app
