// kernels/reference/projection.h: what attention_out and mlp_out share: x += [post_norm](matrix . input + bias).
//
// Precision: as kernels/reference/arrays.h.
#pragma once

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

struct Projection : PreparedOp {
    Matrix matrix;
    Floats bias;
    Norm post_norm;

    Projection(const TensorView& m, const TensorView& b, const NormSpec& n)
        : matrix(m), bias(dequantize(b)), post_norm(n) {}

    void add_to_residual(ReferenceWorkspace& a, Floats& input) const {
        for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
            float* y = a.scratch.data();
            matrix.apply(row(input, t, matrix.inputs), y);
            add(y, bias);
            if (!post_norm.empty()) post_norm.apply(y, y);
            add(row(a.x, t, matrix.outputs), y, matrix.outputs);
        }
    }
};

}  // namespace foresay::kernels::reference
