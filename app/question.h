// app/question.h: a question with the answers yes and no, at a terminal that reads lines.
#pragma once

#include <string>

namespace foresay::app {

// Asks on standard error and reads a line; true for y or yes. False at the end of input and after Ctrl-C. `question`
// must be printable().
bool ask(const std::string& question);

}  // namespace foresay::app
