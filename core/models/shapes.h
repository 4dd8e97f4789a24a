// core/models/shapes.h: published model shapes, for benchmarks with random weights (`--shape`). Each family's file has
// its own, as keys of config.json that the family reads as it reads a file's: layers get their windows, norms and
// experts.
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
// Whether a Llama model can be inflated to the shape, as far as its family decides: layers are a Llama's, biases aside.
bool is_inflatable(const ModelConfig& shape);
// The shapes of the families of which that is true.
std::vector<std::string> inflatable_shape_names();
// The published shape that a model has: its layers, widths, heads and experts, whatever its family is called (GGUF
// files of Mistral say llama), and of several the one whose vocabulary is nearest. Empty: none.
std::string_view published_name(const ModelConfig& config);
// Weights of a model of this configuration, each tensor counted once.
std::int64_t parameter_count(const ModelConfig& config);
// Those that one token needs: without the experts that it does not choose, and without embedding tables, of which it
// reads a row. A table that is the LM head as well counts.
std::int64_t active_parameter_count(const ModelConfig& config);

// "q4_0" to QuantType. Throws Error listing the known names.
kernels::QuantType quant_type_by_name(std::string_view name);
// The quantisation type of the LM head in published files whose other weights have `quant_type`.
kernels::QuantType head_quant_type(kernels::QuantType quant_type);
// The same for an LM head with rows of `inputs` weights: published files fall back to q8_0 if rows are not a whole
// number of K blocks.
kernels::QuantType head_quant_type(kernels::QuantType quant_type, std::int64_t inputs);

}  // namespace foresay::core
