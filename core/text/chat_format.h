// core/text/chat_format.h: conversations as text, in the formats that models are trained on.
//
// Rendering yields pieces: markup, in which special tokens are recognised, and what people and models wrote, which is
// plain text whatever it contains. BOS is not part of the pieces: encode_chat() adds it if the model wants it.
// Threads:  pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace foresay::core {

enum class ChatFormat {
    complete,  // no markup: one growing document
    llama3,    // <|start_header_id|>role<|end_header_id|>
    chatml,    // <|im_start|>role
    mistral,   // [INST] ... [/INST]
    own,       // what the model's chat template says (core/chat/chat_template.h); the functions here do not take it
};

std::string_view name(ChatFormat format);
std::optional<ChatFormat> parse_chat_format(std::string_view name);

// The format of a model's chat template, recognised by its typical markers. Empty when no format is recognised or
// `chat_template` is empty.
std::optional<ChatFormat> detect_chat_format(std::string_view chat_template);

struct ChatTurn {
    enum class Role { user, assistant };
    Role role = Role::user;
    std::string text;
};

struct ChatPiece {
    std::string text;
    bool markup = false;
};

// A conversation from its start, up to where the assistant's next answer begins. `system` may be empty.
std::vector<ChatPiece> render_chat(ChatFormat format, std::string_view system, const std::vector<ChatTurn>& turns);

// What follows an answer of the assistant: its end (unless `answer_ended`: the model ended it itself) and the next user
// turn, up to where the answer to it begins. Appended, so that the answer keeps the tokens that were generated.
std::vector<ChatPiece> render_next_turn(ChatFormat format, std::string_view user, bool answer_ended);

// The tokens of rendered pieces. `start`: the pieces begin the conversation, so BOS comes first if the model wants it.
std::vector<std::int32_t> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatPiece>& pieces, bool start);

// The text of the token that ends an answer in this format ("" for complete).
std::string_view end_of_answer(ChatFormat format);

}  // namespace foresay::core
