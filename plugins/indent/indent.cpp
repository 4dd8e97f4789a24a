// indent: Python whose indentation and brackets cannot go wrong.
//
// A token is dropped when its bytes would
//   - indent a line that follows no colon, or not indent one that does;
//   - bring a line back to an indentation that no open block has, or mix blanks and tabs;
//   - begin a line with a backslash, after which Python counts the blanks of the next line as well;
//   - close a bracket that is not the last one open, or leave a line with its string open;
//   - end the text within brackets, strings or after a colon whose block is missing.
//
//     [[plugin]]
//     name = "indent"
//     [plugin.options]
//     scope = "text"      # the prompt and the answer are one program; "fences": Python blocks of an answer in Markdown
//
// A prompt may be anything: what is wrong in it is taken as it is. Strings are read as before Python 3.12, whose
// f-strings may hold their own quotes.
//
// Cost:  a small automaton reads the bytes of each candidate.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "samplers/sdk/sampler.hpp"

namespace {

// Reads bytes. Copied for each candidate, so it has no memory of its own.
class Reader {
public:
    explicit Reader(bool fences = false) : fences_(fences), mode_(fences ? Mode::prose : Mode::line_start) {}

    // False: the byte must not come here. A byte of a prompt is read all the same.
    bool read(char byte, bool strict) {
        switch (mode_) {
            case Mode::prose:
                return prose(byte);
            case Mode::line_start:
                return line_start(byte, strict);
            case Mode::comment:
                if (byte == '\n') end_line();
                return true;
            case Mode::string:
                return string(byte, strict);
            case Mode::quotes:
                return quotes(byte, strict);
            default:
                return code(byte, strict);
        }
    }

    // Whether the text may end here.
    bool may_end() const {
        if (mode_ == Mode::prose) return true;
        if (brackets_ > 0 || wants_block_ || continues_ || joined_) return false;
        if (mode_ == Mode::string || (mode_ == Mode::quotes && count_ == 1)) return false;
        return last_ != ':';
    }

private:
    // quotes: after one or two of those that open a string.
    enum class Mode : std::uint8_t { prose, line_start, code, comment, quotes, string };
    static constexpr int kMostBrackets = 200, kMostBlocks = 99;  // as CPython has them

    // A fence is three grave accents at the beginning of a line; "python", "py" and "python3" open one of ours.
    bool prose(char byte) {
        if (byte == '\n') {
            const std::string_view line(line_.data(), static_cast<std::size_t>(length_ < 0 ? 0 : length_));
            if (line == "```python" || line == "```py" || line == "```python3") {
                *this = Reader(true);
                mode_ = Mode::line_start;
            }
            length_ = 0;
        } else if (length_ >= 0) {
            if (byte == '\r' || (byte == ' ' && length_ > 0)) return true;
            if (length_ < static_cast<int>(line_.size())) {
                line_[static_cast<std::size_t>(length_++)] = byte;
            } else {
                length_ = -1;
            }
        }
        return true;
    }

    bool line_start(char byte, bool strict) {
        if (byte == ' ' || byte == '\t') {
            if (unit_ == 0) unit_ = byte;
            const bool room = width_ < kMostWidth && (wants_block_ || width_ < top());
            if (strict && (byte != unit_ || !room)) return false;
            if (width_ < kMostWidth) ++width_;
            return true;
        }
        if (byte == '\r') return true;
        if (byte == '\n') {
            width_ = 0;
            return true;
        }
        if (byte == '#') {
            mode_ = Mode::comment;
            return true;
        }
        if (fences_ && byte == '`' && width_ == 0 && (!wants_block_ || !strict)) {
            mode_ = Mode::prose;
            line_[0] = byte;
            length_ = 1;
            return true;
        }
        if (byte == '\\' && strict) return false;
        if (!indent(strict)) return false;
        mode_ = Mode::code;
        last_ = 0;
        return code(byte, strict);
    }

    bool indent(bool strict) {
        if (wants_block_) {
            if (strict && (width_ <= top() || blocks_ == kMostBlocks)) return false;
            wants_block_ = false;
            if (width_ > top() && blocks_ < kMostBlocks) levels_[static_cast<std::size_t>(blocks_++)] = width_;
            return true;
        }
        if (strict && width_ > top()) return false;
        while (width_ < top()) --blocks_;
        if (width_ == top()) return true;
        if (strict) return false;
        if (blocks_ < kMostBlocks) levels_[static_cast<std::size_t>(blocks_++)] = width_;
        return true;
    }

