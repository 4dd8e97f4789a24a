// core/weights/ggml_types.h: the tensor types of GGUF files, by number, and their block sizes.
//
// Source:   enum ggml_type and its type traits (ggml, include/ggml.h), and those of ikawrakow/ik_llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/quant/stored_type.h"
#include "kernels/quant_type.h"

namespace foresay::core {

struct GgmlType {
    std::string name;
    std::int32_t block_elements = 0;  // 0: a type whose size is not known here
    std::int32_t block_bytes = 0;
    std::int32_t row_bytes = 0;                    // of each row, before its blocks
    std::optional<kernels::QuantType> quant_type;  // that the kernels multiply as it is
    const kernels::StoredType* stored = nullptr;   // else what it is packed into; null: foresay cannot compute with it
};

// Never fails: an unknown id is named like "type 97".
GgmlType ggml_type(std::uint32_t id);

// All types that foresay computes with, in the order of their numbers: "F32, F16, Q4_0, ...".
std::string usable_ggml_types();

}  // namespace foresay::core
