// core/models/model_source.h: where a model's configuration and tensors come from: a GGUF file, a directory of
// safetensors, random numbers in a published shape, or a small model inflated to such a shape.
//
// Threads:  one caller at a time.
// Errors:   open() throws Error (one sentence, naming the file) when the file is damaged, the architecture is unknown
//           or a required key is missing; tensor() when a tensor is missing or its shape contradicts the
//           configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/model_config.h"
#include "kernels/quant_type.h"

namespace foresay::core {

class GgufFile;

// The role of a tensor. Every architecture maps roles to the names in its files.
enum class TensorRole : std::uint8_t {
    embedding,
    output_norm,
    head,
    attention_norm,
    q,
    k,
    v,
    q_bias,
    k_bias,
    v_bias,
    attention_out,
    attention_out_bias,
    mlp_norm,
    gate,
    up,
    down,
};

class ModelSource {
public:
    // A GGUF file, or a directory with config.json and *.safetensors.
    static std::unique_ptr<ModelSource> open(const std::filesystem::path& path);
    // The published shape `shape` (core/models/shapes.h) with random weights in `quant_type`. The LM head is in `head`,
    // by default in the type that published files use. `by_backend`: matrices have a shape and no data, for a backend
    // that makes the numbers itself (Ops::makes_random_weights).
    static std::unique_ptr<ModelSource> random(std::string_view shape, kernels::QuantType quant_type,
                                               bool by_backend = false,
                                               std::optional<kernels::QuantType> head = std::nullopt);
    // The same for any configuration; `head` is the LM head's quantisation type. For tests.
    static std::unique_ptr<ModelSource> random(const ModelConfig& config, kernels::QuantType quant_type,
                                               kernels::QuantType head, std::uint64_t seed = 1,
                                               bool by_backend = false);

    // `small` inflated to the published shape `shape`: the large model computes the function of the small one (see
    // core/models/inflation.h). `head` as in random(). Throws Error when the shape cannot hold the model.
    static std::unique_ptr<ModelSource> inflate(std::unique_ptr<ModelSource> small, std::string_view shape,
                                                kernels::QuantType quant_type,
                                                std::optional<kernels::QuantType> head = std::nullopt);
    // The same for any shape. For tests.
    static std::unique_ptr<ModelSource> inflate(std::unique_ptr<ModelSource> small, const ModelConfig& shape,
                                                kernels::QuantType quant_type, kernels::QuantType head);

    // The weights of `source` dequantised to float32, so that no backend quantises the activations for them.
    static std::unique_ptr<ModelSource> decoded(std::unique_ptr<ModelSource> source);

    virtual ~ModelSource() = default;
    const ModelConfig& config() const { return config_; }
    const std::string& path() const { return path_; }  // for messages; "random llama-3.2-1b" has no file
    const std::vector<float>& rope_factors() const { return rope_factors_; }

    // The tensor for `role` in `layer` (ignored if the role is not per layer). Valid until release().
    virtual kernels::TensorView tensor(TensorRole role, std::int32_t layer) = 0;
    // The caller needs none of the tensors returned so far, except the embedding table.
    virtual void release() {}
    // Bytes of all weights, as stored.
    virtual std::int64_t weight_bytes() = 0;
    // Bytes of the embedding table, as stored. Synthetic sources answer without making it.
    virtual std::int64_t embedding_bytes() { return tensor(TensorRole::embedding, 0).bytes(); }
    // Where core::Tokenizer::of() finds the tokenizer: a GGUF file, or a folder that may hold a tokenizer.json. Null
    // and empty for random weights, which have none.
    virtual const GgufFile* gguf() const { return nullptr; }
    virtual std::filesystem::path folder() const { return {}; }

protected:
    ModelConfig config_;
    std::string path_;
    std::vector<float> rope_factors_;
};

// Rows and columns that `role` must have in a model of this configuration.
struct TensorShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
};
TensorShape tensor_shape(const ModelConfig& config, TensorRole role);

}  // namespace foresay::core
