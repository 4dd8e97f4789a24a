// Copies of logits, and the host's side of sampling on the device.
//
// sample() enqueues a sampling kernel if the device can run all plans (plan_runs); else it copies the rows, runs
// sample_row() on the host, and copies the tokens to the slots, so that a later embed finds them either way. Both give
// the same tokens.
//
// Memory:   plans with lists, or of several rows, travel through plans_host_ (page-locked) and plans_. There is one of
//           each, so the next plans must wait until the copy of the last ones is done. No event is recorded for that: a
//           token whose serial number is that of the last plans, or later, proves it (reserve_plans).

#include "kernels/cuda/sampling/token_slots.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "base/error.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

std::size_t size(int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

// ------------------------------------------------------------------------------------------------------------ logits

LogitRows::LogitRows(int32_t rows, int32_t vocab)
    : vocab_(vocab),
      device_(size(stride_of(vocab) * rows)),
      host_(size(static_cast<int64_t>(vocab) * rows)),
      copied_(size(rows)) {}

// Rows on the host are packed, rows on the device have a stride (stride_of).
std::span<float> LogitRows::on_host(int32_t i, const Stream& stream) {
    float* const row = host_.data() + static_cast<int64_t>(i) * vocab_;
    if (copied_[size(i)] == 0) {
        cuda_check(
            cudaMemcpyAsync(row, data() + i * stride(), size(vocab_) * sizeof(float), cudaMemcpyDeviceToHost, stream),
            "cannot copy logits");
        stream.wait();
        copied_[size(i)] = 1;
    }
    return {row, size(vocab_)};
}

// The copy is enqueued, not waited for: the host must not write to the row until the stream has passed it. Callers read
// the row again through on_host(), which waits.
void LogitRows::give_back(int32_t i, const Stream& stream) {
    if (copied_[size(i)] == 0) return;
    cuda_check(cudaMemcpyAsync(data() + i * stride(), host_.data() + static_cast<int64_t>(i) * vocab_,
                               size(vocab_) * sizeof(float), cudaMemcpyHostToDevice, stream),
               "cannot copy logits");
    copied_[size(i)] = 0;
}

void LogitRows::forget() { std::fill(copied_.begin(), copied_.end(), std::uint8_t{0}); }

// ------------------------------------------------------------------------------------------------------------- slots

// Serial number 0 is that of slots that were never sampled; the first sample has 1.
TokenSlots::TokenSlots(int32_t max_logit_rows, int32_t vocab) : slots_(kTokenSlots), host_slots_(kTokenSlots) {
    cuda_check(cudaMemset(slots_.data(), 0, slots_.bytes()), "cannot clear memory");
    std::memset(static_cast<void*>(host_slots_.data()), 0, host_slots_.bytes());
    memory_.allocate(max_logit_rows, vocab);
    scratch_.reserve(vocab);
}

void TokenSlots::sample(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                        std::span<const int32_t> slots) {
    if (plans.empty()) return;
    check(plans.size() <= memory_.arrived.size(), "more rows are sampled than the workspace has logits of");
    // All rows go the same way; on the device they share one launch.
    bool on_device = true, keeps = false;
    int64_t words = 0;
    for (const SamplingPlan& plan : plans) {
        on_device = on_device && plan_runs(plan, logits.vocab());
        keeps = keeps || plan.keep;
        words += plan_words(plan);
    }
    ++serial_;
    if (keeps && kept_ids_.empty()) {
        kept_ids_ = PinnedBuffer<int32_t>(size(kTokenSlots) * kMostCandidates);
        kept_logits_ = PinnedBuffer<float>(kept_ids_.size());
    }
    try {
        if (on_device) {
            sample_on_device(stream, logits, plans, slots, words);
        } else {
            sample_on_host(stream, logits, plans, slots);
        }
    } catch (...) {
        cudaStreamSynchronize(stream);  // page-locked memory may still be read, and the next sample writes to it
        throw;
    }
}

// Waits for the forward (on_host), and at the end for the copies, whose source is host_slots_.
void TokenSlots::sample_on_host(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                                std::span<const int32_t> slots) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
        check(!plans[i].keep, "a plan that keeps its candidates has a cut");
        HostToken& held = host_slots_.data()[slots[i]];
        held.sampled = sample_row(logits.on_host(static_cast<int32_t>(i), stream), plans[i], scratch_);
        held.serial = serials_[slots[i]] = serial_;
        cuda_check(cudaMemcpyAsync(slots_.data() + slots[i], &held.sampled, sizeof(SampledToken),
                                   cudaMemcpyHostToDevice, stream),
                   "cannot copy a token");
    }
    stream.wait();
}

// Room for plans, in page-locked memory that no earlier copy still reads.
void TokenSlots::reserve_plans(std::size_t bytes, int device, const Stream& stream) {
    if (bytes > plans_.size()) {
        stream.wait();
        plans_ = DeviceBuffer<std::byte>(std::max<std::size_t>(2 * bytes, 64 * 1024));
        plans_host_ = PinnedBuffer<std::byte>(plans_.size());
        return;
    }
    if (plans_serial_ == 0) return;
    // The copy of the last plans is done once a token of theirs, or a later one, has arrived. Waits for the earliest.
    int32_t known = -1;
    for (int32_t slot = 0; slot < kTokenSlots; ++slot) {
        const bool later = serials_[slot] >= plans_serial_;
        if (later && (known < 0 || serials_[slot] < serials_[known])) known = slot;
    }
    check(known >= 0, "a sample that brought plans has a slot");
    sampled(known, device, stream);
}

