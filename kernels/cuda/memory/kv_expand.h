// kernels/cuda/memory/kv_expand.h: expands K and V of one layer from codes to float16, for kernels that read nothing
// else.
//
// Layout:   `to` is a pool of one layer (KvLayout of the shape with one layer, f16) with the same page numbers.
// Cost:     reads the codes of the pages and writes twice as many bytes.
// Errors:   none; enqueues on the stream.
#pragma once

#include "kernels/cuda/memory/kv_pool.h"

namespace foresay::kernels::cuda {

struct KvExpandCall {
    const __half* from = nullptr;  // of the layer
    KvLayout from_layout;
    __half* to = nullptr;
    KvLayout to_layout;
    std::int32_t kv_heads = 0, head_dim = 0;
    std::int32_t pages = 0;              // how many
    const std::int32_t* list = nullptr;  // which; null: the first ones
};
void launch_kv_expand(cudaStream_t stream, const KvExpandCall& call);

}  // namespace foresay::kernels::cuda
