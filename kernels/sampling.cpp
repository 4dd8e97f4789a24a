#include "kernels/sampling.h"

#include <algorithm>
#include <cfloat>
#include <utility>

#include "base/error.h"
#include "kernels/sampling_simd.h"
#include "kernels/sampling_steps.h"

namespace foresay::kernels {
namespace {

// A lower bound of the k-th largest of values[0, n), k <= n, within a hundredth of it. A radix selection on the upper
// 16 bits, 8 at a time: selecting by comparison spends its time on mispredicted branches.
float kth_largest_or_less(const float* values, std::int32_t n, std::int32_t k) {
    std::uint32_t prefix = 0;
    for (int shift = 24; shift >= 16; shift -= 8) {
        std::int32_t counts[256] = {};
        for (std::int32_t i = 0; i < n; ++i) {
            const std::uint32_t bits = rising_bits(values[i]);
            counts[(bits >> shift) & 255] += shift == 24 || bits >> 24 == prefix >> 24;
        }
        const RankedByte at = kth_largest_byte(counts, k);
        prefix |= static_cast<std::uint32_t>(at.byte) << shift;
        k = at.rank;
    }
    return prefix_bound(prefix);
}

// A lower bound of the k-th largest value of a row (of the least if it has fewer), from the lane maxima alone: k
// disjoint groups of values have maxima that reach it, so at least k values do. `work` holds as many floats as `lanes`.
float threshold_for(const float* lanes, std::int32_t count, std::int32_t k, float* work) {
    if (count < k) return -FLT_MAX;
    const std::int32_t fold = std::max(1, count / (3 * k));
    std::int32_t groups = count;
    if (fold > 1) {
        // Group g takes lanes g, g + groups, ...: any partition is correct, this one has long inner loops.
        groups = (count + fold - 1) / fold;
        std::copy_n(lanes, groups, work);
        for (std::int32_t start = groups; start < count; start += groups) {
            const std::int32_t width = std::min(groups, count - start);
            for (std::int32_t g = 0; g < width; ++g) work[g] = lanes[start + g] > work[g] ? lanes[start + g] : work[g];
        }
    } else {
        std::copy_n(lanes, count, work);
    }
    return kth_largest_or_less(work, groups, k);
}

// Sorts by the upper 32 bits, a byte at a time; `spare` holds n keys. Faster than a comparison sort, which mispredicts
// branches, from about a hundred keys on.
std::uint64_t* radix_sort(std::uint64_t* keys, std::uint64_t* spare, std::int32_t n) {
    std::uint32_t starts[4][256] = {};
    for (std::int32_t i = 0; i < n; ++i) {
        for (int pass = 0; pass < 4; ++pass) ++starts[pass][(keys[i] >> (32 + 8 * pass)) & 255];
    }
    for (int pass = 0; pass < 4; ++pass) {
        const int shift = 32 + 8 * pass;
        std::uint32_t* start = starts[pass];
        if (start[(keys[0] >> shift) & 255] == static_cast<std::uint32_t>(n)) continue;  // all have the same byte
        std::uint32_t sum = 0;
        for (int byte = 0; byte < 256; ++byte) sum += std::exchange(start[byte], sum);
        for (std::int32_t i = 0; i < n; ++i) spare[start[(keys[i] >> shift) & 255]++] = keys[i];
        std::swap(keys, spare);
    }
    return keys;
}

// Sorts `keys`; returns the array that holds the result, `keys` or `spare`.
std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* spare, std::int32_t n) {
    constexpr std::int32_t kFew = 96;
    if (n > kFew) keys = radix_sort(keys, spare, n);
    // radix_sort() leaves equal logits in order of arrival, not of id. They are rare.
    if (n <= kFew || !std::is_sorted(keys, keys + n)) std::sort(keys, keys + n);
    return keys;
}

// The `count` smallest of `found` keys, sorted.
std::uint64_t* sort_best(std::uint64_t* keys, std::uint64_t* spare, std::int32_t found, std::int32_t count) {
    if (found > 2 * count) {
        std::nth_element(keys, keys + count, keys + found);
        found = count;
    }
    return sort_keys(keys, spare, found);
}

}  // namespace

void SamplingScratch::reserve(std::int32_t vocab) {
    const std::size_t size = static_cast<std::size_t>(vocab);
    if (ids_.size() >= size) return;
    ids_.resize(size);
    logits_.resize(size);
    keys_.resize(size + 1);
    weights_.resize(size + 1);
    maxima_.resize(2 * static_cast<std::size_t>(lane_count(vocab)));
}

void SamplingScratch::start(std::span<float> logits, std::int32_t vocab) {
    const std::size_t limit = vocab > 0 ? static_cast<std::size_t>(vocab) : logits.size();
    row_ = logits.first(std::min(limit, logits.size()));
    reserve(static_cast<std::int32_t>(row_.size()));
    whole_ = true;
    sorted_ = false;
    count_ = 0;
}

