#include "core/jinja/lexer.h"

#include <algorithm>

#include "core/jinja/template.h"
#include "core/text/utf8.h"

namespace foresay::jinja {

namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

// One kind of line end, and not the last one.
std::string normalised(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
        } else {
            out += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        }
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(normalised(source)) {}

    std::vector<Token> run() {
        while (at_ < source_.size()) literal();
        add(Token::Kind::end, "", at_);
        return std::move(tokens_);
    }

private:
    [[noreturn]] void fail(std::size_t at, const std::string& message) {
        const Place where = place(at);
        throw TemplateError(message, where.line, where.column);
    }

    // Places are asked for in ascending order except for errors, so every character is counted once.
    Place place(std::size_t at) {
        if (at < counted_) counted_ = 0, line_ = 1, column_ = 1;
        while (counted_ < at) {
            const bool newline = source_[counted_] == '\n';
            counted_ += character_bytes(source_, counted_);
            line_ += newline ? 1 : 0;
            column_ = newline ? 1 : column_ + 1;
        }
        return {line_, column_};
    }

    void add(Token::Kind kind, std::string text, std::size_t at) {
        tokens_.push_back({kind, std::move(text), place(at)});
    }

    bool starts(std::size_t at, std::string_view text) const { return source_.compare(at, text.size(), text) == 0; }

    std::size_t skip_space(std::size_t at) const {
        while (at < source_.size() && is_space(character_code(source_, at))) at += character_bytes(source_, at);
        return at;
    }

    // Text up to the next tag, and the tag.
    void literal() {
        std::size_t tag = at_;
        for (;; ++tag) {
            tag = source_.find('{', tag);
            if (tag == source_.npos || tag + 1 >= source_.size()) {
                text(at_, source_.size());
                at_ = source_.size();
                return;
            }
            if (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#') break;
        }
        const char kind = source_[tag + 1];
        const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
        text(at_, text_end(tag, sign, kind != '{'));
        at_ = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
        if (kind == '#') {
            comment(tag);
        } else if (kind == '%') {
            if (!raw(tag)) {
                add(Token::Kind::block_begin, "", tag);
                expression("%}", Token::Kind::block_end, tag);
            }
        } else {
            // A plus sign belongs to the expression here; only the minus trims.
            if (sign == '+') --at_;
            add(Token::Kind::output_begin, "", tag);
            expression("}}", Token::Kind::output_end, tag);
        }
    }

    // Where the text before a tag ends, by its sign and lstrip_blocks.
    std::size_t text_end(std::size_t tag, char sign, bool strips) const {
        if (sign == '-') {
            const Text before = strip(Text(source_.substr(at_, tag - at_)), false, true);
            return at_ + before.size();
        }
        if (sign == '+' || !strips) return tag;
        const std::size_t newline = tag > at_ ? source_.rfind('\n', tag - 1) : source_.npos;
        const bool in_text = newline != source_.npos && newline >= at_;
        // Without a newline in the text itself, only a tag that begins a line is stripped before.
        if (!in_text && at_ > 0 && source_[at_ - 1] != '\n') return tag;
        const std::size_t line = in_text ? newline + 1 : at_;
        return skip_space(line) >= tag && line < tag ? line : tag;
    }

    void text(std::size_t begin, std::size_t end) {
        if (begin < end) add(Token::Kind::text, source_.substr(begin, end - begin), begin);
    }

    // After the end of a tag: its sign and trim_blocks. `at`: past the closing characters.
    std::size_t after_tag(std::size_t at, char sign, bool trims) const {
        if (sign == '-') return skip_space(at);
        return trims && sign != '+' && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
    }

    void comment(std::size_t tag) {
        const std::size_t end = source_.find("#}", at_);
        if (end == source_.npos) fail(tag, "the comment that begins here does not end; close it with #}");
        const char sign = end > at_ ? source_[end - 1] : ' ';
        at_ = after_tag(end + 2, sign, true);
    }

    // {% raw %}...{% endraw %}. False: it is another block.
    bool raw(std::size_t tag) {
        std::size_t at = skip_space(at_);
        if (!starts(at, "raw")) return false;
        at = skip_space(at + 3);
        const char sign = at < source_.size() && source_[at] == '-' ? '-' : ' ';
        if (sign == '-') ++at;
        if (!starts(at, "%}")) return false;
        const std::size_t begin = after_tag(at + 2, sign, false);
        for (std::size_t end = source_.find("{%", begin); end != source_.npos; end = source_.find("{%", end + 2)) {
            std::size_t close = end + 2;
            const char before = close < source_.size() ? source_[close] : ' ';
            if (before == '-' || before == '+') ++close;
            close = skip_space(close);
            if (!starts(close, "endraw")) continue;
            close = skip_space(close + 6);
            const char after = close < source_.size() ? source_[close] : ' ';
            if (after == '-' || after == '+') ++close;
            if (!starts(close, "%}")) continue;
            at_ = begin;
            text(begin, text_end(end, before, true));
            at_ = after_tag(close + 2, after, true);
            return true;
        }
        fail(tag, "the raw block that begins here does not end; close it with {% endraw %}");
    }

    // Tokens up to the end of a tag. Braces that the expression opens hide an end.
    void expression(std::string_view close, Token::Kind end, std::size_t tag) {
        std::string open;  // brackets
        for (;;) {
            at_ = skip_space(at_);
            if (at_ >= source_.size()) {
                fail(tag, "the tag that begins here does not end; close it with " + std::string(close));
            }
            if (open.empty()) {
                const char sign = source_[at_];
                const bool signed_end =
                    (sign == '-' || (sign == '+' && end == Token::Kind::block_end)) && starts(at_ + 1, close);
                if (signed_end || starts(at_, close)) {
                    add(end, "", at_);
                    at_ = after_tag(at_ + close.size() + (signed_end ? 1 : 0), signed_end ? sign : ' ',
                                    end == Token::Kind::block_end);
                    return;
                }
            }
            token(open);
        }
    }

    void token(std::string& open) {
        const std::size_t begin = at_;
        const char c = source_[at_];
        if (is_digit(c)) {
            number();
        } else if (is_name_start(c)) {
            while (at_ < source_.size() && is_name(source_[at_])) ++at_;
            add(Token::Kind::name, source_.substr(begin, at_ - begin), begin);
        } else if (c == '"' || c == '\'') {
            string();
        } else {
            const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                            [&](std::string_view text) { return starts(at_, text); });
            if (found == std::end(kOperators)) {
                fail(at_, "unexpected character '" + source_.substr(at_, character_bytes(source_, at_)) + "'");
            }
            balance(c, open);
            add(Token::Kind::punctuation, std::string(*found), begin);
            at_ += found->size();
        }
    }

