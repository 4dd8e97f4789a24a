// Decimal numbers, and the expressions over their text: comparison with a bound, multiples.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "grammar/expressions.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostDigits = 400;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The state of a comparison: which part of the number is read, how many digits of it (up to one more than the bound
// has), how what was read compares with as much of the bound's size, and whether a digit was not 0.
struct Progress {
    enum Part : std::uint32_t { begin, whole, fraction } part = begin;
    bool negative = false;
    bool nonzero = false;
    int order = 0;  // -1, 0, 1
    std::uint32_t digits = 0;

    std::uint32_t packed() const {
        return static_cast<std::uint32_t>(part) | (negative ? 4u : 0u) | (nonzero ? 8u : 0u) |
               static_cast<std::uint32_t>(order + 1) << 4 | digits << 6;
    }
    static Progress of(std::uint32_t packed) {
        Progress p;
        p.part = static_cast<Part>(packed & 3);
        p.negative = (packed & 4) != 0;
        p.nonzero = (packed & 8) != 0;
        p.order = static_cast<int>(packed >> 4 & 3) - 1;
        p.digits = packed >> 6;
        return p;
    }
};

}  // namespace

bool Decimal::read(std::string_view text, Decimal& value) {
    value = {};
    std::size_t i = 0;
    if (i < text.size() && text[i] == '-') value.negative = true, ++i;
    std::string digits;
    long point = 0;
    for (; i < text.size() && is_digit(text[i]); ++i) digits += text[i], ++point;
    if (i < text.size() && text[i] == '.') {
        for (++i; i < text.size() && is_digit(text[i]); ++i) digits += text[i];
    }
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        std::string_view exponent = text.substr(i + 1);
        if (exponent.starts_with('+')) exponent.remove_prefix(1);
        long shift = 0;
        const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), shift);
        if (error != std::errc() || end != exponent.data() + exponent.size()) return false;
        if (shift > 1'000'000 || shift < -1'000'000) return false;
        point += shift;
    }
    const std::size_t first = digits.find_first_not_of('0');
    if (first == digits.npos) {
        value.negative = false;
        return true;
    }
    digits.erase(0, first);
    point -= static_cast<long>(first);
    digits.erase(digits.find_last_not_of('0') + 1);
    const long size = static_cast<long>(digits.size());
    if (size > static_cast<long>(kMostDigits) || point > static_cast<long>(kMostDigits) ||
        size - point > static_cast<long>(kMostDigits))
        return false;
    if (point <= 0) {
        value.fraction = std::string(static_cast<std::size_t>(-point), '0') + digits;
    } else if (point >= size) {
        value.whole = digits + std::string(static_cast<std::size_t>(point - size), '0');
    } else {
        value.whole = digits.substr(0, static_cast<std::size_t>(point));
        value.fraction = digits.substr(static_cast<std::size_t>(point));
    }
    return true;
}

std::string Decimal::text() const {
    return (negative ? "-" : "") + (whole.empty() ? "0" : whole) + (fraction.empty() ? "" : "." + fraction);
}

int Decimal::compare(const Decimal& a, const Decimal& b) {
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    const auto size = [](const Decimal& x, const Decimal& y) {
        if (x.whole.size() != y.whole.size()) return x.whole.size() < y.whole.size() ? -1 : 1;
        const int whole = x.whole.compare(y.whole);
        const int order = whole != 0 ? whole : x.fraction.compare(y.fraction);
        return order < 0 ? -1 : order > 0 ? 1 : 0;
    };
    return a.negative ? size(b, a) : size(a, b);
}

Expression Expressions::compare(Comparison comparison, const Decimal& bound) {
    bounds_.push_back(bound);
    compares_ = true;
    return add_compare(static_cast<std::uint32_t>(bounds_.size() - 1), comparison, Progress{}.packed());
}

Expression Expressions::add_compare(std::uint32_t bound_index, Comparison comparison, std::uint32_t state) {
    const Decimal& bound = bounds_[bound_index];
    const Progress p = Progress::of(state);
    // The order of the number against the bound, were it to end here.
    int size = p.order;
    if (p.part != Progress::fraction && p.digits < bound.whole.size()) size = -1;
    const std::size_t compared = p.part == Progress::fraction ? p.digits : 0;
    if (size == 0 && compared < bound.fraction.size()) size = -1;  // its last digit is not 0
    int order = size;
    if (p.negative != bound.negative) {
        order = p.negative ? -1 : 1;
    } else if (p.negative) {
        order = -size;
    }
    // The order whatever digits follow; 0: they decide. Then the text is dead, or needs no more comparing.
    int final = 0;
    if (p.negative != bound.negative) {
        final = p.negative ? -1 : p.part != Progress::begin ? 1 : 0;
    } else if (p.part == Progress::fraction ? p.order != 0 : p.order == 1 && p.digits >= bound.whole.size()) {
        final = p.negative ? -p.order : p.order;
    }
    if (final != 0) {
        const bool lower = comparison == Comparison::at_least || comparison == Comparison::above;
        if (lower != (final > 0)) return kNone;
        if (!p.negative || p.nonzero) return kAll;
    }
    bool nullable = p.part != Progress::begin && (!p.negative || p.nonzero);  // -0 is left out: it would be 0
    switch (comparison) {
        case Comparison::at_least:
            nullable = nullable && order >= 0;
            break;
        case Comparison::above:
            nullable = nullable && order > 0;
            break;
        case Comparison::at_most:
            nullable = nullable && order <= 0;
            break;
        case Comparison::below:
            nullable = nullable && order < 0;
            break;
    }
    return add({Kind::compare, nullable, true, bound_index, static_cast<std::uint32_t>(comparison), state});
}

