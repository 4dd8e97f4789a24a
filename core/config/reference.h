// core/config/reference.h: the configuration's schema as Markdown, for people. docs/configuration-reference.md must be
// this text; a test compares them.
#pragma once

#include <span>
#include <string>

#include "core/config/schema.h"

namespace foresay::core {

std::string to_markdown(std::span<const StageSchema> stages, std::span<const SourceSchema> sources);

}  // namespace foresay::core
