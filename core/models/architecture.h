// core/models/architecture.h: a model family: the names that its files use, and how it differs from other families.
//
// To add an architecture, write a file in this folder that fills in an Architecture, and list it in architecture.cpp.
// Models that the ops of kernels/ops.h cannot express must be refused with an Error of one sentence, in check_config()
// or where their keys are read.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "core/models/model_config.h"
#include "core/models/model_source.h"
#include "core/weights/gguf.h"
#include "core/weights/json_config.h"

namespace foresay::core {

inline constexpr int kTensorRoles = static_cast<int>(TensorRole::down) + 1;

// A name per role, with "{}" for the layer; empty where the family has no such tensor.
using TensorNames = std::array<std::string_view, kTensorRoles>;

// The names that GGUF and Hugging Face files of most families use.
const TensorNames& common_gguf_names();
const TensorNames& common_hf_names();

struct Architecture {
    std::string_view name;                         // file name in this folder
    std::span<const std::string_view> gguf_names;  // values of general.architecture
    std::span<const std::string_view> hf_names;    // values of architectures[0]
    const TensorNames& gguf_tensors;
    const TensorNames& hf_tensors;
    // GGUF files of some families reorder the rows of Q and K so that rope pairs are adjacent.
    kernels::RopePairs gguf_rope = kernels::RopePairs::half_split;
    kernels::RopePairs hf_rope = kernels::RopePairs::half_split;
    // Hugging Face omits keys with default values from config.json; these are the defaults.
    std::int64_t hf_context_length = 2048;
    // Read the keys that only this family has, and throw Error for what is not supported. The common keys have been
    // read.
    void (*read_gguf)(const GgufFile& file, const std::string& prefix, ModelConfig& config);
    void (*read_hf)(const JsonConfig& json, ModelConfig& config);
};

// The families, each in its own file.
const Architecture& llama_architecture();
const Architecture& qwen2_architecture();

std::span<const Architecture* const> architectures();
// Throw Error, naming the file and the supported families, if no family has this name.
const Architecture& architecture_for_gguf(std::string_view name, const std::string& path);
const Architecture& architecture_for_hf(std::string_view name, const std::string& path);

// The configuration without the vocabulary size, which is read from the embedding table.
ModelConfig read_gguf_config(const GgufFile& file, const Architecture& architecture);
ModelConfig read_hf_config(const JsonConfig& json, const Architecture& architecture);

// Throws Error unless sizes are positive, divide each other where they must, and are far from overflow.
void check_config(const ModelConfig& config, const std::string& path);

// "blk.{}.attn_q.weight" to "blk.3.attn_q.weight".
std::string tensor_name(const TensorNames& names, TensorRole role, std::int32_t layer);

}  // namespace foresay::core
