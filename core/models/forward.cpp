#include "core/models/forward.h"

namespace foresay::core {

void forward(const Model& model, kernels::Workspace& workspace, kernels::KvPages& kv, const kernels::Batch& batch) {
    kernels::Ops& ops = model.ops();
    ops.begin(workspace, batch);
    ops.embed(model.embed(), workspace);
    std::int32_t index = 0;
    for (const Model::Layer& layer : model.layers()) {
        ops.attention_in(*layer.attention_in, workspace, kv, index);
        ops.attend(*layer.attend, workspace, kv, index);
        ops.attention_out(*layer.attention_out, workspace);
        ops.mlp_in(*layer.mlp_in, workspace);
        ops.mlp_out(*layer.mlp_out, workspace);
        ++index;
    }
    if (!batch.logit_rows.empty()) ops.lm_head(model.head(), workspace);
}

}  // namespace foresay::core
