// core/config/convert.h: checks and converts one TOML value by one entry of the schema.
#pragma once

#include <optional>
#include <string>

#include "core/config/schema.h"
#include "core/config/toml_tree.h"

namespace foresay::core {

// The value of `node` in the type of `spec`. nullopt if it does not fit; `complaint` is then the reason: "must be an
// integer, not a string".
std::optional<ConfigValue> convert(const KeySpec& spec, const TomlNode& node, std::string& complaint);

}  // namespace foresay::core
