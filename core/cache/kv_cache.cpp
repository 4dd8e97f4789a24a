#include "core/cache/kv_cache.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::core {

KvCache::KvCache(kernels::Ops& ops, const kernels::KvShape& shape, std::int32_t capacity, std::int32_t sequences,
                 std::int32_t branches, kernels::KvFormat format, std::int32_t window)
    : ops_(ops), capacity_(capacity), window_(window), sequences_(static_cast<std::size_t>(sequences + branches)) {
    const std::int32_t pages = pages_for(capacity) * sequences;
    pages_ = ops.allocate_kv(shape, pages, format);
    references_.assign(static_cast<std::size_t>(pages), 0);
    free_.reserve(static_cast<std::size_t>(pages));
    for (std::int32_t page = pages; page-- > 0;) free_.push_back(page);
    for (Sequence& sequence : sequences_) sequence.pages.reserve(static_cast<std::size_t>(pages_for(capacity)));
    sequences_[0].alive = true;
}

bool KvCache::exists(SequenceId sequence) const {
    return sequence >= 0 && sequence < static_cast<SequenceId>(sequences_.size()) &&
           sequences_[static_cast<std::size_t>(sequence)].alive;
}

std::int32_t KvCache::free_sequences() const {
    return static_cast<std::int32_t>(
        std::count_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.alive; }));
}

std::int32_t KvCache::take_page() {
    const std::int32_t page = free_.back();
    free_.pop_back();
    references_[static_cast<std::size_t>(page)] = 1;
    return page;
}

void KvCache::release_page(std::int32_t page) {
    if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

SequenceId KvCache::create() {
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
        if (sequences_[i].alive) continue;
        sequences_[i].alive = true;
        sequences_[i].length = 0;
        return static_cast<SequenceId>(i);
    }
    return -1;
}

SequenceId KvCache::fork(SequenceId sequence) {
    check(exists(sequence), "fork of a sequence that does not exist");
    const SequenceId copy = create();
    if (copy < 0) return -1;
    const Sequence& from = sequences_[static_cast<std::size_t>(sequence)];
    Sequence& to = sequences_[static_cast<std::size_t>(copy)];
    to.length = from.length;
    to.left = from.left;
    const std::int32_t used = pages_for(from.length);
    to.pages.assign(from.pages.begin(), from.pages.begin() + used);
    for (const std::int32_t page : held_pages(copy)) ++references_[static_cast<std::size_t>(page)];
    return copy;
}

void KvCache::drop(SequenceId sequence) {
    check(exists(sequence), "drop of a sequence that does not exist");
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    release_all(s);
    s.length = 0;
    s.alive = false;
}

void KvCache::release_all(Sequence& sequence) {
    keep_pages(sequence, 0);
    sequence.pages.clear();
    sequence.left = 0;
}

std::int32_t KvCache::missing_pages(SequenceId sequence, std::int32_t rows) const {
    const Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    if (rows <= 0) return 0;
    const std::int32_t first = s.length / kernels::kPagePositions;
    const std::int32_t needed = pages_for(s.length + rows);
    std::int32_t missing = std::max(0, needed - static_cast<std::int32_t>(s.pages.size()));
    for (std::int32_t i = first; i < std::min(needed, static_cast<std::int32_t>(s.pages.size())); ++i) {
        if (references(s.pages[static_cast<std::size_t>(i)]) > 1) ++missing;
    }
    return missing;
}

Reserve KvCache::reserve(SequenceId sequence, std::int32_t rows) {
    check(exists(sequence), "reserve in a sequence that does not exist");
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    if (rows > capacity_ - s.length) return Reserve::sequence_full;
    if (rows <= 0) return Reserve::ok;
    if (missing_pages(sequence, rows) > free_pages()) return Reserve::pool_full;
    const std::int32_t first = s.length / kernels::kPagePositions;
    const std::int32_t needed = pages_for(s.length + rows);
    // Replace the shared pages among those to be written. Only the page that holds the end of the sequence is copied:
    // later ones, left over by truncate(), hold none of its positions.
    for (std::int32_t i = first; i < needed; ++i) {
        if (i >= static_cast<std::int32_t>(s.pages.size())) {
            s.pages.push_back(take_page());
            continue;
        }
        std::int32_t& page = s.pages[static_cast<std::size_t>(i)];
        if (references_[static_cast<std::size_t>(page)] == 1) continue;
        const std::int32_t fresh = take_page();
        if (i * kernels::kPagePositions < s.length) ops_.copy_page(*pages_, page, fresh);
        release_page(page);
        page = fresh;
    }
    return Reserve::ok;
}

void KvCache::commit(SequenceId sequence, std::int32_t rows) {
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    s.length += rows;
    check(s.length <= static_cast<std::int32_t>(s.pages.size()) * kernels::kPagePositions, "commit without reserve");
}

void KvCache::truncate(SequenceId sequence, std::int32_t length) {
    check(exists(sequence), "truncate of a sequence that does not exist");
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    check(length >= 0 && length <= s.length, "truncate beyond the length of a sequence");
    check(continues_from(sequence, length), "truncate to where a sequence has given its pages back");
    s.length = length;
    if (length == 0 && s.left > 0) return release_all(s);
    // With several sequences, keep one page beyond the last used one, which the next reserve() is likely to need.
    if (sequences_.size() == 1) return;
    keep_pages(s, static_cast<std::size_t>(pages_for(length)) + 1);
}

void KvCache::release_spare(SequenceId sequence) {
    check(exists(sequence), "release of a sequence that does not exist");
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    keep_pages(s, static_cast<std::size_t>(pages_for(s.length)));
}

void KvCache::keep_pages(Sequence& sequence, std::size_t count) {
    // Those at the front were given back before.
    while (sequence.pages.size() > std::max(count, static_cast<std::size_t>(sequence.left))) {
        release_page(sequence.pages.back());
        sequence.pages.pop_back();
    }
}

std::int32_t KvCache::first_kept(SequenceId sequence) const {
    if (window_ <= 0) return 0;
    const std::int32_t read = sequences_[static_cast<std::size_t>(sequence)].length - kRewind - window_ + 1;
    return std::max(first(sequence), read / kernels::kPagePositions * kernels::kPagePositions);
}

void KvCache::release_left(SequenceId sequence) {
    check(exists(sequence), "release of a sequence that does not exist");
    Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    const std::int32_t left = first_kept(sequence) / kernels::kPagePositions;
    if (left <= s.left) return;
    for (std::int32_t i = s.left; i < left; ++i) release_page(s.pages[static_cast<std::size_t>(i)]);
    s.left = left;
    std::fill_n(s.pages.begin(), left, s.pages[static_cast<std::size_t>(left)]);
}

std::int32_t KvCache::most_pages(std::int32_t rows) const {
    const std::int32_t all = pages_for(capacity_);
    // What the windows reach lies across one page more than it fills.
    return window_ <= 0 ? all : std::min(all, pages_for(std::min(capacity_, window_) + kRewind + rows) + 1);
}

kernels::SequenceView KvCache::view(SequenceId sequence) const {
    const Sequence& s = sequences_[static_cast<std::size_t>(sequence)];
    return {.pages = s.pages, .length = s.length};
}

}  // namespace foresay::core
