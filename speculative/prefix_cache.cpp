#include "speculative/prefix_cache.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace foresay::speculative {

PageNames::PageNames(const PrefixKey& key, bool classes_agree)
    : key_(key), classes_agree_(classes_agree), parent_(core::page_hash(key.salt)) {}

std::optional<core::PageId> PageNames::next() {
    constexpr std::size_t kRows = kernels::kPagePositions;
    if (key_.tokens.size() - begin_ < kRows) return std::nullopt;
    core::PageId id{.parent = parent_};
    std::ranges::copy(key_.tokens.subspan(begin_, kRows), id.tokens.begin());
    for (std::size_t i = 0; !classes_agree_ && i < kRows; ++i) {
        if (key_.rows[begin_ + i] == kernels::RowClass::decode) id.decode_rows |= std::uint64_t{1} << i;
    }
    begin_ += kRows;
    parent_ = id.hash();
    return id;
}

std::int32_t common_prefix(const PrefixKey& a, const PrefixKey& b, bool classes_agree) {
    if (a.salt != b.salt) return 0;
    const auto tokens = std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin();
    if (classes_agree) return static_cast<std::int32_t>(tokens);
    const auto same = static_cast<std::size_t>(tokens);
    const auto rows = std::ranges::mismatch(a.rows.first(same), b.rows.first(same)).in1 - a.rows.begin();
    return static_cast<std::int32_t>(rows);
}

std::int32_t PrefixCache::held(const Text& text, PagesOf of) const {
    return has(text, of) ? pool(of).cache->length(text.sequences[static_cast<std::size_t>(of)]) : 0;
}

std::vector<PrefixCache::Text>::iterator PrefixCache::oldest(PagesOf of) {
    return std::ranges::find_if(texts_, [&](const Text& text) { return has(text, of); });
}

PrefixCache::Found PrefixCache::find(const PrefixKey& key, PagesOf of) {
    Found best;
    std::size_t index = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        const std::int32_t most = held(texts_[i], of);
        if (most <= best.length) continue;
        const std::int32_t length = std::min(most, common_prefix(texts_[i].key(), key, pool(of).classes_agree));
        if (length <= best.length) continue;
        const core::SequenceId sequence = texts_[i].sequences[static_cast<std::size_t>(of)];
        if (!pool(of).cache->continues_from(sequence, length)) continue;
        best = {sequence, length};
        index = i;
    }
    if (best.sequence >= 0) {
        std::rotate(texts_.begin() + static_cast<std::ptrdiff_t>(index),
                    texts_.begin() + static_cast<std::ptrdiff_t>(index) + 1, texts_.end());
    }
    return best;
}

core::SequenceId PrefixCache::open(const PrefixKey& key, std::int32_t most, Found other, PagesOf of) {
    core::KvCache& cache = *pool(of).cache;
    PrefixKey beginning = key;
    beginning.tokens = key.tokens.first(std::min(key.tokens.size(), static_cast<std::size_t>(std::max(0, most))));
    Found found = find(beginning, of);
    other.length = std::min(other.length, most);
    if (other.length > found.length && cache.continues_from(other.sequence, other.length)) found = other;
    if (found.length <= 0) {
        if (cache.free_sequences() == 0) evict_text(of);
        return cache.create();
    }
    core::SequenceId id = -1;
    if (cache.free_sequences() == 0 && texts(of) == 1) {
        const auto text = oldest(of);
        if (text->sequences[static_cast<std::size_t>(of)] == found.sequence) {
            id = std::exchange(text->sequences[static_cast<std::size_t>(of)], -1);
            remove_empty();
        }
    }
    if (id < 0) {
        if (cache.free_sequences() == 0) evict_text(of);  // not the one just found
        id = cache.fork(found.sequence);
    }
    if (id < 0) return -1;
    cache.truncate(id, found.length);
    cache.release_spare(id);
    return id;
}

