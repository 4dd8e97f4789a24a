// speculative/branch_cache.h: the tokens of a sequence, and what the target's KV cache holds of them. Branches of the
// conversation that the user has left stay parked in the cache while it has room, so that going back to one evaluates
// nothing twice.
//
// Law 1:    each token is marked as generated or given. Generated ones are decode rows; given ones are decode or
// prefill
//           rows by the length of their segment (core/models/given_text.h). The class of each cached row is noted, and
//           a row whose segment has become longer or shorter is evaluated again, where its class is another one now.
// Threads:  one caller at a time.
// Cost:     a branch shares its pages until it is written to. append() allocates nothing.
// Errors:   none; the caller checks that the tokens fit the context.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/models/context.h"
#include "speculative/generator.h"

namespace foresay::speculative {

class BranchCache {
public:
    explicit BranchCache(core::Context& target);

    // ---- the sequence
    std::span<const std::int32_t> tokens() const { return current_.tokens; }
    // Per token: 1 when it was generated, 0 when it was given.
    std::span<const std::uint8_t> generated() const { return current_.generated; }
    std::int32_t size() const { return static_cast<std::int32_t>(current_.tokens.size()); }
    void append(std::int32_t token, bool was_generated);
    void reserve(std::size_t tokens);
    // Drops the tokens from index `length` on.
    void truncate(std::int32_t length);
    // The sequence becomes `tokens`. The old one stays in the cache as a parked branch, and the branch that shares the
    // longest prefix with the new one is reused. Returns the length of the common prefix of old and new sequence.
    std::int32_t switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated);

    // ---- the cache
    core::SequenceId id() const { return current_.sequence; }
    std::int32_t held() const { return target_->length(current_.sequence); }  // tokens in the cache
    // Brings the cache up to the whole sequence; afterwards logits(0) of the target belongs to the last token. False
    // when cancelled. `chunk`: so many rows at most between two looks at `cancel`; 0: as many as are fast.
    bool evaluate(const std::atomic<bool>* cancel, std::int32_t chunk = 0);
    // Reserves pages for `rows` more positions; drops the oldest parked branches if needed.
    void make_room(std::int32_t rows);
    // The sequence of the cache, for somebody who appends decode rows to it.
    core::SequenceId lend();
    // Drops the cache's entries from the sequence's last token on: the next decode() evaluates that token.
    void trim();
    // For each index from `from` (at least 1) to the end of the sequence, or before `end`: the logits that its token
    // was sampled from.
    using Visitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
    void visit_logits(std::int32_t from, const Visitor& visit, std::int32_t end = kToTheEnd);
    static constexpr std::int32_t kToTheEnd = -1;

    // ---- files: Generator::save_pages() and load_pages()
    SavedPages save(const std::filesystem::path& path, std::string_view fingerprint);
    SavedPages load(const std::filesystem::path& path, std::string_view fingerprint);

    // ---- branches
    // Drops the oldest parked branch. False: there is none.
    bool drop_oldest();
    // How many branches, of up to `room` generated tokens each, can continue the sequence at once. Drops parked
    // branches to make room for them.
    std::int32_t room_for_branches(std::int32_t wanted, std::int32_t room);
    // A copy of the sequence that shares its pages; -1 when the cache has no free sequence.
    core::SequenceId fork();
    // The class of the sequence's last row, which the cache must hold.
    kernels::RowClass last_class() const { return current_.classes[current_.tokens.size() - 1]; }
    // Parks `sequence`, a fork() of this one that has been continued by `generated_tokens`.
    void park(core::SequenceId sequence, std::span<const std::int32_t> generated_tokens);

private:
    struct Branch {
        core::SequenceId sequence = 0;
        std::vector<std::int32_t> tokens;
        std::vector<std::uint8_t> generated;
        std::vector<kernels::RowClass> classes;  // of the rows in the cache; those after them mean nothing
    };
    // Tokens of one class from `begin` on: those of a segment of given text, or generated ones.
    struct Run {
        kernels::RowClass row_class = kernels::RowClass::decode;
        std::int32_t end = 0;
    };
    Run run_at(std::span<const std::uint8_t> generated, std::int32_t begin) const;
    // How many first rows of the branch in the cache have the class that these tokens want.
    std::int32_t right_classes(const Branch& branch, std::span<const std::uint8_t> generated) const;
    // The rows from `start` to held() are of this class.
    void note_class(std::int32_t start, kernels::RowClass row_class);
    void drop_wrong_classes();
    std::int32_t common(const Branch& branch, std::span<const std::int32_t> tokens,
                        std::span<const std::uint8_t> generated) const;

    core::Context* target_;
    std::int32_t short_given_ = 0;
    Branch current_;
    std::vector<Branch> parked_;  // the oldest first
};

}  // namespace foresay::speculative
