// core/jinja/lexer.h: a template's source as tokens: literal text, and what stands between {{ }} and {% %}.
//
// Whitespace around tags is settled here: trim_blocks, lstrip_blocks, and the signs - and + of a tag.
// Errors:   TemplateError: a tag, string or comment that does not end, a character that begins no token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/syntax.h"

namespace foresay::jinja {

struct Token {
    enum class Kind : std::uint8_t {
        text,          // literal text of the template
        output_begin,  // {{
        output_end,    // }}
        block_begin,   // {%
        block_end,     // %}
        name,          // also keywords
        integer,
        real,
        string,       // text: unescaped
        punctuation,  // text: the operator
        end,          // of the source
    };
    Kind kind = Kind::end;
    std::string text;
    Place place;
};

std::vector<Token> lex(std::string_view source);

}  // namespace foresay::jinja
