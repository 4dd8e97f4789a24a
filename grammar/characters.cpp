#include "grammar/characters.h"

#include <algorithm>
#include <array>

namespace foresay::grammar {
namespace {

using Bytes = std::vector<std::pair<std::uint8_t, std::uint8_t>>;  // a range for each byte of a sequence

// Ranges of code points whose encodings are ranges byte by byte (R. Cox's method, as in RE2).
void split(std::uint32_t first, std::uint32_t last, std::vector<Bytes>& sequences) {
    constexpr std::array<std::uint32_t, 3> kEnds = {0x7F, 0x7FF, 0xFFFF};
    for (const std::uint32_t end : kEnds) {
        if (first <= end && last > end) {
            split(first, end, sequences);
            split(end + 1, last, sequences);
            return;
        }
    }
    for (int i = 1; i < (last <= 0x7F ? 1 : last <= 0x7FF ? 2 : last <= 0xFFFF ? 3 : 4); ++i) {
        const std::uint32_t mask = (1u << (6 * i)) - 1;
        if ((first & ~mask) == (last & ~mask)) continue;
        if ((first & mask) != 0) {
            split(first, first | mask, sequences);
            split((first | mask) + 1, last, sequences);
            return;
        }
        if ((last & mask) != mask) {
            split(first, (last & ~mask) - 1, sequences);
            split(last & ~mask, last, sequences);
            return;
        }
    }
    std::string low, high;
    append_utf8(low, first);
    append_utf8(high, last);
    Bytes sequence;
    for (std::size_t i = 0; i < low.size(); ++i)
        sequence.emplace_back(static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]));
    sequences.push_back(std::move(sequence));
}

char short_escape(std::uint32_t c) {
    switch (c) {
        case '"':
            return '"';
        case '\\':
            return '\\';
        case '\b':
            return 'b';
        case '\f':
            return 'f';
        case '\n':
            return 'n';
        case '\r':
            return 'r';
        case '\t':
            return 't';
        default:
            return 0;
    }
}

Expression hex_digit(Expressions& e, std::uint32_t value) {
    if (value < 10) return e.byte(static_cast<std::uint8_t>('0' + value));
    ByteSet set;
    set.set('a' + value - 10);
    set.set('A' + value - 10);
    return e.bytes(set);
}

Expression escaped(Expressions& e, std::uint32_t c) {
    if (const char letter = short_escape(c)) return e.literal(std::string{'\\', letter});
    return e.concat({e.literal("\\u00"), hex_digit(e, c >> 4), hex_digit(e, c & 15)});
}

bool needs_escape(std::uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

}  // namespace

void CharacterSet::normalize() {
    std::vector<Range> whole;
    for (const auto& [first, last] : ranges_) {  // surrogates are no characters
        if (first < 0xD800) whole.emplace_back(first, std::min(last, 0xD7FFu));
        if (last > 0xDFFF) whole.emplace_back(std::max(first, 0xE000u), std::min(last, 0x10FFFFu));
    }
    std::sort(whole.begin(), whole.end());
    ranges_.clear();
    for (const Range& range : whole) {
        if (range.first > range.second) continue;
        if (!ranges_.empty() && range.first <= ranges_.back().second + 1) {
            ranges_.back().second = std::max(ranges_.back().second, range.second);
        } else {
            ranges_.push_back(range);
        }
    }
}

CharacterSet CharacterSet::inverted() const {
    CharacterSet result;
    std::uint32_t next = 0;
    for (const auto& [first, last] : ranges_) {
        if (first > next) result.add(next, first - 1);
        next = last + 1;
    }
    if (next <= 0x10FFFF) result.add(next, 0x10FFFF);
    result.normalize();
    return result;
}

CharacterSet CharacterSet::common_with(const CharacterSet& other) const {
    CharacterSet outside = inverted();
    outside.add(other.inverted());
    outside.normalize();
    return outside.inverted();
}

bool CharacterSet::contains(std::uint32_t c) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.first <= c && c <= r.second; });
}

void append_utf8(std::string& text, std::uint32_t c) {
    const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) {
        text += static_cast<char>(c);
    } else if (c < 0x800) {
        text += static_cast<char>(0xC0 | c >> 6);
        tail(0);
    } else if (c < 0x10000) {
        text += static_cast<char>(0xE0 | c >> 12);
        tail(6), tail(0);
    } else {
        text += static_cast<char>(0xF0 | c >> 18);
        tail(12), tail(6), tail(0);
    }
}

std::int64_t take_utf8(std::string_view& text) {
    if (text.empty()) return -1;
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u; };
    const std::uint32_t head = at(0);
    const std::size_t size = head < 0x80 ? 1 : head >= 0xC2 && head < 0xE0 ? 2 : head >= 0xE0 && head < 0xF0 ? 3 : 4;
    if (size == 1) {
        text.remove_prefix(1);
        return head;
    }
    if (head < 0xC2 || head > 0xF4 || text.size() < size) return -1;
    std::uint32_t c = head & (0xFFu >> (size + 1));
    for (std::size_t i = 1; i < size; ++i) {
        if ((at(i) & 0xC0) != 0x80) return -1;
        c = c << 6 | (at(i) & 0x3F);
    }
    if ((size == 3 && c < 0x800) || (size == 4 && c < 0x10000) || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return -1;
    text.remove_prefix(size);
    return c;
}

Expression utf8(Expressions& e, const CharacterSet& set) {
    std::vector<Bytes> sequences;
    for (const auto& [first, last] : set.ranges()) split(first, last, sequences);
    // Sequences that end alike share their tails, because equal expressions are one.
    std::vector<Expression> parts;
    for (const Bytes& sequence : sequences) {
        Expression part = Expressions::kEmpty;
        for (std::size_t i = sequence.size(); i-- > 0;) {
            ByteSet bytes;
            for (unsigned b = sequence[i].first; b <= sequence[i].second; ++b) bytes.set(b);
            part = e.concat(e.bytes(bytes), part);
        }
        parts.push_back(part);
    }
    return e.alternatives(std::move(parts));
}

Expression write(Expressions& e, const CharacterSet& set, Writing writing) {
    if (writing == Writing::plain) return utf8(e, set);
    static const CharacterSet raw = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    std::vector<Expression> parts = {utf8(e, set.common_with(raw))};
    for (std::uint32_t c = 0; c <= '\\'; ++c) {
        if (needs_escape(c) && set.contains(c)) parts.push_back(escaped(e, c));
    }
    return e.alternatives(std::move(parts));
}

Expression write(Expressions& e, std::string_view text, Writing writing) {
    if (writing == Writing::plain) return e.literal(text);
    Expression result = Expressions::kEmpty;
    for (std::size_t i = text.size(); i-- > 0;) {
        const auto c = static_cast<std::uint8_t>(text[i]);
        result = e.concat(needs_escape(c) ? escaped(e, c) : e.byte(c), result);
    }
    return result;
}

}  // namespace foresay::grammar
