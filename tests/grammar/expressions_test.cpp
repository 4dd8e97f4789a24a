// Expressions, decimals and character sets, against enumeration.
#include <gtest/gtest.h>

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
