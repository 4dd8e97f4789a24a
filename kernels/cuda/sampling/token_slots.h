// kernels/cuda/sampling/token_slots.h: the logits of a forward, on the device and on the host, and the slots that
// receive sampled tokens.
//
// Protocol: a sampling kernel writes a token to its slot in device memory, where later rows find it, and to page-locked
//           host memory: first the token, then the serial number of the sample. The host knows which serial number a
//           slot will have, and polls the slot until it has it. Nothing waits for the stream.
// Threads:  one caller at a time. All but sampled() needs a DeviceScope; sampled() takes one where it asks the stream.
// Errors:   sample() throws Error when a launch or a copy fails; its slots then keep what they had.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace foresay::kernels::cuda {

// The logits of a forward: rows on the device, and copies of those that the host asked for.
class LogitRows {
public:
    // Floats from a row to the next.
    static std::int64_t stride_of(std::int32_t vocab) { return (static_cast<std::int64_t>(vocab) + 63) / 64 * 64; }

    LogitRows(std::int32_t rows, std::int32_t vocab);
    float* data() const { return device_.data(); }
    std::int64_t stride() const { return stride_of(vocab_); }
    std::int32_t vocab() const { return vocab_; }

    // Row i on the host, copied at the first call; the host may write to it. Waits for the stream.
    std::span<float> on_host(std::int32_t i, const Stream& stream);
    // Copies a row that the host has back to the device, as it may have been written to.
    void give_back(std::int32_t i, const Stream& stream);
    // Drops the host's copies: another forward begins.
    void forget();

private:
    std::int32_t vocab_;
    DeviceBuffer<float> device_;        // [rows, stride]
    PinnedBuffer<float> host_;          // [rows, V]
    std::vector<std::uint8_t> copied_;  // by row
};

class TokenSlots {
public:
    TokenSlots(std::int32_t max_logit_rows, std::int32_t vocab);

    // By slot, in device memory.
    const SampledToken* data() const { return slots_.data(); }
    // Samples from logit row i by plans[i] into slot slots[i].
    void sample(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                std::span<const std::int32_t> slots);
    // What a slot holds, once it is known.
    SampledToken sampled(std::int32_t slot, int device, const Stream& stream) const;
    // The candidates of a slot whose token is known.
    Candidates candidates(std::int32_t slot) const;

private:
    void sample_on_host(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                        std::span<const std::int32_t> slots);
    void sample_on_device(const Stream& stream, LogitRows& logits, std::span<const SamplingPlan> plans,
                          std::span<const std::int32_t> slots, std::int64_t words);
    void reserve_plans(std::size_t bytes, int device, const Stream& stream);
    [[noreturn]] void ended_without(std::int32_t slot, std::uint32_t found) const;

    DeviceBuffer<SampledToken> slots_;
    PinnedBuffer<HostToken> host_slots_;
    PinnedBuffer<std::int32_t> kept_ids_;  // kMostCandidates for each slot; allocated when a plan first keeps them
    PinnedBuffer<float> kept_logits_;
    std::uint32_t serials_[kTokenSlots] = {};  // that host_slots_ will have
    std::uint32_t serial_ = 0;                 // of the last sample
    std::uint32_t plans_serial_ = 0;           // of the call whose plans lie in plans_host_
    SamplingMemory memory_;
    PinnedBuffer<std::byte> plans_host_;
    DeviceBuffer<std::byte> plans_;
    SamplingScratch scratch_;
};

}  // namespace foresay::kernels::cuda
