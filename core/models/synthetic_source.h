// core/models/synthetic_source.h: what the sources have in common that make their tensors instead of finding them in a
// file: one quantisation type for the head, one for the other matrices, and the memory that a tensor lies in until it
// is packed.
//
// Cost:     one layer's tensors at a time are in memory, and the embedding table; memory of a layer serves the next
//           one, because getting it from the system anew takes longer than writing it.
// Errors:   the constructor throws Error where rows of the shape are no whole number of blocks.
#pragma once

#include <string>
#include <vector>

#include "core/models/model_source.h"

namespace foresay::core {

// Whether the tensor of `role` is a vector: a norm's weights or biases, always in float32.
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

    // The head, and a table that is the head too, in the head's quantisation type; the rest in the main one.
    virtual kernels::QuantType quant_type_of(TensorRole role) const;
    // Writes the tensor into `data`, which has its bytes.
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
    bool more_layers_ = false;                   // behind that of the latest tensor
};

}  // namespace foresay::core
