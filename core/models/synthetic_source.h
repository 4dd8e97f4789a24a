// core/models/synthetic_source.h: base class of the sources that make their tensors instead of reading them from a
// file. Holds the quantisation types (one for the LM head, one for the other matrices) and the memory of a tensor until
// it is packed.
//
// Cost:     memory holds one layer's tensors at a time, and the embedding table. The next layer reuses a layer's
//           memory: getting fresh memory from the system takes longer than filling it.
// Errors:   the constructor throws Error if rows of the shape are not a whole number of blocks.
#pragma once

#include <string>
#include <vector>

#include "core/models/model_source.h"

namespace foresay::core {

// Whether the tensor of `role` is a vector (norm weights or biases), which is always in float32.
bool is_vector(TensorRole role);

class SyntheticSource : public ModelSource {
public:
    kernels::TensorView tensor(TensorRole role, std::int32_t layer) final;
    void release() final;
    std::int64_t weight_bytes() final;
    std::int64_t embedding_bytes() final { return bytes(TensorRole::embedding); }

protected:
    SyntheticSource(const ModelConfig& config, kernels::QuantType quant_type, kernels::QuantType head,
                    std::string path);

    // The head's type for the LM head and for an embedding table that is tied to it; the main type for other matrices.
    virtual kernels::QuantType quant_type_of(TensorRole role) const;
    // Writes the tensor to `data`, which has its size.
    virtual void fill(TensorRole role, std::int32_t layer, std::vector<std::byte>& data) = 0;
    // Whether the backend makes the matrices itself.
    virtual bool by_backend() const { return false; }

private:
    bool present(TensorRole role) const;
    std::int64_t bytes(TensorRole role) const;

    kernels::QuantType quant_type_;
    kernels::QuantType head_;
    std::vector<std::byte> embedding_;
    std::vector<std::vector<std::byte>> scratch_;
    std::vector<std::vector<std::byte>> spare_;  // of earlier layers
    bool more_layers_ = false;                   // after the layer of the latest tensor
};

}  // namespace foresay::core
