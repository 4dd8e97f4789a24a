#include "app/repl/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMaxLine = std::size_t{16} << 20;

// Uses read(2) directly, because a stream would hide that Ctrl-C interrupted the call.
class PlainReader : public LineReader {
public:
    explicit PlainReader(bool prompts) : prompts_(prompts) {}

    Line read(const std::string& prompt, const std::string&, bool) override {
        if (prompts_) print(prompt);
        for (;;) {
            if (const auto newline = buffer_.find('\n', searched_); newline != std::string::npos) {
                std::string text = buffer_.substr(0, newline);
                buffer_.erase(0, newline + 1);
                searched_ = 0;
                if (text.ends_with('\r')) text.pop_back();
                return {LineEnd::line, std::move(text)};
            }
            searched_ = buffer_.size();
            std::array<char, 4096> chunk{};
            const ssize_t got = read_unless_interrupted(STDIN_FILENO, chunk.data(), chunk.size());
            if (got > 0) {
                buffer_.append(chunk.data(), static_cast<std::size_t>(got));
                if (buffer_.size() > kMaxLine) throw Error("a line of input is longer than 16 MiB");
            } else if (got < 0 && errno == EINTR) {
                if (!interrupted()) continue;
                if (prompts_) print("\n");
                buffer_.clear();
                searched_ = 0;
                return {LineEnd::interrupt, {}};
            } else if (got < 0) {
                throw Error(std::string("cannot read standard input: ") + std::strerror(errno));
            } else {
                searched_ = 0;
                if (!buffer_.empty()) return {LineEnd::line, std::exchange(buffer_, {})};  // has no newline
                if (prompts_) print("\n");
                return {LineEnd::end, {}};
            }
        }
    }

private:
    bool prompts_;
    std::string buffer_;
    std::size_t searched_ = 0;  // bytes of the buffer that hold no newline
};

constexpr std::size_t kFewestQuotes = 3;
// The text that quotes alone on their lines enclose within one line of the editor may be a docstring. More of them are
// none in any language.
constexpr std::size_t kFewestQuotesInText = 4;

// How many quotes the line has if it has nothing else but blanks at its end; 0 otherwise.
std::size_t quotes_of(std::string_view line) {
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    const bool only_quotes = line.size() >= kFewestQuotes && line.find_first_not_of('"') == line.npos;
    return only_quotes ? line.size() : 0;
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
        lines.push_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    lines.push_back(text);
    return lines;
}

// An opening line: a command, which may be empty, and quotes.
struct Opening {
    std::size_t quotes = 0;  // 0: none
    std::string command;     // with the blank after it
};

Opening opening(std::string_view line) {
    if (const std::size_t quotes = quotes_of(line); quotes > 0) return {quotes, {}};
    if (!line.starts_with('/') || line.starts_with("//")) return {};
    const std::size_t word = line.find_last_of(" \t", line.find_last_not_of(" \t\r"));
    if (word == line.npos) return {};
    return {quotes_of(line.substr(word + 1)), std::string(line.substr(0, word + 1))};
}

// The lines between the first and the last line of `text`, if those are `open` and closing quotes and no line between
// them is. False if the text is no such block.
bool enclosed(std::string_view text, const Opening& open, std::string& inside) {
    const std::vector<std::string_view> lines = lines_of(text);
    if (lines.size() < 2 || quotes_of(lines.back()) != open.quotes) return false;
    inside.clear();
    for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
        if (quotes_of(lines[i]) == open.quotes) return false;
        if (i > 1) inside += '\n';
        inside += lines[i];
    }
    return true;
}

// Reads lines up to the closing quotes. Returns how it ended; the end of input closes the block.
LineEnd read_block(LineReader& reader, const std::string& continuation, std::size_t quotes, std::string& text) {
    for (bool first = true;; first = false) {
        Line next = reader.read(continuation, {}, true);
        if (next.how == LineEnd::interrupt) return next.how;
        if (next.how == LineEnd::end || quotes_of(next.text) == quotes) return LineEnd::line;
        if (!first) text += '\n';
        text += next.text;
    }
}

// Literal text that would be read as a command or as quotes is remembered between quotes, so that the history returns
// it as text.
std::string remembered(const Line& entry) {
    const std::vector<std::string_view> lines = lines_of(entry.text);
    const std::size_t fewest = lines.size() > 1 ? kFewestQuotesInText : kFewestQuotes;
    const bool plain = !entry.text.starts_with('/') && quotes_of(lines.front()) < fewest;
    if (!entry.literal || plain) return entry.text;
    std::size_t quotes = kFewestQuotesInText;
    for (const std::string_view line : lines) quotes = std::max(quotes, quotes_of(line) + 1);
    const std::string line(quotes, '"');
    return line + "\n" + entry.text + "\n" + line;
}

}  // namespace

std::unique_ptr<LineReader> make_plain_reader(bool prompts) { return std::make_unique<PlainReader>(prompts); }

#ifndef FORESAY_HAVE_LIBEDIT
std::unique_ptr<LineReader> make_editing_reader(Keyboard&, EditingOptions) { return nullptr; }
#endif

Line read_entry(LineReader& reader, const std::string& prompt, const std::string& continuation,
                const std::string& initial) {
    Line entry = reader.read(prompt, initial);
    if (entry.how != LineEnd::line) return entry;
    const Opening open = entry.literal ? Opening{} : opening(lines_of(entry.text).front());
    if (open.quotes > 0 && entry.text.find('\n') == std::string::npos) {
        std::string text;
        const LineEnd how = read_block(reader, continuation, open.quotes, text);
        if (how == LineEnd::interrupt) return {how, {}};
        entry.text = open.command + text;
        entry.literal = open.command.empty();
    } else if (open.quotes >= kFewestQuotesInText || (open.quotes > 0 && !open.command.empty())) {
        std::string text;
        if (enclosed(entry.text, open, text)) {
            entry.text = open.command + text;
            entry.literal = open.command.empty();
        }
    }
    reader.remember(remembered(entry));
    return entry;
}

}  // namespace foresay::app