Expression Expressions::derive_compare(const Node& node, std::uint8_t value) {
    const Decimal& bound = bounds_[node.a];
    const char c = static_cast<char>(value);
    Progress p = Progress::of(node.c);
    if (c == '-') {
        if (p.part != Progress::begin || p.negative) return kNone;
        p.negative = true;
    } else if (c == '.') {
        if (p.part != Progress::whole) return kNone;
        if (p.digits < bound.whole.size()) p.order = -1;
        p.part = Progress::fraction;
        p.digits = 0;
    } else if (is_digit(c)) {
        if (c != '0') p.nonzero = true;
        if (p.part == Progress::fraction) {
            const char other = p.digits < bound.fraction.size() ? bound.fraction[p.digits] : '0';
            if (p.order == 0) p.order = c < other ? -1 : c > other ? 1 : 0;
            p.digits = std::min<std::uint32_t>(p.digits + 1, static_cast<std::uint32_t>(bound.fraction.size()));
        } else {
            // A 0 before the point counts no digit, as in the bound.
            p.part = Progress::whole;
            if (p.nonzero) {
                if (p.digits >= bound.whole.size()) {
                    p.order = 1;
                } else {
                    const char other = bound.whole[p.digits];
                    if (p.order == 0) p.order = c < other ? -1 : c > other ? 1 : 0;
                    ++p.digits;
                    // Fewer digits so far: whether it is larger is known once it has as many.
                }
            }
        }
    } else {
        return kNone;
    }
    return add_compare(node.a, static_cast<Comparison>(node.b), p.packed());
}

Expression Expressions::multiple(std::uint64_t factor, std::uint32_t places) {
    check(factor > 0 && factor < (std::uint64_t{1} << 32) && places <= 200, "a factor of multiples is out of range");
    compares_ = true;
    return add_multiple(static_cast<std::uint32_t>(factor), 0, places << 1);
}

// How many digits are missing to what the bound has.
std::uint32_t Expressions::compare_distance(const Node& node) const {
    const Decimal& bound = bounds_[node.a];
    const Progress p = Progress::of(node.c);
    const std::size_t digits = (p.part == Progress::fraction ? bound.fraction : bound.whole).size();
    return static_cast<std::uint32_t>(digits > p.digits ? digits - p.digits : 1);
}

// How many bytes it takes to a multiple; 0: there is none. Of k further digits, which are a number below 10^k, the one
// is looked for that makes what was read a multiple.
std::uint32_t Expressions::multiple_distance(std::uint32_t factor, std::uint32_t rest, std::uint32_t phase) {
    const bool point = (phase & 1) != 0;
    const std::uint32_t places = phase >> 1;
    std::uint64_t read = rest;
    std::uint64_t below = 1;
    for (std::uint32_t k = 0;; ++k) {
        // The digits that are left after these are zeros, which take no part in a multiple of factor / divisor.
        std::uint64_t divisor = factor;
        for (std::uint32_t left = point ? places - k : places; left > 0 && divisor > 1; --left) {
            const std::uint64_t common = std::gcd(divisor, std::uint64_t{10});
            if (common == 1) break;
            divisor /= common;
        }
        if ((divisor - read % divisor) % divisor < below) return std::max(k, 1u);
        if (point && k == places) return 0;
        read = read * 10 % factor;
        below *= 10;
    }
}

// phase: twice the digits after the point that still count, plus one after the point.
Expression Expressions::add_multiple(std::uint32_t factor, std::uint32_t rest, std::uint32_t phase) {
    std::uint64_t end = rest;
    for (std::uint32_t left = phase >> 1; left > 0; --left) end = end * 10 % factor;
    if ((phase & 1) != 0 && end != 0 && multiple_distance(factor, rest, phase) == 0) return kNone;
    return add({Kind::multiple, end == 0, true, factor, rest, phase});
}

Expression Expressions::derive_multiple(const Node& node, std::uint8_t value) {
    const char c = static_cast<char>(value);
    if (c == '-') return add_multiple(node.a, node.b, node.c);
    if (c == '.') return (node.c & 1) != 0 ? kNone : add_multiple(node.a, node.b, node.c | 1);
    if (!is_digit(c)) return kNone;
    if (node.c == 1) return c == '0' ? add_multiple(node.a, node.b, node.c) : kNone;  // no digit counts any more
    const auto rest =
        static_cast<std::uint32_t>((std::uint64_t{node.b} * 10 + static_cast<std::uint64_t>(c - '0')) % node.a);
    return add_multiple(node.a, rest, (node.c & 1) != 0 ? node.c - 2 : node.c);
}

}  // namespace foresay::grammar
