// core/text/base64.h: decoding of base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace foresay::core {

// The bytes that `text` encodes, padded or not; nullopt when it is not base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace foresay::core
