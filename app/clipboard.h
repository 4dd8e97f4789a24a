// app/clipboard.h: text for the terminal's clipboard.
//
// Errors:   clipboard_sequence() throws Error for more than terminals take.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace foresay::app {

// The inside of the last fenced block of a Markdown text; one that is not closed yet counts. Nothing when there is
// none.
std::optional<std::string> last_code_block(std::string_view text);

// The OSC 52 sequence that hands `text` to the clipboard.
std::string clipboard_sequence(std::string_view text);

}  // namespace foresay::app
