// core/models/model_source.h: where a model's configuration and tensors come from: a GGUF file, a directory of
// safetensors, random numbers in a published shape, or a small model inflated to such a shape.
//
// Names:    tensors are asked for by the names of GGUF, whatever the source (TensorName). A family says how files of
//           other formats call them (core/models/architecture.h).
// Threads:  one caller at a time.
// Errors:   open() throws Error (one sentence, naming the file) when the file is damaged, the architecture is unknown,
//           a required key or tensor is missing, or one is not understood; tensor() when a tensor is missing or its
//           shape contradicts the configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/model_config.h"
#include "kernels/quant_type.h"

namespace foresay::core {

class GgufFile;

// A tensor as GGUF names it: blk.3.attn_q.weight is {3, "attn_q"}, output.weight is {-1, "output"}.
struct TensorName {
    std::int32_t layer = -1;  // -1: of no layer
    std::string_view part;
    std::string_view kind = "weight";  // or "bias"
    std::int32_t expert = -1;          // -1: not of an expert; else the matrix of one of `experts`
    std::int32_t experts = 0;

    std::string text() const;
    bool is_table() const { return layer < 0 && part == "token_embd"; }
    bool is_head() const { return layer < 0 && part == "output"; }
};

// Rows and columns of a tensor. A vector has one row.
struct TensorShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
};

// A tensor that a model of some configuration has.
struct TensorUse {
    TensorName name;
    TensorShape shape;
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
    // Puts the layers on the backends of a list: of each layer the number of its backend, ascending; or -N of all: each
    // is divided over the first N (kernels/divided_ops.h). Before loading.
    void place_layers(std::vector<std::int32_t> devices);
    const std::string& path() const { return path_; }  // for messages; "random llama-3.2-1b" has no file

    // The tensor `name`, which must have this shape. Valid until release(). With a tied head, "output" is the table.
    virtual kernels::TensorView tensor(const TensorName& name, TensorShape shape) = 0;
    // Whether there is such a tensor, for families whose files may spell something in two ways.
    virtual bool has(const TensorName& name) const = 0;
    // Packing::order of a matrix, if it is stored so; empty: its inputs are in their own order.
    virtual std::span<const std::int32_t> input_order(const TensorName&) const { return {}; }
    // The rows of a tensor that was returned since release(), in an order; in place where they are in memory of the
    // source. Asked for only where there is an input_order().
    virtual kernels::TensorView with_rows_in(std::span<const std::int32_t>, kernels::TensorView view) { return view; }
    // The caller needs none of the tensors returned so far, except tables that stay mapped ("token_embd" and
    // "per_layer_token_embd").
    virtual void release() {}
    // No further tensor is taken: gives back the memory that release() keeps for the next one. A model keeps its
    // source.
    virtual void finish() {}
    // Bytes of all weights, as stored.
    virtual std::int64_t weight_bytes() = 0;
    // What weights take in addition on a device: its panels of packed rows are wider, and it unpacks some matrices.
    virtual std::int64_t expanded_bytes() { return 0; }
    // Bytes of the embedding table, as stored. Synthetic sources answer without making it.
    virtual std::int64_t embedding_bytes();
    // Bytes of the table of per-layer embeddings, as stored; 0: the model has none.
    virtual std::int64_t per_layer_table_bytes() { return 0; }
    // Where core::Tokenizer::of() finds the tokenizer: a GGUF file, or a folder that may hold a tokenizer.json. Null
    // and empty for random weights, which have none.
    virtual const GgufFile* gguf() const { return nullptr; }
    virtual std::filesystem::path folder() const { return {}; }

protected:
    ModelConfig config_;
    std::string path_;
};

}  // namespace foresay::core
