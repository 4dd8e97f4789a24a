// speculative/branch_cache.h: the tokens of a sequence, and what the target's KV cache holds of them. Branches of the
// conversation that were left stay in the cache while there is room, so that going back to one evaluates nothing again.
//
// Law 1:    each token is marked as generated or given, and is evaluated as a decode row or a prefill row.
// Threads:  one caller at a time.
// Cost:     a branch shares its pages until it is written to. decode() and append() allocate nothing.
// Errors:   none; whether the tokens fit the context is the caller's to check.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/models/context.h"

namespace foresay::speculative {

class BranchCache {
public:
    explicit BranchCache(core::Context& target);

    // ---- the sequence
    std::span<const std::int32_t> tokens() const { return lane_.tokens; }
    // Per token: 1 when it was generated, 0 when it was given.
    std::span<const std::uint8_t> generated() const { return lane_.generated; }
    std::int32_t size() const { return static_cast<std::int32_t>(lane_.tokens.size()); }
    void append(std::int32_t token, bool was_generated);
    void reserve(std::size_t tokens);
    // Forgets every token from index `length` on.
    void truncate(std::int32_t length);
    // The sequence becomes `tokens`. What it was stays in the cache as a branch, and whatever a branch holds of the new
    // tokens is used. Returns how many tokens the old and the new sequence have in common.
    std::int32_t switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated);

    // ---- the cache
    core::SequenceId id() const { return lane_.sequence; }
    std::int32_t held() const { return target_->length(lane_.sequence); }  // tokens in the cache
    // Brings the cache up to the whole sequence; afterwards logits(0) of the target belongs to the last token. False
    // when cancelled.
    bool evaluate(const std::atomic<bool>* cancel);
    // Makes sure that `rows` more positions have pages, by dropping branches that were left.
    void make_room(std::int32_t rows);
    // One forward of decode rows after the sequence. False when they do not fit.
    bool decode(std::span<const kernels::TokenRef> rows);
    // The cache forgets everything from the sequence's last token on, whose row comes with the next decode().
    void trim();
    // For each index from `from` (at least 1) to the end of the sequence: the logits that its token was sampled from.
    using Visitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
    void visit_logits(std::int32_t from, const Visitor& visit);

    // ---- branches
    // How many branches of up to `room` generated tokens each can continue the sequence at once. Drops parked branches
    // for them.
    std::int32_t room_for_branches(std::int32_t wanted, std::int32_t room);
    // A sequence that shares the sequence's pages; -1 when there are no more.
    core::SequenceId fork();
    // Keeps what `sequence` holds of a sequence that begins as this one does and ends in `generated_tokens`.
    void park(core::SequenceId sequence, std::span<const std::int32_t> generated_tokens);

private:
    struct Lane {
        core::SequenceId sequence = 0;
        std::vector<std::int32_t> tokens;
        std::vector<std::uint8_t> generated;
    };
    std::int32_t common(const Lane& lane, std::span<const std::int32_t> tokens,
                        std::span<const std::uint8_t> generated) const;
    void drop_oldest();
    bool evaluate_run(std::int32_t end, std::int32_t logit_rows, const std::atomic<bool>* cancel);

    core::Context* target_;
    Lane lane_;
    std::vector<Lane> parked_;  // the oldest first
};

}  // namespace foresay::speculative
