// tests/models/sharing_ops.h: a backend that forwards every call to another one, those of shared layers included
// (kernels/layer_share.h). Derive from it and override what should differ.
//
// Threads:  as for the inner backend.
#pragma once

#include <memory>

#include "kernels/layer_share.h"
#include "kernels/ops_decorator.h"

namespace foresay::test {

class SharingOps : public kernels::OpsDecorator, public kernels::LayerShare {
public:
    explicit SharingOps(kernels::Ops& inner) : OpsDecorator(inner) {}

    std::unique_ptr<kernels::PreparedOp> prepare_part(const kernels::AttentionInSpec& s, kernels::Whole w) override {
        return shared().prepare_part(s, w);
    }
    std::unique_ptr<kernels::PreparedOp> prepare_part(const kernels::MlpInSpec& s, kernels::Whole w) override {
        return shared().prepare_part(s, w);
    }
    std::unique_ptr<kernels::PreparedOp> prepare_part(const kernels::MlpOutSpec& s, kernels::Whole w) override {
        return shared().prepare_part(s, w);
    }
    std::unique_ptr<kernels::PreparedOp> prepare_finish(const kernels::MlpOutSpec& spec) override {
        return shared().prepare_finish(spec);
    }
    std::unique_ptr<kernels::PreparedOp> prepare_experts(const kernels::MoeSpec& spec, kernels::Part experts) override {
        return shared().prepare_experts(spec, experts);
    }
    std::unique_ptr<kernels::PreparedOp> prepare_expert_sum(const kernels::MoeSpec& spec) override {
        return shared().prepare_expert_sum(spec);
    }
    void start(kernels::Workspace& workspace) override { shared().start(workspace); }
    bool idle() override { return shared().idle(); }
    void read_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                     std::span<float> to) override {
        shared().read_values(workspace, values, width, to);
    }
    void write_values(kernels::Workspace& workspace, kernels::Values values, std::int64_t width,
                      std::span<const float> from) override {
        shared().write_values(workspace, values, width, from);
    }
    void clear_rows(kernels::Workspace& workspace) override { shared().clear_rows(workspace); }

protected:
    kernels::LayerShare& shared() { return dynamic_cast<kernels::LayerShare&>(inner()); }
};

}  // namespace foresay::test
