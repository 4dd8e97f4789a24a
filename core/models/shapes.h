// core/models/shapes.h: published model shapes, for benchmarks with random weights (`--shape`). Each family's file has
// its own.
//
// Source:   the config.json files published with the models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/model_config.h"

namespace foresay::core {

// The configuration of the shape `name`. Throws Error listing the known names.
ModelConfig published_shape(std::string_view name);
std::vector<std::string> published_shape_names();

// "q4_0" to QuantType. Throws Error listing the known names.
kernels::QuantType quant_type_by_name(std::string_view name);
// The quantisation type of the LM head in published files whose other weights have `quant_type`.
kernels::QuantType head_quant_type(kernels::QuantType quant_type);
// The same for an LM head with rows of `inputs` weights: published files fall back to q8_0 if rows are not a whole
// number of K blocks.
kernels::QuantType head_quant_type(kernels::QuantType quant_type, std::int64_t inputs);

}  // namespace foresay::core
