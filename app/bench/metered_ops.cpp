#include "app/bench/metered_ops.h"

#include <chrono>

namespace foresay::app {

using kernels::KvPages;
using kernels::PreparedOp;
using kernels::Workspace;

std::string_view name(ForwardOp op) {
    constexpr std::string_view names[kMeteredOps] = {"embed",         "layer_embed", "attention_in", "attend",
                                                     "attention_out", "mlp_in",      "mlp_out",      "moe",
                                                     "per_layer",     "head"};
    return names[static_cast<std::size_t>(op)];
}

template <typename Run>
void MeteredOps::measure(ForwardOp op, const PreparedOp& prepared, std::int64_t rows, Run run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    OpMeter& meter = meters_[static_cast<std::size_t>(op)];
    meter.ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    meter.calls += 1;
    meter.weight_bytes +=
        op == ForwardOp::embed ? prepared.weight_bytes * rows : static_cast<std::int64_t>(prepared.bytes_read(rows));
    meter.macs += prepared.macs_per_row * rows;
}

void MeteredOps::begin(Workspace& workspace, const kernels::Batch& batch) {
    rows_ = static_cast<std::int64_t>(batch.rows.size());
    logit_rows_ = static_cast<std::int64_t>(batch.logit_rows.size());
    inner().begin(workspace, batch);
}

void MeteredOps::embed(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::embed, op, rows_, [&] { inner().embed(op, workspace); });
}

void MeteredOps::attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, std::int32_t layer) {
    measure(ForwardOp::attention_in, op, rows_, [&] { inner().attention_in(op, workspace, kv, layer); });
}

void MeteredOps::attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, std::int32_t layer) {
    measure(ForwardOp::attend, op, rows_, [&] { inner().attend(op, workspace, kv, layer); });
}

void MeteredOps::attention_out(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::attention_out, op, rows_, [&] { inner().attention_out(op, workspace); });
}

void MeteredOps::mlp_in(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::mlp_in, op, rows_, [&] { inner().mlp_in(op, workspace); });
}

void MeteredOps::mlp_out(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::mlp_out, op, rows_, [&] { inner().mlp_out(op, workspace); });
}

void MeteredOps::moe(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::moe, op, rows_, [&] { inner().moe(op, workspace); });
}

void MeteredOps::per_layer_embed(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::per_layer_embed, op, rows_, [&] { inner().per_layer_embed(op, workspace); });
}

void MeteredOps::per_layer(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::per_layer, op, rows_, [&] { inner().per_layer(op, workspace); });
}

void MeteredOps::lm_head(const PreparedOp& op, Workspace& workspace) {
    measure(ForwardOp::lm_head, op, logit_rows_, [&] { inner().lm_head(op, workspace); });
}

}  // namespace foresay::app
