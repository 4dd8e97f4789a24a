// grammar/pattern.h: regular expressions as people write them: the syntax of ECMA-262, which JSON Schema uses.
//
// Understood: characters, classes, \d \w \s and their opposites, escapes (\n, \xHH, \uHHHH, \u{H}), groups (their kind
// does not matter), alternatives, quantifiers (greedy or not), ^ and $ at the ends of alternatives. Characters are
// those of Unicode, "." is all of them but line ends; \d and \w are those of ASCII.
// Errors: Error for what is not understood (looking around, back references, \b, \p), with the place.
#pragma once

#include <string_view>

#include "grammar/characters.h"

namespace foresay::grammar {

enum class Match : std::uint8_t {
    whole,   // the whole text
    search,  // some part of the text, as "pattern" of JSON Schema
};

Expression read_pattern(Expressions& expressions, std::string_view pattern, Match match, Writing writing);

}  // namespace foresay::grammar
