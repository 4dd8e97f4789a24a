// Expressions, decimals and character sets, against enumeration.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/expressions.h"

namespace foresay::grammar {
namespace {

TEST(Expressions, EqualOnesAreOne) {
    Expressions e(10'000);
    const Expression a = e.byte('a');
    const Expression b = e.byte('b');
    EXPECT_EQ(e.either(a, b), e.either(b, a));
    EXPECT_EQ(e.either(a, e.either(b, a)), e.either(a, b));
    EXPECT_EQ(e.complement(e.complement(a)), a);
    EXPECT_EQ(e.intersection({a, Expressions::kAll}), a);
    EXPECT_EQ(e.intersection({a, b}), Expressions::kNone);
    EXPECT_EQ(e.concat(a, Expressions::kNone), Expressions::kNone);
    EXPECT_EQ(e.literals({"ab", "aa"}), e.concat(a, e.either(a, b)));
    EXPECT_EQ(e.repeat(e.repeat(a, 0, Expressions::kUnlimited), 0, Expressions::kUnlimited),
              e.repeat(a, 0, Expressions::kUnlimited));
}

TEST(Expressions, AnIntersectionThatMatchesNothingIsFound) {
    Expressions e(100'000);
    const Expression a = e.byte('a');
    const Expression even = e.repeat(e.concat(a, a), 0, Expressions::kUnlimited);
    const Expression odd = e.concat(a, even);
    const Expression both = e.intersection({even, odd});
    EXPECT_NE(both, Expressions::kNone);
    EXPECT_TRUE(e.matches_nothing(both));
    EXPECT_FALSE(e.matches_nothing(e.intersection({even, e.repeat(a, 3, 5)})));
    EXPECT_TRUE(e.matches_nothing(e.intersection({even, e.repeat(a, 3, 3)})));
    EXPECT_TRUE(e.matches_nothing(e.intersection({even, e.complement(e.repeat(a, 0, Expressions::kUnlimited))})));
}

// Blind searches give up on these after 20,000 derivatives, at each character of a text.
TEST(Expressions, AnEndThatIsFarAwayIsFoundSoon) {
    Expressions e(1'000'000);
    ByteSet letters;
    for (char c = 'a'; c <= 'z'; ++c) letters.set(static_cast<std::uint8_t>(c));
    ByteSet digits;
    for (char c = '0'; c <= '9'; ++c) digits.set(static_cast<std::uint8_t>(c));
    const Expression number = e.repeat(e.bytes(digits), 1, Expressions::kUnlimited);
    const Expression any = e.repeat(e.bytes(letters | digits), 0, Expressions::kUnlimited);
    const auto contains = [&](Expression part) { return e.concat({any, part, any}); };
    Decimal bound;
    ASSERT_TRUE(Decimal::read("123456789012", bound));
    std::vector<Expression> all_letters;
    for (char c = 'a'; c <= 't'; ++c) all_letters.push_back(contains(e.byte(static_cast<std::uint8_t>(c))));
    for (const Expression far :
         {e.intersection({e.repeat(e.bytes(letters | digits), 35, 5000),
                          contains(e.concat(number, e.repeat(e.bytes(letters), 24, 24)))}),
          e.intersection(std::move(all_letters)),
          e.intersection({number, e.concat(e.byte('7'), e.multiple(999'999'937, 0))}),
          e.intersection({number, e.compare(Comparison::above, bound), e.multiple(1'234'567, 0)})}) {
        ASSERT_FALSE(e.nullable(far));
        e.limit_work(40'000, "the search is too long");
        EXPECT_FALSE(e.matches_nothing(far));
    }
}

// A number that has passed its bound is dead at once, and one that cannot reach it any more needs no comparing.
TEST(Expressions, ComparisonsEndWhereNoDigitMatters) {
    Expressions e(100'000);
    const auto after = [&](Comparison comparison, std::string_view bound, std::string_view text) {
        Decimal d;
        EXPECT_TRUE(Decimal::read(bound, d));
        Expression x = e.compare(comparison, d);
        for (const char c : text) x = e.derivative(x, static_cast<std::uint8_t>(c));
        return x;
    };
    EXPECT_EQ(after(Comparison::at_most, "25", "26"), Expressions::kNone);
    EXPECT_EQ(after(Comparison::at_most, "25", "2.6"), Expressions::kAll);
    EXPECT_EQ(after(Comparison::at_least, "25", "2.6"), Expressions::kNone);
    EXPECT_EQ(after(Comparison::at_least, "25", "26"), Expressions::kAll);
    EXPECT_EQ(after(Comparison::at_least, "25", "-"), Expressions::kNone);
    EXPECT_EQ(after(Comparison::below, "-1.5", "1"), Expressions::kNone);
    EXPECT_EQ(after(Comparison::above, "-1.5", "-1.6"), Expressions::kNone);
    EXPECT_EQ(after(Comparison::above, "-1.5", "-1.4"), Expressions::kAll);
    for (const char* open : {"2", "25", "25.0", "-0"})
        EXPECT_GT(after(Comparison::at_most, "25", open), Expressions::kAll) << open;
    EXPECT_GT(after(Comparison::above, "0", "0.0"), Expressions::kAll);
}

TEST(Expressions, MultiplesThatNoDigitReachesAreDead) {
    Expressions e(100'000);
    const auto after = [&](std::string_view text) {
        Expression x = e.multiple(25, 2);  // of 0.25
        for (const char c : text) x = e.derivative(x, static_cast<std::uint8_t>(c));
        return x;
    };
    EXPECT_TRUE(e.nullable(after("1.75")));
    for (const char* open : {"1", "1.", "1.2", "1.5", "1.750"}) EXPECT_NE(after(open), Expressions::kNone) << open;
    for (const char* dead : {"1.1", "1.3", "1.76", "1.751"}) EXPECT_EQ(after(dead), Expressions::kNone) << dead;
}

TEST(Expressions, WhatIsTrimmedMatchesTheSameWithAnythingBesideIt) {
    Expressions e(100'000);
    const Expression a = e.byte('a');
    const Expression b = e.byte('b');
    using Side = Expressions::Side;
    EXPECT_EQ(e.trim(e.concat(a, e.repeat(b, 0, 9)), Side::back), a);
    EXPECT_EQ(e.trim(e.concat(a, e.repeat(b, 0, 9)), Side::front), e.concat(a, e.repeat(b, 0, 9)));
    EXPECT_EQ(e.trim(e.repeat(a, 0, Expressions::kUnlimited), Side::front), Expressions::kEmpty);
    const Expression any = e.repeat(e.either(a, b), 0, Expressions::kUnlimited);
    const auto star = [&](Expression x) { return e.repeat(x, 0, Expressions::kUnlimited); };
    for (const Expression x :
         {e.repeat(a, 2, 5), e.repeat(a, 3, 3), e.repeat(a, 1, Expressions::kUnlimited),
          e.concat({star(b), a, star(b), b, e.optional(a)}), e.either(e.concat(a, star(b)), e.concat(star(a), b)),
          e.repeat(e.concat(star(a), e.repeat(b, 1, 2)), 2, 3),
          e.concat(e.concat(a, star(b)), e.concat(star(a), star(b))), e.literal("abba")}) {
        const Expression front = e.trim(x, Side::front);
        const Expression back = e.trim(x, Side::back);
        const Expression both = e.trim(front, Side::back);
        for (unsigned n = 0; n < 9; ++n) {
            for (unsigned bits = 0; bits < 1u << n; ++bits) {
                std::string text;
                for (unsigned i = 0; i < n; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
                EXPECT_EQ(e.matches(e.concat(any, front), text), e.matches(e.concat(any, x), text)) << text;
                EXPECT_EQ(e.matches(e.concat(back, any), text), e.matches(e.concat(x, any), text)) << text;
                EXPECT_EQ(e.matches(e.concat({any, both, any}), text), e.matches(e.concat({any, x, any}), text));
            }
        }
    }
}

TEST(PartedTable, NoInsertionMovesMany) {
    PartedTable<std::uint32_t> table;
    constexpr std::uint32_t kEntries = 300'000;
    std::size_t most = 0;
    std::size_t moved = 0;
    const auto hash = [](std::uint32_t entry) { return PartedTable<std::uint32_t>::mix(entry); };
    const auto hash_of = [&](std::uint32_t entry) { return ++moved, hash(entry); };
    for (std::uint32_t entry = 1; entry <= kEntries; ++entry) {
        moved = 0;
        table.insert(hash(entry), entry, hash_of);
        most = std::max(most, moved);
    }
    EXPECT_GT(most, 0u);
    EXPECT_LT(most, kEntries / 100);
    for (std::uint32_t entry = 1; entry <= kEntries + 1000; ++entry) {
        const std::uint32_t* found = table.find(hash(entry), [&](std::uint32_t e) { return e == entry; });
        ASSERT_EQ(found != nullptr, entry <= kEntries) << entry;
        if (found != nullptr) {
            ASSERT_EQ(*found, entry);
        }
    }
}

TEST(Expressions, TheLimitIsAnError) {
    Expressions e(100);
    EXPECT_THROW(e.literal(std::string(200, 'a') + std::string(200, 'b')), Error);
}

TEST(Decimals, AreReadExactly) {
    const auto text = [](std::string_view number) {
        Decimal d;
        EXPECT_TRUE(Decimal::read(number, d)) << number;
        return d.text();
    };
    EXPECT_EQ(text("0"), "0");
    EXPECT_EQ(text("-0.0"), "0");
    EXPECT_EQ(text("12.50"), "12.5");
    EXPECT_EQ(text("1e3"), "1000");
    EXPECT_EQ(text("-1.25E-2"), "-0.0125");
    EXPECT_EQ(text("1200e-1"), "120");
    Decimal d;
    EXPECT_FALSE(Decimal::read("1e500", d));
}

// Every text of up to 5 of "-0125." that is a JSON number, against a double.
TEST(Decimals, ComparisonsAndMultiplesAgreeWithArithmetic) {
    Expressions e(2'000'000);
    const auto digit = [&](char from) {
        ByteSet set;
        for (char c = from; c <= '9'; ++c) set.set(static_cast<std::uint8_t>(c));
        return e.bytes(set);
    };
    const Expression digits = e.repeat(digit('0'), 1, Expressions::kUnlimited);
    const Expression number =
        e.concat({e.optional(e.byte('-')), e.either(e.byte('0'), e.concat(digit('1'), e.optional(digits))),
                  e.optional(e.concat(e.byte('.'), digits))});
    std::vector<std::string> texts = {""};
    for (std::size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
        for (const char c : std::string("-0125.")) texts.push_back(texts[i] + c);
    }
    std::vector<std::pair<std::string, double>> numbers;
    for (const std::string& text : texts) {
        if (e.matches(number, text)) numbers.emplace_back(text, std::atof(text.c_str()));
    }
    ASSERT_GT(numbers.size(), 500u);
    for (const std::string bound : {"0", "2", "-2", "12", "-12.5", "0.5", "0.05", "-0.1", "10", "100", "21.2"}) {
        Decimal d;
        ASSERT_TRUE(Decimal::read(bound, d));
        const double value = std::atof(bound.c_str());
        const auto with = [&](Comparison c) { return e.intersection({number, e.compare(c, d)}); };
        const Expression least = with(Comparison::at_least), above = with(Comparison::above);
        const Expression most = with(Comparison::at_most), below = with(Comparison::below);
        for (const auto& [text, x] : numbers) {
            if (x == 0 && text[0] == '-') continue;  // left out, see below
            EXPECT_EQ(e.matches(least, text), x >= value) << text << " >= " << bound;
            EXPECT_EQ(e.matches(above, text), x > value) << text << " > " << bound;
            EXPECT_EQ(e.matches(most, text), x <= value) << text << " <= " << bound;
            EXPECT_EQ(e.matches(below, text), x < value) << text << " < " << bound;
        }
        for (const Expression any : {least, above, most, below}) EXPECT_FALSE(e.matches(any, "-0"));
    }
    // In hundredths, to compare exactly.
    for (const auto& [factor, places, hundredths] :
         {std::tuple{1u, 0u, 100}, {5u, 0u, 500}, {7u, 0u, 700}, {5u, 1u, 50}, {25u, 2u, 25}, {15u, 1u, 150}}) {
        const Expression multiple = e.intersection({number, e.multiple(factor, places)});
        for (const auto& [text, x] : numbers) {
            const std::size_t point = text.find('.');
            if (point != text.npos && text.size() - point > 3) continue;
            const long value = std::lround(x * 100);
            EXPECT_EQ(e.matches(multiple, text), value % hundredths == 0)
                << text << " of " << factor << "/10^" << places;
        }
    }
}

TEST(Characters, ASetIsItsEncodings) {
    Expressions e(1'000'000);
    const CharacterSet set = {{'a', 'c'},       {0x7F, 0x81},      {0x7FE, 0x900},
                              {0xD000, 0xE100}, {0xFFF0, 0x10010}, {0x10FFFF, 0x10FFFF}};
    const Expression one = utf8(e, set);
    for (std::uint32_t c = 0; c <= 0x10FFFF; c += c < 0x20000 ? 1 : 0xFFF) {
        if (c >= 0xD800 && c < 0xE000) continue;
        std::string text;
        append_utf8(text, c);
        ASSERT_EQ(e.matches(one, text), set.contains(c)) << c;
        std::string_view rest = text;
        ASSERT_EQ(take_utf8(rest), c);
        ASSERT_TRUE(rest.empty());
    }
    EXPECT_FALSE(e.matches(one, "\xED\xA0\x80")) << "a surrogate";
    EXPECT_FALSE(e.matches(utf8(e, CharacterSet::all()), "\xC0\x80")) << "two bytes for NUL";
    for (std::string_view bad : {"\x80", "\xC3", "\xE2\x82", "\xF5\x80\x80\x80", "\xED\xA0\x80", "\xC0\x80"})
        EXPECT_EQ(take_utf8(bad), -1);
    EXPECT_TRUE(set.common_with(set.inverted()).empty());
}

TEST(Characters, InJsonEachTextIsWrittenInOneWay) {
    Expressions e(100'000);
    const Expression text = write(e, "a\"\\\n\x01\xC3\xA9", Writing::json);
    EXPECT_TRUE(e.matches(text, "a\\\"\\\\\\n\\u0001\xC3\xA9"));
    EXPECT_FALSE(e.matches(text, "a\\\"\\\\\\u000a\\u0001\xC3\xA9"));
    const Expression any = write(e, CharacterSet::all(), Writing::json);
    for (std::string_view good : {"a", "\\\"", "\\n", "\\u001F", "\\u001f", "\xC3\xA9"})
        EXPECT_TRUE(e.matches(any, good));
    for (std::string_view bad : {"\"", "\\", "\n", "\\u0041", "\\/", "\\u000A"})
        EXPECT_FALSE(e.matches(any, bad)) << bad;
}

}  // namespace
}  // namespace foresay::grammar
