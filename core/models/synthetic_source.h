// core/models/synthetic_source.h: base class of the sources that make their tensors instead of reading them from a
// file. Holds the quantisation types (one for the LM head, one for the other matrices) and the memory of a tensor until
// it is packed.
//
// Cost:     memory holds one layer's tensors at a time, and the embedding table. The next layer reuses a layer's
//           memory: getting fresh memory from the system takes longer than filling it.
// Errors:   the constructor throws Error if rows of the shape are not a whole number of blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/model_source.h"

namespace foresay::core {

// Whether the tensor is one of those that are always in float32: vectors (norms, biases) and routers.
bool is_vector(const TensorName& name, TensorShape shape);
// Whether it holds the weights of a norm.
bool is_norm(const TensorName& name);
// A number for the tensor's name and layer, to seed random weights.
std::uint64_t seed_of(const TensorName& name);

class SyntheticSource : public ModelSource {
public:
    kernels::TensorView tensor(const TensorName& name, TensorShape shape) final;
    bool has(const TensorName&) const final { return false; }
    void release() final;
    std::int64_t weight_bytes() final;
    std::int64_t embedding_bytes() final;
    std::int64_t per_layer_table_bytes() final;
    // A tensor without data, which need not be made for it.
    kernels::TensorView kept_view(const TensorName& name, TensorShape shape) const;

protected:
    SyntheticSource(const ModelConfig& config, kernels::QuantType quant_type, kernels::QuantType head,
                    std::string path);

    // The head's type for the LM head and for an embedding table that is tied to it; the main type for other matrices.
    virtual kernels::QuantType quant_type_of(const TensorName& name, TensorShape shape) const;
    // Writes the tensor to `data`, which has its size.
    virtual void fill(const TensorName& name, TensorShape shape, std::vector<std::byte>& data) = 0;
    // Whether the backend makes the matrices itself.
    virtual bool by_backend() const { return false; }

private:
    kernels::QuantType quant_type_;
    kernels::QuantType head_;
    std::vector<std::byte> embedding_, per_layer_table_;
    std::vector<std::vector<std::byte>> scratch_;
    std::vector<std::vector<std::byte>> spare_;  // of earlier layers
    bool more_layers_ = false;                   // after the layer of the latest tensor
};

}  // namespace foresay::core
