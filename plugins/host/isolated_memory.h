// plugins/host/isolated_memory.h: what the program and the process of an isolated sampler share: a call at a time, with
// its arguments and its result.
//
// Whose turn it is says a futex. The side whose turn it is may read and write everything. What the sampler's process
// leaves here may be anything: the program looks at it before it relies on it.
// Threads:  one caller per side.
// Errors:   the constructor throws Error where no memory can be shared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "samplers/stage.h"

namespace foresay::plugins {

enum class IsolatedCall : std::uint32_t {
    make,
    make_state,
    drop_state,
    begin,
    copy,
    accept,
    process,
    test,
    mask,
    forced,
};

struct IsolatedHead {
    static constexpr std::size_t kReason = 1000;
    static constexpr std::size_t kTold = 32;  // tokens that one call may tell a state

    std::atomic<std::uint32_t> turn{0};  // 0: the program's, 1: the sampler's
    // Whether a side has to be woken: each writes its own, so that neither undoes the other's.
    std::atomic<std::uint32_t> program_sleeps{0}, sampler_sleeps{0};
    IsolatedCall call = IsolatedCall::make;
    std::uint32_t state = 0, other = 0;  // numbers of states; 0: none
    samplers::Phase phase = samplers::Phase::decide;
    kernels::NoiseKey key;
    std::uint32_t stream = 0;
    std::uint64_t history = 0, answer = 0;
    // Before the call itself, state `listener` accepts `told` tokens.
    std::uint32_t listener = 0, told = 0;
    samplers::AcceptedToken tokens[kTold];
    bool deaf = false;       // one of them was refused: that was what failed
    std::int32_t count = 0;  // of candidates, ids, words of a mask, or bytes that are forced
    bool failed = false;
    char reason[kReason + 1] = {};
    // About the stage, once it is made.
    std::uint32_t kind = 0;
    bool whole = false, idle = false, tests = false, forces = false;
    std::uint64_t pages = 0;  // of memory that the process had before
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "shared between processes");

// Memory that is shared with the children of this process.
class IsolatedMemory {
public:
    static constexpr std::size_t kHistoryRoom = std::size_t{1} << 24;  // tokens; memory is taken where it is written
    static constexpr std::size_t kForcedRoom = 65536;

    explicit IsolatedMemory(std::int32_t vocabulary);
    ~IsolatedMemory();
    IsolatedMemory(const IsolatedMemory&) = delete;
    IsolatedMemory& operator=(const IsolatedMemory&) = delete;

    // Before a process is started that uses it.
    void reset() const { new (data_) IsolatedHead(); }
    IsolatedHead& head() const { return *static_cast<IsolatedHead*>(data_); }
    std::int32_t* history() const { return at<std::int32_t>(at_history_); }
    std::int32_t* ids() const { return at<std::int32_t>(at_ids_); }
    float* logits() const { return at<float>(at_logits_); }
    std::uint8_t* keep() const { return at<std::uint8_t>(at_keep_); }
    std::uint32_t* bits() const { return at<std::uint32_t>(at_bits_); }
    char* forced() const { return at<char>(at_forced_); }
    // How many ids and words of a mask there is room for.
    std::size_t room() const { return room_; }
    std::size_t words() const { return room_ / 32 + 1; }

private:
    template <typename T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
    }
    void* data_ = nullptr;
    std::size_t room_, bytes_ = 0, at_history_ = 0, at_ids_ = 0, at_logits_ = 0, at_keep_ = 0, at_bits_ = 0,
                       at_forced_ = 0;
};

// Hands over to the other side: `turn` becomes `next`, and the other side is woken where it sleeps.
void hand_over(IsolatedHead& head, std::uint32_t next);
// Waits at most `most_ms` until `turn` is no longer `other`. True: it is not.
bool wait_a_while(IsolatedHead& head, std::uint32_t other, std::uint32_t most_ms);

}  // namespace foresay::plugins