    bool code(char byte, bool strict) {
        joined_ = continues_ && byte == '\n';
        continues_ = false;
        if (joined_) return true;
        switch (byte) {
            case '\n':
                if (brackets_ == 0 && last_ == ':' && blocks_ == kMostBlocks && strict) return false;
                if (brackets_ == 0) end_line();
                return true;
            case ' ':
            case '\t':
            case '\r':
            case '\f':
                return true;
            case '#':
                mode_ = Mode::comment;
                return true;
            case '\\':
                continues_ = true;
                return true;
            case '\'':
            case '"':
                mode_ = Mode::quotes;
                quote_ = byte;
                count_ = 1;
                break;
            case '(':
            case '[':
            case '{':
                if (brackets_ == kMostBrackets) return !strict;
                open_[static_cast<std::size_t>(brackets_++)] = byte;
                break;
            case ')':
            case ']':
            case '}': {
                const bool fits = brackets_ > 0 && open_[static_cast<std::size_t>(brackets_ - 1)] == opening(byte);
                if (!fits && strict) return false;
                if (fits) --brackets_;
                break;
            }
            default:
                break;
        }
        last_ = byte;
        return true;
    }
    static char opening(char closing) { return closing == ')' ? '(' : closing == ']' ? '[' : '{'; }

    bool quotes(char byte, bool strict) {
        if (byte == quote_) {
            if (++count_ < 3) return true;
            mode_ = Mode::string;
            triple_ = true;
            count_ = 0;
            return true;
        }
        if (count_ == 2) {  // an empty string
            mode_ = Mode::code;
            return code(byte, strict);
        }
        mode_ = Mode::string;
        triple_ = false;
        count_ = 0;
        return string(byte, strict);
    }

    bool string(char byte, bool strict) {
        if (escaped_) {
            escaped_ = false;
            return true;
        }
        if (byte == '\\') {
            escaped_ = true;
            count_ = 0;
            return true;
        }
        if (!triple_) {
            if (byte == quote_) mode_ = Mode::code;
            if (byte != '\n') return true;
            if (strict) return false;
            mode_ = Mode::code;
            return code(byte, strict);
        }
        count_ = byte == quote_ ? count_ + 1 : 0;
        if (count_ == 3) mode_ = Mode::code;
        return true;
    }

    // After a line that may have had code.
    void end_line() {
        if (brackets_ > 0) {  // a comment within brackets
            mode_ = Mode::code;
            return;
        }
        if (last_ != 0) wants_block_ = last_ == ':';
        mode_ = Mode::line_start;
        width_ = 0;
        last_ = 0;
    }

    static constexpr std::int16_t kMostWidth = 1000;
    std::int16_t top() const { return blocks_ > 0 ? levels_[static_cast<std::size_t>(blocks_ - 1)] : std::int16_t{0}; }

    bool fences_;
    Mode mode_;
    char unit_ = 0;              // what lines are indented with; 0: none was yet
    char quote_ = 0, last_ = 0;  // the last character of the line that counts; 0: it has none yet
    bool triple_ = false, escaped_ = false;
    bool continues_ = false;    // after a backslash
    bool joined_ = false;       // and the end of its line
    bool wants_block_ = false;  // after a line that ends with a colon
    std::int8_t count_ = 0;     // of quotes in a row
    std::int16_t width_ = 0;    // of the indentation of this line
    std::int16_t brackets_ = 0, blocks_ = 0;
    int length_ = 0;               // of line_; -1: the line is longer
    std::array<char, 10> line_{};  // of prose, without blanks
    std::array<char, kMostBrackets> open_{};
    std::array<std::int16_t, kMostBlocks> levels_{};
};

struct Indent {
    static constexpr foresay::Info info{"indent", "1.0.0", "Keeps Python's indentation and brackets right.",
                                        "Apache-2.0"};

    struct Parameters {
        std::string scope = "text";
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::choice("scope", &Parameters::scope, {"text", "fences"},
                            "What is Python: the whole text, or ```python blocks of an answer."));
    }

    struct State {
        Reader reader;
    };

    Indent(const Parameters& p, foresay::Host host) : host_(host), fences_(p.scope == "fences") {}

    void begin(State& state, const foresay::Text& text) const {
        state.reader = Reader(fences_);
        for (std::uint64_t i = fences_ ? text.answer : 0; i < text.count; ++i) accept(state, text.tokens[i]);
    }

    void accept(State& state, std::int32_t token) const {
        for (const char byte : host_.token_text(token)) state.reader.read(byte, false);
    }

    bool test(const State& state, const foresay::Context&, std::int32_t id) const {
        const std::string_view text = host_.token_text(id);
        if (text.empty()) return !host_.ends_text(id) || state.reader.may_end();
        Reader reader = state.reader;
        for (const char byte : text) {
            if (!reader.read(byte, true)) return false;
        }
        return true;
    }

private:
    foresay::Host host_;
    bool fences_;
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(Indent)
