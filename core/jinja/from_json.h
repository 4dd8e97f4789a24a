// core/jinja/from_json.h: a conversation that came as JSON, as the variables of a template.
//
// Errors:   TemplateError for text that is no JSON, nested too deeply, or holds a number that does not fit 64 bits.
#pragma once

#include <string_view>

#include "core/jinja/value.h"

namespace foresay::jinja {

// Strings are marked as input, all of them, keys too: see core/jinja/text.h.
Value from_json(std::string_view json);

}  // namespace foresay::jinja
