// core/cache/kv_cache.h: the paged KV cache: a pool of pages, and sequences, each with a list of pages and a length.
//
// Layout:   a page holds K and V of all layers for kernels::kPagePositions consecutive positions. Pages have reference
//           counts: sequences made by fork() share them, and reserve() copies a shared page before it is written.
// Threads:  one caller at a time.
// Cost:     truncate() and fork() touch no K or V; reserve() copies at most one page. Steady state allocates nothing.
// Errors:   the constructor throws Error (no memory). A full pool is a Reserve value.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace foresay::core {

using SequenceId = std::int32_t;

enum class Reserve : std::uint8_t {
    ok,
    sequence_full,  // the sequence would exceed the capacity
    pool_full,      // no free page: drop a sequence
};

class KvCache {
public:
    // Allocates pages for `sequences` sequences of `capacity` positions each. Sequence 0 exists and is empty.
    // `branches` further sequences may be created without pages of their own: they use shared and free pages.
    KvCache(kernels::Ops& ops, const kernels::KvShape& shape, std::int32_t capacity, std::int32_t sequences = 1,
            std::int32_t branches = 0, kernels::KvFormat format = kernels::KvFormat::f16);

    std::int32_t capacity() const { return capacity_; }  // positions of one sequence
    std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
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
    // pages in it. Otherwise the sequence keeps one page more than it needs and returns the rest to the pool.
    void truncate(SequenceId sequence, std::int32_t length);

    // Returns the pages that hold none of the sequence's positions to the pool: those that reserve() took and
    // truncate() kept.
    void release_spare(SequenceId sequence);

    kernels::SequenceView view(SequenceId sequence) const;

private:
    struct Sequence {
        std::vector<std::int32_t> pages;
        std::int32_t length = 0;
        bool alive = false;
    };
    void keep_pages(Sequence& sequence, std::size_t count);
    void release_page(std::int32_t page);
    std::int32_t take_page();

    kernels::Ops& ops_;
    std::int32_t capacity_;
    std::unique_ptr<kernels::KvPages> pages_;
    std::vector<std::int32_t> references_;  // per page
    std::vector<std::int32_t> free_;
    std::vector<Sequence> sequences_;
};

}  // namespace foresay::core
