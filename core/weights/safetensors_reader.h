// core/weights/safetensors_reader.h: turns one safetensors file image, or the index of a sharded model, into checked
// entries. Used by safetensors.cpp only.
//
// Errors:   the first inconsistency throws Error, which names the file. JSON is read event by event, without a tree,
//           so that neither nesting nor size can exhaust memory or stack.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/tensor_table.h"

namespace foresay::core {

// The format's own limit on the header.
inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::size_t kMaxSafetensorsIndex = std::size_t{32} << 20;

// `path` is named in errors, `file` is stored in each TensorInfo.
std::vector<TensorInfo> read_safetensors(std::span<const std::byte> bytes, const std::string& path,
                                         const std::string& file);

// Tensor name to shard, from the text of model.safetensors.index.json; every shard is a plain file name.
std::map<std::string, std::string> read_safetensors_index(std::string_view text, const std::string& path);

}  // namespace foresay::core
