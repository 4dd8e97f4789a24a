// tests/cuda_linear/emulated/kernels/cuda/decode/rank_link.cuh: no other ranks.
#pragma once

namespace foresay::kernels::cuda {

struct LinkTable;
template <bool kLinked>
struct Patience {
    explicit Patience(LinkTable*) {}
    bool ends() { return false; }
};

}  // namespace foresay::kernels::cuda
