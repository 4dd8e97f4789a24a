// The test stages of a chain. A test acts on the whole vocabulary, but each token is judged by itself, so it is enough
// to ask about the tokens that could be sampled, and elementwise steps between the stage and that moment change
// nothing. A step that compares all candidates of a row needs the answers about all of them. Tokens that may not follow
// leave the row.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/sampling_steps.h"
#include "samplers/chain_stages.h"

namespace foresay::samplers {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t kLikely = 4;  // dropping one of so many best is likely to change the token
constexpr int kPatience = 4;         // after so many winners that may not follow, many are asked about at once
constexpr std::int32_t kAtOnce = 64;
constexpr std::size_t kEnough = 16;  // to tell from how many of them may follow

}  // namespace

void ChainStages::forget_tests() {
    for (const std::int32_t id : asked_) verdicts_[static_cast<std::size_t>(id)] = 0;
    asked_.clear();
    dropped_.clear();
    pending_.clear();
}

// One call of a stage: empty, or what went wrong.
std::string_view ChainStages::call_test(Entry& entry, std::span<const std::int32_t> ids,
                                        std::vector<std::uint8_t>& keep) {
    const Stopwatch watch(entry, phase_);
    keep.assign(ids.size(), 0);
    // As a mask, it decides even in the rows of a draft.
    const StageContext context = context_for(entry, Phase::decide);
    const std::string_view wrong = entry.stage->test(entry.state.get(), context, ids, keep);
    if (!wrong.empty()) return wrong;
    if (std::ranges::any_of(keep, [](std::uint8_t verdict) { return verdict > 1; })) {
        return "its test() answered neither 0 nor 1";
    }
    if (phase_ != Phase::decide || !is_checked(entry.report.calls)) return {};
    // Each id by itself: the same answer where the others are asked about in another order.
    std::vector<std::int32_t> other(ids.rbegin(), ids.rend());
    again_.assign(ids.size(), 0);
    const std::string_view second = entry.stage->test(entry.state.get(), context, other, again_);
    return second.empty() && std::equal(keep.begin(), keep.end(), again_.rbegin()) ? std::string_view() : kTwoAnswers;
}

bool ChainStages::test_list(Entry& entry, bool may_drop_all) {
    const kernels::Candidates list = scratch_.list();
    if (list.count == 0) return true;
    const std::string_view wrong = call_test(entry, {list.ids, static_cast<std::size_t>(list.count)}, keep_);
    if (!wrong.empty()) return fail(entry, wrong);
    bool likely = false;
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < list.count; ++i) {
        if (keep_[static_cast<std::size_t>(i)] == 0) {
            likely = likely || i < kLikely;
            continue;
        }
        list.ids[kept] = list.ids[i];
        list.logits[kept++] = list.logits[i];
    }
    note_dropped(entry, likely);
    if (kept == 0 && !may_drop_all) return fail(entry, kLeftNone);
    scratch_.set_list(kept);
    return true;
}

// Runs the steps after the cut on a copy, up to the one that decides it.
bool ChainStages::missing_are_dropped(float bound) {
    const kernels::Candidates list = scratch_.list();
    saved_logits_.assign(list.logits, list.logits + list.count);
    kernels::MissingCandidates missing{cut_ - list.count, bound};
    for (std::size_t at = cut_before_ + (cut_replaces_ ? 1 : 0); at < active_.size(); ++at) {
        const Entry& entry = entries_[active_[at]];
        kernels::SamplingStep step;
        if (entry.kind() != StageKind::step || !make_step(entry, counts_[at], step).empty()) return false;
        const kernels::Fate fate = kernels::fate_of(missing, step, saved_logits_);
        if (fate != kernels::Fate::open) return fate == kernels::Fate::dropped;
    }
    // Without noise the two best are what they are.
    return greedy_ && !feedback_ && list.count > 1 && saved_logits_[1] > missing.bound;
}

void ChainStages::ask_about(std::int32_t id) {
    if (verdicts_[static_cast<std::size_t>(id)] == 0) asked_ids_.push_back(id);
}

void ChainStages::ask_about_best(std::int32_t count) {
    const kernels::Candidates best = scratch_.peek(std::min(count, vocabulary_->size()));
    for (std::int32_t i = 0; i < best.count; ++i) ask_about(best.ids[i]);
}

// Takes a stage out of the pending ones, and back what it alone has dropped.
void ChainStages::leave_out(std::size_t pending) {
    for (Dropped& one : dropped_) {
        if (one.by == 0) continue;
        const std::uint32_t below = one.by & ((1u << pending) - 1);
        const std::uint32_t above = pending + 1 < 32 ? (one.by >> (pending + 1)) << pending : 0;
        one.by = below | above;
        if (one.by != 0) continue;
        scratch_.row()[static_cast<std::size_t>(one.id)] = one.logit;
        verdicts_[static_cast<std::size_t>(one.id)] = -1;
    }
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(pending));
}

