// kernels/cuda/experts/mixture.h: a mixture of experts on the device: its weights, and the memory of its forwards.
//
// Layout:   gate and up of an expert are a stack of interleaved panels, down another; the experts follow one another.
//           Router, norms and biases are float32.
// Errors:   the constructors throw Error (no memory, shapes that the kernels cannot run).
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/mixture_step.h"
#include "kernels/cuda/linear.h"

namespace foresay::kernels::cuda {

// A norm with what LayerNorm has besides.
struct ExpertNorm {
    DeviceNorm norm;
    DeviceBuffer<float> bias;
    bool layer = false, present = false;

    ExpertNorm() = default;
    explicit ExpertNorm(const NormSpec& spec);
    NormArgs args() const;
};

// The memory of a workspace's mixtures; empty for models without experts.
class ExpertsWorkspace {
public:
    ExpertsWorkspace() = default;
    ExpertsWorkspace(const ModelShape& shape, std::int32_t max_rows);
    static std::int64_t bytes(const ModelShape& shape, std::int32_t max_rows);
    ExpertBuffers view() const;
    float* branch() const { return branch_.data(); }  // [T, D]
    // Whether a mixture of this shape fits.
    bool has_room(const ModelShape& shape, std::int32_t rows) const;

private:
    DeviceBuffer<float> scores_, weight_, ff_, out_, branch_;
    DeviceBuffer<float2> stats_;
    DeviceBuffer<std::int32_t> choice_, done_, tile_count_;
    DeviceBuffer<ExpertTile> tiles_;
};

class Mixture {
public:
    explicit Mixture(const MoeSpec& spec);
    // Adds the experts of `rows` rows to x, or leaves their sum in the branch.
    void launch(cudaStream_t stream, std::int32_t rows, float* x, const ExpertsWorkspace& workspace) const;
    // As a step of the decode kernel (mixture_step.h): what it needs, here and, as a pointer for a GemvStep, on the
    // device; and whether it can share the plan of another one.
    const MixtureConstants& constants() const { return constants_; }
    const std::uint8_t* constants_on_device() const;
    bool is_like(const Mixture& other) const;
    std::int64_t bytes() const;

private:
    struct Stack {
        ExpertPanels panels;
        DeviceBuffer<float> bias;  // [E, rows] in packed order; empty: none
    };
    MixtureConstants make_constants() const;
    ProductsCall products(const Stack& stack) const;

    ModelShape shape_;
    ExpertNorm norm_, router_norm_, post_norm_;
    DeviceBuffer<float> router_, router_bias_, choice_bias_, factor_;
    Gating gating_;
    bool renormalize_;
    float router_scale_;
    std::int32_t groups_, groups_used_;
    Stack gate_up_, down_;
    Activation activation_;
    float limit_;
    bool keep_branch_;
    float scale_, stream_scale_;
    MixtureConstants constants_;
    DeviceBuffer<MixtureConstants> constants_on_device_;
};

}  // namespace foresay::kernels::cuda
