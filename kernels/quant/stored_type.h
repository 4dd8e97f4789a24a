// kernels/quant/stored_type.h: the types of files that no kernel multiplies, and what each is packed into.
//
// A file's layout is its own; kernels have few. When weights are loaded, tensors of a stored type become blocks of a
// QuantType that holds every number of theirs unchanged. That may take more memory, and docs/formats.md says how much.
// To add a type: a header like q5_0.h, and a line in stored_type.cpp.
//
// Threads:  any; everything here is immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/quant_type.h"

namespace foresay::kernels {

struct StoredType {
    std::string_view name;        // as GGUF spells it
    std::uint32_t ggml_type;      // its number in GGUF
    std::int32_t block_elements;  // values per block
    std::int32_t block_bytes;     // bytes per block
    QuantType packed;             // whose blocks hold its numbers
    const Packing* packing;       // how, if they are rows of QuantType::packed; else null

    // The block_elements values of a block: the exact path, which packed blocks are tested against.
    void (*dequantize_block)(const std::byte* block, float* out);
    // `count` neighbouring blocks as `packed`. `out` holds packed_bytes(count * block_elements) bytes.
    void (*pack)(const std::byte* blocks, std::int64_t count, std::byte* out);

    std::int64_t stored_bytes(std::int64_t elements) const { return elements / block_elements * block_bytes; }
    std::int64_t packed_bytes(std::int64_t elements) const {
        return packing != nullptr ? row_bytes(*packing, elements) : row_bytes(packed, elements);
    }
};

// In the order of their numbers.
std::span<const StoredType> stored_types();
// Null when there is none of this number in GGUF.
const StoredType* stored_type(std::uint32_t ggml_type);

}  // namespace foresay::kernels
