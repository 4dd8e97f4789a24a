#include "core/config/toml_tree.h"

#include <toml++/toml.h>
#include <algorithm>
#include <charconv>
#include <system_error>

namespace foresay::core {

namespace {

constexpr std::size_t kMaxLine = 200;

// Refuses, without recursion, text that the TOML library mishandles: too deep nesting, in brackets or in the dots of
// one key (the library parses and frees tables recursively); table headers that do not begin with a key (it assumes
// that they do); non-ASCII characters outside strings and comments (it assumes that some of them cannot occur). Skips
// strings and comments by TOML's rules. Where these rules and the library disagree, the text is not TOML, and the
// library stops there.
class Guard {
public:
    explicit Guard(std::string_view text) : text_(text), at_(text.starts_with("\xef\xbb\xbf") ? 3 : 0) {}

    // The error, or an empty text; line() is its line.
    std::string complaint() {
        while (at_ < text_.size()) {
            if (fresh_line_ && brackets_ == 0 && !header_is_sound())
                return "not TOML: a table header must name a table";
            step();
            if (stray_) return "not TOML: a string is not allowed here";
            if (foreign_) return "not TOML: only ASCII characters are allowed outside strings and comments";
            if (brackets_ > kMaxTomlDepth || dots_ > kMaxTomlDepth) {
                return "nests deeper than " + std::to_string(kMaxTomlDepth) + " levels";
            }
        }
        return "";
    }
    int line() const { return line_; }

private:
    // False only for a table header that does not begin with a key. An empty header passes: the library refuses it.
    bool header_is_sound() {
        std::size_t at = text_.find_first_not_of(" \t", at_);
        fresh_line_ = false;
        if (at == std::string_view::npos || text_[at] != '[') return true;
        for (int i = 0; i < 2 && at < text_.size() && text_[at] == '['; ++i) {
            at = std::min(text_.find_first_not_of(" \t", at + 1), text_.size());
        }
        if (at == text_.size()) return true;
        const char c = text_[at];
        const bool bare =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        return bare || c == '"' || c == '\'' || c == ']';
    }

    bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

    void step() {
        const char c = text_[at_];
        switch (c) {
            case '#':
                while (at_ < text_.size() && text_[at_] != '\n') ++at_;
                return;
            case '"':
            case '\'':
                // Elsewhere, the library would search the string for the end of the preceding value.
                stray_ = std::string_view("\n=,[{.").find(last_) == std::string_view::npos;
                last_ = c;
                skip_string(c);
                return;
            case '\n':
                ++line_;
                dots_ = 0;
                fresh_line_ = true;
                break;
            case '[':
            case '{':
                ++brackets_;
                dots_ = 0;
                break;
            case ']':
            case '}':
                brackets_ = std::max(0, brackets_ - 1);
                dots_ = 0;
                break;
            case '=':
            case ',':
                dots_ = 0;
                break;
            case '.':
                ++dots_;
                break;
            default:
                foreign_ = static_cast<unsigned char>(c) >= 0x80;
                break;
        }
        if (c != ' ' && c != '\t' && c != '\r') last_ = c;
        ++at_;
    }

    void skip_string(char quote) {
        const std::string triple(3, quote);
        const bool block = starts(triple);
        at_ += block ? 3 : 1;
        while (at_ < text_.size()) {
            if (quote == '"' && text_[at_] == '\\') {
                at_ += 1;
                if (at_ < text_.size() && text_[at_] == '\n') ++line_;
                ++at_;
                continue;
            }
            if (block ? starts(triple) : text_[at_] == quote) {
                at_ += block ? 3 : 1;
                // A block may end in up to five quotes; the extra ones belong to its text.
                for (int extra = 0; block && extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
                return;
            }
            if (text_[at_] == '\n') {
                if (!block) return;
                ++line_;
            }
            ++at_;
        }
    }

    std::string_view text_;
    std::size_t at_;  // starts after the byte-order mark, if any
    int line_ = 1;
    char last_ = '\n';  // the last character that is not a space
    bool stray_ = false;
    bool foreign_ = false;
    bool fresh_line_ = true;
    int brackets_ = 0;
    int dots_ = 0;
};

// The library places a number after its sign. Moves it to the sign, in lines short enough for a caret.
class Signs {
public:
    explicit Signs(std::string_view text) : text_(text) {
        starts_.push_back(0);
        for (std::size_t i = 0; i < text.size(); ++i) {
            if (text[i] == '\n') starts_.push_back(i + 1);
        }
    }
    void place(TomlNode& node) const {
        const bool number = node.kind == TomlNode::Kind::integer || node.kind == TomlNode::Kind::real;
        if (number && node.column > 1 && before(node.line, node.column)) --node.column;
        for (TomlNode& item : node.items) place(item);
        for (TomlNode::Member& member : node.members) place(member.value);
    }

private:
    // Whether a sign stands before `column` of `line`. Columns count characters.
    bool before(int line, int column) const {
        if (line < 1 || static_cast<std::size_t>(line) > starts_.size() || column > static_cast<int>(kMaxLine))
            return false;
        std::size_t at = starts_[static_cast<std::size_t>(line) - 1];
        for (int skipped = 2; at < text_.size() && skipped < column; ++skipped) {
            do ++at;
            while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xc0) == 0x80);
        }
        return at < text_.size() && (text_[at] == '-' || text_[at] == '+');
    }

