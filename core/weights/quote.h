// core/weights/quote.h: makes names from untrusted files safe to print in an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::core {

// `text` in single quotes, with control characters and non-ASCII bytes escaped as \xNN, cut after `longest` bytes.
std::string quote(std::string_view text, std::size_t longest = 80);

}  // namespace foresay::core
