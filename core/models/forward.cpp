#include "core/models/forward.h"

namespace foresay::core {

void forward(const Model& model, kernels::Activations& act, kernels::KvPages& kv, const kernels::Batch& batch) {
    kernels::Ops& ops = model.ops();
    ops.begin(act, batch);
    ops.embed(model.embed(), act);
    std::int32_t index = 0;
    for (const Model::Layer& layer : model.layers()) {
        ops.attention_in(*layer.attention_in, act, kv, index);
        ops.attend(*layer.attend, act, kv, index);
        ops.attention_out(*layer.attention_out, act);
        ops.mlp_in(*layer.mlp_in, act);
        ops.mlp_out(*layer.mlp_out, act);
        ++index;
    }
    if (!batch.logit_rows.empty()) ops.head(model.head(), act);
}

}  // namespace foresay::core