    void balance(char c, std::string& open) {
        if (c == '(') open += ')';
        if (c == '[') open += ']';
        if (c == '{') open += '}';
        if (c != ')' && c != ']' && c != '}') return;
        if (open.empty()) fail(at_, std::string("unexpected '") + c + "'");
        if (open.back() != c) fail(at_, std::string("unexpected '") + c + "', expected '" + open.back() + "'");
        open.pop_back();
    }

    void digits() {
        while (at_ < source_.size() && (is_digit(source_[at_]) || (source_[at_] == '_' && at_ + 1 < source_.size() &&
                                                                   is_digit(source_[at_ + 1])))) {
            ++at_;
        }
    }

    void number() {
        const std::size_t begin = at_;
        bool real = false;
        digits();
        if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
            real = true;
            ++at_;
            digits();
        }
        if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
            std::size_t exponent = at_ + 1;
            if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
            if (exponent < source_.size() && is_digit(source_[exponent])) {
                real = true;
                at_ = exponent;
                digits();
            }
        }
        std::string text = source_.substr(begin, at_ - begin);
        std::erase(text, '_');
        add(real ? Token::Kind::real : Token::Kind::integer, text, begin);
    }

    void string() {
        const std::size_t begin = at_;
        const char quote = source_[at_++];
        std::string text;
        for (;;) {
            if (at_ >= source_.size()) fail(begin, "the string that begins here does not end");
            const char c = source_[at_++];
            if (c == quote) break;
            if (c != '\\') {
                text += c;
                continue;
            }
            if (at_ >= source_.size()) fail(begin, "the string that begins here does not end");
            escape(text);
        }
        add(Token::Kind::string, std::move(text), begin);
    }

    // Python's escapes; what is none stays as it is.
    void escape(std::string& text) {
        constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
        const char c = source_[at_++];
        const std::size_t simple = kNames.find(c);
        if (simple != kNames.npos) {
            text += kValues[simple];
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            const std::string hex = source_.substr(at_, count);
            if (hex.size() < count || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) {
                fail(at_ - 2, std::string("\\") + c + " needs " + std::to_string(count) + " hexadecimal digits");
            }
            core::append_utf8(static_cast<char32_t>(std::stoul(hex, nullptr, 16)), text);
            at_ += count;
        } else if (c >= '0' && c <= '7') {
            char32_t code = static_cast<char32_t>(c - '0');
            for (int i = 0; i < 2 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i) {
                code = code * 8 + static_cast<char32_t>(source_[at_++] - '0');
            }
            core::append_utf8(code, text);
        } else if (c == '\n') {
            // A line that goes on.
        } else {
            text += '\\';
            text += c;
        }
    }

    std::string source_;
    std::size_t at_ = 0;
    std::vector<Token> tokens_;
    std::size_t counted_ = 0;
    int line_ = 1, column_ = 1;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace foresay::jinja
