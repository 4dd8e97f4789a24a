// grammar/front_ends.h: what turns each language into rules. One file each; grammar.cpp lists them.
//
// Each adds lexemes and rules to a machine that has not been started, and returns the symbol of the whole text.
// Errors: Error, one sentence that names the place.
#pragma once

#include <string_view>

#include "grammar/grammar.h"
#include "grammar/machine.h"

namespace foresay::grammar {

struct JsonValue;

Symbol read_regex(Machine& machine, std::string_view text);
Symbol read_choices(Machine& machine, std::string_view text);
Symbol read_gbnf(Machine& machine, std::string_view text);
Symbol read_json_schema(Machine& machine, std::string_view text, Whitespace whitespace);
Symbol read_json_schema(Machine& machine, JsonValue schema, Whitespace whitespace);
Symbol read_structural_tag(Machine& machine, std::string_view text, Whitespace whitespace);

// A symbol for an expression, which may match the empty text or nothing at all. `free`: special tokens may write it.
Symbol symbol_of(Machine& machine, Expression expression, bool free = false);

}  // namespace foresay::grammar
