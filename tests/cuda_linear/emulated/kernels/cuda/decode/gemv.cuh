// tests/cuda_linear/emulated/kernels/cuda/decode/gemv.cuh: what packed.cuh names of the decode kernel besides products.
#pragma once

#include "kernels/cuda/decode/multiply.cuh"

namespace foresay::kernels::cuda {

template <int Warps>
void multiplier_barrier() {
    emulated::meet(emulated::cta);
}

// Declared only: steps are not run.
template <QuantType E, int NT, class Args, QuantType kLargest = E>
class CopyRing;
struct CtaShare {
    template <class Args>
    static CtaShare of(const Args&, char*, int);
    bool idle() const;
    int first, count, panel_begin, panel_end;
};
template <int Warps>
struct PanelSums {
    PanelSums(char*, const GemvPlan&, int, std::uint32_t&);
    void all_read();
    void hand_over();
    void next();
};
template <bool kOneRow, int NT, int Warps>
void store_sums(const float (&)[2][NT][4], PanelSums<Warps>&, int, const GemvPlan&, char*);

}  // namespace foresay::kernels::cuda
