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

// read(2) by hand: a stream would swallow the interrupted call.
class PlainReader : public LineReader {
public:
    explicit PlainReader(bool interactive) : interactive_(interactive) {}

    Line read(const std::string& prompt) override {
        if (interactive_) print(prompt);
        for (;;) {
            if (const auto newline = buffer_.find('\n'); newline != std::string::npos) {
                std::string text = buffer_.substr(0, newline);
                buffer_.erase(0, newline + 1);
                if (text.ends_with('\r')) text.pop_back();
                return {LineEnd::line, std::move(text)};
            }
            std::array<char, 4096> chunk{};
            const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
            if (got > 0) {
                buffer_.append(chunk.data(), static_cast<std::size_t>(got));
                if (buffer_.size() > kMaxLine) throw Error("a line of input is longer than 16 MiB");
            } else if (got < 0 && errno == EINTR) {
                if (!interrupted()) continue;
                buffer_.clear();
                return {LineEnd::interrupt, {}};
            } else if (got < 0) {
                throw Error(std::string("cannot read standard input: ") + std::strerror(errno));
            } else {
                if (buffer_.empty()) return {LineEnd::end, {}};
                return {LineEnd::line, std::exchange(buffer_, {})};  // the last line has no newline
            }
        }
    }

private:
    bool interactive_;
    std::string buffer_;
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader(bool interactive) { return std::make_unique<PlainReader>(interactive); }

std::unique_ptr<LineReader> make_line_reader(bool interactive) {
#ifdef FORESAY_HAVE_LIBEDIT
    if (interactive) return make_editing_reader();
#endif
    return make_plain_reader(interactive);
}

Line read_entry(LineReader& reader, const std::string& prompt, const std::string& continuation) {
    Line entry = reader.read(prompt);
    while (entry.how == LineEnd::line && entry.text.ends_with('\\')) {
        entry.text.back() = '\n';
        const Line next = reader.read(continuation);
        if (next.how == LineEnd::interrupt) return next;
        if (next.how == LineEnd::end) break;
        entry.text += next.text;
    }
    return entry;
}

}  // namespace foresay::app
