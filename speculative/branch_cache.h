// speculative/branch_cache.h: the tokens of a conversation, and what the target's KV cache holds of them. Branches that
// the user has left are texts of a PrefixCache, so that going back to one evaluates nothing twice while there is room.
//
// Law 1:    each token is marked as generated or given. Generated ones are decode rows; given ones are decode or
//           prefill rows by the length of their segment (core/models/given_text.h). The class of each cached row is
//           noted, and a row whose segment has become longer or shorter is evaluated again, where its class is another
//           one now.
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
#include "speculative/prefix_cache.h"

namespace foresay::speculative {

class BranchCache {
public:
    // `kept`, texts of the same cache, must outlive it.
    BranchCache(core::Context& target, PrefixCache& kept);

    // ---- the sequence
    std::span<const std::int32_t> tokens() const { return tokens_; }
    // Per token: 1 when it was generated, 0 when it was given.
    std::span<const std::uint8_t> generated() const { return generated_; }
    std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
    void append(std::int32_t token, bool was_generated);
    // Drops the tokens from index `length` on.
    void truncate(std::int32_t length);
    // The sequence becomes `tokens`. The old one is kept, and the text that shares the longest prefix with the new one
    // is reused. Returns the length of the common prefix of old and new sequence.
    std::int32_t switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated);

    // ---- the cache
    core::SequenceId id() const { return sequence_; }
    std::int32_t held() const { return target_->length(sequence_); }  // tokens in the cache
    // Brings the cache up to the whole sequence; afterwards logits(0) of the target belongs to the last token. False
    // when cancelled. `chunk`: so many rows at most between two looks at `cancel`; 0: as many as are fast.
    bool evaluate(const std::atomic<bool>* cancel, std::int32_t chunk = 0);
    // Reserves pages for `rows` more positions; texts that are kept give theirs up if needed.
    void make_room(std::int32_t rows);
    // The sequence of the cache, for somebody who appends decode rows to it.
    core::SequenceId lend();
    // For each index from `from` (at least 1) to the end of the sequence, or before `end`: the logits that its token
    // was sampled from.
    using Visitor = std::function<void(std::int32_t index, std::span<const float> logits)>;
    void visit_logits(std::int32_t from, const Visitor& visit, std::int32_t end = kToTheEnd);
    static constexpr std::int32_t kToTheEnd = -1;

    // ---- files: Generator::save_pages() and load_pages()
    SavedPages save(const std::filesystem::path& path, std::string_view fingerprint);
    SavedPages load(const std::filesystem::path& path, std::string_view fingerprint);

    // ---- branches
    // How many branches, of up to `room` generated tokens each, can continue the sequence at once. Texts that are kept
    // make room for them.
    std::int32_t room_for_branches(std::int32_t wanted, std::int32_t room);
    // Keeps a copy of the sequence, from which texts of a batch go on.
    void keep_copy();

private:
    PrefixKey key() const;  // of what the cache holds
    // The rows from `start` to held() are of this class.
    void note_class(std::int32_t start, kernels::RowClass row_class);
    bool agree() const { return short_given_ == 0; }  // the classes, as on a host
    // The class that each token wants. What has another one leaves the cache.
    std::vector<kernels::RowClass> right_classes();

    core::Context* target_;
    PrefixCache* kept_;
    std::int32_t short_given_ = 0;
    core::SequenceId sequence_ = 0;
    std::vector<std::int32_t> tokens_;
    std::vector<std::uint8_t> generated_;
    std::vector<kernels::RowClass> classes_;  // of the rows in the cache; those after them mean nothing
};

}  // namespace foresay::speculative
