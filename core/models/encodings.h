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
    std::int64_t host_bytes = 0;    // the same in the panels of the CPU, which may be narrower
};

// How the tensor `name` lies in memory, without reading or making it where the source can tell: its data are of no
// meaning.
kernels::TensorView kept_view(ModelSource& source, const TensorName& name, TensorShape shape);

// The largest first. Empty for a source without files. Vectors count as matrices of one row.
std::vector<Encoding> encodings_of(ModelSource& source);

// Matrices that a device keeps in float32 though the file has fewer bits for them, by reason.
struct UnpackedMatrices {
    std::string reason;   // "gate and up interleave there, and differ"
    std::string example;  // the name of one tensor
    std::int64_t matrices = 0;
    std::int64_t bytes = 0;  // on the device
};
std::vector<UnpackedMatrices> unpacked_on_a_device(ModelSource& source);

// What the panels of the CPU take less than ModelSource::weight_bytes(), by what the formats say of their codes
// (kernels/quant/narrow_codes.h). A file may have codes that take less still.
std::int64_t narrowed_bytes(ModelSource& source);

}  // namespace foresay::core
