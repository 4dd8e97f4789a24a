// kernels/cuda/forward/forward_runner.h: launches the noted op calls of a forward on the device's stream.
//
// Decode ops wait in the workspace's LinearSequence until something else has to be enqueued, so that, where possible, a
// whole forward is one launch. Prefill ops are launched one by one.
//
// Threads:  needs a DeviceScope.
// Errors:   what a launch throws. abandon() then empties the sequence, so that nothing of the failed forward runs
//           later.
#pragma once

#include <span>

#include "kernels/cuda/memory/workspace.h"

namespace foresay::kernels::cuda {

// The target of a ForwardRecorder.
class ForwardRunner {
public:
    explicit ForwardRunner(CudaWorkspace& workspace) : w_(workspace), stream_(workspace.stream) {}

    void enqueue(std::span<const OpCall> calls);
    void capture(Graph& graph, std::span<const OpCall> calls);
    void launch(const Graph& graph) { graph.launch(stream_); }
    void wait() { stream_.wait(); }
    void abandon() noexcept;
    // Whether the layers of a rank's part are one launch, which can be linked to those of its peers. Runs what is not
    // part of that launch, if something is not: its results mean nothing, and no forward reads them.
    bool can_link(std::span<const OpCall> calls);

private:
    void enqueue_ops(std::span<const OpCall> calls, const RopeTables& ropes);
    void enqueue_linked(std::span<const OpCall> calls, const RopeTables& ropes);
    void embed(const OpCall& call, const RopeTables& ropes);
    void attention_in(const OpCall& call);
    void attend(const OpCall& call);
    void out(const OpCall& call, const DeviceBuffer<float>& input);
    void mlp_in(const OpCall& call, const OpCall* next);
    void moe(const OpCall& call);
    void per_layer_embed(const OpCall& call);
    void per_layer(const OpCall& call);
    void lm_head(const OpCall& call);

    // The inputs of a matrix: x, or its norm where the matrix kernels cannot apply it.
    const float* normed_x(const DeviceNorm& norm);
    // A product whose sums go to `out`, ready for a kernel of its own.
    void multiply(const OutLinear& matrix, const float* input, float* out);
    // Completes attention_in where no attention has done so.
    void settle_new_kv();
    void finish_heads(const OpCall& call);
    void add_rows(const AddRowsCall& call);
    void leave_to(AttendCall& attend, const OpCall& call) const;
    void expand_kv(const OpCall& call, AttendCall& attend);
    HeadsCall heads_call(const OpCall& call, const ModelShape& shape) const;
    RopeTables ropes_of(std::span<const OpCall> calls) const;
    EmbedCall places(const RopeTables& ropes) const;

    CudaWorkspace& w_;
    const Stream& stream_;
};

}  // namespace foresay::kernels::cuda