void SamplingScratch::start(const Candidates& list) {
    reserve(list.count);
    whole_ = false;
    sorted_ = true;
    count_ = list.count;
    std::copy_n(list.ids, list.count, ids_.begin());
    std::copy_n(list.logits, list.count, logits_.begin());
}

void SamplingScratch::cut(std::int32_t count) {
    count = std::max(count, 1);
    if (!whole_) {
        sort();
        count_ = std::min(count_, count);
        return;
    }
    const SamplingKernels& kernels = sampling_kernels();
    const std::int32_t n = static_cast<std::int32_t>(row_.size());
    count = std::clamp(count, 1, std::max(n, 1));
    float* lanes = maxima_.data();
    kernels.lane_maxima(row_.data(), n, lanes);
    const float threshold = threshold_for(lanes, lane_count(n), count, lanes + lane_count(n));
    const std::int32_t found = kernels.collect(row_.data(), n, lanes, threshold, keys_.data());
    const std::uint64_t* keys = sort_best(keys_.data(), weights_.data(), found, count);
    count_ = std::min(found, count);
    for (std::int32_t i = 0; i < count_; ++i) {
        ids_[i] = key_id(keys[i]);
        logits_[i] = finite_logit(key_logit(keys[i]));
    }
    whole_ = false;
    sorted_ = true;
}

Candidates SamplingScratch::peek(std::int32_t count) {
    check(whole_, "peek() after a list was made");
    cut(count);
    whole_ = true;
    sorted_ = false;
    return {ids_.data(), logits_.data(), std::exchange(count_, 0)};
}

void SamplingScratch::make_list() {
    if (!whole_) return;
    count_ = 0;
    for (std::size_t id = 0; id < row_.size(); ++id) {
        if (!is_candidate(row_[id])) continue;
        ids_[count_] = static_cast<std::int32_t>(id);
        logits_[count_++] = finite_logit(row_[id]);
    }
    whole_ = false;
    sorted_ = false;
}

void SamplingScratch::drop_dead() {
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < count_; ++i) {
        if (!is_candidate(logits_[i])) continue;
        ids_[kept] = ids_[i];
        logits_[kept++] = finite_logit(logits_[i]);
    }
    count_ = kept;
}

void SamplingScratch::sort() {
    if (sorted_) return;
    for (std::int32_t i = 0; i < count_; ++i) keys_[i] = order_key(logits_[i], ids_[i]);
    sorted_ = true;
    if (std::is_sorted(keys_.data(), keys_.data() + count_)) return;
    const std::uint64_t* keys = sort_keys(keys_.data(), weights_.data(), count_);
    for (std::int32_t i = 0; i < count_; ++i) {
        ids_[i] = key_id(keys[i]);
        logits_[i] = key_logit(keys[i]);
    }
}

Candidates SamplingScratch::list() {
    make_list();
    sort();
    return {ids_.data(), logits_.data(), count_};
}

void SamplingScratch::set_list(std::int32_t count) {
    check(!whole_ && count >= 0 && count <= count_, "set_list() without list(), or with more candidates than it had");
    count_ = count;
    drop_dead();
    sorted_ = false;
    sort();
}

std::uint64_t SamplingScratch::weigh() {
    if (count_ == 0) return 0;
    return sampling_kernels().weigh(logits_.data(), count_, logits_[0], weights_.data());
}

void SamplingScratch::apply(const SamplingStep& step, const NoiseKey& key) {
    switch (step.kind) {
        case SamplingStepKind::bias:
        case SamplingStepKind::penalties:
        case SamplingStepKind::mask:
        case SamplingStepKind::temperature:
            if (whole_) {
                apply_whole(step);
            } else {
                apply_elements(step);
            }
            break;
        case SamplingStepKind::top_k:
            cut(top_k_count(step.top_k));
            break;
        case SamplingStepKind::top_n_sigma:
            if (whole_) {
                apply_sigma_to_row(step);
                break;
            }
            [[fallthrough]];
        default:
            make_list();
            sort();
            apply_ranking(step, key);
            break;
    }
}

