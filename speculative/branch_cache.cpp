#include "speculative/branch_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace foresay::speculative {

BranchCache::BranchCache(core::Context& target) : target_(&target) {
    reserve(static_cast<std::size_t>(target.capacity()));
}

void BranchCache::reserve(std::size_t tokens) {
    lane_.tokens.reserve(tokens);
    lane_.generated.reserve(tokens);
}

void BranchCache::append(std::int32_t token, bool was_generated) {
    lane_.tokens.push_back(token);
    lane_.generated.push_back(was_generated ? 1 : 0);
}

void BranchCache::truncate(std::int32_t length) {
    if (length < size()) {
        lane_.tokens.resize(static_cast<std::size_t>(length));
        lane_.generated.resize(static_cast<std::size_t>(length));
    }
    if (held() > length) target_->truncate(length, lane_.sequence);
}

void BranchCache::trim() {
    const std::int32_t most = std::max(0, size() - 1);
    if (held() > most) target_->truncate(most, lane_.sequence);
}

std::int32_t BranchCache::common(const Lane& lane, std::span<const std::int32_t> tokens,
                                 std::span<const std::uint8_t> generated) const {
    const std::size_t most = std::min(lane.tokens.size(), tokens.size());
    std::size_t same = 0;
    while (same < most && lane.tokens[same] == tokens[same] && lane.generated[same] == generated[same]) ++same;
    return static_cast<std::int32_t>(same);
}

std::int32_t BranchCache::switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
    check(tokens.size() == generated.size(), "each token was generated or given");
    const std::int32_t shared = common(lane_, tokens, generated);
    const auto useful = [&](const Lane& lane) {
        return std::min(common(lane, tokens, generated), target_->length(lane.sequence));
    };
    Lane* best = &lane_;
    for (Lane& lane : parked_) {
        if (useful(lane) > useful(*best)) best = &lane;
    }
    if (best != &lane_) {
        std::swap(lane_, *best);
        std::rotate(parked_.begin() + (best - parked_.data()), parked_.begin() + (best - parked_.data()) + 1,
                    parked_.end());
    }
    const std::int32_t keep = useful(lane_);
    if (keep < held()) {
        if (target_->cache().free_sequences() == 0) drop_oldest();
        if (const core::SequenceId copy = fork(); copy >= 0) parked_.push_back({copy, lane_.tokens, lane_.generated});
        target_->truncate(keep, lane_.sequence);
    }
    reserve(static_cast<std::size_t>(target_->capacity()));
    lane_.tokens.assign(tokens.begin(), tokens.end());
    lane_.generated.assign(generated.begin(), generated.end());
    return shared;
}

void BranchCache::drop_oldest() {
    if (parked_.empty()) return;
    target_->cache().drop(parked_.front().sequence);
    parked_.erase(parked_.begin());
}

void BranchCache::make_room(std::int32_t rows) {
    while (target_->cache().reserve(lane_.sequence, rows) == core::Reserve::pool_full && !parked_.empty())
        drop_oldest();
}

// Evaluates the sequence from what the cache holds up to index `end`; all tokens of one row class.
bool BranchCache::evaluate_run(std::int32_t end, std::int32_t logit_rows, const std::atomic<bool>* cancel) {
    const std::int32_t start = held();
    const auto run = tokens().subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
    if (lane_.generated[static_cast<std::size_t>(start)] != 0) return target_->decode(run, logit_rows, lane_.sequence);
    return target_->prefill(run, lane_.sequence, cancel);
}

bool BranchCache::evaluate(const std::atomic<bool>* cancel) {
    trim();
    make_room(size() - held());
    while (held() < size()) {
        const std::int32_t start = held();
        const std::uint8_t kind = lane_.generated[static_cast<std::size_t>(start)];
        std::int32_t end = start;
        while (end < size() && lane_.generated[static_cast<std::size_t>(end)] == kind) ++end;
        if (kind != 0) end = std::min(end, start + target_->options().decode_rows);
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        if (!evaluate_run(end, end == size() ? 1 : 0, cancel)) return false;
    }
    return true;
}

bool BranchCache::decode(std::span<const kernels::TokenRef> rows) {
    if (!parked_.empty()) make_room(static_cast<std::int32_t>(rows.size()));
    return target_->decode(rows, -1, lane_.sequence);
}

void BranchCache::visit_logits(std::int32_t from, const Visitor& visit) {
    check(from >= 1, "the first token was sampled from nothing");
    if (from >= size()) return;
    if (held() > from - 1) target_->truncate(from - 1, lane_.sequence);
    make_room(size() - held());
    std::vector<kernels::TokenRef> refs;
    std::vector<std::int32_t> rows;
    while (held() < size() - 1) {
        const std::int32_t start = held();
        const std::uint8_t kind = lane_.generated[static_cast<std::size_t>(start)];
        std::int32_t end = start;
        const std::int32_t limit = std::min(size() - 1, start + target_->options().decode_rows);
        while (end < limit && lane_.generated[static_cast<std::size_t>(end)] == kind) ++end;
        refs.clear();
        rows.clear();
        for (std::int32_t i = start; i < end; ++i) {
            refs.push_back(kernels::TokenRef::id(lane_.tokens[static_cast<std::size_t>(i)]));
            if (i + 1 >= from) rows.push_back(i - start);
        }
        const auto row_class = kind != 0 ? kernels::RowClass::decode : kernels::RowClass::prefill;
        if (!target_->evaluate(row_class, refs, rows, lane_.sequence)) return;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            visit(start + rows[i] + 1, target_->logits(static_cast<std::int32_t>(i)));
        }
    }
}

std::int32_t BranchCache::room_for_branches(std::int32_t wanted, std::int32_t room) {
    constexpr std::int32_t kPage = kernels::kPagePositions;
    core::KvCache& cache = target_->cache();
    const std::int64_t whole = held() / kPage;
    const std::int64_t each = (static_cast<std::int64_t>(size()) + room + kPage - 1) / kPage - whole;
    const auto possible = [&] {
        return std::min({static_cast<std::int64_t>(wanted), static_cast<std::int64_t>(cache.free_sequences()),
                         static_cast<std::int64_t>(target_->options().decode_rows), cache.free_pages() / each});
    };
    while (possible() < wanted && !parked_.empty()) drop_oldest();
    return static_cast<std::int32_t>(std::max<std::int64_t>(0, possible()));
}

core::SequenceId BranchCache::fork() { return target_->fork(lane_.sequence); }

void BranchCache::park(core::SequenceId sequence, std::span<const std::int32_t> generated_tokens) {
    Lane lane{sequence, lane_.tokens, lane_.generated};
    lane.tokens.insert(lane.tokens.end(), generated_tokens.begin(), generated_tokens.end());
    lane.generated.resize(lane.tokens.size(), 1);
    parked_.push_back(std::move(lane));
}

}  // namespace foresay::speculative
