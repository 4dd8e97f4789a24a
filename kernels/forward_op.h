// kernels/forward_op.h: the ops of a forward (kernels/ops.h) by name, for code that notes calls and runs them later or
// elsewhere.
//
// Layout:   the numbers are in the order of core::OpSpec, and cross between hosts (kernels/hosts/message.h).
// Threads:  as for the ops.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace foresay::kernels {

enum class ForwardOp : std::uint8_t {
    embed,
    per_layer_embed,
    attention_in,
    attend,
    attention_out,
    mlp_in,
    mlp_out,
    moe,
    per_layer,
    lm_head,
};

inline bool reads_cache(ForwardOp op) { return op == ForwardOp::attention_in || op == ForwardOp::attend; }

// Calls the op `prepared` on `ops`. `kv`: not null where reads_cache(); `layer`: of it.
inline void run_op(ForwardOp op, Ops& ops, const PreparedOp& prepared, Workspace& workspace, KvPages* kv,
                   std::int32_t layer) {
    switch (op) {
        case ForwardOp::embed:
            return ops.embed(prepared, workspace);
        case ForwardOp::per_layer_embed:
            return ops.per_layer_embed(prepared, workspace);
        case ForwardOp::attention_in:
            return ops.attention_in(prepared, workspace, *kv, layer);
        case ForwardOp::attend:
            return ops.attend(prepared, workspace, *kv, layer);
        case ForwardOp::attention_out:
            return ops.attention_out(prepared, workspace);
        case ForwardOp::mlp_in:
            return ops.mlp_in(prepared, workspace);
        case ForwardOp::mlp_out:
            return ops.mlp_out(prepared, workspace);
        case ForwardOp::moe:
            return ops.moe(prepared, workspace);
        case ForwardOp::per_layer:
            return ops.per_layer(prepared, workspace);
        case ForwardOp::lm_head:
            return ops.lm_head(prepared, workspace);
    }
}

}  // namespace foresay::kernels
