#include "core/jinja/strings.h"

#include <algorithm>
#include <cwctype>

#include "core/text/utf8.h"

namespace foresay::jinja {

namespace {

// Simple case mappings of the scripts that have case: Latin, Greek, Cyrillic, Armenian. Each is a range, a distance
// from upper to lower case, and whether both alternate.
struct CaseRange {
    char32_t first, last;
    std::int32_t distance;  // 0: neighbours alternate, the even one upper unless `odd`
    bool odd;
};
constexpr CaseRange kCases[] = {
    {0x41, 0x5a, 32, false},   {0xc0, 0xd6, 32, false},    {0xd8, 0xde, 32, false},    {0x100, 0x12f, 0, false},
    {0x132, 0x137, 0, false},  {0x139, 0x148, 0, true},    {0x14a, 0x177, 0, false},   {0x179, 0x17e, 0, true},
    {0x386, 0x386, 38, false}, {0x388, 0x38a, 37, false},  {0x38c, 0x38c, 64, false},  {0x38e, 0x38f, 63, false},
    {0x391, 0x3a1, 32, false}, {0x3a3, 0x3ab, 32, false},  {0x3d8, 0x3ef, 0, false},   {0x400, 0x40f, 80, false},
    {0x410, 0x42f, 32, false}, {0x460, 0x481, 0, false},   {0x48a, 0x4bf, 0, false},   {0x4d0, 0x52f, 0, false},
    {0x531, 0x556, 48, false}, {0x1e00, 0x1e95, 0, false}, {0x1ea0, 0x1eff, 0, false}, {0xff21, 0xff3a, 32, false},
};

char32_t to_lower(char32_t code) {
    if (code == 0x130) return 'i';
    if (code == 0x178) return 0xff;
    for (const CaseRange& range : kCases) {
        if (code < range.first || code > range.last) continue;
        if (range.distance != 0) return code + static_cast<char32_t>(range.distance);
        return ((code & 1) != 0) == range.odd ? code + 1 : code;
    }
    return code;
}

char32_t to_upper(char32_t code) {
    if (code == 0xb5) return 0x39c;
    if (code == 0xff) return 0x178;
    if (code == 0x131) return 'I';
    if (code == 0x3c2) return 0x3a3;
    for (const CaseRange& range : kCases) {
        if (range.distance != 0) {
            const char32_t upper = code - static_cast<char32_t>(range.distance);
            if (code >= static_cast<char32_t>(range.distance) && upper >= range.first && upper <= range.last)
                return upper;
        } else if (code >= range.first && code <= range.last) {
            return ((code & 1) != 0) != range.odd ? code - 1 : code;
        }
    }
    return code;
}

// Applies `map(code, place)` to every character.
template <class Map>
Text map_characters(Runtime& runtime, const Text& text, Map&& map) {
    const std::string& bytes = text.bytes();
    runtime.charge(bytes.size());
    Text out;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = character_bytes(bytes, at);
        const char32_t code = character_code(bytes, at);
        const char32_t mapped = map(code);
        if (mapped == code) {
            out.append(text, at, at + length);
        } else {
            std::string encoded;
            core::append_utf8(mapped, encoded);
            out.append(encoded, text.is_input(at));
        }
        at += length;
    }
    return out.set_markup(text.is_markup());
}

}  // namespace

Text escaped(Runtime& runtime, const Text& text) {
    if (text.is_markup()) return text;
    Text out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        constexpr std::string_view kCharacters = "&<>'\"";
        constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
        const std::size_t place = kCharacters.find(text.bytes()[at]);
        if (place == kCharacters.npos) {
            out.append(text, at, at + 1);
        } else {
            out.append(kNames[place], text.is_input(at));
        }
    }
    runtime.charge(out);
    return out.set_markup(true);
}

bool is_lower(char32_t code) { return to_upper(code) != code || code == 0xdf; }
bool is_upper(char32_t code) { return to_lower(code) != code; }
bool is_letter(char32_t code) {
    if (code < 0x80) return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    return is_lower(code) || is_upper(code) || code == 0xaa || code == 0xba || (code >= 0x370 && code < 0x2000) ||
           (code >= 0x3040 && code < 0xe000) || (code >= 0x20000 && code < 0x32000);
}

Text mapped_case(Runtime& runtime, const Text& text, Case to) {
    return map_characters(runtime, text, [&](char32_t code) {
        if (to == Case::swapped) return is_upper(code) ? to_lower(code) : to_upper(code);
        return to == Case::lower ? to_lower(code) : to_upper(code);
    });
}

Text capitalized(Runtime& runtime, const Text& text) {
    bool first = true;
    return map_characters(runtime, text,
                          [&](char32_t code) { return std::exchange(first, false) ? to_upper(code) : to_lower(code); });
}

