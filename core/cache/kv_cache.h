// core/cache/kv_cache.h: the paged KV cache: a pool of pages, and sequences, each with a list of pages and a length.
//
// Layout:   a page holds K and V of all layers for kernels::kPagePositions consecutive positions. Pages have reference
//           counts: sequences made by fork() share them, and reserve() copies a shared page before it is written.
//           Where every layer has a window, a sequence may give back the pages that all windows have left.
// Threads:  one caller at a time.
// Cost:     truncate() and fork() touch no K or V; reserve() copies at most one page. Steady state allocates nothing.
// Errors:   the constructor throws Error (no memory). A full pool is a Reserve value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foresay::core {

using SequenceId = std::int32_t;

// Pages for so many positions.
constexpr std::int32_t pages_for(std::int64_t positions) {
    return static_cast<std::int32_t>((positions + kernels::kPagePositions - 1) / kernels::kPagePositions);
}

enum class Reserve : std::uint8_t {
    ok,
    sequence_full,  // the sequence would exceed the capacity
    pool_full,      // no free page: drop a sequence
};

class KvCache {
public:
    // Allocates pages for `sequences` sequences of `capacity` positions each. Sequence 0 exists and is empty.
    // `branches` further sequences may be created without pages of their own: they use shared and free pages.
    // `window`: a row attends to so many positions at most, in any layer; 0: to all.
    KvCache(kernels::Ops& ops, const kernels::KvShape& shape, std::int32_t capacity, std::int32_t sequences = 1,
            std::int32_t branches = 0, kernels::KvFormat format = kernels::KvFormat::f16, std::int32_t window = 0);

    std::int32_t capacity() const { return capacity_; }  // positions of one sequence
    std::int32_t window() const { return window_; }
    std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t all_pages() const { return static_cast<std::int32_t>(references_.size()); }  // in use and free
    kernels::KvPages& pages() { return *pages_; }

    SequenceId create();                   // an empty sequence; -1 when all are in use
    SequenceId fork(SequenceId sequence);  // the same prefix, shared; -1 when all are in use
    void drop(SequenceId sequence);        // gives its pages back
    bool exists(SequenceId sequence) const;
    std::int32_t free_sequences() const;  // how many create() and fork() can still return

    std::int32_t length(SequenceId sequence) const { return sequences_[sequence].length; }
    // Makes cells [length, length + rows) writable: takes free pages and copies a shared last page. length() does not
    // change.
    Reserve reserve(SequenceId sequence, std::int32_t rows);
    // Free pages that reserve() would take.
    std::int32_t missing_pages(SequenceId sequence, std::int32_t rows) const;
    // How many sequences hold this page.
    std::int32_t references(std::int32_t page) const { return references_[static_cast<std::size_t>(page)]; }
    // Adds `rows` rows to the length. They must have been reserved and written.
    void commit(SequenceId sequence, std::int32_t rows);
    // Drops the positions from `length` on; `length` is at most the present length. A cache of one sequence keeps all
    // pages in it. Otherwise the sequence keeps one page more than it needs and returns the rest to the pool. After
    // release_left() the sequence must continue from `length`.
    void truncate(SequenceId sequence, std::int32_t length);

    // Returns the pages that hold none of the sequence's positions to the pool: those that reserve() took and
    // truncate() kept.
    void release_spare(SequenceId sequence);

    // ---- windows
    // A sequence that gave back what its windows have left may still be truncated by so many positions.
    static constexpr std::int32_t kRewind = 2 * kernels::kPagePositions;
    // What first() is after release_left().
    std::int32_t first_kept(SequenceId sequence) const;
    // Gives back the pages below it: no row attends to them any more, even after a truncation by kRewind. Nothing where
    // a layer attends to all positions.
    void release_left(SequenceId sequence);
    // The first position whose page the sequence has.
    std::int32_t first(SequenceId sequence) const { return sequences_[sequence].left * kernels::kPagePositions; }
    // Whether the sequence, truncated to `length`, has all that its next rows attend to.
    bool continues_from(SequenceId sequence, std::int32_t length) const {
        return length == 0 || first(sequence) <= std::max(0, length - window_ + 1);
    }
    // Pages that a sequence holds at most when it grows by up to `rows` rows at a time and gives back what its windows
    // have left before each time.
    std::int32_t most_pages(std::int32_t rows) const;
    // The pages that the sequence holds: those of view() without the ones that it gave back.
    std::span<const std::int32_t> held_pages(SequenceId sequence) const {
        return std::span(sequences_[sequence].pages).subspan(static_cast<std::size_t>(sequences_[sequence].left));
    }

    // In place of each page that the sequence gave back stands one that it holds, so that a kernel which reads whole
    // blocks of pages reads finite numbers there, and multiplies them by 0.
    kernels::SequenceView view(SequenceId sequence) const;

private:
    struct Sequence {
        std::vector<std::int32_t> pages;
        std::int32_t length = 0;
        std::int32_t left = 0;  // pages at the front that were given back
        bool alive = false;
    };
    void keep_pages(Sequence& sequence, std::size_t count);
    void release_all(Sequence& sequence);
    void release_page(std::int32_t page);
    std::int32_t take_page();

    kernels::Ops& ops_;
    std::int32_t capacity_;
    std::int32_t window_;
    std::unique_ptr<kernels::KvPages> pages_;
    std::vector<std::int32_t> references_;  // per page
    std::vector<std::int32_t> free_;
    std::vector<Sequence> sequences_;
};

}  // namespace foresay::core
