// core/models/encodings.h: how the weights of a model are stored, as what they are kept, and what devices need for
// them.
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

// Bytes of the tensor `name` in memory, without reading or making it where the source can tell.
std::int64_t kept_bytes(ModelSource& source, const TensorName& name, TensorShape shape);

// The largest first. Empty for a source without files. Vectors count as matrices of one row.
std::vector<Encoding> encodings_of(ModelSource& source);

// As ModelSource::expanded_bytes(), of a device that keeps no rows packed (kernels/quant/packed_panels.h).
std::int64_t unpacked_bytes(ModelSource& source);

}  // namespace foresay::core
