// kernels/reference/projection.h: what attention_out and mlp_out share, with the options of both: x = stream_scale *
// (x + scale * [post_norm]([inner_norm](matrix . input + bias) [+ branch])).
//
// Precision: as kernels/reference/arrays.h.
#pragma once

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

struct Projection : PreparedOp {
    Matrix matrix;
    Floats bias;
    Norm post_norm, inner_norm;
    bool add_branch = false;
    float scale = 1.0f, stream_scale = 1.0f;

    explicit Projection(const AttentionOutSpec& s)
        : matrix(s.o), bias(dequantize(s.bias)), post_norm(s.post_norm), inner_norm(NormSpec{}), scale(s.scale) {}
    explicit Projection(const MlpOutSpec& s)
        : matrix(s.down),
          bias(dequantize(s.bias)),
          post_norm(s.post_norm),
          inner_norm(s.inner_norm),
          add_branch(s.add_branch),
          scale(s.scale),
          stream_scale(s.stream_scale) {}

    void add_to_residual(ReferenceWorkspace& a, Floats& input) const {
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            float* y = a.scratch.data();
            matrix.apply(row(input, t, matrix.inputs), y);
            add(y, bias);
            if (!inner_norm.empty()) inner_norm.apply(y, y);
            if (add_branch) add(y, row(a.branch, t, matrix.outputs), matrix.outputs);
            if (!post_norm.empty()) post_norm.apply(y, y);
            add_scaled(row(a.x, t, matrix.outputs), y, matrix.outputs, scale, stream_scale);
        }
    }
};

}  // namespace foresay::kernels::reference
