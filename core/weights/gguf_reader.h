// core/weights/gguf_reader.h: turns one GGUF file image into checked entries and tensors. Used by gguf.cpp only.
//
// Errors:   the first inconsistency throws Error, naming the file and the byte where reading stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/gguf.h"
#include "core/weights/tensor_table.h"

namespace foresay::core {

struct GgufImage {
    std::uint32_t version = 0;
    std::vector<GgufEntry> entries;
    std::vector<std::uint32_t> by_key;  // indices into entries, sorted by key
    std::vector<TensorInfo> tensors;

    const GgufEntry* find(std::string_view key) const;
};

// Bytes of one value of a scalar type; 0 for strings and arrays.
std::size_t scalar_bytes(GgufType type);

// The value of an entry's `index`-th element as a 64-bit integer; false when it is not an integer type or out of range.
bool read_int(GgufType type, std::span<const std::byte> payload, std::size_t index, std::int64_t& out);
// The same for numbers of any kind.
bool read_number(GgufType type, std::span<const std::byte> payload, std::size_t index, double& out);

// `path` is named in errors, `file` is stored in each TensorInfo.
GgufImage read_gguf(std::span<const std::byte> bytes, const std::string& path, const std::string& file);

}  // namespace foresay::core
