// bench/named_shapes.h: the shapes that benchmarks of the device know by name: those of the Llama 3 models.
#pragma once

#include "kernels/ops.h"

namespace foresay {

struct NamedShape {
    const char* name;
    kernels::ModelShape shape;  // layers, d_model, heads, kv_heads, head_dim, d_ff, vocab
};
inline constexpr NamedShape kShapes[] = {
    {"8b", {32, 4096, 32, 8, 128, 14336, 128256}},
    {"70b", {80, 8192, 64, 8, 128, 28672, 128256}},
    {"1b", {16, 2048, 32, 8, 64, 8192, 128256}},
};

}  // namespace foresay
