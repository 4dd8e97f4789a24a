// core/models/encodings.h: how the weights of a model are stored, and as what they are kept.
//
// Cost:     of quantised safetensors it reads scales and zeros; of other files headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/model_source.h"

namespace foresay::core {

// The matrices of a model that are stored in one way.
struct Encoding {
    std::string name;  // "Q5_0", "GPTQ, 4 bits, groups of 128"
    std::string kept;  // the type of the kernels that they are packed into; empty: they stay as they are
    std::int64_t matrices = 0;
    std::int64_t values = 0;
    std::int64_t stored_bytes = 0;  // in the file
    std::int64_t kept_bytes = 0;    // in memory
};

// The largest first. Empty for a source without files. Vectors count as matrices of one row.
std::vector<Encoding> encodings_of(ModelSource& source);

}  // namespace foresay::core
