// app/bench/metered_ops.h: a backend that counts the time, the weight bytes and the multiply-accumulates of each stage
// of another one. Passes everything on; the numbers of a computation do not change.
//
// Threads:  as the backend inside.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/draw.h"
#include "kernels/ops.h"

namespace foresay::app {

enum class MeteredStage : std::uint8_t { embed, attention_in, attend, attention_out, mlp_in, mlp_out, head };
inline constexpr int kMeteredStages = 7;
std::string_view name(MeteredStage stage);

struct StageMeter {
    std::int64_t calls = 0;
    double ms = 0.0;
    std::int64_t weight_bytes = 0;
    std::int64_t macs = 0;
};

class MeteredOps : public kernels::Ops {
public:
    explicit MeteredOps(std::unique_ptr<kernels::Ops> inner) : inner_(std::move(inner)) {}

    using Meters = std::array<StageMeter, kMeteredStages>;
    const StageMeter& meter(MeteredStage stage) const { return meters_[static_cast<std::size_t>(stage)]; }
    const Meters& meters() const { return meters_; }
    void reset() { meters_ = {}; }

    kernels::BackendInfo describe() const override { return inner_->describe(); }
    std::int64_t free_memory() const override { return inner_->free_memory(); }
    double read_bandwidth() override { return inner_->read_bandwidth(); }
    std::int32_t input_rows() const override { return inner_->input_rows(); }
    bool makes_random_weights() const override { return inner_->makes_random_weights(); }
    bool asynchronous() const override { return inner_->asynchronous(); }
    void wait(kernels::Activations& act) override { inner_->wait(act); }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::EmbedSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttentionInSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttendSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttentionOutSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::MlpInSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::MlpOutSpec& spec) override {
        return inner_->prepare(spec);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::HeadSpec& spec) override { return inner_->prepare(spec); }
    std::int64_t kv_bytes(const kernels::ModelShape& shape, std::int32_t pages,
                          kernels::KvFormat format) const override {
        return inner_->kv_bytes(shape, pages, format);
    }
    std::int64_t activation_bytes(const kernels::ModelShape& shape, std::int32_t max_rows,
                                  std::int32_t max_logit_rows) const override {
        return inner_->activation_bytes(shape, max_rows, max_logit_rows);
    }
    std::unique_ptr<kernels::KvPages> allocate_kv(const kernels::ModelShape& shape, std::int32_t pages,
                                                  kernels::KvFormat format) override {
        return inner_->allocate_kv(shape, pages, format);
    }
    std::unique_ptr<kernels::Activations> allocate_activations(const kernels::ModelShape& shape, std::int32_t max_rows,
                                                               std::int32_t max_logit_rows) override {
        return inner_->allocate_activations(shape, max_rows, max_logit_rows);
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        inner_->copy_page(kv, from, to);
    }

    void begin(kernels::Activations& act, const kernels::Batch& batch) override;
    void embed(const kernels::Prepared& stage, kernels::Activations& act) override;
    void attention_in(const kernels::Prepared& stage, kernels::Activations& act, kernels::KvPages& kv,
                      std::int32_t layer) override;
    void attend(const kernels::Prepared& stage, kernels::Activations& act, const kernels::KvPages& kv,
                std::int32_t layer) override;
    void attention_out(const kernels::Prepared& stage, kernels::Activations& act) override;
    void mlp_in(const kernels::Prepared& stage, kernels::Activations& act) override;
    void mlp_out(const kernels::Prepared& stage, kernels::Activations& act) override;
    void head(const kernels::Prepared& stage, kernels::Activations& act) override;
    void draw(kernels::Activations& act, std::span<const kernels::DrawPlan> plans,
              std::span<const std::int32_t> slots) override {
        inner_->draw(act, plans, slots);
    }
    kernels::Drawn drawn(kernels::Activations& act, std::int32_t slot) override { return inner_->drawn(act, slot); }
    kernels::Candidates candidates(kernels::Activations& act, std::int32_t slot) override {
        return inner_->candidates(act, slot);
    }
    std::span<float> logits(kernels::Activations& act, std::int32_t i) override { return inner_->logits(act, i); }
    std::span<const float> residual(kernels::Activations& act, std::int32_t t) override {
        return inner_->residual(act, t);
    }

private:
    template <typename Run>
    void measure(MeteredStage stage, const kernels::Prepared& prepared, std::int64_t rows, Run run);

    std::unique_ptr<kernels::Ops> inner_;
    Meters meters_{};
    std::int64_t rows_ = 0;
    std::int64_t logit_rows_ = 0;
};

}  // namespace foresay::app
