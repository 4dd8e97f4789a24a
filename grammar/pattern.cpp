#include "grammar/pattern.h"

#include <optional>

#include "base/error.h"

namespace foresay::grammar {
namespace {

constexpr int kMostNesting = 100;
constexpr std::uint32_t kMostRepetitions = 1'000'000;

CharacterSet digits() { return {{'0', '9'}}; }
CharacterSet word_characters() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharacterSet spaces() {
    return {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

// What a part of a pattern matches, apart by whether it stands at the beginning and at the end of the text.
struct Part {
    Expression at[2][2] = {{Expressions::kNone, Expressions::kNone}, {Expressions::kNone, Expressions::kNone}};
    bool anchored() const {
        return at[0][1] != Expressions::kNone || at[1][0] != Expressions::kNone || at[1][1] != Expressions::kNone;
    }
};

class Reader {
public:
    Reader(Expressions& expressions, std::string_view pattern, Writing writing)
        : e_(expressions), whole_(pattern), rest_(pattern), writing_(writing) {}

    Part read() {
        Part part = alternatives();
        if (!rest_.empty()) fail("a group is closed that was not opened");
        return part;
    }

private:
    [[noreturn]] void fail(std::string_view what) const {
        const std::string shown(whole_.substr(0, 60));
        throw Error("the pattern \"" + shown + (whole_.size() > 60 ? "...\"" : "\"") + " cannot be used: " +
                    std::string(what) + ", at character " + std::to_string(whole_.size() - rest_.size() + 1));
    }
    bool take(char c) {
        if (!rest_.starts_with(c)) return false;
        rest_.remove_prefix(1);
        return true;
    }
    bool take(std::string_view text) {
        if (!rest_.starts_with(text)) return false;
        rest_.remove_prefix(text.size());
        return true;
    }
    std::uint32_t character() {
        const std::int64_t c = take_utf8(rest_);
        if (c < 0) fail(rest_.empty() ? "it ends too early" : "it is not UTF-8");
        return static_cast<std::uint32_t>(c);
    }
    static Part plain(Expression e) {
        Part part;
        part.at[0][0] = e;
        return part;
    }

    Part alternatives() {
        if (++depth_ > kMostNesting) fail("groups are nested too deeply");
        std::vector<Expression> lists[2][2];
        do {
            const Part part = sequence();
            for (int b = 0; b < 2; ++b) {
                for (int n = 0; n < 2; ++n) lists[b][n].push_back(part.at[b][n]);
            }
        } while (take('|'));
        --depth_;
        Part all;
        for (int b = 0; b < 2; ++b) {
            for (int n = 0; n < 2; ++n) all.at[b][n] = e_.alternatives(std::move(lists[b][n]));
        }
        return all;
    }

    // Parts are joined from the end, so that a long chain leans to the right.
    Part sequence() {
        std::vector<Part> parts;
        while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
            e_.spend(2);
            parts.push_back(quantified());
        }
        Part all = plain(Expressions::kEmpty);
        for (std::size_t i = parts.size(); i-- > 0;) all = join(parts[i], all);
        return all;
    }

    Part join(const Part& a, const Part& b) {
        if (!a.anchored() && !b.anchored()) return plain(e_.concat(a.at[0][0], b.at[0][0]));
        Part all;
        const auto add = [&](int begin, int end, Expression e) {
            all.at[begin][end] = e_.either(all.at[begin][end], e);
        };
        for (int i = 0; i < 4; ++i) {
            for (int k = 0; k < 4; ++k) {
                const Expression x = a.at[i / 2][i % 2];
                const Expression y = b.at[k / 2][k % 2];
                if (x == Expressions::kNone || y == Expressions::kNone) continue;
                // After the end of the text, and before its beginning, only nothing can be matched.
                if (i % 2 == 1 && k / 2 == 1) {
                    if (e_.nullable(x) && e_.nullable(y)) add(1, 1, Expressions::kEmpty);
                } else if (i % 2 == 1) {
                    if (e_.nullable(y)) add(i / 2, 1, x);
                } else if (k / 2 == 1) {
                    if (e_.nullable(x)) add(1, k % 2, y);
                } else {
                    add(i / 2, k % 2, e_.concat(x, y));
                }
            }
        }
        return all;
    }

    Part quantified() {
        Part part = atom();
        std::uint32_t least = 1;
        std::uint32_t most = 1;
        if (take('*')) {
            least = 0, most = Expressions::kUnlimited;
        } else if (take('+')) {
            most = Expressions::kUnlimited;
        } else if (take('?')) {
            least = 0;
        } else if (!braces(least, most)) {
            return part;
        }
        take('?');
        if (!rest_.empty() && (rest_[0] == '*' || rest_[0] == '+' || rest_[0] == '?')) fail("nothing to repeat");
        if (part.anchored()) {
            if (least == 1 && most == 1) return part;
            if (least != 0 || most != 1) fail("^ or $ is repeated");
            part.at[0][0] = e_.optional(part.at[0][0]);
            return part;
        }
        return plain(e_.repeat(part.at[0][0], least, most));
    }

    // {n}, {n,} or {n,m}; anything else is text.
    bool braces(std::uint32_t& least, std::uint32_t& most) {
        const std::string_view before = rest_;
        const auto number = [&](std::uint32_t& value) {
            std::uint64_t n = 0;
            bool any = false;
            for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; rest_.remove_prefix(1), any = true)
                n = std::min<std::uint64_t>(n * 10 + static_cast<std::uint64_t>(rest_[0] - '0'), 1u << 30);
            if (n > kMostRepetitions) fail("more than 1000000 repetitions");
            value = static_cast<std::uint32_t>(n);
            return any;
        };
        std::uint32_t low = 0;
        std::uint32_t high = 0;
        if (!take('{') || !number(low)) return rest_ = before, false;
        high = low;
        if (take(',') && !number(high)) high = Expressions::kUnlimited;
        if (!take('}')) return rest_ = before, false;
        if (high < low) fail("the numbers of a repetition are in the wrong order");
        least = low;
        most = high;
        return true;
    }

    Part atom() {
        if (take('(')) {
            if (take("?:")) {
            } else if (rest_.starts_with("?=") || rest_.starts_with("?!") || rest_.starts_with("?<=") ||
                       rest_.starts_with("?<!")) {
                fail("looking ahead or back is not supported");
            } else if (take("?<") || take("?P<")) {
                while (!rest_.empty() && rest_[0] != '>') rest_.remove_prefix(1);
                if (!take('>')) fail("the name of a group does not end");
            } else if (rest_.starts_with('?')) {
                fail("this kind of group is not supported");
            }
            Part part = alternatives();
            if (!take(')')) fail("a group is not closed");
            return part;
        }
        Part part;
        if (take('^')) {
            part.at[1][0] = Expressions::kEmpty;
        } else if (take('$')) {
            part.at[0][1] = Expressions::kEmpty;
        } else if (take('.')) {
            return plain(one(CharacterSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.inverted()));
        } else if (take('[')) {
            return plain(one(bracketed()));
        } else if (rest_[0] == '*' || rest_[0] == '+' || rest_[0] == '?') {
            fail("nothing to repeat");
        } else if (take('\\')) {
            CharacterSet set;
            escape(set, false);
            return plain(one(set));
        } else {
            const std::uint32_t c = character();
            return plain(one({{c, c}}));
        }
        return part;
    }

    Expression one(const CharacterSet& set) { return write(e_, set, writing_); }

    // After a backslash. The character, where it is a single one.
    std::optional<std::uint32_t> escape(CharacterSet& set, bool in_class) {
        const std::uint32_t c = character();
        const auto single = [&](std::uint32_t value) {
            set.add(value, value);
            set.normalize();
            return std::optional(value);
        };
        const auto several = [&](const CharacterSet& these) {
            set.add(these);
            set.normalize();
            return std::nullopt;
        };
        switch (c) {
            case 'd':
                return several(digits());
            case 'D':
                return several(digits().inverted());
            case 'w':
                return several(word_characters());
            case 'W':
                return several(word_characters().inverted());
            case 's':
                return several(spaces());
            case 'S':
                return several(spaces().inverted());
            case 'n':
                return single('\n');
            case 'r':
                return single('\r');
            case 't':
                return single('\t');
            case 'f':
                return single('\f');
            case 'v':
                return single('\v');
            case 'x':
                return single(hex(2));
            case 'u':
                return single(unicode());
            case 'c': {
                const std::uint32_t letter = character();
                if ((letter | 32) < 'a' || (letter | 32) > 'z') fail("\\c needs a letter");
                return single(letter & 31);
            }
            case 'b':
                if (in_class) return single('\b');
                fail("\\b is not supported");
            case 'B':
                fail("\\B is not supported");
            case 'p':
            case 'P':
                fail("properties of characters (\\p) are not supported");
            case 'k':
                fail("back references are not supported");
            case '0':
                return single(0);
            default:
                break;
        }
        if (c >= '1' && c <= '9') fail("back references are not supported");
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) fail("an escape of a letter that means nothing");
        return single(c);
    }

