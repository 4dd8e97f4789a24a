#include "speculative/branch_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/models/given_text.h"

namespace foresay::speculative {

BranchCache::BranchCache(core::Context& target, PrefixCache& kept) : target_(&target), kept_(&kept) {
    short_given_ = core::short_given_tokens(target.ops());
    const auto most = static_cast<std::size_t>(target.capacity());
    tokens_.reserve(most);
    generated_.reserve(most);
    classes_.reserve(most);
}

void BranchCache::append(std::int32_t token, bool was_generated) {
    tokens_.push_back(token);
    generated_.push_back(was_generated ? 1 : 0);
}

void BranchCache::truncate(std::int32_t length) {
    if (length < size()) {
        tokens_.resize(static_cast<std::size_t>(length));
        generated_.resize(static_cast<std::size_t>(length));
    }
    if (held() > length) target_->truncate(length, sequence_);
}

PrefixKey BranchCache::key() const {
    const auto rows = static_cast<std::size_t>(held());
    return {.tokens = tokens().first(rows), .rows = std::span(classes_).first(rows), .salt = {}};
}

std::int32_t BranchCache::switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
    check(tokens.size() == generated.size(), "each token was generated or given");
    const std::size_t most = std::min(tokens_.size(), tokens.size());
    std::size_t shared = 0;
    while (shared < most && tokens_[shared] == tokens[shared] && generated_[shared] == generated[shared]) ++shared;
    const std::vector<kernels::RowClass> classes = core::classes_of(generated, short_given_);
    const PrefixKey wanted{.tokens = tokens, .rows = classes, .salt = {}};
    const std::int32_t useful = common_prefix(key(), wanted, agree());
    if (useful < held() || kept_->find(wanted).length > useful) {
        kept_->keep(sequence_, key());
        sequence_ = kept_->open(wanted, static_cast<std::int32_t>(tokens.size()), {});
        check(sequence_ >= 0, "the sequence that was kept is free, or another one is");
    }
    tokens_.assign(tokens.begin(), tokens.end());
    generated_.assign(generated.begin(), generated.end());
    classes_.assign(classes.begin(), classes.end());
    return static_cast<std::int32_t>(shared);
}

void BranchCache::make_room(std::int32_t rows) {
    while (target_->cache().reserve(sequence_, rows) == core::Reserve::pool_full && kept_->evict_page()) {
    }
}

void BranchCache::note_class(std::int32_t start, kernels::RowClass row_class) {
    const auto end = static_cast<std::size_t>(held());
    if (classes_.size() < end) classes_.resize(end);
    std::fill(classes_.begin() + start, classes_.begin() + held(), row_class);
}

std::vector<kernels::RowClass> BranchCache::right_classes() {
    std::vector<kernels::RowClass> wanted = core::classes_of(generated_, short_given_);
    const std::int32_t right = common_prefix(key(), {.tokens = tokens_, .rows = wanted, .salt = {}}, agree());
    if (right < held()) target_->truncate(right, sequence_);
    return wanted;
}

namespace {

// Where the rows end that have the class of row `begin`.
std::int32_t end_of_run(std::span<const kernels::RowClass> classes, std::int32_t begin) {
    const auto from = classes.begin() + begin;
    const auto end = std::find_if(from, classes.end(), [from](kernels::RowClass one) { return one != *from; });
    return static_cast<std::int32_t>(end - classes.begin());
}

}  // namespace

bool BranchCache::evaluate(const std::atomic<bool>* cancel, std::int32_t chunk) {
    // The last token is evaluated in any case, for its logits.
    const std::int32_t most = std::max(0, size() - 1);
    if (held() > most) target_->truncate(most, sequence_);
    const std::vector<kernels::RowClass> classes = right_classes();
    make_room(size() - held());
    while (held() < size()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        const std::int32_t start = held();
        const kernels::RowClass row_class = classes[static_cast<std::size_t>(start)];
        std::int32_t end = end_of_run(classes, start);
        if (row_class == kernels::RowClass::decode)
            end = std::min(
                {end, start + std::max(target_->options().decode_rows, short_given_), start + target_->max_rows()});
        if (chunk > 0) end = std::min(end, start + chunk);
        const auto rows = tokens().subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
        const bool done = row_class == kernels::RowClass::decode
                              ? target_->decode(rows, end == size() ? 1 : 0, sequence_)
                              : target_->prefill(rows, sequence_, cancel);
        note_class(start, row_class);  // also of those before the turn of `cancel`
        if (!done) return false;
    }
    return true;
}

core::SequenceId BranchCache::lend() {
    classes_.resize(static_cast<std::size_t>(held()));
    classes_.resize(static_cast<std::size_t>(target_->capacity()), kernels::RowClass::decode);
    return sequence_;
}

void BranchCache::visit_logits(std::int32_t from, const Visitor& visit, std::int32_t until) {
    check(from >= 1, "no logits come before the first token");
    const std::int32_t last = until == kToTheEnd ? size() : std::min(until, size());
    if (from >= last) return;
    if (held() > from - 1) target_->truncate(from - 1, sequence_);
    const std::vector<kernels::RowClass> classes = right_classes();
    make_room(last - held());
    std::vector<kernels::TokenRef> refs;
    std::vector<std::int32_t> rows;
    while (held() < last - 1) {
        const std::int32_t start = held();
        const kernels::RowClass row_class = classes[static_cast<std::size_t>(start)];
        const std::int32_t end =
            std::min({end_of_run(classes, start), last - 1, start + target_->options().decode_rows});
        refs.clear();
        rows.clear();
        for (std::int32_t i = start; i < end; ++i) {
            refs.push_back(kernels::TokenRef::id(tokens_[static_cast<std::size_t>(i)]));
            if (i + 1 >= from) rows.push_back(i - start);
        }
        if (!target_->evaluate(row_class, refs, rows, sequence_)) return;
        note_class(start, row_class);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            visit(start + rows[i] + 1, target_->logits(static_cast<std::int32_t>(i)));
        }
    }
}

std::int32_t BranchCache::room_for_branches(std::int32_t wanted, std::int32_t room) {
    constexpr std::int32_t kPage = kernels::kPagePositions;
    core::KvCache& cache = target_->cache();
    wanted = std::min(wanted, target_->options().decode_rows);
    // Forks share full pages. From the first partly filled page on, each branch needs pages of its own.
    const std::int64_t whole = held() / kPage;
    const std::int64_t each = (static_cast<std::int64_t>(size()) + room + kPage - 1) / kPage - whole;
    while (cache.free_sequences() < wanted && kept_->evict_text()) {
    }
    kept_->free_pages(wanted * each);
    return static_cast<std::int32_t>(
        std::min<std::int64_t>({wanted, cache.free_sequences(), cache.free_pages() / each}));
}

void BranchCache::keep_copy() {
    if (target_->cache().free_sequences() == 0) kept_->evict_text();
    const core::SequenceId copy = target_->fork(sequence_);
    check(copy >= 0, "room was made for every branch");
    kept_->keep(copy, key());
}

}  // namespace foresay::speculative
