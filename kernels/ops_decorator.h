// kernels/ops_decorator.h: a backend that passes every call on to another one. Derive from it and override the calls that
// should differ: metering, pacing and comparing backends are such classes.
//
// Life:     owns the inner backend, or refers to one that outlives it.
// Threads:  as the inner backend.
#pragma once

#include <memory>
#include <utility>

#include "kernels/sampling.h"
#include "kernels/ops.h"

namespace foresay::kernels {

class OpsDecorator : public Ops {
public:
    BackendInfo describe() const override { return inner_->describe(); }
    std::int64_t free_memory() const override { return inner_->free_memory(); }
    double read_bandwidth() override { return inner_->read_bandwidth(); }
    std::int32_t input_rows() const override { return inner_->input_rows(); }
    bool makes_random_weights() const override { return inner_->makes_random_weights(); }
    bool asynchronous() const override { return inner_->asynchronous(); }
    void wait(Activations& act) override { inner_->wait(act); }

    std::unique_ptr<Prepared> prepare(const EmbedSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const AttentionInSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const AttendSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const AttentionOutSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const MlpInSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const MlpOutSpec& spec) override { return inner_->prepare(spec); }
    std::unique_ptr<Prepared> prepare(const HeadSpec& spec) override { return inner_->prepare(spec); }

    std::int64_t kv_bytes(const ModelShape& shape, std::int32_t pages, KvFormat format) const override {
        return inner_->kv_bytes(shape, pages, format);
    }
    std::int64_t activation_bytes(const ModelShape& shape, std::int32_t max_rows,
                                  std::int32_t max_logit_rows) const override {
        return inner_->activation_bytes(shape, max_rows, max_logit_rows);
    }
    std::unique_ptr<KvPages> allocate_kv(const ModelShape& shape, std::int32_t pages, KvFormat format) override {
        return inner_->allocate_kv(shape, pages, format);
    }
    std::unique_ptr<Activations> allocate_activations(const ModelShape& shape, std::int32_t max_rows,
                                                      std::int32_t max_logit_rows) override {
        return inner_->allocate_activations(shape, max_rows, max_logit_rows);
    }
    void copy_page(KvPages& kv, std::int32_t from, std::int32_t to) override { inner_->copy_page(kv, from, to); }

    void begin(Activations& act, const Batch& batch) override { inner_->begin(act, batch); }
    void embed(const Prepared& stage, Activations& act) override { inner_->embed(stage, act); }
    void attention_in(const Prepared& stage, Activations& act, KvPages& kv, std::int32_t layer) override {
        inner_->attention_in(stage, act, kv, layer);
    }
    void attend(const Prepared& stage, Activations& act, const KvPages& kv, std::int32_t layer) override {
        inner_->attend(stage, act, kv, layer);
    }
    void attention_out(const Prepared& stage, Activations& act) override { inner_->attention_out(stage, act); }
    void mlp_in(const Prepared& stage, Activations& act) override { inner_->mlp_in(stage, act); }
    void mlp_out(const Prepared& stage, Activations& act) override { inner_->mlp_out(stage, act); }
    void head(const Prepared& stage, Activations& act) override { inner_->head(stage, act); }

    void sample(Activations& act, std::span<const SamplingPlan> plans, std::span<const std::int32_t> slots) override {
        inner_->sample(act, plans, slots);
    }
    SampledToken sampled(Activations& act, std::int32_t slot) override { return inner_->sampled(act, slot); }
    Candidates candidates(Activations& act, std::int32_t slot) override { return inner_->candidates(act, slot); }
    std::span<float> logits(Activations& act, std::int32_t i) override { return inner_->logits(act, i); }
    std::span<const float> residual(Activations& act, std::int32_t t) override { return inner_->residual(act, t); }

protected:
    explicit OpsDecorator(Ops& inner) : inner_(&inner) {}
    explicit OpsDecorator(std::unique_ptr<Ops> inner) : owned_(std::move(inner)), inner_(owned_.get()) {}

    Ops& inner() { return *inner_; }

private:
    std::unique_ptr<Ops> owned_;
    Ops* inner_;
};

}  // namespace foresay::kernels