bool ChainStages::test_ids() {
    for (const std::int32_t id : asked_ids_) {
        verdicts_[static_cast<std::size_t>(id)] = -1;
        asked_.push_back(id);
    }
    for (std::size_t at = 0; at < pending_.size();) {
        Entry& entry = entries_[pending_[at]];
        const std::string_view wrong = call_test(entry, asked_ids_, keep_);
        if (!wrong.empty()) {
            if (!fail(entry, wrong)) return false;
            leave_out(at);
            continue;
        }
        for (std::size_t i = 0; i < asked_ids_.size(); ++i) {
            if (keep_[i] != 0) continue;
            const std::size_t id = static_cast<std::size_t>(asked_ids_[i]);
            std::int32_t& verdict = verdicts_[id];
            if (verdict < 0) {
                dropped_.push_back({asked_ids_[i], scratch_.row()[id], 0});
                verdict = static_cast<std::int32_t>(dropped_.size());
                scratch_.row()[id] = -kInfinity;
            }
            dropped_[static_cast<std::size_t>(verdict - 1)].by |= 1u << at;
        }
        ++at;
    }
    asked_ids_.clear();
    return true;
}

// The stage that has dropped most is named. Where it is to be skipped, the row has candidates again.
bool ChainStages::none_left() {
    std::size_t most = 0, worst = 0;
    for (std::size_t at = 0; at < pending_.size(); ++at) {
        const auto own = static_cast<std::size_t>(
            std::ranges::count_if(dropped_, [&](const Dropped& one) { return (one.by >> at & 1u) != 0; }));
        if (own < most) continue;
        most = own;
        worst = at;
    }
    if (!fail(entries_[pending_[worst]], kLeftNone)) return false;
    leave_out(worst);
    return true;
}

bool ChainStages::has_dropped() const {
    return std::ranges::any_of(dropped_, [](const Dropped& one) { return one.by != 0; });
}

// Leaves a row whose `count` best candidates may all follow.
bool ChainStages::test_best(std::int32_t count) {
    if (pending_.empty()) return true;
    bool first = true;
    for (std::int32_t depth = count; !pending_.empty();) {
        const kernels::Candidates best = scratch_.peek(std::min(count, vocabulary_->size()));
        if (best.count == 0 && !has_dropped()) break;
        if (best.count == 0) {
            if (!none_left()) return false;
            continue;
        }
        for (std::int32_t i = 0; i < best.count; ++i) ask_about(best.ids[i]);
        if (asked_ids_.empty()) break;
        std::int32_t likely[kLikely] = {-1, -1, -1, -1};
        if (first) std::copy_n(best.ids, std::min(best.count, kLikely), likely);
        if (depth > count) {
            asked_ids_.clear();
            ask_about_best(depth);
        }
        const std::size_t before = dropped_.size(), asked = asked_ids_.size(), judges = pending_.size();
        if (!test_ids()) return false;
        const bool all_stay = dropped_.size() == before && pending_.size() == judges;
        for (std::size_t at = 0; first && at < pending_.size(); ++at) {
            note_dropped(entries_[pending_[at]], std::ranges::any_of(dropped_, [&](const Dropped& one) {
                             return (one.by >> at & 1u) != 0 && std::ranges::find(likely, one.id) != std::end(likely);
                         }));
        }
        first = false;
        if (all_stay) break;
        // Where few may follow, more at a time.
        if (asked >= kEnough && 4 * (dropped_.size() - before) > 3 * asked)
            depth = std::min(4 * depth, std::max(vocabulary_->size(), 1));
    }
    pending_.clear();
    return true;
}

// Before a stage that sees the whole vocabulary.
bool ChainStages::test_all() {
    if (pending_.empty()) return true;
    const std::span<const float> row = scratch_.row();
    for (std::size_t id = 0; id < row.size(); ++id) {
        if (kernels::is_candidate(row[id])) ask_about(static_cast<std::int32_t>(id));
    }
    if (!asked_ids_.empty() && !test_ids()) return false;
    const auto any = [&] { return std::ranges::any_of(scratch_.row(), kernels::is_candidate); };
    while (!pending_.empty() && !dropped_.empty() && !any()) {
        if (!none_left()) return false;
    }
    pending_.clear();
    return true;
}

// Samples from a row that no stage cuts. The winner, and the second for the margin, must have been asked about.
bool ChainStages::test_winner(kernels::SampledToken& sampled) {
    std::int32_t depth = kAtOnce;
    for (int round = 0; !pending_.empty(); ++round) {
        sampled = scratch_.sample(key(), greedy_);
        if (sampled.token < 0) {
            if (!has_dropped()) break;
            if (!none_left()) return false;
            continue;
        }
        float& winner = scratch_.row()[static_cast<std::size_t>(sampled.token)];
        ask_about(sampled.token);
        const float logit = std::exchange(winner, -kInfinity);
        const std::int32_t second = scratch_.sample(key(), greedy_).token;
        if (second >= 0) ask_about(second);
        winner = logit;
        if (asked_ids_.empty()) break;
        const std::size_t before = dropped_.size();
        if (!test_ids()) return false;
        if (dropped_.size() == before || round < kPatience) continue;
        ask_about_best(depth);
        if (!asked_ids_.empty() && !test_ids()) return false;
        depth = std::min(4 * depth, std::max(vocabulary_->size(), 1));
    }
    if (pending_.empty()) sampled = scratch_.sample(key(), greedy_);
    return true;
}

}  // namespace foresay::samplers
