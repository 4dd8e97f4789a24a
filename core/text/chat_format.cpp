#include "core/text/chat_format.h"

#include <array>

namespace foresay::core {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"complete", "llama3", "chatml", "mistral", "auto"};

void add(std::vector<ChatPiece>& pieces, std::string_view text, bool markup) {
    if (text.empty()) return;
    if (!pieces.empty() && pieces.back().markup == markup)
        pieces.back().text.append(text);
    else
        pieces.push_back({std::string(text), markup});
}

// The format's white space goes into the plain pieces: the tokenizer must see it together with the text that follows,
// as in training.
void open_message(ChatFormat format, std::string_view role, std::vector<ChatPiece>& pieces) {
    if (format == ChatFormat::llama3) {
        add(pieces, "<|start_header_id|>", true);
        add(pieces, role, false);
        add(pieces, "<|end_header_id|>", true);
        add(pieces, "\n\n", false);
    } else {
        add(pieces, "<|im_start|>", true);
        add(pieces, role, false);
        add(pieces, "\n", false);
    }
}

void close_message(ChatFormat format, bool ended, std::vector<ChatPiece>& pieces) {
    if (!ended) add(pieces, end_of_answer(format), true);
    if (format == ChatFormat::chatml) add(pieces, "\n", false);
}

void user_turn(ChatFormat format, std::string_view system, std::string_view text, std::vector<ChatPiece>& pieces) {
    if (format == ChatFormat::complete) {
        add(pieces, text, false);
    } else if (format == ChatFormat::mistral) {
        add(pieces, "[INST]", true);
        if (!system.empty()) add(pieces, std::string(system) + "\n\n", false);
        add(pieces, text, false);
        add(pieces, "[/INST]", true);
    } else {
        open_message(format, "user", pieces);
        add(pieces, text, false);
        close_message(format, false, pieces);
    }
}

void open_answer(ChatFormat format, std::vector<ChatPiece>& pieces) {
    if (format == ChatFormat::llama3 || format == ChatFormat::chatml) open_message(format, "assistant", pieces);
}

}  // namespace

std::string_view name(ChatFormat format) { return kNames[static_cast<std::size_t>(format)]; }

std::optional<ChatFormat> parse_chat_format(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name && static_cast<ChatFormat>(i) != ChatFormat::own) return static_cast<ChatFormat>(i);
    return std::nullopt;
}

std::optional<ChatFormat> detect_chat_format(std::string_view chat_template) {
    const auto has = [chat_template](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
    if (has("<|start_header_id|>") && has("<|eot_id|>")) return ChatFormat::llama3;
    if (has("<|im_start|>")) return ChatFormat::chatml;
    if (has("[INST]") && !has("<<SYS>>")) return ChatFormat::mistral;
    return std::nullopt;
}

std::string_view end_of_answer(ChatFormat format) {
    switch (format) {
        case ChatFormat::llama3:
            return "<|eot_id|>";
        case ChatFormat::chatml:
            return "<|im_end|>";
        case ChatFormat::mistral:
            return "</s>";
        case ChatFormat::complete:
        case ChatFormat::own:
            break;
    }
    return "";
}

std::vector<ChatPiece> render_chat(ChatFormat format, std::string_view system, const std::vector<ChatTurn>& turns) {
    std::vector<ChatPiece> pieces;
    std::string_view pending_system = system;  // mistral has no system message: it opens the first user turn
    if (!system.empty() && format == ChatFormat::complete) add(pieces, system, false);
    if (!system.empty() && (format == ChatFormat::llama3 || format == ChatFormat::chatml)) {
        open_message(format, "system", pieces);
        add(pieces, system, false);
        close_message(format, false, pieces);
    }
    for (const ChatTurn& turn : turns) {
        if (turn.role == ChatTurn::Role::user) {
            user_turn(format, pending_system, turn.text, pieces);
            pending_system = {};
            continue;
        }
        open_answer(format, pieces);
        add(pieces, turn.text, false);
        close_message(format, false, pieces);
    }
    open_answer(format, pieces);
    return pieces;
}

std::vector<ChatPiece> render_next_turn(ChatFormat format, std::string_view user, bool answer_ended) {
    std::vector<ChatPiece> pieces;
    close_message(format, answer_ended, pieces);
    user_turn(format, {}, user, pieces);
    open_answer(format, pieces);
    return pieces;
}

std::vector<std::int32_t> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatPiece>& pieces, bool start) {
    std::vector<std::int32_t> ids;
    if (start && tokenizer.adds_bos()) ids.push_back(tokenizer.special().bos);
    for (const ChatPiece& piece : pieces)
        tokenizer.encode_append(piece.text, {.add_special = false, .parse_special = piece.markup}, ids);
    return ids;
}

}  // namespace foresay::core
