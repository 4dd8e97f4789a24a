// tests/models/paced_ops.h: a backend that runs as late as it may (late_ops.h), with a clock of its own: work is over on
// the clock when a device of the given pace would have been done with it, whatever the time that it takes here. So
// speculation can be timed without a device, and to the same bit every time.
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

#include "tests/models/late_ops.h"

namespace foresay::test {

// Milliseconds.
struct DevicePace {
    std::function<double(const kernels::ModelShape& shape, std::int32_t rows)> forward;
    double sample = 0.010;     // of all rows of one call
    double enqueue = 0.010;  // the host's time for a forward
    double enqueue_sampling = 0.005;
    double start = 0.005;  // from the host's call to the device's start, when it is idle
    double read = 0.003;   // from the end of sampling until the host has the token
};

class PacedOps final : public LateOps {
public:
    explicit PacedOps(kernels::Ops& inner) : LateOps(inner) {}

    // The clock, and the pace of all devices.
    static double now() { return host_; }
    static void pass(double ms) { host_ += ms; }
    static void set_pace(DevicePace pace) { pace_ = std::move(pace); }
    // Time that the device was idle between two things that it did, since it was last asked.
    static double idle() { return std::exchange(idle_, 0.0); }

    kernels::BackendInfo describe() const override { return {"paced", "", 1}; }
    void wait(kernels::Activations& act) override {
        LateOps::wait(act);
        host_ = std::max(host_, device_);
    }

    void begin(kernels::Activations& act, const kernels::Batch& batch) override {
        LateOps::begin(act, batch);
        host_ += pace_.enqueue;
        run(pace_.forward ? pace_.forward(act.shape, static_cast<std::int32_t>(batch.rows.size())) : 0.0);
    }
    void sample(kernels::Activations& act, std::span<const kernels::SamplingPlan> plans,
              std::span<const std::int32_t> slots) override {
        LateOps::sample(act, plans, slots);
        host_ += pace_.enqueue_sampling;
        run(pace_.sample);
        std::array<double, kernels::kTokenSlots>& filled = filled_[&act];
        for (const std::int32_t slot : slots) filled[static_cast<std::size_t>(slot)] = device_;
    }
    kernels::SampledToken sampled(kernels::Activations& act, std::int32_t slot) override {
        host_ = std::max(host_, filled_[&act][static_cast<std::size_t>(slot)] + pace_.read);
        return LateOps::sampled(act, slot);
    }
    kernels::Candidates candidates(kernels::Activations& act, std::int32_t slot) override {
        sampled(act, slot);
        return LateOps::candidates(act, slot);
    }
    std::span<float> logits(kernels::Activations& act, std::int32_t i) override {
        wait(act);
        return LateOps::logits(act, i);
    }
    std::span<const float> residual(kernels::Activations& act, std::int32_t t) override {
        wait(act);
        return LateOps::residual(act, t);
    }

private:
    static void run(double ms) {
        const double begin = std::max(device_, host_ + pace_.start);
        idle_ += begin - device_;
        device_ = begin + ms;
    }

    std::map<const kernels::Activations*, std::array<double, kernels::kTokenSlots>> filled_;  // when each slot is
    static inline DevicePace pace_;
    static inline double host_ = 0.0, device_ = 0.0, idle_ = 0.0;
};

}  // namespace foresay::test
