// speculative/prefix_cache.h: texts that have ended, whose keys and values stay in a KV cache while there is room, so
// that a later text that begins alike need not evaluate that beginning again.
//
// Whether two texts begin alike is decided by comparing their tokens, and by the class of each row where the backend's
// classes differ. What is found is forked, so pages are shared until one of the two writes.
//
// Law 1:    a row's keys and values depend on its prefix and its class only, so it does not matter whose they are.
// Threads:  one caller at a time.
// Cost:     find() compares with every text that is kept. Nothing is copied but a page that two texts share in part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/context.h"

namespace foresay::speculative {

// A text and what decides the bits of its keys and values.
struct PrefixKey {
    std::span<const std::int32_t> tokens;
    std::int32_t generated_from = 0;  // tokens before it are one segment of given text
    std::string_view salt;            // texts of different salts share nothing
};

// How a backend's classes of rows differ.
struct RowClasses {
    bool agree = false;            // a prefill row has the bits of a decode row
    std::int32_t short_given = 0;  // given text of at most so many tokens is decode rows (core/models/given_text.h)
};

// How many first rows of `a` and `b` have the same bits.
std::int32_t common_prefix(const PrefixKey& a, const PrefixKey& b, const RowClasses& classes);

class PrefixCache {
public:
    PrefixCache(core::KvCache& cache, const RowClasses& classes) : cache_(&cache), classes_(classes) {}

    struct Found {
        core::SequenceId sequence = -1;  // -1: nothing
        std::int32_t length = 0;         // of the common beginning
    };
    // The text that shares the longest beginning with `key`. It counts as used now.
    Found find(const PrefixKey& key);
    // Keeps `sequence`, which holds a beginning of `key`, as the one used last. Drops what it makes superfluous.
    void keep(core::SequenceId sequence, const PrefixKey& key);

    // Gives `sequence`, a text that is kept, to the caller; -1 when it is not kept.
    core::SequenceId take(core::SequenceId sequence);

    // Drops the last page of the text that was not used for the longest time; the whole text when none is left. False:
    // nothing is kept.
    bool evict_page();
    // Drops that text, which makes a sequence free.
    bool evict_text();
    // Pages that evicting everything would free.
    std::int32_t evictable_pages() const;
    std::size_t texts() const { return texts_.size(); }

private:
    struct Text {
        core::SequenceId sequence = 0;
        std::vector<std::int32_t> tokens;  // those that the cache holds
        std::int32_t generated_from = 0;
        std::string salt;
        PrefixKey key() const { return {tokens, generated_from, salt}; }
    };
    void drop(std::size_t index);

    core::KvCache* cache_;
    RowClasses classes_;
    std::vector<Text> texts_;  // the one used last at the end
};

}  // namespace foresay::speculative
