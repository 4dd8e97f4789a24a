// kernels/kv_names.h: the formats of the KV cache as users write them, and which models can have them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kv_format.h"

namespace foresay::kernels {

// "q8"; "k=q8,v=q4" where keys and values differ.
std::string name(KvFormat format);
// The format of that name; nothing: there is none.
std::optional<KvFormat> find_kv_format(std::string_view name);
// All of them: first those with keys and values alike.
std::vector<KvFormat> all_kv_formats();

// Throws Error where a cache of this format cannot hold heads of these widths.
void check_kv(const KvShape& shape, KvFormat format);

}  // namespace foresay::kernels
