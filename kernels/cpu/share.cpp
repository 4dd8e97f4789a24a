// What layers that several backends share need of the CPU backend (kernels/layer_share.h).
#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"

namespace foresay::kernels::cpu {
namespace {

struct Place {
    float* data;
    int64_t stride;
};

Place place_of(const CpuWorkspace& a, Values values) {
    switch (values) {
        case Values::residual:
            return {a.x, a.d_stride};
        case Values::attended:
            return {a.attended, a.q_stride};
        case Values::inner:
            return {a.ff, a.ff_stride};
        case Values::sums:
            return {a.projected, a.d_stride};
        case Values::expert_outputs:
            break;
    }
    return {a.expert_out, a.d_stride};
}

}  // namespace

void CpuOps::read_values(Workspace& workspace, Values values, int64_t width, std::span<float> to) {
    const CpuWorkspace& a = self(workspace);
    const Place place = place_of(a, values);
    const bool experts = values == Values::expert_outputs;
    const int64_t count = int64_t{rows(a)} * (experts ? a.shape.experts_used : 1);
    check(width <= place.stride && std::ssize(to) == count * width, "memory of other rows");
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = experts ? a.slot_of[static_cast<std::size_t>(i)] : i;
        float* const own = to.data() + i * width;
        if (slot < 0) {
            std::fill_n(own, width, 0.0f);
        } else {
            std::copy_n(place.data + slot * place.stride, width, own);
        }
    }
}

void CpuOps::write_values(Workspace& workspace, Values values, int64_t width, std::span<const float> from) {
    CpuWorkspace& a = self(workspace);
    const Place place = place_of(a, values);
    const bool experts = values == Values::expert_outputs;
    const int64_t count = int64_t{rows(a)} * (experts ? a.shape.experts_used : 1);
    check(width <= place.stride && std::ssize(from) == count * width, "memory of other rows");
    for (int64_t i = 0; i < count; ++i) {
        std::copy_n(from.data() + i * width, width, place.data + i * place.stride);
        if (experts) a.slot_of[static_cast<std::size_t>(i)] = static_cast<int32_t>(i);
    }
    // What was quantised of the old values does not count.
    if (values == Values::attended) a.attended_coded = false;
    if (values == Values::inner) a.ff_coded = false;
}

void CpuOps::clear_rows(Workspace& workspace) {
    CpuWorkspace& a = self(workspace);
    std::fill_n(a.x, rows(a) * a.d_stride, 0.0f);
}

}  // namespace foresay::kernels::cpu
