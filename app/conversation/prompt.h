// app/conversation/prompt.h: what a person says, as the tokens that a model reads.
//
// The document is never tokenised again across a seam: each input is encoded by itself and appended. Only markup yields
// special tokens; what files hold is plain text whatever it spells.
// Errors:   Error where the model lacks the tokens that are needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/chat_format.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

struct ChatStyle {
    core::ChatFormat format = core::ChatFormat::complete;
    std::string system;  // what a conversation begins with; may be empty
};

// A file that goes in front of what is said next.
struct Attachment {
    std::string name;
    std::string text;
};

// What is said in all, files included, as text without markup.
std::string whole_text(core::ChatFormat format, const std::vector<Attachment>& files, const std::string& text);

// The tokens of an input that begins a conversation.
std::vector<std::int32_t> encode_first(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                       const std::vector<Attachment>& files, const std::string& text);
// Of one that follows an answer, which `ended` by itself or was cut off.
std::vector<std::int32_t> encode_next(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                      const std::vector<Attachment>& files, const std::string& text, bool ended);
// Of a hole between two texts, to be filled. Of texts that take more than `room` tokens together, what is farthest from
// the hole is left out; at least three quarters of the room go to what is in front of it, if there is so much.
std::vector<std::int32_t> encode_fill(const core::Tokenizer& tokenizer, std::string_view prefix,
                                      std::string_view suffix, std::int64_t room);

// The beginning of an answer that was changed to `text`: what stays of `answer` keeps its tokens.
struct EditedAnswer {
    std::vector<std::int32_t> tokens;
    std::size_t kept = 0;  // of them from `answer`
};
EditedAnswer encode_edit(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& answer,
                         std::string_view text);

}  // namespace foresay::app
