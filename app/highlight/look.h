// app/highlight/look.h: what a piece of code is, as far as its colour is concerned, and text in pieces of one look.
//
// Threads:  plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

// keyword: also directives, annotations and the keys of data files; number: also constants such as `true`, shell
// variables and `code` within prose; name: what a definition defines, and headings.
enum class Look : std::uint8_t { plain, keyword, string, number, comment, name };

// The escape sequence that begins text of this look; empty for plain text. "\x1b[0m" ends it. Only those of the 16
// standard colours that are legible on light and on dark backgrounds (no yellow, no blue), dim and bold.
std::string_view escape_of(Look look);

struct Run {
    std::string text;
    Look look = Look::plain;
    bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;  // neighbours differ in look

// Appends text, to the last run if that has the same look.
void append(Runs& runs, std::string_view text, Look look);

// The text with escape sequences around what is not plain.
std::string with_colours(const Runs& runs);

}  // namespace foresay::app
