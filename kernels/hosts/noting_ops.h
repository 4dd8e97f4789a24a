// kernels/hosts/noting_ops.h: a backend that notes what it prepares, so that a forward from another host can name ops
// by their number.
//
// Threads:  as for the ops.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/forward_op.h"
#include "kernels/ops_decorator.h"

namespace foresay::kernels {

// An op that a device has prepared, and what calls it.
struct NotedOp {
    ForwardOp call = ForwardOp::embed;
    const PreparedOp* op = nullptr;
};
using NotedOps = std::vector<NotedOp>;

// A backend with a note of each op that it prepares, which stays its own. Both must outlive it.
class NotingOps final : public OpsDecorator {
public:
    NotingOps(Ops& inner, NotedOps& notes) : OpsDecorator(inner), notes_(notes) {}

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& s) override { return note(ForwardOp::embed, s); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& s) override {
        return note(ForwardOp::per_layer_embed, s);
    }
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& s) override { return note(ForwardOp::attention_in, s); }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& s) override { return note(ForwardOp::attend, s); }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& s) override {
        return note(ForwardOp::attention_out, s);
    }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& s) override { return note(ForwardOp::mlp_in, s); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& s) override { return note(ForwardOp::mlp_out, s); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& s) override { return note(ForwardOp::moe, s); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& s) override { return note(ForwardOp::per_layer, s); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& s) override { return note(ForwardOp::lm_head, s); }

private:
    template <class Spec>
    std::unique_ptr<PreparedOp> note(ForwardOp call, const Spec& spec) {
        std::unique_ptr<PreparedOp> op = inner().prepare(spec);
        notes_.push_back({call, op.get()});
        return op;
    }

    NotedOps& notes_;
};

}  // namespace foresay::kernels
