// app/bench/metered_ops.h: wraps a backend and counts calls, time, weight bytes and multiply-accumulates of each op.
// The results do not change.
//
// Threads:  as the inner backend.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "core/models/op_maker.h"
#include "kernels/ops_decorator.h"

namespace foresay::app {

using kernels::ForwardOp;

inline constexpr int kMeteredOps = static_cast<int>(std::variant_size_v<core::OpSpec>);
std::string_view name(ForwardOp op);

struct OpMeter {
    std::int64_t calls = 0;
    double ms = 0.0;
    std::int64_t weight_bytes = 0;
    std::int64_t macs = 0;
};

class MeteredOps : public kernels::OpsDecorator {
public:
    explicit MeteredOps(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(std::move(inner)) {}

    using Meters = std::array<OpMeter, kMeteredOps>;
    const OpMeter& meter(ForwardOp op) const { return meters_[static_cast<std::size_t>(op)]; }
    const Meters& meters() const { return meters_; }
    void reset() { meters_ = {}; }

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override;
    void embed(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void attention_in(const kernels::PreparedOp& op, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override;
    void attend(const kernels::PreparedOp& op, kernels::Workspace& workspace, const kernels::KvPages& kv,
                std::int32_t layer) override;
    void attention_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void mlp_in(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void mlp_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void moe(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void per_layer_embed(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void per_layer(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;
    void lm_head(const kernels::PreparedOp& op, kernels::Workspace& workspace) override;

private:
    template <typename Run>
    void measure(ForwardOp op, const kernels::PreparedOp& prepared, std::int64_t rows, Run run);

    Meters meters_{};
    std::int64_t rows_ = 0;
    std::int64_t logit_rows_ = 0;
};

}  // namespace foresay::app
