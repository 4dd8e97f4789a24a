// app/highlight/language.h: what colouring needs to know about a programming language, as a table.
//
// To add a language, add a file to app/highlight/languages/ and its name to languages.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/highlight/look.h"

namespace foresay::app {

using Words = std::span<const std::string_view>;

// Keywords and constants are at most this long.
inline constexpr std::size_t kLongestWord = 24;

struct StringRule {
    std::string_view open, close;
    char escape = '\\';      // the next character is part of the string; 0: none
    bool multiline = false;  // false: a newline ends it
    // For R"name( ... )name": the character that ends the name, 0 if there is none. `close` then has '\0' in the place
    // of the name.
    char name_end = 0;
    Look look = Look::string;
};

// A character that colours the word after it: @override, #include, $HOME.
struct Sigil {
    char character;
    Look look;
    std::string_view inside = {};  // characters of the word, besides letters, digits and '_': @a.b
    std::string_view alone = {};   // characters that are a word by themselves: $1, $@
};

struct Language {
    std::string_view name;
    Words aliases = {};  // other names of a Markdown block: "py"; in lower case
    Words keywords = {};
    Words constants = {};
    Words definers = {};  // keywords before the name of what is defined: "def"
    bool any_case = false;
    std::string_view word_characters = {};  // besides letters, digits, '_' and all that is not ASCII

    Words line_comments = {};
    bool comment_begins_word = false;                                                     // "a#b" has no comment
    enum class Block : std::uint8_t { none, flat, nested } block_comments = Block::none;  // /* */

    std::span<const StringRule> strings = {};
    bool lifetimes = false;          // 'a may be a lifetime, 'a' a character
    bool quote_begins_word = false;  // "don't" has no string
    bool here_documents = false;     // <<EOF
    bool quotes_in_numbers = false;  // 1'000
    std::span<const Sigil> sigils = {};

    enum class Keys : std::uint8_t { none, quoted, before_colon, before_equals } keys = Keys::none;
};

// The language of this name or alias, in any case; null if there is none.
const Language* find_language(std::string_view name);

std::span<const Language* const> all_languages();

}  // namespace foresay::app
