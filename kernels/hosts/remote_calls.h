// kernels/hosts/remote_calls.h: the ops of kernels/ops.h as numbers, by which a forward crosses to another host.
//
// Threads:  as for the ops.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops_decorator.h"

namespace foresay::kernels {

enum class RemoteCall : std::uint8_t {
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

inline bool reads_cache(RemoteCall call) { return call == RemoteCall::attention_in || call == RemoteCall::attend; }

// Calls the op on `ops`. `kv`: not null where reads_cache().
inline void run_call(RemoteCall call, Ops& ops, const PreparedOp& op, Workspace& workspace, KvPages* kv,
                     std::int32_t layer) {
    switch (call) {
        case RemoteCall::embed:
            return ops.embed(op, workspace);
        case RemoteCall::per_layer_embed:
            return ops.per_layer_embed(op, workspace);
        case RemoteCall::attention_in:
            return ops.attention_in(op, workspace, *kv, layer);
        case RemoteCall::attend:
            return ops.attend(op, workspace, *kv, layer);
        case RemoteCall::attention_out:
            return ops.attention_out(op, workspace);
        case RemoteCall::mlp_in:
            return ops.mlp_in(op, workspace);
        case RemoteCall::mlp_out:
            return ops.mlp_out(op, workspace);
        case RemoteCall::moe:
            return ops.moe(op, workspace);
        case RemoteCall::per_layer:
            return ops.per_layer(op, workspace);
        case RemoteCall::lm_head:
            return ops.lm_head(op, workspace);
    }
}

// An op that a device has prepared, and what calls it.
struct NotedOp {
    RemoteCall call = RemoteCall::embed;
    const PreparedOp* op = nullptr;
};
using NotedOps = std::vector<NotedOp>;

// A backend with a note of each op that it prepares, which stays its own. Both must outlive it.
class NotingOps final : public OpsDecorator {
public:
    NotingOps(Ops& inner, NotedOps& notes) : OpsDecorator(inner), notes_(notes) {}

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& s) override { return note(RemoteCall::embed, s); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& s) override {
        return note(RemoteCall::per_layer_embed, s);
    }
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& s) override { return note(RemoteCall::attention_in, s); }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& s) override { return note(RemoteCall::attend, s); }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& s) override {
        return note(RemoteCall::attention_out, s);
    }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& s) override { return note(RemoteCall::mlp_in, s); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& s) override { return note(RemoteCall::mlp_out, s); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& s) override { return note(RemoteCall::moe, s); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& s) override { return note(RemoteCall::per_layer, s); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& s) override { return note(RemoteCall::lm_head, s); }

private:
    template <class Spec>
    std::unique_ptr<PreparedOp> note(RemoteCall call, const Spec& spec) {
        std::unique_ptr<PreparedOp> op = inner().prepare(spec);
        notes_.push_back({call, op.get()});
        return op;
    }

    NotedOps& notes_;
};

}  // namespace foresay::kernels
