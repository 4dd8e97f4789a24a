// app/conversation/prompt.h: turns messages, files and markup into the tokens that a model reads.
//
// Each input is encoded by itself and appended; tokens that are already in the conversation never change. Special
// tokens come from markup and, in a plain document, from the typed text. The contents of files are always plain text.
// In a plain document (the style complete) an entry is one or more lines: it begins on a line of its own and ends with
// a newline, unless ChatStyle::newline is off. What is appended is exactly what whole_text() returns.
//
// Errors:   Error if the model lacks the special tokens that are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/style.h"
#include "core/text/chat_format.h"
#include "core/text/fill.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

using core::ChatStyle;
using core::fill_room;
using core::FimOrder;

// A file that is sent before the next message.
struct Attachment {
    std::string name;
    std::string text;
};

// The whole message as text: files and `text`, without markup. `line_open`: the document before it ends within a line.
std::string whole_text(const ChatStyle& style, const std::vector<Attachment>& files, const std::string& text,
                       bool line_open);

// Whether a document ends within a line: its last visible byte is no newline.
bool line_is_open(const core::Tokenizer& tokenizer, std::span<const std::int32_t> document);

// The tokens of the first message of a conversation.
std::vector<std::int32_t> encode_first(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                       const std::vector<Attachment>& files, const std::string& text);
// The same without files, in any style but `complete`: a chat template too.
std::vector<std::int32_t> encode_message(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                         const std::string& text);
// The tokens of a message that follows an answer. `ended`: the model ended that answer itself; false: it was cut off.
// `line_open`: as in whole_text().
std::vector<std::int32_t> encode_next(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                      const std::vector<Attachment>& files, const std::string& text, bool ended,
                                      bool line_open);
// The tokens of an edited answer. The beginning that `answer` and `text` share keeps its tokens.
struct EditedAnswer {
    std::vector<std::int32_t> tokens;
    std::size_t kept = 0;  // how many of them are from `answer`
};
EditedAnswer encode_edit(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& answer,
                         std::string_view text);

}  // namespace foresay::app
