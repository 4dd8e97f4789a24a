// kernels/cuda/experts/gated.cuh: what gate and up of an expert become: activation(gate) * up, or the clamped form.
#pragma once

#include "kernels/ops.h"

namespace foresay::kernels::cuda {

__device__ inline float gated_expert(Activation kind, float limit, float gate, float up) {
    switch (kind) {
        case Activation::silu:
            return gate / (1.0f + expf(-gate)) * up;
        case Activation::gelu_tanh: {
            const float inner = 0.7978845608028654f * fmaf(0.044715f * gate * gate, gate, gate);
            return 0.5f * gate * (1.0f + tanhf(inner)) * up;
        }
        case Activation::gelu:
            return 0.5f * gate * (1.0f + erff(gate * 0.70710678118654752f)) * up;
        case Activation::clamped_swiglu: {
            const float g = fminf(gate, limit), u = fmaxf(-limit, fminf(up, limit));
            return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
        }
    }
    return 0.0f;
}

}  // namespace foresay::kernels::cuda
