#include "speculative/prefix_cache.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "core/models/given_text.h"

namespace foresay::speculative {

std::int32_t common_prefix(const PrefixKey& a, const PrefixKey& b, const RowClasses& classes) {
    if (a.salt != b.salt) return 0;
    std::size_t most = std::min(a.tokens.size(), b.tokens.size());
    // Where the prefill rows of a text end; those of a short prompt are none.
    const auto prefill_rows = [&](const PrefixKey& key) {
        const bool decodes = core::class_of_given(key.generated_from, classes.short_given) == kernels::RowClass::decode;
        return decodes ? 0 : static_cast<std::size_t>(key.generated_from);
    };
    const std::size_t here = prefill_rows(a), there = prefill_rows(b);
    if (!classes.agree && here != there) most = std::min({most, here, there});
    const auto same = std::ranges::mismatch(a.tokens.first(most), b.tokens.first(most)).in1;
    return static_cast<std::int32_t>(same - a.tokens.begin());
}

PrefixCache::Found PrefixCache::find(const PrefixKey& key) {
    Found best;
    std::size_t index = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        const std::int32_t length = common_prefix(texts_[i].key(), key, classes_);
        if (length <= best.length) continue;
        best = {texts_[i].sequence, length};
        index = i;
    }
    if (best.sequence >= 0) {
        std::rotate(texts_.begin() + static_cast<std::ptrdiff_t>(index),
                    texts_.begin() + static_cast<std::ptrdiff_t>(index) + 1, texts_.end());
    }
    return best;
}

void PrefixCache::keep(core::SequenceId sequence, const PrefixKey& key) {
    cache_->release_spare(sequence);
    const auto held = static_cast<std::size_t>(cache_->length(sequence));
    if (held == 0) {
        cache_->drop(sequence);
        return;
    }
    Text text{.sequence = sequence,
              .tokens = {key.tokens.begin(), key.tokens.begin() + static_cast<std::ptrdiff_t>(held)},
              .generated_from = key.generated_from,
              .salt = std::string(key.salt)};
    for (std::size_t i = texts_.size(); i-- > 0;) {
        const std::int32_t common = common_prefix(texts_[i].key(), text.key(), classes_);
        if (common == static_cast<std::int32_t>(texts_[i].tokens.size())) drop(i);
    }
    texts_.push_back(std::move(text));
}

core::SequenceId PrefixCache::take(core::SequenceId sequence) {
    const auto text = std::ranges::find(texts_, sequence, &Text::sequence);
    if (text == texts_.end()) return -1;
    texts_.erase(text);
    return sequence;
}

void PrefixCache::drop(std::size_t index) {
    cache_->drop(texts_[index].sequence);
    texts_.erase(texts_.begin() + static_cast<std::ptrdiff_t>(index));
}

bool PrefixCache::evict_text() {
    if (texts_.empty()) return false;
    drop(0);
    return true;
}

bool PrefixCache::evict_page() {
    if (texts_.empty()) return false;
    Text& text = texts_.front();
    const auto held = static_cast<std::int32_t>(text.tokens.size());
    const std::int32_t left = (held - 1) / kernels::kPagePositions * kernels::kPagePositions;
    if (left == 0) return evict_text();
    cache_->truncate(text.sequence, left);
    cache_->release_spare(text.sequence);
    text.tokens.resize(static_cast<std::size_t>(left));
    return true;
}

std::int32_t PrefixCache::evictable_pages() const {
    std::unordered_map<std::int32_t, std::int32_t> kept;  // by page: texts that hold it
    for (const Text& text : texts_) {
        for (const std::int32_t page : cache_->view(text.sequence).pages) ++kept[page];
    }
    return static_cast<std::int32_t>(std::ranges::count_if(
        kept, [this](const auto& entry) { return cache_->references(entry.first) == entry.second; }));
}

}  // namespace foresay::speculative
