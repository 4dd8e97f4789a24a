// per_layer_embed and per_layer: embeddings that belong to a layer, made once from the token and the embedded row, and
// added to the residual stream at the end of their layer.

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct PerLayerEmbed : PreparedOp {
    TensorView table;
    Matrix projection;
    Norm norm;
    float table_scale, projection_scale, scale;

    explicit PerLayerEmbed(const PerLayerEmbedSpec& s)
        : table(s.table),
          projection(s.projection),
          norm(s.norm),
          table_scale(s.table_scale),
          projection_scale(s.projection_scale),
          scale(s.scale) {}
};

struct PerLayer : PreparedOp {
    int32_t layer;
    Matrix gate, projection;
    Norm post_norm;
    Activation activation;
    float stream_scale;

    explicit PerLayer(const PerLayerSpec& s)
        : layer(s.layer),
          gate(s.gate),
          projection(s.projection),
          post_norm(s.post_norm),
          activation(s.activation),
          stream_scale(s.stream_scale) {}
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const PerLayerEmbedSpec& spec) { return make<PerLayerEmbed>(spec); }
std::unique_ptr<PreparedOp> ReferenceOps::prepare(const PerLayerSpec& spec) { return make<PerLayer>(spec); }

void ReferenceOps::per_layer_embed(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const PerLayerEmbed&>(prepared);
    auto& a = self(workspace);
    const std::size_t part = op.norm.weight.size();
    Floats table(static_cast<std::size_t>(op.table.cols));
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        float* const out = row(a.per_layer, t, op.projection.outputs);
        op.projection.apply(row(a.x, t, a.shape.d_model), out);
        dequantize_row(op.table, token_of(a, t, op.table.rows), table);
        for (std::size_t first = 0; first < table.size(); first += part) {
            for (std::size_t i = first; i < first + part; ++i) out[i] *= op.projection_scale;
            op.norm.apply(out + first, out + first);
            for (std::size_t i = first; i < first + part; ++i) {
                out[i] = (out[i] + op.table_scale * table[i]) * op.scale;
            }
        }
    }
}

void ReferenceOps::per_layer(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const PerLayer&>(prepared);
    auto& a = self(workspace);
    const int64_t part = op.gate.outputs;
    Floats inner(static_cast<std::size_t>(part)), y(static_cast<std::size_t>(a.shape.d_model));
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        float* const x = row(a.x, t, a.shape.d_model);
        const float* const own = row(a.per_layer, t, part * a.shape.layers) + op.layer * part;
        op.gate.apply(x, inner.data());
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = activate(op.activation, inner[i]) * own[i];
        op.projection.apply(inner.data(), y.data());
        op.post_norm.apply(y.data(), y.data());
        add_scaled(x, y.data(), a.shape.d_model, 1.0f, op.stream_scale);
    }
}

}  // namespace foresay::kernels::reference
