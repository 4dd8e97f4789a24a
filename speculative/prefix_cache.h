// speculative/prefix_cache.h: texts that have ended, whose keys and values stay in a KV cache while there is room, so
// that a later text that begins alike need not evaluate that beginning again.
//
// Whether two texts begin alike is decided by comparing their tokens, and by the class of each row where the backend's
// classes differ. What is found is forked, so pages are shared until one of the two writes.
//
// A text has pages of the target and, where a draft model drafts for it, of the draft: one list of texts serves both.
// Each pool of pages is evicted by itself.
//
// Law 1:    a row's keys and values depend on its prefix and its class only, so it does not matter whose they are. The
//           draft's may be of either class: they decide nothing.
// Threads:  one caller at a time.
// Cost:     find() compares with every text that is kept. Nothing is copied but a page that two texts share in part,
//           and pages that go to a store.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cache/page_store.h"
#include "core/models/context.h"

namespace foresay::speculative {

// A text and what decides the bits of its keys and values.
struct PrefixKey {
    std::span<const std::int32_t> tokens;
    std::span<const kernels::RowClass> rows;  // the class of each, as core::classes_of() says
    std::string_view salt;                    // texts of different salts share nothing
    bool outlasts = true;                     // its pages may go to the store of pages when they leave the cache
};

// How many first rows of `a` and `b` have the same bits. `classes_agree`: a prefill row has the bits of a decode row.
std::int32_t common_prefix(const PrefixKey& a, const PrefixKey& b, bool classes_agree);

// The names of a text's whole pages, from the first one on.
class PageNames {
public:
    // What `key` refers to must outlive it.
    PageNames(const PrefixKey& key, bool classes_agree);
    // The next page; none: the text has no whole page more.
    std::optional<core::PageId> next();

private:
    PrefixKey key_;
    bool classes_agree_;
    core::PageHash parent_;
    std::size_t begin_ = 0;
};

// Whose keys and values: those of the model that decides, or those of the draft model.
enum class PagesOf : std::uint8_t { target, draft };

// The pages of one model, of which texts hold some.
struct PagePool {
    core::KvCache* cache = nullptr;
    bool classes_agree = false;
    kernels::Ops* ops = nullptr;
    core::PageStore* store = nullptr;  // gets the pages that are evicted; null: they are lost
    bool keeps_left = false;           // texts keep the pages that all windows have left: somebody may go back to them
};

class PrefixCache {
public:
    // What a pool refers to must outlive the cache.
    explicit PrefixCache(const PagePool& target) { pools_.push_back(target); }
    // The texts keep their pages of the draft model, too.
    void add_draft(const PagePool& draft) { pools_.push_back(draft); }

    struct Found {
        core::SequenceId sequence = -1;  // -1: nothing
        std::int32_t length = 0;         // of the common beginning
    };
    // The text that shares the longest beginning with `key`, of those that can go on from there: a text that gave back
    // what its windows have left cannot everywhere. It counts as used now.
    Found find(const PrefixKey& key, PagesOf of = PagesOf::target);
    // A sequence for `key` that holds as much of its first `most` tokens as is known: of a text that is kept, or of
    // `other`, which runs. May drop a text for it. -1: all sequences are in use.
    core::SequenceId open(const PrefixKey& key, std::int32_t most, Found other, PagesOf of = PagesOf::target);
    // Brings back whole pages that follow what `sequence` holds of the first `most` tokens of `key`, as long as the
    // store has such. May evict pages for them. Returns how many tokens it brought back.
    std::int32_t restore(core::SequenceId sequence, const PrefixKey& key, std::int32_t most,
                         PagesOf of = PagesOf::target);
    // Keeps `sequence`, which holds a beginning of `key`, as the one used last, and `draft`, which holds one in the
    // draft's pages; -1: there is none of these. Drops what they make superfluous.
    void keep(core::SequenceId sequence, const PrefixKey& key, core::SequenceId draft = -1);

    // `sequence`, which holds a beginning of `key`, gives back the pages that all windows have left. They are stored
    // first.
    void release_left(core::SequenceId sequence, const PrefixKey& key, PagesOf of = PagesOf::target);

    // Drops the last page of the text that was not used for the longest time; what it has in this pool when no page is
    // left. False: nothing is kept there.
    bool evict_page(PagesOf of = PagesOf::target);
    // evict_page() until so many pages are free. False: there are not so many to drop.
    bool free_pages(std::int64_t pages, PagesOf of = PagesOf::target);
    // Drops what that text has in this pool, which makes a sequence free.
    bool evict_text(PagesOf of = PagesOf::target);
    // Drops everything, and stores nothing.
    void forget();
    // Stores all pages that are kept, as if they were evicted.
    void store_all();
    // Pages that evicting everything would free.
    std::int32_t evictable_pages() const;
    std::size_t texts(PagesOf of = PagesOf::target) const;  // with something in this pool

private:
    struct Text {
        std::array<core::SequenceId, 2> sequences = {-1, -1};  // by pool; -1: nothing
        std::vector<std::int32_t> tokens;                      // those that one of the pools holds
        std::vector<kernels::RowClass> rows;
        std::string salt;
        bool outlasts = true;
        PrefixKey key() const { return {tokens, rows, salt, outlasts}; }
    };
    const PagePool& pool(PagesOf of) const { return pools_[static_cast<std::size_t>(of)]; }
    bool has(const Text& text, PagesOf of) const { return text.sequences[static_cast<std::size_t>(of)] >= 0; }
    std::int32_t held(const Text& text, PagesOf of) const;
    std::vector<Text>::iterator oldest(PagesOf of);
    // Drops what the text has in this pool; a text that has nothing any more is to be removed.
    void drop(Text& text, PagesOf of);
    void remove_empty();
    void store(const Text& text, PagesOf of, std::int32_t first_page);
    void store(core::SequenceId sequence, const PrefixKey& key, PagesOf of, std::int32_t first_page);

    std::vector<PagePool> pools_;  // by PagesOf; the draft's only where there is one
    std::vector<Text> texts_;      // the one used last at the end
};

}  // namespace foresay::speculative
