// core/config/parts.h: keys whose value is a choice, or a table that names its parts: kv_cache = "q8", or
// kv_cache = {k = "q8", v = "q4"}, which stands for the text "k=q8,v=q4".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foresay::core {

// The parts of `key`, in the order of the text, and the choices of each. None: its value is never a table.
std::vector<std::pair<std::string, std::vector<std::string>>> parts_of(std::string_view key);

}  // namespace foresay::core
