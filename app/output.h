// app/output.h: where the program's text goes. Standard output is the program's result alone; everything said to a
// person goes to standard error.
//
// Errors:   OutputClosed when the reader of standard output has gone away (`| head`): not an error of the world, the
//           program just ends. Any other failure to write throws OutputFailed, which also ends a conversation.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace foresay::app {

class OutputClosed {};
class OutputFailed : public Error {
public:
    using Error::Error;
};

// Writes all of `text` to standard output, at once.
void print(std::string_view text);
// Writes to standard error; failures are ignored.
void say(std::string_view text);
// `text` with every control character but newline and tab replaced by '?': what a file or a configuration holds must
// not reach the terminal as a command.
std::string printable(std::string_view text);
// Says what is wrong, made printable, on a line of its own.
void complain(std::string_view text);

// Whether a person sits there. Neither NO_COLOR nor TERM=dumb makes a terminal less of one, only less colourful.
bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// Whether standard output is a terminal that shows colours: NO_COLOR is not set and TERM is not "dumb".
bool colourful_output();

// `text` dimmed for a terminal on standard error that shows colours; as it is otherwise.
std::string dim(std::string_view text);

}  // namespace foresay::app
