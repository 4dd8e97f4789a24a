// Which plans the device can run, and the form in which it gets them.
//
// The kernel (sampling.cu) treats a plan in two halves: elementwise steps on all logits of the row, a top_n_sigma among
// them, then a cut to at most kMostCandidates, then the other steps on those. first_cut() finds where the halves meet:
// at the plan's own cut, or before the first top_k, whichever comes first. A plan that ranks before it cuts has no such
// place and runs on the host.
//
// A new kind of step: is_elementwise() and the arithmetic are in kernels/sampling_plan.h and sampling_steps.h; if it
// has a list, plan_words() and encode_plan() must copy it.

#include "kernels/cuda/sampling/device_plan.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/sampling_steps.h"

namespace foresay::kernels::cuda {
namespace {

// The device reads both kinds of entries in place, as pairs of words.
static_assert(sizeof(TokenValue) == 8 && sizeof(TokenCount) == 8);

// The candidates that the first cut keeps, and the number of steps before it, which see the whole vocabulary.
struct FirstCut {
    std::int32_t whole = 0;
    std::int32_t keep = 0;    // 0: the plan has no cut that the device could start from
    std::int32_t spread = 0;  // 1 + the top_n_sigma among the steps before the cut; 0: there is none
};

FirstCut first_cut(const SamplingPlan& plan) {
    FirstCut cut;
    for (; cut.whole < plan.step_count; ++cut.whole) {
        const SamplingStep& step = plan.steps[cut.whole];
        // The top_k step itself stays in the plan: after the cut it keeps them all.
        if (plan.cut > 0 && cut.whole == plan.cut_at) {
            cut.keep = plan.cut;
        } else if (step.kind == SamplingStepKind::top_k) {
            cut.keep = top_k_count(step.top_k);
        }
        if (cut.keep > 0 || !takes_row(step.kind)) return cut;
        if (step.kind != SamplingStepKind::top_n_sigma) continue;
        if (cut.spread > 0) return cut;  // the device looks at the spread of a row once
        cut.spread = cut.whole + 1;
    }
    cut.keep = std::max(plan.cut, 0);  // steps on the row only: a cut after them, or none
    return cut;
}

std::int32_t vocab_of(const SamplingPlan& plan, std::int32_t row_length) {
    return plan.vocab > 0 ? std::min(plan.vocab, row_length) : row_length;
}

// Appends a list to `words`, of which `used` are taken, and notes in `step` where it is.
template <typename Entry>
void put_list(std::span<const Entry> list, DeviceStep& step, std::uint32_t* words, std::int64_t& used) {
    step.count = static_cast<std::int32_t>(list.size());
    if (!list.empty()) std::memcpy(words + used, list.data(), list.size_bytes());
    used += static_cast<std::int64_t>(list.size_bytes() / sizeof(std::uint32_t));
}

}  // namespace

bool plan_runs(const SamplingPlan& plan, std::int32_t row_length) {
    const FirstCut cut = first_cut(plan);
    // Without a cut all steps must take the row.
    if (cut.keep == 0) return cut.whole == plan.step_count;
    // A second cut would have to come before a step that ranks more candidates than it keeps.
    const bool again = plan.cut > 0 && plan.cut_at > cut.whole && plan.cut_at <= plan.step_count && cut.keep > plan.cut;
    return std::min(cut.keep, vocab_of(plan, row_length)) <= kMostCandidates && !again;
}

std::int64_t plan_words(const SamplingPlan& plan) {
    std::int64_t words = 0;
    for (std::int32_t i = 0; i < plan.step_count; ++i) {
        const SamplingStep& step = plan.steps[i];
        words += static_cast<std::int64_t>(2 * step.values.size() + 2 * step.counts.size() + step.bits.size());
    }
    return words;
}

void encode_plan(const SamplingPlan& plan, std::int32_t row_length, std::int32_t slot, DevicePlan& out,
                 std::uint32_t* words, std::int64_t& used) {
    const FirstCut cut = first_cut(plan);
    out.key = plan.key;
    out.vocab = vocab_of(plan, row_length);
    out.greedy = plan.greedy ? 1 : 0;
    out.keep = std::min(cut.keep, kMostCandidates);
    out.whole = cut.whole;
    out.steps = plan.step_count;
    out.slot = slot;
    out.spread = cut.spread;
    out.list = plan.keep ? 1 + std::clamp(plan.keep_at, cut.whole, plan.step_count) : 0;
    for (std::int32_t i = 0; i < plan.step_count; ++i) {
        const SamplingStep& step = plan.steps[i];
        DeviceStep& to = out.step[i];
        to = {.kind = step.kind,
              .penalties = step.penalties,
              .temperature = step.temperature,
              .top_k = step.top_k,
              .top_p = step.top_p,
              .min_p_log = step.min_p_log,
              .xtc = step.xtc,
              .limit = step.limit,
              .dynatemp = step.dynatemp,
              .smoothing = step.smoothing,
              .first = static_cast<std::int32_t>(used),
              .count = 0};
        if (step.kind == SamplingStepKind::bias) put_list(step.values, to, words, used);
        if (step.kind == SamplingStepKind::penalties) put_list(step.counts, to, words, used);
        if (step.kind == SamplingStepKind::mask) put_list(step.bits, to, words, used);
    }
}

}  // namespace foresay::kernels::cuda
