#include "app/conversation/prompt.h"

#include <algorithm>

namespace foresay::app {

namespace {

// A code fence longer than any run of backquotes in the text.
std::string fence_for(const std::string& text) {
    std::string fence = "```";
    while (text.find(fence) != std::string::npos) fence += '`';
    return fence;
}

std::string file_text(core::ChatFormat format, const Attachment& file) {
    std::string text = file.text;
    if (!text.ends_with('\n')) text += '\n';
    if (format == core::ChatFormat::complete) return "# " + file.name + "\n" + text + "\n";
    const std::string fence = fence_for(text);
    return file.name + "\n" + fence + "\n" + text + fence + "\n\n";
}

// What a document gets: text, and whether the names of special tokens in it are such tokens. Typed text may contain
// special tokens, as it may for `foresay complete`; files may not.
struct Part {
    std::string text;
    bool special;
};

std::vector<Part> document_parts(const ChatStyle& style, const std::vector<Attachment>& files, const std::string& text,
                                 bool line_open) {
    std::vector<Part> parts;
    for (const Attachment& file : files) parts.push_back({file_text(core::ChatFormat::complete, file), false});
    if (!text.empty()) parts.push_back({text, true});
    if (parts.empty()) return {{text, true}};  // of an empty document, BOS is left
    if (!style.newline) return parts;
    if (line_open) parts.front().text.insert(0, 1, '\n');
    if (!parts.back().text.ends_with('\n')) parts.back().text += '\n';
    return parts;
}

std::vector<std::int32_t> encode_document(const core::Tokenizer& tokenizer, const std::vector<Part>& parts,
                                          bool first) {
    std::vector<std::int32_t> tokens;
    for (const Part& part : parts) {
        tokenizer.encode_append(part.text, {first, part.special}, tokens);
        first = false;
    }
    return tokens;
}

// A chat format has its own marks for the end of a message.
std::string message_text(core::ChatFormat format, const std::vector<Attachment>& files, const std::string& text) {
    std::string whole;
    for (const Attachment& file : files) whole += file_text(format, file);
    return whole + text;
}

}  // namespace

std::string whole_text(const ChatStyle& style, const std::vector<Attachment>& files, const std::string& text,
                       bool line_open) {
    if (style.format != core::ChatFormat::complete) return message_text(style.format, files, text);
    std::string whole;
    for (const Part& part : document_parts(style, files, text, line_open)) whole += part.text;
    return whole;
}

bool line_is_open(const core::Tokenizer& tokenizer, std::span<const std::int32_t> document) {
    for (; !document.empty(); document = document.first(document.size() - 1)) {
        if (tokenizer.is_control(document.back())) return false;
        const std::string_view bytes = tokenizer.bytes(document.back());
        if (!bytes.empty()) return bytes.back() != '\n';
    }
    return false;
}

std::vector<std::int32_t> encode_first(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                       const std::vector<Attachment>& files, const std::string& text) {
    if (style.format == core::ChatFormat::complete) {
        return encode_document(tokenizer, document_parts(style, files, text, false), true);
    }
    const core::ChatTurn turn{core::ChatTurn::Role::user, message_text(style.format, files, text)};
    return core::encode_chat(tokenizer, core::render_chat(style.format, style.system, {turn}), true);
}

std::vector<std::int32_t> encode_message(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                         const std::string& text) {
    if (!style.chat) return encode_first(tokenizer, style, {}, text);
    std::vector<core::ChatMessage> messages;
    if (!style.system.empty()) messages.push_back({"system", style.system, {}, {}});
    messages.push_back({"user", text, {}, {}});
    return style.chat->encode(style.chat->render(messages, style.options));
}

std::vector<std::int32_t> encode_next(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                      const std::vector<Attachment>& files, const std::string& text, bool ended,
                                      bool line_open) {
    if (style.format == core::ChatFormat::complete)
        return encode_document(tokenizer, document_parts(style, files, text, line_open), false);
    const std::string whole = message_text(style.format, files, text);
    return core::encode_chat(tokenizer, core::render_next_turn(style.format, whole, ended), false);
}

EditedAnswer encode_edit(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& answer,
                         std::string_view text) {
    const auto shown = [&](std::int32_t id) {  // the edited text does not show control tokens
        return tokenizer.is_control(id) ? std::string_view{} : tokenizer.bytes(id);
    };
    EditedAnswer edited;
    std::size_t bytes = 0;
    while (edited.kept < answer.size()) {
        const std::string_view token = shown(answer[edited.kept]);
        if (!text.substr(bytes).starts_with(token)) break;
        bytes += token.size();
        ++edited.kept;
    }
    // If the text changes inside a word, tokenise the word again from its beginning, as the tokenizer would have.
    if (bytes < text.size() && edited.kept > 0) {
        --edited.kept;
        bytes -= shown(answer[edited.kept]).size();
    }
    edited.tokens.assign(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(edited.kept));
    tokenizer.encode_append(text.substr(bytes), {.add_special = false, .parse_special = false}, edited.tokens);
    return edited;
}

}  // namespace foresay::app
