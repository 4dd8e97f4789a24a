// kernels/cuda/forward/per_layer.h: what prepare() makes of the ops of per-layer embeddings.
//
// Threads:  as kernels/cuda/forward/prepared_ops.h.
#pragma once

#include "kernels/cuda/forward/prepared_ops.h"
#include "kernels/cuda/rowwise/per_layer.h"
#include "kernels/cuda/weights/embed_table.h"

namespace foresay::kernels::cuda {

struct PreparedPerLayerEmbed : CudaPreparedOp {
    DeviceBuffer<std::byte> table;
    OutLinear projection;
    DeviceNorm norm;
    PerLayerEmbedCall call;  // with what does not depend on the forward
    explicit PreparedPerLayerEmbed(const PerLayerEmbedSpec& spec)
        : table(embed_table(spec.table)), projection(spec.projection), norm(spec.norm) {
        call.quant_type = kept_type(spec.table);
        call.vocab = spec.table.rows;
        call.layers = spec.shape.layers;
        call.width = spec.shape.per_layer;
        call.table_scale = spec.table_scale;
        call.projection_scale = spec.projection_scale;
        call.scale = spec.scale;
    }
};

struct PreparedPerLayer : CudaPreparedOp {
    OutLinear gate, projection;
    DeviceNorm post_norm;
    float stream_scale;
    PerLayerGateCall call;  // as above
    explicit PreparedPerLayer(const PerLayerSpec& spec)
        : gate(spec.gate), projection(spec.projection), post_norm(spec.post_norm), stream_scale(spec.stream_scale) {
        call.width = spec.shape.per_layer;
        call.stride = spec.shape.layers * spec.shape.per_layer;
        call.first = spec.layer * spec.shape.per_layer;
        call.activation = spec.activation;
    }
};

}  // namespace foresay::kernels::cuda
