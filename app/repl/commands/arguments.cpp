#include "app/repl/commands/arguments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "app/conversation/transcript.h"
#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/chat/style.h"
#include "core/config/config.h"
#include "core/text/utf8.h"

namespace foresay::app {

std::size_t whole_number(const std::string& text, const std::string& what, std::size_t least, std::size_t most) {
    std::size_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
        throw Error(what + " must be a number from " + std::to_string(least) + " to " + std::to_string(most) +
                    ", not '" + text + "'");
    }
    return value;
}

std::string excerpt(const std::string& text, std::size_t width) {
    std::string line = printable(core::to_valid_utf8(text));
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::replace(line.begin(), line.end(), '\t', ' ');
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    if (line.size() <= width) return line;
    line.resize(core::valid_utf8_prefix(std::string_view(line).substr(0, width)));
    return line + "...";
}

std::string quoted(std::string_view bytes) {
    std::string out = "\"";
    while (!bytes.empty()) {
        const core::Utf8Step step = core::next_utf8(bytes);
        const char first = bytes.front();
        const bool plain =
            step.status == core::Utf8Status::valid && (step.code > 0x9f || (step.code >= 0x20 && step.code < 0x7f));
        if (first == '\n') {
            out += "\\n";
        } else if (first == '\t') {
            out += "\\t";
        } else if (first == '"' || first == '\\') {
            (out += '\\') += first;
        } else if (plain) {
            out += bytes.substr(0, step.length_bytes);
        } else {
            for (const char byte : bytes.substr(0, step.length_bytes)) {
                std::array<char, 8> escape{};
                std::snprintf(escape.data(), escape.size(), "\\x%02x",
                              static_cast<unsigned>(static_cast<unsigned char>(byte)));
                out += escape.data();
            }
        }
        bytes.remove_prefix(step.length_bytes);
    }
    return out + "\"";
}

void refuse_system_prompt(Repl& repl) {
    const std::string why = why_no_system(repl.conversation().style());
    if (why.empty()) return;
    throw Error(why + "; write the text as an entry, or choose another style with /set chat.style");
}

void show_place(Repl& repl) {
    constexpr std::size_t kLines = 4;
    const std::vector<const Turn*> turns = repl.conversation().turns();
    const std::string text = transcript(repl.conversation().tokenizer(), turns);
    const std::string_view end = last_lines(text, kLines);
    if (end.size() < text.size()) say(dim("...") + "\n");
    say(printable(end));
}

std::string assignments(const std::string& prefix, const std::vector<std::string>& words, std::size_t first) {
    std::string toml;
    for (std::size_t i = first; i < words.size(); ++i) {
        if (words[i].find('=') == std::string::npos) {
            throw Error("'" + words[i] + "' is not an assignment; write KEY=VALUE");
        }
        toml += core::override_layer(prefix + words[i], "the command").text + "\n";
    }
    return toml;
}

}  // namespace foresay::app
