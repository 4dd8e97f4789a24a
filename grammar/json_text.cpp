#include "grammar/json_text.h"

namespace foresay::grammar {

JsonText::JsonText(Expressions& expressions, Whitespace whitespace) : e_(expressions), space_(Expressions::kEmpty) {
    if (whitespace == Whitespace::compact) return;
    ByteSet set;
    for (const char c : {' ', '\t', '\r', '\n'}) set.set(static_cast<std::uint8_t>(c));
    space_ = e_.repeat(e_.bytes(set), 0, Expressions::kUnlimited);
}

Expression JsonText::name(Expression name, bool first) {
    const Expression text = e_.concat({space_, quoted(name), space_, e_.byte(':')});
    return first ? text : e_.concat(punctuation(','), text);
}

Expression JsonText::digit(char from) {
    ByteSet set;
    for (char c = from; c <= '9'; ++c) set.set(static_cast<std::uint8_t>(c));
    return e_.bytes(set);
}

Expression JsonText::characters(std::uint32_t least, std::uint32_t most) {
    const auto hex = [&](std::string_view digits) {
        ByteSet set;
        for (const char c : digits) {
            set.set(static_cast<std::uint8_t>(c));
            if (c >= 'a') set.set(static_cast<std::uint8_t>(c - 32));
        }
        return e_.bytes(set);
    };
    ByteSet letters;
    for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) letters.set(static_cast<std::uint8_t>(c));
    const Expression any = hex("0123456789abcdef");
    const Expression d = hex("d");
    const Expression two = e_.concat(any, any);
    // \uD800 to \uDBFF only with \uDC00 to \uDFFF after it; neither alone.
    const Expression code =
        e_.alternatives({e_.concat({hex("0123456789abcef"), any, two}), e_.concat({d, hex("01234567"), two}),
                         e_.concat({d, hex("89ab"), two, e_.literal("\\u"), d, hex("cdef"), two})});
    const Expression escape = e_.concat(e_.byte('\\'), e_.either(e_.bytes(letters), e_.concat(e_.byte('u'), code)));
    static const CharacterSet raw = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    return e_.repeat(e_.either(utf8(e_, raw), escape), least, most);
}

Expression JsonText::written(std::uint32_t least, std::uint32_t most) {
    return e_.repeat(write(e_, CharacterSet::all(), Writing::json), least, most);
}

Expression JsonText::plain_number(Fraction fraction) {
    const Expression digits = e_.repeat(digit('0'), 1, Expressions::kUnlimited);
    const Expression whole =
        e_.concat(e_.optional(e_.byte('-')), e_.either(e_.byte('0'), e_.concat(digit('1'), e_.optional(digits))));
    if (fraction == Fraction::none) return whole;
    return e_.concat(whole, e_.optional(e_.concat(e_.byte('.'), fraction == Fraction::zero ? e_.byte('0') : digits)));
}

Expression JsonText::number() {
    ByteSet letters;
    letters.set('e').set('E');
    ByteSet signs;
    signs.set('+').set('-');
    const Expression exponent =
        e_.concat({e_.bytes(letters), e_.optional(e_.bytes(signs)), e_.repeat(digit('0'), 1, Expressions::kUnlimited)});
    return e_.concat(plain_number(Fraction::any), e_.optional(exponent));
}

Expression JsonText::scalar(const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::null:
            return e_.literal("null");
        case JsonValue::Kind::boolean:
            return e_.literal(value.truth ? "true" : "false");
        case JsonValue::Kind::string:
            return quoted(write(e_, value.text, Writing::json));
        default:
            break;
    }
    Decimal decimal;
    if (!Decimal::read(value.text, decimal)) return e_.literal(value.text);
    const Expression text = e_.literal(decimal.text());
    return e_.either(e_.literal(value.text),
                     decimal.fraction.empty() ? e_.concat(text, e_.optional(e_.literal(".0"))) : text);
}

}  // namespace foresay::grammar
