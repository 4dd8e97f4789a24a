// kernels/cuda/experts/mixture.h: a mixture of experts on the device: its weights, and the memory of its forwards.
//
// Layout:   gate and up of an expert are a stack of interleaved panels, down another; the experts follow one another.
//           Router, norms and biases are float32, and of all experts.
// Parts:    where devices share the layer, each has a Mixture of some experts, and one that adds up those of all.
// Errors:   the constructors throw Error (no memory, shapes that the kernels cannot run).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/experts/grouped.h"
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
    // Of prefill rows (grouped.h); empty where the device has no such kernels.
    DeviceBuffer<float> back_;
    DeviceBuffer<std::int32_t> counts_, rank_, order_, totals_;
    DeviceBuffer<GroupEight> eights_;
    DeviceBuffer<ExpertGroup> groups_;
    DeviceBuffer<std::uint8_t> images_;
};

// What a Mixture does: all; the outputs of its experts alone; their sum alone, and what follows it.
enum class MixtureWork : std::uint8_t { whole, experts, sum };

class Mixture {
public:
    explicit Mixture(const MoeSpec& spec) : Mixture(spec, MixtureWork::whole, {0, spec.shape.experts}) {}
    Mixture(const MoeSpec& spec, MixtureWork work, OwnExperts own);
    // Adds the experts of `rows` rows to x, or leaves their sum in the branch. Prefill rows take the products of
    // grouped.h where device and type have them, whatever their number.
    void launch(cudaStream_t stream, RowClass row_class, std::int32_t rows, float* x,
                const ExpertsWorkspace& workspace) const;
    std::int64_t bytes() const;
    MixtureWork work() const { return work_; }
    OwnExperts own() const { return own_; }
    // Those that have the experts of one mixture: all take the shifts that one with all of its weights would find.
    static void agree(std::span<Mixture* const> parts);

private:
    struct Stack {
        ExpertPanels panels;
        DeviceBuffer<float> bias;  // [E, rows] in packed order; empty: none
        bool grouped = false;      // whether prefill rows take grouped.h
        int shift = 0;             // of its weights

        Stack() = default;
        Stack(const std::vector<TensorView>& first, const std::vector<TensorView>& second, DeviceBuffer<float> biases,
              OwnExperts own);
    };
    void launch_experts(cudaStream_t stream, RowClass row_class, std::int32_t rows, const float* x,
                        const ExpertBuffers& buffers) const;
    ProductsCall products(const Stack& stack, std::int32_t rows) const;
    // The products of a stack for prefill rows. `x`: a row for each `used` slots.
    void launch_groups_of(cudaStream_t stream, const Stack& stack, const ProductsCall& call, std::int32_t used) const;

    MixtureWork work_;
    OwnExperts own_;
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
};

}  // namespace foresay::kernels::cuda
