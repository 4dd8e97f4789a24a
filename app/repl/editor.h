// app/repl/editor.h: edits text in the user's own editor.
#pragma once

#include <string>

namespace foresay::app {

// Opens `text` in $VISUAL, $EDITOR or vi and returns the edited text. Needs a terminal.
// The editor works on a file in the folder for temporary files, readable by its owner only, which is then removed.
// Errors: Error when the file cannot be created, or the editor cannot be started or fails.
std::string edit_externally(const std::string& text);

}  // namespace foresay::app
