// core/models/model_config.h: the configuration of a model, known before any weight is read.
//
// Threads:  any; plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace foresay::core {

enum class RopeScaling : std::uint8_t { none, linear, llama3 };

struct RopeConfig {
    float theta = 10000.0f;
    kernels::RopePairs pairs = kernels::RopePairs::half_split;
    RopeScaling scaling = RopeScaling::none;
    float factor = 1.0f;                   // linear and llama3: positions are divided by it
    float low_freq_factor = 1.0f;          // llama3
    float high_freq_factor = 4.0f;         // llama3
    std::int32_t original_context = 8192;  // llama3: context length before the scaling
};

struct ModelConfig {
    std::string architecture;         // "llama", "qwen2": the name of its file in core/models
    std::string name;                 // as the file gives it; may be empty
    std::string file_type;            // the quantisation type that most weights have: "q4_k", "bf16"
    kernels::ModelShape shape;        // vocab: rows of the embedding table and of the LM head
    std::int32_t context_length = 0;  // positions that the model was trained for
    float norm_eps = 1e-6f;
    RopeConfig rope;
    bool tied_head = false;           // the LM head is the embedding table
    bool qkv_bias = false;            // Q, K and V have biases
    bool attention_out_bias = false;  // the output projection of attention has a bias
};

// Frequencies of the rope pairs, [head_dim / 2], with scaling applied. If not empty, `factors` (GGUF's
// rope_freqs.weight) divides them, in addition to the scaling of `rope` (GGUF files with factors have none).
std::vector<float> inverse_frequencies(const RopeConfig& rope, std::int32_t head_dim,
                                       const std::vector<float>& factors);

}  // namespace foresay::core
