// grammar/json_text.h: the lexemes of JSON: scalars, names and punctuation, with the whitespace before them.
#pragma once

#include <string_view>

#include "grammar/characters.h"
#include "grammar/grammar.h"
#include "grammar/json_value.h"

namespace foresay::grammar {

class JsonText {
public:
    JsonText(Expressions& expressions, Whitespace whitespace);

    // ---- lexemes: whitespace, then the text
    Expression lexeme(Expression text) { return e_.concat(space_, text); }
    Expression punctuation(char c) { return lexeme(e_.byte(static_cast<std::uint8_t>(c))); }
    // A member's name, in quotes as `name` matches it, and the colon; the comma before it, unless it is the first.
    Expression name(Expression name, bool first);

    // ---- texts, without whitespace
    // The content of any string of `least` to `most` characters, with every escape that JSON has.
    Expression characters(std::uint32_t least, std::uint32_t most);
    // The same with each character written in one way only (Writing::json), so that texts can be told apart.
    Expression written(std::uint32_t least, std::uint32_t most);
    Expression quoted(Expression content) { return e_.concat({e_.byte('"'), content, e_.byte('"')}); }
    Expression number();
    // Without exponent, as comparisons and multiples need it.
    enum class Fraction : std::uint8_t { any, zero /* 3 and 3.0 */, none };
    Expression plain_number(Fraction fraction);
    // A null, boolean, number or string, in each way in which its value is written here.
    Expression scalar(const JsonValue& value);

private:
    Expression digit(char from);

    Expressions& e_;
    Expression space_;
};

}  // namespace foresay::grammar
