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

// In a plain document, typed text may contain special tokens, as it may for `foresay complete`; files may not.
std::vector<std::int32_t> encode_document(const core::Tokenizer& tokenizer, const std::vector<Attachment>& files,
                                          const std::string& system, const std::string& text, bool first) {
    std::vector<std::int32_t> tokens;
    bool start = first;
    const auto add = [&](const std::string& part, bool special) {
        tokenizer.encode_append(part, {start, special}, tokens);
        start = false;
    };
    if (first && !system.empty()) add(system, false);
    for (const Attachment& file : files) add(file_text(core::ChatFormat::complete, file), false);
    add(text, true);
    return tokens;
}

}  // namespace

std::string whole_text(core::ChatFormat format, const std::vector<Attachment>& files, const std::string& text) {
    std::string whole;
    for (const Attachment& file : files) whole += file_text(format, file);
    return whole + text;
}

std::vector<std::int32_t> encode_first(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                       const std::vector<Attachment>& files, const std::string& text) {
    if (style.format == core::ChatFormat::complete) {
        return encode_document(tokenizer, files, style.system, text, true);
    }
    const core::ChatTurn turn{core::ChatTurn::Role::user, whole_text(style.format, files, text)};
    return core::encode_chat(tokenizer, core::render_chat(style.format, style.system, {turn}), true);
}

std::vector<std::int32_t> encode_next(const core::Tokenizer& tokenizer, const ChatStyle& style,
                                      const std::vector<Attachment>& files, const std::string& text, bool ended) {
    if (style.format == core::ChatFormat::complete) return encode_document(tokenizer, files, "", text, false);
    const std::string whole = whole_text(style.format, files, text);
    return core::encode_chat(tokenizer, core::render_next_turn(style.format, whole, ended), false);
}

bool has_fill_tokens(const core::Tokenizer& tokenizer) {
    const core::SpecialTokens& special = tokenizer.special();
    return special.fim_prefix >= 0 && special.fim_suffix >= 0 && special.fim_middle >= 0;
}

bool ends_middle(const core::Tokenizer& tokenizer, std::int32_t token) {
    const core::SpecialTokens& special = tokenizer.special();
    return token >= 0 && (token == special.fim_prefix || token == special.fim_suffix || token == special.fim_middle);
}

std::int64_t fill_room(std::int64_t capacity, std::int64_t max_tokens) {
    const std::int64_t most = max_tokens > 0 ? max_tokens : capacity / 4;
    return std::max(capacity / 2, capacity - most);
}

std::vector<std::int32_t> encode_fill(const core::Tokenizer& tokenizer, std::string_view prefix,
                                      std::string_view suffix, std::int64_t room) {
    const core::SpecialTokens& special = tokenizer.special();
    const core::EncodeOptions plain{.add_special = false, .parse_special = false};
    std::vector<std::int32_t> before = tokenizer.encode(prefix, plain);
    if (!has_fill_tokens(tokenizer)) {
        const std::size_t most = static_cast<std::size_t>(std::max<std::int64_t>(1, room - 1));
        if (before.size() > most) before.erase(before.begin(), before.end() - static_cast<std::ptrdiff_t>(most));
        if (tokenizer.adds_bos()) before.insert(before.begin(), special.bos);
        return before;
    }
    std::vector<std::int32_t> after = tokenizer.encode(suffix, plain);
    room = std::max<std::int64_t>(0, room - 4);  // the special tokens
    const auto size = [](const std::vector<std::int32_t>& tokens) { return static_cast<std::int64_t>(tokens.size()); };
    if (size(before) + size(after) > room) {
        const std::int64_t least = std::min(size(after), room / 4);
        const std::int64_t kept = std::max(least, room - size(before));
        after.resize(static_cast<std::size_t>(std::min(size(after), kept)));
        before.erase(before.begin(), before.end() - std::min(size(before), room - size(after)));
    }
    std::vector<std::int32_t> tokens;
    if (tokenizer.adds_bos()) tokens.push_back(special.bos);
    tokens.push_back(special.fim_prefix);
    tokens.insert(tokens.end(), before.begin(), before.end());
    tokens.push_back(special.fim_suffix);
    tokens.insert(tokens.end(), after.begin(), after.end());
    tokens.push_back(special.fim_middle);
    return tokens;
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
