#include "core/models/forward.h"

namespace foresay::core {

void run_stage(kernels::Ops& ops, const Model::Stage& stage, kernels::Workspace& workspace, kernels::KvPages& kv) {
    const kernels::PreparedOp& op = *stage.op;
    switch (stage.kind) {
        case StageKind::embed:
            return ops.embed(op, workspace);
        case StageKind::per_layer_embed:
            return ops.per_layer_embed(op, workspace);
        case StageKind::attention_in:
            return ops.attention_in(op, workspace, kv, stage.kv);
        case StageKind::attend:
            return ops.attend(op, workspace, kv, stage.kv);
        case StageKind::attention_out:
            return ops.attention_out(op, workspace);
        case StageKind::mlp_in:
            return ops.mlp_in(op, workspace);
        case StageKind::mlp_out:
            return ops.mlp_out(op, workspace);
        case StageKind::moe:
            return ops.moe(op, workspace);
        case StageKind::per_layer:
            return ops.per_layer(op, workspace);
        case StageKind::lm_head:
            return ops.lm_head(op, workspace);
    }
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