Text titled(Runtime& runtime, const Text& text, TitleRule rule) {
    bool begins = true;
    return map_characters(runtime, text, [&](char32_t code) {
        const char32_t mapped = begins ? to_upper(code) : to_lower(code);
        begins = rule == TitleRule::after_no_letter
                     ? !is_letter(code)
                     : is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
        return mapped;
    });
}

Text padded(Runtime& runtime, const Text& text, std::int64_t width, const std::string& fill, Padding place) {
    const auto length = static_cast<std::int64_t>(count_characters(text.bytes()));
    if (width <= length) return text;
    const auto room = static_cast<std::size_t>(width - length);
    runtime.charge(room);
    if (count_characters(fill) != 1) throw TemplateError("the fill character must be exactly one character");
    // Python's centre: the odd character goes left when the width is odd.
    const std::size_t left = place == Padding::left    ? 0
                             : place == Padding::right ? room
                                                       : room / 2 + (room & static_cast<std::size_t>(width) & 1);
    Text out;
    for (std::size_t i = 0; i < left; ++i) out.append(fill);
    out.append(text);
    for (std::size_t i = left; i < room; ++i) out.append(fill);
    return out;
}

Text replaced(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t most) {
    const std::string& bytes = text.bytes();
    Text out;
    if (from.empty()) {  // between all characters
        for (std::size_t at = 0; at <= bytes.size();) {
            const std::size_t length = at < bytes.size() ? character_bytes(bytes, at) : 1;
            if (most != 0) {
                runtime.charge(to);
                out.append(to);
                --most;
            }
            if (at < bytes.size()) out.append(text, at, at + length);
            at += length;
        }
        return out;
    }
    std::size_t done = 0;
    while (most != 0) {
        const std::size_t at = bytes.find(from.bytes(), done);
        if (at == bytes.npos) break;
        runtime.charge(at - done + to.size());
        out.append(text, done, at);
        out.append(to);
        done = at + from.size();
        --most;
    }
    runtime.charge(bytes.size() - done);
    out.append(text, done, bytes.size());
    return out;
}

std::vector<Text> split(const Text& text, const std::string* separator, std::int64_t most) {
    std::vector<Text> out;
    const std::string& bytes = text.bytes();
    if (separator != nullptr) {
        if (separator->empty()) throw TemplateError("empty separator");
        std::size_t done = 0;
        for (; most != 0; --most) {
            const std::size_t at = bytes.find(*separator, done);
            if (at == bytes.npos) break;
            out.push_back(text.slice(done, at));
            done = at + separator->size();
        }
        out.push_back(text.slice(done, bytes.size()));
        return out;
    }
    const std::vector<std::size_t> at = character_offsets(bytes);
    const auto space = [&](std::size_t i) { return is_space(character_code(bytes, at[i])); };
    std::size_t i = 0;
    for (const std::size_t count = at.size() - 1;;) {
        while (i < count && space(i)) ++i;
        if (i == count) return out;
        if (most-- == 0) {
            out.push_back(text.slice(at[i], bytes.size()));
            return out;
        }
        const std::size_t begin = i;
        while (i < count && !space(i)) ++i;
        out.push_back(text.slice(at[begin], at[i]));
    }
}

std::vector<Text> split_from_right(const Text& text, const std::string* separator, std::int64_t most) {
    if (most < 0) return split(text, separator, -1);
    std::vector<Text> out;
    const std::string& bytes = text.bytes();
    if (separator != nullptr) {
        if (separator->empty()) throw TemplateError("empty separator");
        std::size_t end = bytes.size();
        for (; most != 0 && end >= separator->size(); --most) {
            const std::size_t at = bytes.rfind(*separator, end - separator->size());
            if (at == bytes.npos) break;
            out.push_back(text.slice(at + separator->size(), end));
            end = at;
        }
        out.push_back(text.slice(0, end));
    } else {
        const std::vector<std::size_t> at = character_offsets(bytes);
        const auto space = [&](std::size_t i) { return is_space(character_code(bytes, at[i])); };
        std::size_t i = at.size() - 1;
        for (;; --most) {
            while (i > 0 && space(i - 1)) --i;
            if (i == 0) break;
            if (most == 0) {
                out.push_back(text.slice(0, at[i]));
                break;
            }
            const std::size_t end = i;
            while (i > 0 && !space(i - 1)) --i;
            out.push_back(text.slice(at[i], at[end]));
        }
    }
    std::reverse(out.begin(), out.end());
    return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
    std::vector<Text> out;
    const std::string& bytes = text.bytes();
    std::size_t begin = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const char32_t code = character_code(bytes, at);
        std::size_t length = character_bytes(bytes, at);
        const bool ends = (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                          code == 0x2028 || code == 0x2029;
        if (ends) {
            if (code == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') length = 2;
            out.push_back(text.slice(begin, keep_ends ? at + length : at));
            begin = at + length;
        }
        at += length;
    }
    if (begin < bytes.size()) out.push_back(text.slice(begin, bytes.size()));
    return out;
}

}  // namespace foresay::jinja
