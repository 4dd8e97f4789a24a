// core/jinja/strings.h: what Python's str does, on texts that keep their marks. Shared by filters and methods.
//
// Errors:   TemplateError when the result would be larger than the limits allow.
#pragma once

#include <string>
#include <vector>

#include "core/jinja/runtime.h"

namespace foresay::jinja {

enum class Case : std::uint8_t { lower, upper, swapped };
Text mapped_case(Runtime& runtime, const Text& text, Case to);
// First character upper, the others lower.
Text capitalized(Runtime& runtime, const Text& text);
// str.title() begins a word after anything that is no letter; the filter `title` after spaces and opening brackets.
enum class TitleRule : std::uint8_t { after_no_letter, after_separators };
Text titled(Runtime& runtime, const Text& text, TitleRule rule);

enum class Padding : std::uint8_t { left, right, center };  // where the text stands
Text padded(Runtime& runtime, const Text& text, std::int64_t width, const std::string& fill, Padding place);

// At most `most` replacements; all when negative.
Text replaced(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t most);
// At `separator`, or at runs of white space when it is null. At most `most` cuts; all when negative.
std::vector<Text> split(const Text& text, const std::string* separator, std::int64_t most);
std::vector<Text> split_from_right(const Text& text, const std::string* separator, std::int64_t most);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

// & < > ' " as HTML has them; a text that is markup already stays. The result is markup.
Text escaped(Runtime& runtime, const Text& text);

bool is_letter(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);

}  // namespace foresay::jinja
