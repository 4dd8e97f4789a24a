// core/text/quoted.h: strings as JSON and TOML write them.
#pragma once

#include <string>
#include <string_view>

namespace foresay::core {

// Appends `text` to `out` in double quotes, with quotes, backslashes and control characters escaped. The other bytes
// stay as they are: both formats want UTF-8.
void append_quoted(std::string_view text, std::string& out);

}  // namespace foresay::core
