// tests/models/paced_ops.h: a backend that says it runs apart from the host, and keeps a clock of its own: what would run
// on a device is computed at once by another backend, and is over on the clock when a device of the given pace would have
// been done. So speculation can be timed without a device, and to the same bit every time.
//
// Clock:    the host's time passes where it waits and where it enqueues; the device begins what was enqueued when it is
//           done with what was enqueued before.
// Threads:  one caller at a time, for all of them together.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "kernels/draw.h"
#include "kernels/ops.h"

namespace foresay::test {

// Milliseconds.
struct DevicePace {
    std::function<double(const kernels::ModelShape& shape, std::int32_t rows)> forward;
    double draw = 0.010;     // of all rows of a draw
    double enqueue = 0.010;  // the host's time for a forward
    double enqueue_draw = 0.005;
    double start = 0.005;  // from the host's call to the device's start, when it is idle
    double read = 0.003;   // from the end of a draw until the host has the token
};

class PacedOps final : public kernels::Ops {
public:
    explicit PacedOps(kernels::Ops& inner) : inner_(&inner) {}

    // The clock, and the pace of all devices.
    static double now() { return host_; }
    static void pass(double ms) { host_ += ms; }
    static void set_pace(DevicePace pace) { pace_ = std::move(pace); }
    // Time that the device was idle between two things that it did, since it was last asked.
    static double idle() { return std::exchange(idle_, 0.0); }

    kernels::BackendInfo describe() const override { return {"paced", "", 1}; }
    bool asynchronous() const override { return true; }
    void wait(kernels::Activations& act) override {
        inner_->wait(act);
        host_ = std::max(host_, device_);
    }

    std::unique_ptr<kernels::Prepared> prepare(const kernels::EmbedSpec& s) override { return inner_->prepare(s); }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttentionInSpec& s) override {
        return inner_->prepare(s);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttendSpec& s) override { return inner_->prepare(s); }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::AttentionOutSpec& s) override {
        return inner_->prepare(s);
    }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::MlpInSpec& s) override { return inner_->prepare(s); }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::MlpOutSpec& s) override { return inner_->prepare(s); }
    std::unique_ptr<kernels::Prepared> prepare(const kernels::HeadSpec& s) override { return inner_->prepare(s); }
    std::int64_t kv_bytes(const kernels::ModelShape& shape, std::int32_t pages,
                          kernels::KvFormat format) const override {
        return inner_->kv_bytes(shape, pages, format);
    }
    std::unique_ptr<kernels::KvPages> allocate_kv(const kernels::ModelShape& shape, std::int32_t pages,
                                                  kernels::KvFormat format) override {
        return inner_->allocate_kv(shape, pages, format);
    }
    std::unique_ptr<kernels::Activations> allocate_activations(const kernels::ModelShape& shape, std::int32_t rows,
                                                               std::int32_t logit_rows) override {
        return inner_->allocate_activations(shape, rows, logit_rows);
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        inner_->copy_page(kv, from, to);
    }

    void begin(kernels::Activations& act, const kernels::Batch& batch) override {
        inner_->begin(act, batch);
        host_ += pace_.enqueue;
        run(pace_.forward ? pace_.forward(act.shape, static_cast<std::int32_t>(batch.rows.size())) : 0.0);
    }
    void embed(const kernels::Prepared& stage, kernels::Activations& act) override { inner_->embed(stage, act); }
    void attention_in(const kernels::Prepared& stage, kernels::Activations& act, kernels::KvPages& kv,
                      std::int32_t layer) override {
        inner_->attention_in(stage, act, kv, layer);
    }
    void attend(const kernels::Prepared& stage, kernels::Activations& act, const kernels::KvPages& kv,
                std::int32_t layer) override {
        inner_->attend(stage, act, kv, layer);
    }
    void attention_out(const kernels::Prepared& stage, kernels::Activations& act) override {
        inner_->attention_out(stage, act);
    }
    void mlp_in(const kernels::Prepared& stage, kernels::Activations& act) override { inner_->mlp_in(stage, act); }
    void mlp_out(const kernels::Prepared& stage, kernels::Activations& act) override { inner_->mlp_out(stage, act); }
    void head(const kernels::Prepared& stage, kernels::Activations& act) override { inner_->head(stage, act); }

    void draw(kernels::Activations& act, std::span<const kernels::DrawPlan> plans,
              std::span<const std::int32_t> slots) override {
        inner_->draw(act, plans, slots);
        host_ += pace_.enqueue_draw;
        run(pace_.draw);
        std::array<double, kernels::kDrawSlots>& filled = filled_[&act];
        for (const std::int32_t slot : slots) filled[static_cast<std::size_t>(slot)] = device_;
    }
    kernels::Drawn drawn(kernels::Activations& act, std::int32_t slot) override {
        host_ = std::max(host_, filled_[&act][static_cast<std::size_t>(slot)] + pace_.read);
        return inner_->drawn(act, slot);
    }
    kernels::Candidates candidates(kernels::Activations& act, std::int32_t slot) override {
        drawn(act, slot);
        return inner_->candidates(act, slot);
    }
    std::span<float> logits(kernels::Activations& act, std::int32_t i) override {
        wait(act);
        return inner_->logits(act, i);
    }
    std::span<const float> residual(kernels::Activations& act, std::int32_t t) override {
        wait(act);
        return inner_->residual(act, t);
    }

private:
    static void run(double ms) {
        const double begin = std::max(device_, host_ + pace_.start);
        idle_ += begin - device_;
        device_ = begin + ms;
    }

    kernels::Ops* inner_;
    std::map<const kernels::Activations*, std::array<double, kernels::kDrawSlots>> filled_;  // when each slot is
    static inline DevicePace pace_;
    static inline double host_ = 0.0, device_ = 0.0, idle_ = 0.0;
};

}  // namespace foresay::test