std::int32_t PrefixCache::restore(core::SequenceId sequence, const PrefixKey& key, std::int32_t most, PagesOf of) {
    core::PageStore* const store = pool(of).store;
    if (store == nullptr) return 0;
    constexpr std::int32_t kRows = kernels::kPagePositions;
    core::KvCache& cache = *pool(of).cache;
    const std::int32_t had = cache.length(sequence);
    std::int32_t restored = 0;
    std::int32_t begin = 0;
    PageNames names(key, pool(of).classes_agree);
    for (std::optional<core::PageId> page = names.next(); page && begin + kRows <= most;
         page = names.next(), begin += kRows) {
        if (begin + kRows <= cache.length(sequence)) continue;
        if (!store->has(*page)) break;
        // A part of this page is there already.
        if (!cache.continues_from(sequence, begin)) break;
        if (cache.length(sequence) > begin) cache.truncate(sequence, begin);
        cache.release_spare(sequence);
        bool room = true;
        while (room && cache.missing_pages(sequence, kRows) > cache.free_pages()) room = evict_page(of);
        if (!room) break;
        const std::span<const std::byte> bytes = store->find(*page);
        if (bytes.empty()) break;
        check(cache.reserve(sequence, kRows) == core::Reserve::ok, "room was made for the page");
        const std::int32_t to = cache.view(sequence).pages[static_cast<std::size_t>(begin / kRows)];
        pool(of).ops->write_page(cache.pages(), to, bytes);
        cache.commit(sequence, kRows);
        restored += kRows;
        if (cache.first(sequence) < had) {  // not stored yet, maybe
            release_left(sequence, key, of);
        } else if (!pool(of).keeps_left) {
            cache.release_left(sequence);
        }
    }
    return restored;
}

void PrefixCache::keep(core::SequenceId sequence, const PrefixKey& key, core::SequenceId draft) {
    Text text{.sequences = {sequence, draft},
              .tokens = {},
              .rows = {},
              .salt = std::string(key.salt),
              .outlasts = key.outlasts};
    std::int32_t longest = 0;
    for (const PagesOf of : {PagesOf::target, PagesOf::draft}) {
        if (!has(text, of)) continue;
        pool(of).cache->release_spare(text.sequences[static_cast<std::size_t>(of)]);
        if (held(text, of) == 0) drop(text, of);
        longest = std::max(longest, held(text, of));
    }
    if (longest == 0) return;
    text.tokens.assign(key.tokens.begin(), key.tokens.begin() + longest);
    text.rows.assign(key.rows.begin(), key.rows.begin() + longest);
    for (Text& other : texts_) {
        for (const PagesOf of : {PagesOf::target, PagesOf::draft}) {
            const std::int32_t length = held(other, of);
            if (length == 0 || common_prefix(other.key(), text.key(), pool(of).classes_agree) < length) continue;
            // What the other one has there is a beginning of this text. The longer one stays, and the shorter one, too,
            // where the longer one has given back what its windows have left.
            const auto place = static_cast<std::size_t>(of);
            core::SequenceId &shorter = other.sequences[place], &longer = text.sequences[place];
            const bool swap = length > held(text, of);
            if (swap) std::swap(shorter, longer);
            if (has(other, of) && pool(of).cache->first(longer) > pool(of).cache->first(shorter)) {
                if (swap) std::swap(shorter, longer);
                continue;
            }
            if (has(other, of)) drop(other, of);
        }
    }
    remove_empty();
    texts_.push_back(std::move(text));
}

void PrefixCache::drop(Text& text, PagesOf of) {
    pool(of).cache->drop(std::exchange(text.sequences[static_cast<std::size_t>(of)], -1));
}

void PrefixCache::remove_empty() {
    std::erase_if(texts_,
                  [this](const Text& text) { return !has(text, PagesOf::target) && !has(text, PagesOf::draft); });
}

bool PrefixCache::free_pages(std::int64_t pages, PagesOf of) {
    const core::KvCache& cache = *pool(of).cache;
    while (cache.free_pages() < pages) {
        if (!evict_page(of)) return false;
    }
    return true;
}

