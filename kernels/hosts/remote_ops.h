// kernels/hosts/remote_ops.h: a device of another host as a backend in rank 0's list (kernels/split_ops.h). It notes
// the calls of a forward and sends them in one message, with the rows that came to it; the other host runs them
// (kernels/hosts/host_server.h). Logits come back, and no weights, keys or values cross.
//
// Layout:   ops are named by their number among those that the device has prepared, in the order of prepare(). Both
//           sides load one model with one split, so both count alike.
// Law 1:    the other host's backend computes; rows cross as they are, float32.
// Threads:  one caller at a time.
// Cost:     a forward is one message there, with its rows, and one back, with its logits. A forward without logits is
//           sent by the next call that needs the host, and is not waited for until then. prepare() reads no weights.
// Errors:   LostHost, see kernels/hosts/host_group.h; Error, what the other host could not do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hosts/host_group.h"
#include "kernels/op_checks.h"
#include "kernels/ops.h"
#include "kernels/quant/packed_panels.h"

namespace foresay::kernels {

// What rank `rank` has told of one of its devices.
struct RemoteDevice {
    int rank = 0;
    std::int32_t device = 0;  // there
    BackendInfo info;
    RemoteDeviceFacts facts;
};

class RemoteOps final : public Ops, public TakesRows {
public:
    // Without a group it only counts what is prepared: on the other hosts, which load the model with all its layers,
    // it stands for the devices that are not theirs.
    RemoteOps(std::shared_ptr<HostGroup> group, RemoteDevice device);

    const RemoteDevice& device() const { return device_; }
    // A model is loaded next.
    void begin_model() { prepared_ = 0; }
    std::int32_t prepared() const { return prepared_; }

    BackendInfo describe() const override;
    std::int64_t free_memory() const override;
    double read_bandwidth() override;
    std::int32_t prefill_rows() const override { return device_.facts.prefill_rows; }
    bool reads_weights_once() const override { return device_.facts.reads_weights_once; }
    bool makes_random_weights() const override { return device_.facts.makes_random_weights; }
    void wait(Workspace& workspace) override;

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override { return count(spec); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override { return count(spec); }

    std::int64_t kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    std::int64_t workspace_bytes(const ModelShape& shape, std::int32_t max_rows,
                                 std::int32_t max_logit_rows) const override;
    std::int64_t expanded_kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, std::int32_t pages, KvFormat format) override;
    std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, std::int32_t max_rows,
                                                  std::int32_t max_logit_rows) override;
    void copy_page(KvPages& kv, std::int32_t from, std::int32_t to) override;
    void read_page(KvPages& kv, std::int32_t page, std::span<std::byte> to) override;
    void write_page(KvPages& kv, std::int32_t page, std::span<const std::byte> from) override;

    void begin(Workspace& workspace, const Batch& batch) override;
    void embed(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::embed, op, workspace); }
    void per_layer_embed(const PreparedOp& op, Workspace& workspace) override {
        note(ForwardOp::per_layer_embed, op, workspace);
    }
    void attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, std::int32_t layer) override {
        note(ForwardOp::attention_in, op, workspace, &kv, layer);
    }
    void attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, std::int32_t layer) override {
        note(ForwardOp::attend, op, workspace, &kv, layer);
    }
    void attention_out(const PreparedOp& op, Workspace& workspace) override {
        note(ForwardOp::attention_out, op, workspace);
    }
    void mlp_in(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::mlp_in, op, workspace); }
    void mlp_out(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::mlp_out, op, workspace); }
    void moe(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::moe, op, workspace); }
    void per_layer(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::per_layer, op, workspace); }
    void lm_head(const PreparedOp& op, Workspace& workspace) override;

    void sample(Workspace& workspace, std::span<const SamplingPlan> plans,
                std::span<const std::int32_t> slots) override;
    SampledToken sampled(Workspace& workspace, std::int32_t slot) override;
    Candidates candidates(Workspace& workspace, std::int32_t slot) override;
    std::span<float> logits(Workspace& workspace, std::int32_t i) override;
    std::span<const float> residual(Workspace& workspace, std::int32_t t) override;
    void read_rows(Workspace& workspace, std::span<float> to) override;
    void write_rows(Workspace& workspace, std::span<const float> from) override;
    bool take_rows(Workspace& workspace, Ops& from, Workspace& source) override;

private:
    struct Kv;
    struct Space;

    static Space& self(Workspace& workspace);
    struct Op final : PreparedOp {
        std::int32_t number = 0;
    };
    // What the device says to a message about such pages.
    std::int64_t ask_kv(MessageKind kind, const KvShape& shape, std::int32_t pages, KvFormat format) const;
    template <class Spec>
    std::unique_ptr<PreparedOp> count(const Spec& spec) {
        auto op = std::make_unique<Op>();
        op->number = prepared_++;
        if constexpr (requires { count_work(spec, *op); }) count_work(spec, *op);
        return op;
    }
    void note(ForwardOp call, const PreparedOp& op, Workspace& workspace, const KvPages* kv = nullptr,
              std::int32_t layer = 0);
    // Sends what was noted. Its answer is waited for by finish().
    void flush(Space& space);
    void finish(Space& space);
    // The rows of the forward into a buffer of this host.
    void fetch_rows(Space& space, LinkBuffer& to);

    std::shared_ptr<HostGroup> group_;
    RemoteDevice device_;
    std::int32_t prepared_ = 0;
    Message request_;
};

}  // namespace foresay::kernels