void SamplingScratch::apply_whole(const SamplingStep& step) {
    const std::int32_t n = static_cast<std::int32_t>(row_.size());
    switch (step.kind) {
        case SamplingStepKind::bias:
            for (const TokenValue& entry : step.values) {
                if (entry.token >= 0 && entry.token < n) row_[entry.token] += entry.value;
            }
            break;
        case SamplingStepKind::penalties:
            for (const TokenCount& entry : step.counts) {
                if (entry.token < 0 || entry.token >= n) continue;
                row_[entry.token] = penalised(row_[entry.token], step.penalties, entry.count);
            }
            break;
        case SamplingStepKind::mask: {
            const std::int32_t words = static_cast<std::int32_t>(step.bits.size());
            // Word by word: most masks allow nearly all tokens, or nearly none.
            for (std::int32_t first = 0; first < n; first += 32) {
                const std::uint32_t bits = first / 32 < words ? step.bits[static_cast<std::size_t>(first / 32)] : 0;
                if (bits == ~0u) continue;
                const std::int32_t end = std::min(first + 32, n);
                for (std::int32_t id = first; id < end; ++id) {
                    if ((bits >> (id % 32) & 1u) == 0) row_[id] = -positive_infinity();
                }
            }
            break;
        }
        default:
            sampling_kernels().divide(row_.data(), n, step.temperature);
            break;
    }
}

void SamplingScratch::apply_elements(const SamplingStep& step) {
    switch (step.kind) {
        case SamplingStepKind::bias: {
            const std::int32_t size = static_cast<std::int32_t>(step.values.size());
            for (std::int32_t i = 0; i < count_; ++i) {
                if (const TokenValue* entry = find_entry(step.values.data(), size, ids_[i])) logits_[i] += entry->value;
            }
            break;
        }
        case SamplingStepKind::penalties: {
            const std::int32_t size = static_cast<std::int32_t>(step.counts.size());
            for (std::int32_t i = 0; i < count_; ++i) {
                const TokenCount* entry = find_entry(step.counts.data(), size, ids_[i]);
                if (entry != nullptr) logits_[i] = penalised(logits_[i], step.penalties, entry->count);
            }
            break;
        }
        case SamplingStepKind::mask: {
            const std::int32_t words = static_cast<std::int32_t>(step.bits.size());
            for (std::int32_t i = 0; i < count_; ++i) {
                if (!is_allowed(step.bits.data(), words, ids_[i])) logits_[i] = -positive_infinity();
            }
            break;
        }
        default:
            sampling_kernels().divide(logits_.data(), count_, step.temperature);
            break;
    }
    drop_dead();
    sorted_ = false;
}

void SamplingScratch::apply_ranking(const SamplingStep& step, const NoiseKey& key) {
    if (count_ == 0) return;
    if (step.kind == SamplingStepKind::min_p) {
        const float least = min_p_logit(step.min_p_log, logits_[0]);
        std::int32_t kept = 1;
        while (kept < count_ && logits_[kept] >= least) ++kept;
        count_ = kept;
        return;
    }
    if (step.kind == SamplingStepKind::top_p) {
        const std::uint64_t enough = top_p_weight(step.top_p, weigh());
        std::uint64_t reached = weights_[0];
        std::int32_t kept = 1;
        while (kept < count_ && reached < enough) reached += weights_[kept++];
        count_ = kept;
        return;
    }
    if (step.kind != SamplingStepKind::xtc) return apply_cutoff(step);
    if (count_ < 2 || !xtc_acts(step.xtc, key)) return;
    const std::uint64_t sum = weigh();
    std::int32_t likely = 0;
    while (likely < count_ && xtc_is_likely(step.xtc, weights_[likely], sum)) ++likely;
    if (likely < 2) return;
    const std::int32_t dropped = likely - 1;
    std::copy(ids_.begin() + dropped, ids_.begin() + count_, ids_.begin());
    std::copy(logits_.begin() + dropped, logits_.begin() + count_, logits_.begin());
    count_ -= dropped;
}

SampledToken SamplingScratch::sample(const NoiseKey& key, bool greedy) {
    const SamplingKernels& kernels = sampling_kernels();
    BestTwo two = BestTwo::none();
    if (whole_) {
        const std::int32_t n = static_cast<std::int32_t>(row_.size());
        float* lanes = maxima_.data();
        kernels.lane_maxima(row_.data(), n, lanes);
        if (greedy) {
            two = kernels.best_whole(row_.data(), n, lanes);
        } else {
            // The second-best score among the best logits is a lower bound of the second-best score of all.
            constexpr std::int32_t kFirst = 8;
            const float threshold = threshold_for(lanes, lane_count(n), kFirst, lanes + lane_count(n));
            const std::int32_t found = kernels.collect(row_.data(), n, lanes, threshold, keys_.data());
            const std::uint64_t* keys = sort_best(keys_.data(), weights_.data(), found, kFirst);
            const std::int32_t some = std::min(found, kFirst);
            for (std::int32_t i = 0; i < some; ++i) {
                ids_[i] = key_id(keys[i]);
                logits_[i] = key_logit(keys[i]);
            }
            const float floor = kernels.sample_list(ids_.data(), logits_.data(), some, key).second;
            two = kernels.sample_whole(row_.data(), n, lanes, floor, key);
        }
    } else if (greedy) {
        for (std::int32_t i = 0; i < count_; ++i) two.add(logits_[i], ids_[i]);
    } else {
        two = kernels.sample_list(ids_.data(), logits_.data(), count_, key);
    }
    return {two.id, two.margin()};
}

