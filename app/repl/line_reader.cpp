#include "app/repl/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

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
            const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
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

constexpr std::string_view kQuotes = "\"\"\"";

// Where the opening quotes are in the first line of an entry; npos if there are none.
std::size_t opening(const std::string& text) {
    if (text.starts_with(kQuotes)) return 0;
    if (!text.starts_with('/') || text.starts_with("//")) return std::string::npos;
    const std::size_t quotes = text.find(" \"\"\"");
    return quotes == std::string::npos ? quotes : quotes + 1;
}

// Removes the closing quotes from the end of `text`, which follows opening quotes. False if there are none.
bool close_block(std::string& text) {
    const std::size_t end = text.find_last_not_of(" \t\r");
    if (end == std::string::npos || end + 1 < kQuotes.size()) return false;
    if (text.compare(end + 1 - kQuotes.size(), kQuotes.size(), kQuotes) != 0) return false;
    text.resize(end + 1 - kQuotes.size());
    return true;
}

// Drops the line break after the opening quotes and the one before the closing quotes: they belong to the quotes.
std::string_view inside(std::string_view text) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    return text;
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
    const std::size_t open = entry.literal ? std::string::npos : opening(entry.text);
    if (open != std::string::npos) {
        const std::string command = entry.text.substr(0, open);
        std::string text = entry.text.substr(open + kQuotes.size());
        while (!close_block(text)) {
            Line next = reader.read(continuation, {}, true);
            if (next.how == LineEnd::interrupt) return next;
            if (next.how == LineEnd::end) break;
            text.append("\n").append(next.text);
        }
        entry.literal = command.empty();
        entry.text = command;
        entry.text += inside(text);
    } else if (!entry.literal && entry.text.find('\n') == std::string::npos) {
        while (entry.text.ends_with('\\')) {
            entry.text.back() = '\n';
            const Line next = reader.read(continuation, {}, true);
            if (next.how == LineEnd::interrupt) return next;
            if (next.how == LineEnd::end) break;
            entry.text += next.text;
        }
    }
    // Literal text that would be read as a command or as quotes is kept in quotes, so that the history returns it as
    // text.
    const bool plain = !entry.text.starts_with('/') && !entry.text.starts_with(kQuotes);
    reader.remember(!entry.literal || plain ? entry.text : "\"\"\"\n" + entry.text + "\n\"\"\"");
    return entry;
}

}  // namespace foresay::app
