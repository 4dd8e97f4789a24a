// app/repl/commands/arguments.h: what the commands' handlers share: reading arguments, laying out what they say.
//
// Errors:   Error that says what the argument must be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

// `text` with blanks behind it to `width`, at least one.
std::string padded(const std::string& text, std::size_t width);
// A whole number of this range; `what` begins the sentence that says so.
std::size_t whole_number(const std::string& text, const std::string& what, std::size_t least, std::size_t most);
// The beginning of a text on one line, fit for a terminal, cut to `width` bytes.
std::string excerpt(const std::string& text, std::size_t width);
// A token's bytes between quotes, with escapes for what does not print.
std::string quoted(std::string_view bytes);
// `text` as the person's editor leaves it, without the newline that editors end a file with.
std::string edited_text(const std::string& text);
// "KEY=VALUE" words as lines of TOML that set `prefix` + KEY.
std::string assignments(const std::string& prefix, const std::vector<std::string>& words, std::size_t first);

}  // namespace foresay::app
