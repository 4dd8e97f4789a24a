// app/bench/metered_ops.h: a backend that counts the time, the weight bytes and the multiply-accumulates of each op of
// another one. What is computed does not change.
//
// Threads:  as the inner backend.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/ops_decorator.h"

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

class MeteredOps : public kernels::OpsDecorator {
public:
    explicit MeteredOps(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(std::move(inner)) {}

    using Meters = std::array<StageMeter, kMeteredStages>;
    const StageMeter& meter(MeteredStage stage) const { return meters_[static_cast<std::size_t>(stage)]; }
    const Meters& meters() const { return meters_; }
    void reset() { meters_ = {}; }

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

private:
    template <typename Run>
    void measure(MeteredStage stage, const kernels::Prepared& prepared, std::int64_t rows, Run run);

    Meters meters_{};
    std::int64_t rows_ = 0;
    std::int64_t logit_rows_ = 0;
};

}  // namespace foresay::app