    std::uint32_t hex(int count) {
        std::uint32_t value = 0;
        for (int i = 0; i < count; ++i) {
            const std::uint32_t c = character();
            const std::uint32_t low = c | 32;
            if (c >= '0' && c <= '9') {
                value = value * 16 + c - '0';
            } else if (low >= 'a' && low <= 'f') {
                value = value * 16 + low - 'a' + 10;
            } else {
                fail("a hexadecimal digit is missing");
            }
        }
        return value;
    }

    std::uint32_t unicode() {
        if (take('{')) {
            std::uint32_t value = 0;
            for (int i = 0; i < 6 && !rest_.starts_with('}'); ++i) value = value * 16 + hex(1);
            if (!take('}') || value > 0x10FFFF) fail("\\u{} needs a character");
            return value;
        }
        const std::uint32_t high = hex(4);
        if (high < 0xD800 || high > 0xDBFF || !rest_.starts_with("\\u")) return high;
        rest_.remove_prefix(2);
        const std::uint32_t low = hex(4);
        if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }

    CharacterSet bracketed() {
        const bool inverted = take('^');
        CharacterSet set;
        while (!take(']')) {
            if (rest_.empty()) fail("a class is not closed");
            const std::optional<std::uint32_t> first = class_character(set);
            if (!rest_.starts_with('-') || rest_.starts_with("-]") || rest_.size() < 2) continue;
            rest_.remove_prefix(1);
            const std::optional<std::uint32_t> last = class_character(set);
            if (!first || !last) {
                set.add('-', '-');  // [\w-x]: three members
            } else if (*first > *last) {
                fail("a range of characters is in the wrong order");
            } else {
                set.add(*first, *last);
            }
        }
        set.normalize();
        return inverted ? set.inverted() : set;
    }

    std::optional<std::uint32_t> class_character(CharacterSet& set) {
        if (take('\\')) return escape(set, true);
        const std::uint32_t c = character();
        set.add(c, c);
        return c;
    }

    Expressions& e_;
    std::string_view whole_;
    std::string_view rest_;
    Writing writing_;
    int depth_ = 0;
};

}  // namespace

Expression read_pattern(Expressions& e, std::string_view pattern, Match match, Writing writing) {
    const Part part = Reader(e, pattern, writing).read();
    if (match == Match::whole) {
        return e.alternatives({part.at[0][0], part.at[0][1], part.at[1][0], part.at[1][1]});
    }
    const Expression any = e.repeat(write(e, CharacterSet::all(), writing), 0, Expressions::kUnlimited);
    using Side = Expressions::Side;
    const Expression inside = e.trim(e.trim(part.at[0][0], Side::front), Side::back);
    return e.alternatives({e.concat({any, inside, any}), e.concat(any, e.trim(part.at[0][1], Side::front)),
                           e.concat(e.trim(part.at[1][0], Side::back), any), part.at[1][1]});
}

}  // namespace foresay::grammar
