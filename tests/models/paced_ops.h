// tests/models/paced_ops.h: a backend that runs as late as it may (late_ops.h), with a simulated clock: work takes the
// time that a device of the given pace would need, however long it takes here. So speculation can be timed without a
// device, and gives the same times on every run.
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
    double sample = 0.010;   // of all rows of one call
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
    void wait(kernels::Workspace& workspace) override {
        LateOps::wait(workspace);
        host_ = std::max(host_, device_);
    }

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        LateOps::begin(workspace, batch);
        host_ += pace_.enqueue;
        run(pace_.forward ? pace_.forward(workspace.shape, static_cast<std::int32_t>(batch.rows.size())) : 0.0);
    }
    void sample(kernels::Workspace& workspace, std::span<const kernels::SamplingPlan> plans,
                std::span<const std::int32_t> slots) override {
        LateOps::sample(workspace, plans, slots);
        host_ += pace_.enqueue_sampling;
        run(pace_.sample);
        std::array<double, kernels::kTokenSlots>& filled = filled_[&workspace];
        for (const std::int32_t slot : slots) filled[static_cast<std::size_t>(slot)] = device_;
    }
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        host_ = std::max(host_, filled_[&workspace][static_cast<std::size_t>(slot)] + pace_.read);
        return LateOps::sampled(workspace, slot);
    }
    kernels::Candidates candidates(kernels::Workspace& workspace, std::int32_t slot) override {
        sampled(workspace, slot);
        return LateOps::candidates(workspace, slot);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        wait(workspace);
        return LateOps::logits(workspace, i);
    }
    std::span<const float> residual(kernels::Workspace& workspace, std::int32_t t) override {
        wait(workspace);
        return LateOps::residual(workspace, t);
    }

private:
    static void run(double ms) {
        const double begin = std::max(device_, host_ + pace_.start);
        idle_ += begin - device_;
        device_ = begin + ms;
    }

    std::map<const kernels::Workspace*, std::array<double, kernels::kTokenSlots>> filled_;  // when each slot is
    static inline DevicePace pace_;
    static inline double host_ = 0.0, device_ = 0.0, idle_ = 0.0;
};

}  // namespace foresay::test
