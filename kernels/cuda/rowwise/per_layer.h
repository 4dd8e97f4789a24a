// kernels/cuda/rowwise/per_layer.h: per-layer embeddings between their matrices.
//
// Layout:   as kernels/cuda/linear.h. Embeddings are [T, L * P], P values for each layer.
// Law 1:    a row's sums run in an order that P alone decides.
// Errors:   none; every function enqueues on the stream and returns.
#pragma once

#include "kernels/cuda/memory/batch_state.h"
#include "kernels/cuda/rowwise/norms.h"

namespace foresay::kernels::cuda {

// values = scale * (table_scale * table[token] + norm(projection_scale * values)), the norm over each layer's P values.
struct PerLayerEmbedCall {
    BatchView batch;
    std::int32_t rows = 0, layers = 0, width = 0;  // P
    const std::byte* table = nullptr;              // [V, L * P] as in the file
    QuantType quant_type = QuantType::f32;
    std::int64_t vocab = 0;
    const SampledToken* slots = nullptr;
    RowNorm norm;
    float table_scale = 1.0f, projection_scale = 1.0f, scale = 1.0f;
    float* values = nullptr;  // [T, L * P]; holds the projection before
};
void launch_per_layer_embed(cudaStream_t stream, const PerLayerEmbedCall& call);

// out[t] = activation(gate[t]) * embeddings[t], of the layer whose embeddings begin at `first`
struct PerLayerGateCall {
    std::int32_t rows = 0, width = 0;    // P
    std::int32_t stride = 0, first = 0;  // of the embeddings
    Activation activation = Activation::gelu_tanh;
    const float* gate = nullptr;        // [T, P]
    const float* embeddings = nullptr;  // [T, stride]
    float* out = nullptr;               // [T, P]
};
void launch_per_layer_gate(cudaStream_t stream, const PerLayerGateCall& call);

}  // namespace foresay::kernels::cuda
