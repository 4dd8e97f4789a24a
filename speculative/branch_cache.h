// speculative/branch_cache.h: the tokens of a session, and what the target's cache holds of them. Branches that the
// session has left stay in the cache while there is room, so that coming back to one evaluates nothing again.
//
// Law 1:    each token remembers whether it was drawn or given, and is evaluated as a decode row or an input row.
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

    // ---- the session
    std::span<const std::int32_t> tokens() const { return lane_.tokens; }
    // Per token: 1 when it was drawn, 0 when it was given.
    std::span<const std::uint8_t> drawn() const { return lane_.drawn; }
    std::int32_t size() const { return static_cast<std::int32_t>(lane_.tokens.size()); }
    void append(std::int32_t token, bool was_drawn);
    void reserve(std::size_t tokens);
    // Forgets every token from index `length` on.
    void truncate(std::int32_t length);
    // The session becomes `tokens`. As it was it stays behind as a branch, and what any branch holds of the new one is
    // used. Returns how many tokens the old and the new session have in common.
    std::int32_t switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> drawn);

    // ---- the cache
    core::SequenceId sequence() const { return lane_.sequence; }
    std::int32_t held() const { return target_->length(lane_.sequence); }  // tokens of the session in the cache
    // Brings the cache up to the whole session; afterwards logits(0) of the target belongs to the last token. False when
    // cancelled.
    bool evaluate(const std::atomic<bool>* cancel);
    // Makes sure that `rows` more positions have pages: branches that were left go first.
    void make_room(std::int32_t rows);
    // One forward of decode rows behind the session. False when they do not fit.
    bool decode(std::span<const kernels::TokenRef> rows);
    // The cache forgets all from the session's last token on: its row comes with the next decode().
    void trim();
    // For each index from `from` (at least 1) to the end of the session: the logits that its token was drawn from.
    using Visitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
    void visit_logits(std::int32_t from, const Visitor& visit);

    // ---- branches
    // How many branches of up to `room` drawn tokens each can go on from the session at once. Gives up parked ones for it.
    std::int32_t room_for_branches(std::int32_t wanted, std::int32_t room);
    // A sequence that shares the session's pages; -1 when there are no more.
    core::SequenceId fork();
    // Keeps what `sequence` holds of a session that begins as this one does and ends in `drawn_tokens`.
    void park(core::SequenceId sequence, std::span<const std::int32_t> drawn_tokens);

private:
    struct Lane {
        core::SequenceId sequence = 0;
        std::vector<std::int32_t> tokens;
        std::vector<std::uint8_t> drawn;
    };
    std::int32_t common(const Lane& lane, std::span<const std::int32_t> tokens,
                        std::span<const std::uint8_t> drawn) const;
    void drop_oldest();
    bool evaluate_run(std::int32_t end, std::int32_t logit_rows, const std::atomic<bool>* cancel);

    core::Context* target_;
    Lane lane_;
    std::vector<Lane> parked_;  // the oldest first
};

}  // namespace foresay::speculative
