// app/output.h: writes the program's text. Standard output is for results only; messages for the user go to standard
// error.
//
// Errors:   OutputClosed if the reader of standard output has closed the pipe (`| head`): the program then ends with
//           status 0. Any other write error throws OutputFailed, which also ends a conversation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace foresay::app {

class OutputClosed {};
class OutputFailed : public Error {
public:
    using Error::Error;
};

// Writes all of `text` to standard output, without buffering.
void print(std::string_view text);
// Writes to standard error; ignores failures.
void say(std::string_view text);
// `text` with every control character except newline and tab replaced by '?', so that contents of a file cannot control
// the terminal.
std::string printable(std::string_view text);
// Writes an error or a note to standard error: made printable, and with a newline.
void complain(std::string_view text);

// isatty() of each stream.
bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// When to use colours. automatic: never with NO_COLOR, always with CLICOLOR_FORCE (unless it is 0), otherwise on a
// terminal whose TERM is not "dumb".
enum class Colours : std::uint8_t { automatic, always, never };
// What --color asks for; automatic until then.
void choose_colours(Colours when);
bool colourful_output();
bool colourful_errors();

// `text` dimmed where standard error shows colours; as it is otherwise.
std::string dim(std::string_view text);

}  // namespace foresay::app