float SamplingScratch::log_probability(std::int32_t token) {
    make_list();
    sort();
    for (std::int32_t i = 0; i < count_; ++i) {
        if (ids_[i] != token) continue;
        return logits_[i] - logits_[0] - log_of_fixed(weigh());
    }
    return -positive_infinity();
}

// One that equals the bound does not count: a missing one might come before it.
Fate fate_of(MissingCandidates& missing, const SamplingStep& step, std::span<float> logits) {
    const auto come_first = [&](std::size_t kept) { return kept <= logits.size() && logits[kept - 1] > missing.bound; };
    switch (step.kind) {
        case SamplingStepKind::temperature:
            for (float& logit : logits) logit /= step.temperature;
            missing.bound /= step.temperature;
            return Fate::open;
        case SamplingStepKind::top_k: {
            const bool all = come_first(static_cast<std::size_t>(top_k_count(step.top_k)));
            return all ? Fate::dropped : Fate::unknown;
        }
        case SamplingStepKind::min_p:
            return missing.bound < min_p_logit(step.min_p_log, logits[0]) ? Fate::dropped : Fate::unknown;
        case SamplingStepKind::top_p: {
            std::uint64_t sum = 0, reached = 0;
            for (const float logit : logits) sum += fixed_weight(logit, logits[0]);
            // A little more than the missing ones can weigh, as the exponential is rounded.
            const std::uint64_t weight = fixed_weight(missing.bound, logits[0]);
            const std::uint64_t more = static_cast<std::uint64_t>(missing.count) * (weight + (weight >> 12) + 64);
            const std::uint64_t least = top_p_weight(step.top_p, sum), most = top_p_weight(step.top_p, sum + more);
            // As many stay, whatever the missing ones weigh.
            std::size_t kept = 0;
            do {
                reached += fixed_weight(logits[kept++], logits[0]);
            } while (kept < logits.size() && reached < least);
            return reached >= most && come_first(kept) ? Fate::dropped : Fate::unknown;
        }
        default:
            return Fate::unknown;
    }
}

namespace {

std::int32_t keeps_at(const SamplingPlan& plan) { return std::min(plan.keep_at, plan.step_count); }

// Steps [first, end), which follow the cut where it is at `first`.
void run_steps(const SamplingPlan& plan, std::int32_t first, std::int32_t end, SamplingScratch& scratch) {
    const std::int32_t cut_at = plan.cut > 0 ? std::min(plan.cut_at, plan.step_count) : -1;
    for (std::int32_t i = first; i < end; ++i) {
        if (i == cut_at) scratch.cut(plan.cut);
        scratch.apply(plan.steps[i], plan.key);
    }
    if (end == cut_at) scratch.cut(plan.cut);
}

}  // namespace

SampledToken sample_row(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch) {
    scratch.start(logits, plan.vocab);
    run_steps(plan, 0, plan.step_count, scratch);
    return scratch.sample(plan.key, plan.greedy);
}

Candidates candidates_row(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch) {
    scratch.start(logits, plan.vocab);
    run_steps(plan, 0, plan.keep ? keeps_at(plan) : plan.step_count, scratch);
    return scratch.list();
}

void KeptCandidates::reserve(std::span<const SamplingPlan> plans) {
    if (!counts_.empty() || std::ranges::none_of(plans, &SamplingPlan::keep)) return;
    counts_.resize(kTokenSlots);
    ids_.resize(static_cast<std::size_t>(kTokenSlots) * kCandidateCut);
    logits_.resize(ids_.size());
}

SampledToken KeptCandidates::sample(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch,
                                    std::int32_t slot) {
    if (!plan.keep) return sample_row(logits, plan, scratch);
    const Candidates from = candidates_row(logits, plan, scratch);
    check(from.count <= kCandidateCut, "a plan that keeps its candidates has a cut");
    const Candidates to = at(slot);
    counts_[static_cast<std::size_t>(slot)] = from.count;
    std::copy_n(from.ids, from.count, to.ids);
    std::copy_n(from.logits, from.count, to.logits);
    run_steps(plan, keeps_at(plan), plan.step_count, scratch);
    return scratch.sample(plan.key, plan.greedy);
}

Candidates KeptCandidates::at(std::int32_t slot) {
    const std::size_t first = static_cast<std::size_t>(slot) * kCandidateCut;
    return {ids_.data() + first, logits_.data() + first, counts_[static_cast<std::size_t>(slot)]};
}

}  // namespace foresay::kernels