    std::string_view text_;
    std::vector<std::size_t> starts_;  // of lines
};

// An integer in `line` that does not fit 64 bits, with its sign, and its column; empty when there is none.
std::string huge_integer(std::string_view line, int& column) {
    const auto digit = [](char c) { return (c >= '0' && c <= '9') || c == '_'; };
    for (std::size_t begin = 0; begin < line.size(); ++begin) {
        if (!digit(line[begin])) continue;
        std::size_t end = begin;
        while (end < line.size() && digit(line[end])) ++end;
        const bool sign = begin > 0 && (line[begin - 1] == '-' || line[begin - 1] == '+');
        const std::string written(line.substr(begin - (sign ? 1 : 0), end - begin + (sign ? 1 : 0)));
        std::string digits;
        for (const char c : written) {
            if (c != '_' && c != '+') digits += c;
        }
        std::int64_t ignored = 0;
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ignored);
        if (error == std::errc::result_out_of_range) {
            column = static_cast<int>(begin) + (sign ? 0 : 1);
            return written;
        }
        begin = end;
    }
    return "";
}

TomlNode convert(const toml::node& node);

void convert_members(const toml::table& table, TomlNode& out) {
    for (const auto& [key, value] : table) {
        TomlNode::Member member;
        member.key = std::string(key.str());
        member.line = static_cast<int>(key.source().begin.line);
        member.column = static_cast<int>(key.source().begin.column);
        member.value = convert(value);
        out.members.push_back(std::move(member));
    }
    // The library sorts keys alphabetically; messages and lists must follow the file.
    std::stable_sort(out.members.begin(), out.members.end(), [](const auto& a, const auto& b) {
        return a.line != b.line ? a.line < b.line : a.column < b.column;
    });
}

TomlNode convert(const toml::node& node) {
    TomlNode out;
    out.line = static_cast<int>(node.source().begin.line);
    out.column = static_cast<int>(node.source().begin.column);
    switch (node.type()) {
        case toml::node_type::table:
            out.kind = TomlNode::Kind::table;
            convert_members(*node.as_table(), out);
            break;
        case toml::node_type::array:
            out.kind = TomlNode::Kind::list;
            for (const toml::node& item : *node.as_array()) out.items.push_back(convert(item));
            break;
        case toml::node_type::string:
            out.kind = TomlNode::Kind::text;
            out.text = node.as_string()->get();
            break;
        case toml::node_type::integer:
            out.kind = TomlNode::Kind::integer;
            out.integer = node.as_integer()->get();
            break;
        case toml::node_type::floating_point:
            out.kind = TomlNode::Kind::real;
            out.real = node.as_floating_point()->get();
            break;
        case toml::node_type::boolean:
            out.kind = TomlNode::Kind::boolean;
            out.boolean = node.as_boolean()->get();
            break;
        default:
            out.kind = TomlNode::Kind::date;
            break;
    }
    return out;
}

}  // namespace

std::string_view TomlNode::kind_name() const {
    switch (kind) {
        case Kind::boolean:
            return "a boolean";
        case Kind::integer:
            return "an integer";
        case Kind::real:
            return "a number with a fraction";
        case Kind::text:
            return "a string";
        case Kind::date:
            return "a date or time";
        case Kind::list:
            return "a list";
        case Kind::table:
            return "a table";
    }
    return "a value";
}

const TomlNode::Member* TomlNode::find(std::string_view key) const {
    const auto found = std::ranges::find(members, key, &Member::key);
    return found == members.end() ? nullptr : &*found;
}

std::string line_of(std::string_view text, int line) {
    std::size_t begin = 0;
    for (int i = 1; i < line; ++i) {
        begin = text.find('\n', begin);
        if (begin == std::string_view::npos) return "";
        ++begin;
    }
    if (line < 1 || begin >= text.size()) return "";
    std::string_view found = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
    if (found.ends_with('\r')) found.remove_suffix(1);
    std::string out;
    // Messages may be shown on a terminal, so remove control bytes of a hostile file.
    for (const char c : found.substr(0, kMaxLine)) out += (static_cast<unsigned char>(c) < 0x20 && c != '\t') ? '?' : c;
    return out;
}

std::optional<TomlNode> parse_toml(std::string_view text, const std::string& place, Diagnostic& error) {
    Guard guard(text);
    if (const std::string complaint = guard.complaint(); !complaint.empty()) {
        error = {Origin{place, guard.line(), 1}, complaint, line_of(text, guard.line())};
        return std::nullopt;
    }
    try {
        const toml::table table = toml::parse(text, std::string_view(place));
        TomlNode tree = convert(table);
        Signs(text).place(tree);
        return tree;
    } catch (const toml::parse_error& problem) {
        const auto& at = problem.source().begin;
        error.where = Origin{place, static_cast<int>(at.line), static_cast<int>(at.column)};
        error.message = "not TOML: " + std::string(problem.description());
        error.source_line = line_of(text, static_cast<int>(at.line));
        const bool integer = problem.description().find("integer") != std::string_view::npos;
        const std::string number = integer ? huge_integer(error.source_line, error.where.column) : "";
        if (!number.empty()) {
            error.message = "an integer must be between -9223372036854775808 and 9223372036854775807, not " + number;
        }
        return std::nullopt;
    }
}

}  // namespace foresay::core
