// core/config/convert.h: one TOML value against one entry of the schema.
#pragma once

#include <optional>
#include <string>

#include "core/config/schema.h"
#include "core/config/toml_tree.h"

namespace foresay::core {

// The value of `node` as `spec` wants it. On refusal nullopt, and `complaint` says why: "must be an integer, not a
// string".
std::optional<ConfigValue> convert(const KeySpec& spec, const TomlNode& node, std::string& complaint);

}  // namespace foresay::core
