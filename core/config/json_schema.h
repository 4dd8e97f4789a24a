// core/config/json_schema.h: the configuration's schema as a JSON Schema (draft 7), for editors that complete and check
// TOML. configs/schema.json must be this text; a test compares them.
#pragma once

#include <span>
#include <string>

#include "core/config/schema.h"

namespace foresay::core {

// Indented by two, with a newline at the end.
std::string to_json_schema(std::span<const StageSchema> stages, std::span<const SourceSchema> sources);

}  // namespace foresay::core
