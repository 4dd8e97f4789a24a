// core/models/read_config.h: reads the keys that families share, from GGUF metadata and from config.json in both of its
// dialects: as published (rope_theta, rope_scaling) and as transformers 5 writes it (rope_parameters, layer_types).
//
// Errors:   Error in one sentence that names the file and the key.
#pragma once

#include "core/models/architecture.h"
#include "core/models/config_keys.h"

namespace foresay::core {

// The whole configuration but the vocabulary size, which comes from the embedding table.
ModelConfig read_config(Keys& keys, const Architecture& family);

// ---- for families

// Rope from rope_parameters, from its table `table` ("full_attention") where it has one, or from rope_theta and
// rope_scaling.
RopeConfig read_rope(Keys& keys, std::int32_t head_dim, kernels::RopePairs pairs, std::string_view table = {});
// The layers that slide, where `config.window` is their window: by layer_types, by the family's period (every
// `period`-th layer sees all; GGUF may have a period or an array of its own), or all alike where period is 1.
std::vector<bool> sliding_layers(Keys& keys, const ModelConfig& config, std::int32_t period);
// Gives each layer a LayerConfig in which only the sliding ones have the window.
void set_sliding(ModelConfig& config, const std::vector<bool>& sliding);
// Experts: count, used, width and what GGUF's generic keys say. config.json may call their number otherwise.
void read_experts(Keys& keys, ModelConfig& config, std::string_view hf_count = "num_local_experts");

// The activation that config.json names.
kernels::Activation activation_by_name(Keys& keys, std::string_view key, std::string_view fallback);

}  // namespace foresay::core