bool PrefixCache::evict_text(PagesOf of) {
    const auto text = oldest(of);
    if (text == texts_.end()) return false;
    store(*text, of, 0);
    drop(*text, of);
    remove_empty();
    return true;
}

void PrefixCache::forget() {
    for (Text& text : texts_) {
        for (const PagesOf of : {PagesOf::target, PagesOf::draft}) {
            if (has(text, of)) drop(text, of);
        }
    }
    texts_.clear();
}

void PrefixCache::store_all() {
    for (const Text& text : texts_) {
        for (const PagesOf of : {PagesOf::target, PagesOf::draft}) {
            if (has(text, of)) store(text, of, 0);
        }
    }
}

void PrefixCache::release_left(core::SequenceId sequence, const PrefixKey& key, PagesOf of) {
    core::KvCache& cache = *pool(of).cache;
    const std::int32_t kept = cache.first_kept(sequence);
    if (pool(of).keeps_left || kept <= cache.first(sequence)) return;
    if (key.outlasts) {
        PrefixKey left = key;
        left.tokens = key.tokens.first(static_cast<std::size_t>(kept));
        store(sequence, left, of, 0);
    }
    cache.release_left(sequence);
}

void PrefixCache::store(const Text& text, PagesOf of, std::int32_t first_page) {
    if (!text.outlasts) return;
    PrefixKey key = text.key();
    key.tokens = key.tokens.first(static_cast<std::size_t>(held(text, of)));
    store(text.sequences[static_cast<std::size_t>(of)], key, of, first_page);
}

// The whole pages from `first_page` on. Those that another sequence holds as well, too: it may have a part only, and a
// page is of no use without those before it. The store has each once.
void PrefixCache::store(core::SequenceId sequence, const PrefixKey& key, PagesOf of, std::int32_t first_page) {
    const PagePool& in = pool(of);
    if (in.store == nullptr) return;
    PageNames names(key, in.classes_agree);
    const std::span<const std::int32_t> pages = in.cache->view(sequence).pages;
    // Pages that the sequence gave back were stored then.
    first_page = std::max(first_page, in.cache->first(sequence) / kernels::kPagePositions);
    std::int32_t index = 0;
    for (std::optional<core::PageId> id = names.next(); id; id = names.next(), ++index) {
        const std::int32_t page = pages[static_cast<std::size_t>(index)];
        if (index < first_page) continue;
        in.store->store(*id, [&](std::span<std::byte> to) { in.ops->read_page(in.cache->pages(), page, to); });
    }
}

bool PrefixCache::evict_page(PagesOf of) {
    const auto text = oldest(of);
    if (text == texts_.end()) return false;
    const std::int32_t left = (held(*text, of) - 1) / kernels::kPagePositions * kernels::kPagePositions;
    const core::SequenceId sequence = text->sequences[static_cast<std::size_t>(of)];
    // Without its last page, a text that gave back its first ones may be of no use.
    if (left == 0 || !pool(of).cache->continues_from(sequence, left)) return evict_text(of);
    store(*text, of, left / kernels::kPagePositions);
    pool(of).cache->truncate(sequence, left);
    pool(of).cache->release_spare(sequence);
    return true;
}

std::int32_t PrefixCache::evictable_pages() const {
    const core::KvCache& cache = *pool(PagesOf::target).cache;
    std::unordered_map<std::int32_t, std::int32_t> kept;  // by page: texts that hold it
    for (const Text& text : texts_) {
        if (!has(text, PagesOf::target)) continue;
        for (const std::int32_t page : cache.held_pages(text.sequences[0])) ++kept[page];
    }
    return static_cast<std::int32_t>(std::ranges::count_if(
        kept, [&cache](const auto& entry) { return cache.references(entry.first) == entry.second; }));
}

std::size_t PrefixCache::texts(PagesOf of) const {
    return static_cast<std::size_t>(std::ranges::count_if(texts_, [&](const Text& text) { return has(text, of); }));
}

}  // namespace foresay::speculative
