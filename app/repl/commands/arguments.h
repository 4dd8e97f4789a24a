// app/repl/commands/arguments.h: helpers that the command handlers share: parsing arguments and formatting output.
//
// Errors:   Error that names the argument and what it must be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

class Repl;

// Parses a whole number from `least` to `most`. `what` is the subject of the error: "the place".
std::size_t whole_number(const std::string& text, const std::string& what, std::size_t least, std::size_t most);
// The beginning of `text` as one printable line, cut to `width` bytes of whole characters.
std::string excerpt(const std::string& text, std::size_t width);
// A token's bytes in double quotes, with escapes for bytes that do not print.
std::string quoted(std::string_view bytes);
// Throws Error if the style of the conversation has no place for a system prompt.
void refuse_system_prompt(Repl& repl);
// Shows the last lines of the conversation, so that the user sees where it has gone back or switched to.
void show_place(Repl& repl);
// Turns the "KEY=VALUE" words from index `first` on into lines of TOML that set `prefix` + KEY.
std::string assignments(const std::string& prefix, const std::vector<std::string>& words, std::size_t first);

}  // namespace foresay::app
