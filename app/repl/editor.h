// app/repl/editor.h: text edited with the person's own editor.
#pragma once

#include <string>

namespace foresay::app {

// What $VISUAL, $EDITOR or vi makes of `text`. Needs a terminal.
// The file that the editor sees lies in the folder for temporary files, for its owner only, and is removed again.
// Errors: Error when there is no place for the file, or the editor cannot be started or fails.
std::string edit_externally(const std::string& text);

}  // namespace foresay::app
