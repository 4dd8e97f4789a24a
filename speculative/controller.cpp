#include "speculative/controller.h"

#include <algorithm>
#include <chrono>

namespace foresay::speculative {
namespace {

constexpr std::int32_t kLookAhead = 8;
constexpr std::int32_t kFirstPlainSpan = 4;
constexpr std::int32_t kLastPlainSpan = 32;
constexpr std::int32_t kProbeLength = 4;  // the longest; probes vary, to see every short width
constexpr double kRateBlend = 1.0 / 30.0;
// Interruptions only ever add time, so a short measurement counts for more than a long one.
constexpr double kDraftShorter = 0.2;
constexpr double kDraftLonger = 0.05;
// The ledger in units of a plain step: at kTrip plain steps follow, twice as many each time until drafting has gained
// again; at most kCredit of old gains is kept.
constexpr double kTrip = 8.0;
constexpr double kCredit = 3.0;
constexpr std::int32_t kFirstPause = 32;
constexpr std::int32_t kLastPause = 512;

}  // namespace

double Controller::steady_now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Controller::value_of_time() const { return std::max(rate_, 1.0 / costs_.verify_ms(1)); }

double Controller::gain_of_more(std::int32_t count, double survival, std::int32_t limit) const {
    const double time_value = value_of_time();
    const std::int32_t last = std::min({limit, count + kLookAhead, CostModel::kMaxWidth - 1});
    if (count >= last) return -1.0;
    // The next token's margin decides how it goes on: only bins that are worth verifying count.
    const double base = costs_.verify_ms(count + 1);
    double best = -time_value * draft_ms_;
    double gain = 0.0;
    for (int bin = 0; bin < kMarginBins; ++bin) {
        const double reached = survival * acceptance_.bin_rate(count + 1, bin);
        double chain = reached;
        double sum = reached;
        double top = sum - time_value * (costs_.verify_ms(count + 2) - base);
        for (std::int32_t n = count + 2; n <= last; ++n) {
            chain *= acceptance_.expected(n);
            sum += chain;
            const double cost = draft_ms_ * static_cast<double>(n - count - 1) + costs_.verify_ms(n + 1) - base;
            top = std::max(top, sum - time_value * cost);
        }
        gain += acceptance_.bin_share(bin) * std::max(0.0, top);
    }
    best += gain;
    return best;
}

bool Controller::tripped() {
    if (pause_left_ > 0) {
        --pause_left_;
        return true;
    }
    const double step = costs_.verify_ms(1);
    if (ledger_ms_ < 0.0) pause_ = 0;
    if (ledger_ms_ <= kTrip * step) return false;
    pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
    pause_left_ = pause_;
    ledger_ms_ = 0.5 * kTrip * step;
    return true;
}

std::int32_t Controller::plan(std::int32_t limit) {
    limit_ = std::min(limit, CostModel::kMaxWidth - 1);
    probing_ = false;
    if (limit_ < 1 || !costs_.calibrated()) return 0;
    if (tripped()) return 0;
    if (gain_of_more(0, 1.0, limit_) > 0.0) {
        plain_span_ = 0;
        plain_left_ = 0;
        return limit_;
    }
    if (plain_left_ > 0) {
        --plain_left_;
        return 0;
    }
    plain_span_ = plain_span_ == 0 ? kFirstPlainSpan : std::min(2 * plain_span_, kLastPlainSpan);
    plain_left_ = plain_span_;
    if (plain_span_ == kFirstPlainSpan) return 0;
    probing_ = true;
    probe_ = probe_ % kProbeLength + 1;
    limit_ = std::min(limit_, kProbeLength + 1 - probe_);
    return limit_;
}

void Controller::start_run() {
    survival_ = 1.0;
    step_start_ = now_();
}

bool Controller::extend(std::int32_t count, float margin) {
    const double now = now_();
    // The first step also brings the draft's cache up to date; it is no measure of a step.
    if (count > 1) {
        const double ms = now - step_start_;
        const double clamped = draft_ms_ > 0.0 ? std::clamp(ms, 0.5 * draft_ms_, 2.0 * draft_ms_) : ms;
        const double blend = clamped < draft_ms_ ? kDraftShorter : kDraftLonger;
        draft_ms_ = draft_ms_ > 0.0 ? draft_ms_ + blend * (clamped - draft_ms_) : clamped;
    }
    step_start_ = now;
    survival_ *= acceptance_.given_margin(count, margin);
    if (probing_) return count < limit_;
    return gain_of_more(count, survival_, limit_) > 0.0;
}

std::int32_t Controller::finish_run(const DraftRun& run, double draft_ms) {
    const std::int32_t count = static_cast<std::int32_t>(run.tokens.size());
    if (count <= 1 && draft_ms_ <= 0.0) draft_ms_ = draft_ms;
    if (probing_) return count;
    // The drafting is paid for; what counts is the value of each row in the verification.
    const double time_value = value_of_time();
    const double base = costs_.verify_ms(1);
    double chain = 1.0;
    double sum = 0.0;
    double best = 0.0;
    std::int32_t keep = 0;
    for (std::int32_t n = 1; n <= count; ++n) {
        chain *= acceptance_.given_margin(n, run.margins[static_cast<std::size_t>(n - 1)]);
        sum += chain;
        const double value = sum - time_value * (costs_.verify_ms(n + 1) - base);
        if (value > best) {
            best = value;
            keep = n;
        }
    }
    return keep;
}

void Controller::observe(const DraftRun& run, std::int32_t verified, std::int32_t accepted, std::int32_t emitted,
                         double verify_ms, double round_ms) {
    costs_.observe(verified + 1, verify_ms);
    // Positions behind the first rejection were never judged; neither were those behind the end of the text.
    for (std::int32_t i = 0; i < verified && i <= accepted; ++i) {
        if (i == accepted && emitted <= accepted) break;
        acceptance_.observe(i + 1, run.margins[static_cast<std::size_t>(i)], i < accepted);
    }
    if (emitted < 1 || !(round_ms > 0.0)) return;
    // What the machine does to a round that it interrupts, it would have done to plain steps as well.
    const double step = costs_.verify_ms(1);
    const double drafted = static_cast<double>(run.tokens.size());
    const double ms = std::min(round_ms, 1.5 * (costs_.verify_ms(verified + 1) + drafted * draft_ms_));
    if (run.tokens.empty()) {
        acceptance_.relax();
    } else {
        ledger_ms_ = std::max(ledger_ms_ + ms - static_cast<double>(emitted) * step, -kCredit * step);
    }
    // Time per token over about thirty rounds.
    const double time = rate_ > 0.0 ? 1.0 / rate_ : step;
    const double blend = std::min(0.5, kRateBlend * static_cast<double>(emitted));
    rate_ = 1.0 / (time + blend * (ms / static_cast<double>(emitted) - time));
}

}  // namespace foresay::speculative
