#include "core/models/forward.h"

namespace foresay::core {

void run_op(kernels::Ops& ops, const Model::Op& op, kernels::Workspace& workspace, kernels::KvPages& kv) {
    kernels::run_op(op.kind, ops, *op.prepared, workspace, &kv, op.kv);
}

bool forward(const Model& model, kernels::Workspace& workspace, kernels::KvPages& kv, const kernels::Batch& batch,
             const std::atomic<bool>* cancel) {
    kernels::Ops& ops = model.ops();
    ops.begin(workspace, batch);
    for (const Model::Op& op : model.forward_ops()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        if (op.kind != kernels::ForwardOp::lm_head || !batch.logit_rows.empty()) run_op(ops, op, workspace, kv);
    }
    return true;
}

}  // namespace foresay::core
