// kernels/ops_decorator.h: a backend that forwards every call to another one. Derive from it and override the calls
// that should differ. The backends that meter, pace or compare another one do so.
//
// Life:     owns the inner backend, or refers to one that must outlive it.
// Threads:  as for the inner backend.
#pragma once

#include <memory>
#include <utility>

#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace foresay::kernels {

class OpsDecorator : public Ops {
public:
    BackendInfo describe() const override { return inner_->describe(); }
    std::int64_t free_memory() const override { return inner_->free_memory(); }
    double read_bandwidth() override { return inner_->read_bandwidth(); }
    std::int32_t prefill_rows() const override { return inner_->prefill_rows(); }
    bool reads_weights_once() const override { return inner_->reads_weights_once(); }
    bool makes_random_weights() const override { return inner_->makes_random_weights(); }
    bool asynchronous() const override { return inner_->asynchronous(); }
    void wait(Workspace& workspace) override { inner_->wait(workspace); }

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override { return inner_->prepare(spec); }

    std::int64_t kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override {
        return inner_->kv_bytes(shape, pages, format);
    }
    std::int64_t workspace_bytes(const ModelShape& shape, std::int32_t max_rows,
                                 std::int32_t max_logit_rows) const override {
        return inner_->workspace_bytes(shape, max_rows, max_logit_rows);
    }
    std::int64_t expanded_kv_bytes(const KvShape& shape, std::int32_t pages, KvFormat format) const override {
        return inner_->expanded_kv_bytes(shape, pages, format);
    }
    std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, std::int32_t pages, KvFormat format) override {
        return inner_->allocate_kv(shape, pages, format);
    }
    std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, std::int32_t max_rows,
                                                  std::int32_t max_logit_rows) override {
        return inner_->allocate_workspace(shape, max_rows, max_logit_rows);
    }
    void copy_page(KvPages& kv, std::int32_t from, std::int32_t to) override { inner_->copy_page(kv, from, to); }
    void read_page(KvPages& kv, std::int32_t page, std::span<std::byte> to) override {
        inner_->read_page(kv, page, to);
    }
    void write_page(KvPages& kv, std::int32_t page, std::span<const std::byte> from) override {
        inner_->write_page(kv, page, from);
    }
    std::unique_ptr<HostMemory> allocate_host(std::size_t bytes) override { return inner_->allocate_host(bytes); }

    void begin(Workspace& workspace, const Batch& batch) override { inner_->begin(workspace, batch); }
    void embed(const PreparedOp& op, Workspace& workspace) override { inner_->embed(op, workspace); }
    void attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, std::int32_t layer) override {
        inner_->attention_in(op, workspace, kv, layer);
    }
    void attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, std::int32_t layer) override {
        inner_->attend(op, workspace, kv, layer);
    }
    void attention_out(const PreparedOp& op, Workspace& workspace) override { inner_->attention_out(op, workspace); }
    void mlp_in(const PreparedOp& op, Workspace& workspace) override { inner_->mlp_in(op, workspace); }
    void mlp_out(const PreparedOp& op, Workspace& workspace) override { inner_->mlp_out(op, workspace); }
    void moe(const PreparedOp& op, Workspace& workspace) override { inner_->moe(op, workspace); }
    void per_layer_embed(const PreparedOp& op, Workspace& workspace) override {
        inner_->per_layer_embed(op, workspace);
    }
    void per_layer(const PreparedOp& op, Workspace& workspace) override { inner_->per_layer(op, workspace); }
    void lm_head(const PreparedOp& op, Workspace& workspace) override { inner_->lm_head(op, workspace); }

    void sample(Workspace& workspace, std::span<const SamplingPlan> plans,
                std::span<const std::int32_t> slots) override {
        inner_->sample(workspace, plans, slots);
    }
    SampledToken sampled(Workspace& workspace, std::int32_t slot) override { return inner_->sampled(workspace, slot); }
    Candidates candidates(Workspace& workspace, std::int32_t slot) override {
        return inner_->candidates(workspace, slot);
    }
    std::span<float> logits(Workspace& workspace, std::int32_t i) override { return inner_->logits(workspace, i); }
    std::span<const float> residual(Workspace& workspace, std::int32_t t) override {
        return inner_->residual(workspace, t);
    }
    void read_rows(Workspace& workspace, std::span<float> to) override { inner_->read_rows(workspace, to); }
    void write_rows(Workspace& workspace, std::span<const float> from) override { inner_->write_rows(workspace, from); }

protected:
    explicit OpsDecorator(Ops& inner) : inner_(&inner) {}
    explicit OpsDecorator(std::unique_ptr<Ops> inner) : owned_(std::move(inner)), inner_(owned_.get()) {}

    Ops& inner() { return *inner_; }

private:
    std::unique_ptr<Ops> owned_;
    Ops* inner_;
};

}  // namespace foresay::kernels
