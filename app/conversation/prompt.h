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

#include "core/chat/chat_template.h"
#include "core/text/chat_format.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// How a fill-in-the-middle prompt has the texts around the hole.
enum class FimOrder : std::uint8_t {
    psm,  // <PRE>prefix<SUF>suffix<MID>
    spm,  // <PRE><SUF>suffix<MID>prefix: the model continues the prefix
};

struct ChatStyle {
    core::ChatFormat format = core::ChatFormat::complete;
    std::string system;   // the system prompt; may be empty; `complete` has no place for one
    bool newline = true;  // of `complete`: entries are whole lines
    FimOrder fim_order = FimOrder::psm;
    std::shared_ptr<const core::ChatTemplate> chat = {};  // of ChatFormat::own, and only there
    core::ChatOptions options = {};                       // of the same
    core::AnswerMarkup markup = {};                       // how answers tell reasoning from content
};

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
// Whether the model has the special tokens of fill-in-the-middle.
bool has_fill_tokens(const core::Tokenizer& tokenizer);
// Whether a generated token begins another part of such a prompt: the middle has ended.
bool ends_middle(const core::Tokenizer& tokenizer, std::int32_t token);
// How many tokens the texts around a hole may take: what the answer leaves of the context, and at least half of it.
// `max_tokens`: of the answer; 0: no limit.
std::int64_t fill_room(std::int64_t capacity, std::int64_t max_tokens);
// The tokens of a fill-in-the-middle prompt. If both texts need more than `room` tokens, the parts farthest from the
// hole are left out; the prefix gets at least three quarters of the room, if it needs that much. For a model without
// the special tokens: the prefix alone, as a document that the model continues.
std::vector<std::int32_t> encode_fill(const core::Tokenizer& tokenizer, std::string_view prefix,
                                      std::string_view suffix, std::int64_t room, FimOrder order);
// Whether encode_fill() leaves out the last blank of the prefix, because the model continues the prefix: a token holds
// a word and the blank before it, so after a blank most words are out of reach. The model writes the blank itself.
bool leaves_out_blank(const core::Tokenizer& tokenizer, std::string_view prefix, FimOrder order);
// The inverse, of either order: the texts before and after the hole, without what was left out. False if `input` does
// not come from encode_fill().
bool decode_fill(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& input, std::string& prefix,
                 std::string& suffix);

// The tokens of an edited answer. The beginning that `answer` and `text` share keeps its tokens.
struct EditedAnswer {
    std::vector<std::int32_t> tokens;
    std::size_t kept = 0;  // how many of them are from `answer`
};
EditedAnswer encode_edit(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& answer,
                         std::string_view text);

}  // namespace foresay::app
