// app/clipboard.h: copies text to the clipboard through the terminal.
//
// Errors:   clipboard_sequence() throws Error for text longer than terminals accept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace foresay::app {

// The contents of the last fenced block of a Markdown text, even if it is not closed yet; nullopt if there is none.
std::optional<std::string> last_code_block(std::string_view text);

// The OSC 52 escape sequence that puts `text` on the clipboard.
std::string clipboard_sequence(std::string_view text);

}  // namespace foresay::app
