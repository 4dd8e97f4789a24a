#include "app/bench/metered_ops.h"

#include <chrono>

namespace foresay::app {

using kernels::Activations;
using kernels::KvPages;
using kernels::Prepared;

std::string_view name(MeteredStage stage) {
    constexpr std::string_view names[kMeteredStages] = {"embed",  "attention_in", "attend", "attention_out",
                                                        "mlp_in", "mlp_out",      "head"};
    return names[static_cast<std::size_t>(stage)];
}

template <typename Run>
void MeteredOps::measure(MeteredStage stage, const Prepared& prepared, std::int64_t rows, Run run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    StageMeter& meter = meters_[static_cast<std::size_t>(stage)];
    meter.ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    meter.calls += 1;
    meter.weight_bytes += stage == MeteredStage::embed ? prepared.weight_bytes * rows : prepared.weight_bytes;
    meter.macs += prepared.macs_per_row * rows;
}

void MeteredOps::begin(Activations& act, const kernels::Batch& batch) {
    rows_ = static_cast<std::int64_t>(batch.rows.size());
    logit_rows_ = static_cast<std::int64_t>(batch.logit_rows.size());
    inner().begin(act, batch);
}

void MeteredOps::embed(const Prepared& stage, Activations& act) {
    measure(MeteredStage::embed, stage, rows_, [&] { inner().embed(stage, act); });
}

void MeteredOps::attention_in(const Prepared& stage, Activations& act, KvPages& kv, std::int32_t layer) {
    measure(MeteredStage::attention_in, stage, rows_, [&] { inner().attention_in(stage, act, kv, layer); });
}

void MeteredOps::attend(const Prepared& stage, Activations& act, const KvPages& kv, std::int32_t layer) {
    measure(MeteredStage::attend, stage, rows_, [&] { inner().attend(stage, act, kv, layer); });
}

void MeteredOps::attention_out(const Prepared& stage, Activations& act) {
    measure(MeteredStage::attention_out, stage, rows_, [&] { inner().attention_out(stage, act); });
}

void MeteredOps::mlp_in(const Prepared& stage, Activations& act) {
    measure(MeteredStage::mlp_in, stage, rows_, [&] { inner().mlp_in(stage, act); });
}

void MeteredOps::mlp_out(const Prepared& stage, Activations& act) {
    measure(MeteredStage::mlp_out, stage, rows_, [&] { inner().mlp_out(stage, act); });
}

void MeteredOps::head(const Prepared& stage, Activations& act) {
    measure(MeteredStage::head, stage, logit_rows_, [&] { inner().head(stage, act); });
}

}  // namespace foresay::app
