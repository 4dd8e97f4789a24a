// core/models/architecture.h: a model family: the keys and tensors of its files, and the ops of its layers.
//
// To add an architecture, write a file in this folder that fills in an Architecture, and list it in architecture.cpp.
// Models that the ops of kernels/ops.h cannot express must be refused with an Error of one sentence, in read() or in
// check_config().
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/model_config.h"
#include "core/models/model_source.h"

namespace foresay::core {

class Keys;
class OpMaker;

// How a Hugging Face folder stores a tensor of ours.
enum class HfForm : std::uint8_t {
    whole,
    first_half,   // the first half of its rows, of each expert: gate of [gate; up]
    second_half,  // the second half
    even_rows,    // rows 0, 2, ... of each expert: gate of interleaved [gate, up]
    odd_rows,
};

// A tensor of GGUF's name `part`, without "blk.N." and ".weight", in a Hugging Face folder: the name without the prefix
// "model.layers.N." or "model." and without ".weight", or with one of its own after a '!'. "{e}" is an expert's number.
struct HfName {
    std::string_view part;
    std::string_view hf;
    HfForm form = HfForm::whole;
    std::string_view kind = "weight";
    bool transposed = false;  // [inputs, outputs]
};

// A published shape, for random weights in benchmarks (`--shape`), and for docs/models.md.
struct PublishedShape {
    std::string_view name;
    std::string_view repository;  // of the hub, where it is published
    double billions;              // parameters
    std::string_view keys;        // of config.json, as JSON members: what the family reads, besides its shape_keys
};

struct Architecture {
    std::string_view name;                         // file name in this folder
    std::span<const std::string_view> gguf_names;  // values of general.architecture
    std::span<const std::string_view> hf_names;    // values of architectures[0]
    // GGUF files of some families reorder the rows of Q and K so that rope pairs are adjacent.
    kernels::RopePairs gguf_rope = kernels::RopePairs::half_split;
    kernels::RopePairs hf_rope = kernels::RopePairs::half_split;
    // What config.json means when it leaves these out.
    std::int32_t hf_context_length = 2048;
    std::int32_t hf_heads = 0, hf_kv_heads = 0, hf_head_dim = 0;  // 0: heads are required, the others follow from them
    bool hf_tied = false;
    bool layers_differ = false;  // read() makes a LayerConfig of each layer from arrays of widths
    // Tensors that a Hugging Face folder calls otherwise than Llama does (architecture.cpp).
    std::span<const HfName> hf_tensors;
    // Reads the keys of either format; the common ones have been read (core/models/read_config.h).
    void (*read)(Keys& keys, ModelConfig& config) = nullptr;
    // Adds the ops of a layer.
    void (*layer)(OpMaker& maker, std::int32_t i) = nullptr;
    // Adds ops between embed and the first layer; may be null.
    void (*before_layers)(OpMaker& maker) = nullptr;
    std::string_view shape_keys;  // keys of config.json that all its shapes have, as JSON members
    std::span<const PublishedShape> shapes;
};

// The families, each in its own file.
const Architecture& llama_architecture();
const Architecture& qwen2_architecture();
const Architecture& qwen3_architecture();
const Architecture& qwen3moe_architecture();
const Architecture& gemma2_architecture();
const Architecture& gemma3_architecture();
const Architecture& gemma4_architecture();
const Architecture& mistral_architecture();
const Architecture& mixtral_architecture();
const Architecture& gpt_oss_architecture();
const Architecture& phi3_architecture();
const Architecture& glm4_architecture();
const Architecture& glm4moe_architecture();
const Architecture& granite_architecture();
const Architecture& smollm3_architecture();
const Architecture& seed_oss_architecture();
const Architecture& olmo2_architecture();
const Architecture& command_r_architecture();
const Architecture& cohere2_architecture();
const Architecture& starcoder2_architecture();

std::span<const Architecture* const> architectures();
// Throw Error, naming the file and the supported families, if no family has this name.
const Architecture& architecture_for_gguf(std::string_view name, const std::string& path);
const Architecture& architecture_for_hf(std::string_view name, const std::string& path);
// The family of a configuration. Its name is known.
const Architecture& architecture(std::string_view name);

// How the family's Hugging Face folders call a tensor; empty: it has no such tensor.
HfName hf_name(const Architecture& family, std::string_view part, std::string_view kind);

// Throws Error unless sizes are positive, divide each other where they must, and are far from overflow.
void check_config(const ModelConfig& config, const std::string& path);

}  // namespace foresay::core
