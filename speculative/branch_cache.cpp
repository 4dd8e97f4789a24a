#include "speculative/branch_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/models/given_text.h"

namespace foresay::speculative {

BranchCache::BranchCache(core::Context& target)
    : target_(&target), short_given_(core::short_given_tokens(target.ops())) {
    reserve(static_cast<std::size_t>(target.capacity()));
}

void BranchCache::reserve(std::size_t tokens) {
    current_.tokens.reserve(tokens);
    current_.generated.reserve(tokens);
    current_.classes.reserve(tokens);
}

void BranchCache::append(std::int32_t token, bool was_generated) {
    current_.tokens.push_back(token);
    current_.generated.push_back(was_generated ? 1 : 0);
}

void BranchCache::truncate(std::int32_t length) {
    if (length < size()) {
        current_.tokens.resize(static_cast<std::size_t>(length));
        current_.generated.resize(static_cast<std::size_t>(length));
    }
    if (held() > length) target_->truncate(length, current_.sequence);
}

void BranchCache::trim() {
    const std::int32_t most = std::max(0, size() - 1);
    if (held() > most) target_->truncate(most, current_.sequence);
}

std::int32_t BranchCache::common(const Branch& branch, std::span<const std::int32_t> tokens,
                                 std::span<const std::uint8_t> generated) const {
    const std::size_t most = std::min(branch.tokens.size(), tokens.size());
    std::size_t same = 0;
    while (same < most && branch.tokens[same] == tokens[same] && branch.generated[same] == generated[same]) ++same;
    return static_cast<std::int32_t>(same);
}

std::int32_t BranchCache::switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
    check(tokens.size() == generated.size(), "each token was generated or given");
    const std::int32_t shared = common(current_, tokens, generated);
    const auto useful = [&](const Branch& branch) {
        return std::min(common(branch, tokens, generated), right_classes(branch, generated));
    };
    Branch* best = &current_;
    for (Branch& branch : parked_) {
        if (useful(branch) > useful(*best)) best = &branch;
    }
    if (best != &current_) {
        std::swap(current_, *best);
        std::rotate(parked_.begin() + (best - parked_.data()), parked_.begin() + (best - parked_.data()) + 1,
                    parked_.end());
    }
    const std::int32_t keep = useful(current_);
    if (keep < held()) {  // what the new sequence does not share would be lost: park a fork of it
        if (target_->cache().free_sequences() == 0) drop_oldest();
        if (const core::SequenceId copy = fork(); copy >= 0)
            parked_.push_back({copy, current_.tokens, current_.generated, current_.classes});
        target_->truncate(keep, current_.sequence);
    }
    reserve(static_cast<std::size_t>(target_->capacity()));
    current_.tokens.assign(tokens.begin(), tokens.end());
    current_.generated.assign(generated.begin(), generated.end());
    return shared;
}

bool BranchCache::drop_oldest() {
    if (parked_.empty()) return false;
    target_->cache().drop(parked_.front().sequence);
    parked_.erase(parked_.begin());
    return true;
}

void BranchCache::make_room(std::int32_t rows) {
    while (target_->cache().reserve(current_.sequence, rows) == core::Reserve::pool_full && drop_oldest()) {
    }
}

BranchCache::Run BranchCache::run_at(std::span<const std::uint8_t> generated, std::int32_t begin) const {
    const auto is_generated = [&](std::int32_t i) { return generated[static_cast<std::size_t>(i)] != 0; };
    const bool kind = is_generated(begin);
    Run run{.end = begin};
    while (run.end < std::ssize(generated) && is_generated(run.end) == kind) ++run.end;
    if (kind) return run;
    std::int32_t first = begin;
    while (first > 0 && !is_generated(first - 1)) --first;
    run.row_class = core::class_of_given(run.end - first, short_given_);
    return run;
}

std::int32_t BranchCache::right_classes(const Branch& branch, std::span<const std::uint8_t> generated) const {
    const std::int32_t most = target_->length(branch.sequence);
    if (short_given_ == 0) return most;  // on a host the classes agree
    std::int32_t right = 0;
    while (right < std::min(most, static_cast<std::int32_t>(generated.size()))) {
        const Run run = run_at(generated, right);
        for (; right < std::min(most, run.end); ++right) {
            if (branch.classes[static_cast<std::size_t>(right)] != run.row_class) return right;
        }
    }
    return right;
}

