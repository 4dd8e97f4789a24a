// core/weights/quote.h: names out of untrusted files, made fit for an error message.
#pragma once

#include <string>
#include <string_view>

namespace foresay::core {

// `text` in single quotes, control characters and bytes outside ASCII escaped as \xNN, cut after 80 bytes.
std::string quote(std::string_view text);

}  // namespace foresay::core
