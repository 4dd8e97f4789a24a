// grammar/json_formats.h: the formats of JSON Schema as patterns.
#pragma once

#include <string>
#include <string_view>

namespace foresay::grammar {

// What a format means here. A name that JSON Schema does not define restricts nothing.
enum class FormatKind : unsigned char { pattern, unsupported, unknown };

// `pattern` is set for FormatKind::pattern; it matches whole texts.
FormatKind find_format(std::string_view name, std::string& pattern);

}  // namespace foresay::grammar