void BranchCache::note_class(std::int32_t start, kernels::RowClass row_class) {
    const auto end = static_cast<std::size_t>(held());
    if (current_.classes.size() < end) current_.classes.resize(end);
    std::fill(current_.classes.begin() + start, current_.classes.begin() + held(), row_class);
}

void BranchCache::drop_wrong_classes() {
    const std::int32_t right = right_classes(current_, current_.generated);
    if (right < held()) target_->truncate(right, current_.sequence);
}

bool BranchCache::evaluate(const std::atomic<bool>* cancel, std::int32_t chunk) {
    trim();
    drop_wrong_classes();
    make_room(size() - held());
    while (held() < size()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        const std::int32_t start = held();
        auto [row_class, end] = run_at(current_.generated, start);
        if (row_class == kernels::RowClass::decode)
            end = std::min(
                {end, start + std::max(target_->options().decode_rows, short_given_), start + target_->max_rows()});
        if (chunk > 0) end = std::min(end, start + chunk);
        const auto rows = tokens().subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
        const bool done = row_class == kernels::RowClass::decode
                              ? target_->decode(rows, end == size() ? 1 : 0, current_.sequence)
                              : target_->prefill(rows, current_.sequence, cancel);
        note_class(start, row_class);  // also of those before the turn of `cancel`
        if (!done) return false;
    }
    return true;
}

core::SequenceId BranchCache::lend() {
    current_.classes.resize(static_cast<std::size_t>(held()));
    current_.classes.resize(static_cast<std::size_t>(target_->capacity()), kernels::RowClass::decode);
    return current_.sequence;
}

void BranchCache::visit_logits(std::int32_t from, const Visitor& visit, std::int32_t until) {
    check(from >= 1, "no logits come before the first token");
    const std::int32_t last = until == kToTheEnd ? size() : std::min(until, size());
    if (from >= last) return;
    if (held() > from - 1) target_->truncate(from - 1, current_.sequence);
    drop_wrong_classes();
    make_room(last - held());
    std::vector<kernels::TokenRef> refs;
    std::vector<std::int32_t> rows;
    while (held() < last - 1) {
        const std::int32_t start = held();
        auto [row_class, end] = run_at(current_.generated, start);
        end = std::min({end, last - 1, start + target_->options().decode_rows});
        refs.clear();
        rows.clear();
        for (std::int32_t i = start; i < end; ++i) {
            refs.push_back(kernels::TokenRef::id(current_.tokens[static_cast<std::size_t>(i)]));
            if (i + 1 >= from) rows.push_back(i - start);
        }
        if (!target_->evaluate(row_class, refs, rows, current_.sequence)) return;
        note_class(start, row_class);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            visit(start + rows[i] + 1, target_->logits(static_cast<std::int32_t>(i)));
        }
    }
}

std::int32_t BranchCache::room_for_branches(std::int32_t wanted, std::int32_t room) {
    constexpr std::int32_t kPage = kernels::kPagePositions;
    core::KvCache& cache = target_->cache();
    // Forks share full pages. From the first partly filled page on, each branch needs pages of its own.
    const std::int64_t whole = held() / kPage;
    const std::int64_t each = (static_cast<std::int64_t>(size()) + room + kPage - 1) / kPage - whole;
    const auto possible = [&] {
        return std::min({static_cast<std::int64_t>(wanted), static_cast<std::int64_t>(cache.free_sequences()),
                         static_cast<std::int64_t>(target_->options().decode_rows), cache.free_pages() / each});
    };
    while (possible() < wanted && drop_oldest()) {
    }
    return static_cast<std::int32_t>(std::max<std::int64_t>(0, possible()));
}

core::SequenceId BranchCache::fork() { return target_->fork(current_.sequence); }

void BranchCache::park(core::SequenceId sequence, std::span<const std::int32_t> generated_tokens) {
    Branch branch{sequence, current_.tokens, current_.generated, current_.classes};
    branch.classes.resize(current_.tokens.size(), kernels::RowClass::decode);
    branch.tokens.insert(branch.tokens.end(), generated_tokens.begin(), generated_tokens.end());
    branch.generated.resize(branch.tokens.size(), 1);
    branch.classes.resize(branch.tokens.size(), kernels::RowClass::decode);
    parked_.push_back(std::move(branch));
}

}  // namespace foresay::speculative