// Encodes the plans and enqueues the kernel. Waits for nothing but, sometimes, an earlier sample (reserve_plans).
void TokenSlots::sample_on_device(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                                  std::span<const int32_t> slots, int64_t words) {
    const std::size_t lists_at = plans.size() * sizeof(DevicePlan);
    const std::size_t bytes = lists_at + size(words) * sizeof(std::uint32_t);
    // The plan of a single row without lists is a parameter of the launch; others are copied before it.
    const bool travels = plans.size() == 1 && words == 0;  // with the launch
    if (!travels) reserve_plans(bytes, slots_.device(), stream);
    // A sampler stage on the host may have written to rows that it has seen.
    for (std::size_t i = 0; i < plans.size(); ++i) logits.give_back(static_cast<int32_t>(i), stream);

    DevicePlan single;
    DevicePlan* const encoded = travels ? &single : reinterpret_cast<DevicePlan*>(plans_host_.data());
    auto* const lists = travels ? nullptr : reinterpret_cast<std::uint32_t*>(plans_host_.data() + lists_at);
    int64_t used = 0;
    int32_t candidates = 1;
    bool spread = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        encode_plan(plans[i], logits.vocab(), slots[i], encoded[i], lists, used);
        candidates = std::max(candidates, encoded[i].vocab);
        spread = spread || encoded[i].spread > 0;
    }
    SamplingCall call;
    call.rows = static_cast<int32_t>(plans.size());
    call.vocab = logits.vocab();
    call.logits = logits.data();
    call.stride = logits.stride();
    call.candidates = candidates;
    call.spread = spread;
    if (!travels) {
        cuda_check(cudaMemcpyAsync(plans_.data(), plans_host_.data(), bytes, cudaMemcpyHostToDevice, stream),
                   "cannot copy plans");
        call.plans = reinterpret_cast<const DevicePlan*>(plans_.data());
        call.words = reinterpret_cast<const std::uint32_t*>(plans_.data() + lists_at);
    }
    call.slots = slots_.data();
    call.host_slots = host_slots_.data();
    call.host_ids = kept_ids_.data();
    call.host_logits = kept_logits_.data();
    call.serial = serial_;
    call.memory = &memory_;
    launch_sampling(stream, call, single);
    // Only after the launch has succeeded: sampled() polls until a slot has the serial number that is noted here.
    for (const int32_t slot : slots) serials_[slot] = serial_;
    if (!travels) plans_serial_ = serial_;
}

// A defect of this program: says what is known of it. Counters that are not 0 show a row that some of its CTAs did not
// reach.
void TokenSlots::ended_without(int32_t slot, std::uint32_t found) const {
    std::vector<int32_t> arrived(memory_.arrived.size());
    cuda_check(cudaMemcpy(arrived.data(), memory_.arrived.data(), memory_.arrived.bytes(), cudaMemcpyDeviceToHost),
               "cannot read back");
    std::string rows;
    for (std::size_t row = 0; row < arrived.size(); ++row) {
        if (arrived[row] != 0) rows += " " + std::to_string(row) + ": " + std::to_string(arrived[row]);
    }
    const std::string what = "sampling ended without a token: slot " + std::to_string(slot) + " has that of sample " +
                             std::to_string(found) + ", not of " + std::to_string(serials_[slot]) + ", the last is " +
                             std::to_string(serial_) +
                             "; rows that CTAs are counted in:" + (rows.empty() ? " none" : rows);
    bug(what.c_str());
}

// Polls page-locked memory, because waiting for the stream would also wait for what was enqueued after the sample. Now
// and then it asks the stream: a device that has failed never writes a serial number.
SampledToken TokenSlots::sampled(int32_t slot, int device, const Stream& stream) const {
    check(slot >= 0 && slot < kTokenSlots, "there is no such slot");
    const volatile HostToken& held = host_slots_.data()[slot];
    // A slot may have a later serial number than the awaited one: a launch that was reported as failed may have run.
    // The difference is signed, so serial numbers may wrap.
    const auto awaits = [&] { return static_cast<int32_t>(held.serial - serials_[slot]) < 0; };
    for (std::uint32_t looks = 1; awaits(); ++looks) {
        if (looks % 4096 != 0) continue;
        const DeviceScope scope(device);
        const cudaError_t status = cudaStreamQuery(stream);
        if (status == cudaErrorNotReady) continue;
        cuda_check(status, "the device failed");
        // The stream is idle, so the token is there, unless no kernel was to write it.
        if (awaits()) ended_without(slot, held.serial);
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // the token is read after its serial number
    return host_slots_.data()[slot].sampled;
}

// The kernel writes the candidates before the serial number, so after sampled() they are complete.
Candidates TokenSlots::candidates(int32_t slot) const {
    const std::size_t first = size(slot) * kMostCandidates;
    return {kept_ids_.data() + first, kept_logits_.data() + first, host_slots_.data()[slot].candidates};
}

}  // namespace foresay::kernels::cuda
