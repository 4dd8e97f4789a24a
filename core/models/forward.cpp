#include "core/models/forward.h"

namespace foresay::core {

void run_stage(kernels::Ops& ops, const Model::Stage& stage, kernels::Workspace& workspace, kernels::KvPages& kv) {
    kernels::run_op(stage.kind, ops, *stage.op, workspace, &kv, stage.kv);
}

bool forward(const Model& model, kernels::Workspace& workspace, kernels::KvPages& kv, const kernels::Batch& batch,
             const std::atomic<bool>* cancel) {
    kernels::Ops& ops = model.ops();
    ops.begin(workspace, batch);
    for (const Model::Stage& stage : model.stages()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        if (stage.kind != StageKind::lm_head || !batch.logit_rows.empty()) run_stage(ops, stage, workspace, kv);
    }
    return true;
}

}  // namespace foresay::core
