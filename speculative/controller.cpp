#include "speculative/controller.h"

#include <algorithm>

#include "speculative/draft_gain.h"

namespace foresay::speculative {
namespace {

// A draft must promise this many tokens beyond its cost, because the best of many estimates is optimistic.
constexpr double kLeastGain = 0.05;
// Plain steps between two probes: doubles from the first value to the last.
constexpr std::int32_t kFirstPlainSpan = 4;
constexpr std::int32_t kLastPlainSpan = 32;
constexpr std::int32_t kProbeLength = 4;   // longest probe; lengths vary, so that every short width is measured
constexpr double kRateBlend = 1.0 / 30.0;  // weight of one token in the average time per token
// What a right token is worth, in tokens: those after it can be accepted only if it is.
constexpr double kFollowers = 2.0;
// A proposal is taken only if the draft up to it survives with more than this chance.
constexpr double kLeastSurvival = 0.05;
// Saved when the device need not wait for the host between the end of sampling and the start of the next kernel.
constexpr double kRoundTripMs = 0.025;
constexpr int kHalvings = 6;  // bisection steps
// Interruptions only ever add time, so a short measurement counts for more than a long one.
constexpr double kDraftShorter = 0.2;
constexpr double kDraftLonger = 0.05;
// A round longer than this multiple of its usual time was interrupted; the excess is not counted.
constexpr double kInterrupted = 1.5;
// The ledger, in units of a plain step: a loss of kTrip pauses drafting. Each pause is twice as long as the one before,
// until drafting gains again. At most kCredit of past gains is kept.
constexpr double kTrip = 8.0;
constexpr double kCredit = 3.0;
constexpr std::int32_t kFirstPause = 32;  // plain steps
constexpr std::int32_t kLastPause = 512;

}  // namespace

double Controller::value_of_time() const { return std::max(rate_, 1.0 / costs_.verify_ms(1)); }

double Controller::gain_of_draft(std::int32_t count, double survival, std::int32_t match) const {
    if (!model_ || count >= limit_) return -1.0;
    const double value = value_of_time();
    return draft_gain(acceptance_, costs_,
                      {.rows = count + 1,
                       .further = limit_ - count,
                       .survival = survival,
                       .match = match,
                       .step_ms = draft_ms_,
                       .value = value}) -
           value * draft_ms_;
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

void Controller::begin() {
    plain_left_ = 0;
    plain_span_ = 0;
    pause_ = 0;
    pause_left_ = 0;
    ledger_ms_ = std::min(ledger_ms_, 0.0);
}

// Whether a draft that begins with `proposal` or a token of the draft model promises enough.
bool Controller::pays(const Proposal& proposal) const {
    const double row = value_of_time() * (costs_.verify_ms(2) - costs_.verify_ms(1));
    return gain_of_draft(0, 1.0, match_class(proposal.length)) > kLeastGain ||
           (proposal.token >= 0 && proposal.chance > row + kLeastGain);
}

bool Controller::wants(std::int32_t limit, bool model, const Proposal& proposal) {
    if (limit < 1 || !costs_.calibrated() || (!model && proposal.token < 0)) return false;
    if (pause_left_ > 0 || ledger_ms_ > kTrip * costs_.verify_ms(1)) return false;
    limit_ = std::min(limit, core::kMaxDraft);
    model_ = model;
    if (pays(proposal)) return true;
    return plain_left_ == 0 && plain_span_ > 0;  // a probe is due
}

std::int32_t Controller::plan(std::int32_t limit, bool model, const Proposal& proposal) {
    limit_ = std::min(limit, core::kMaxDraft);
    model_ = model;
    probing_ = false;
    count_ = 0;
    steps_ = 0;
    survival_ = 1.0;
    if (limit_ < 1 || !costs_.calibrated() || (!model && proposal.token < 0)) return 0;
    if (tripped()) return 0;
    if (pays(proposal)) {
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

Controller::Next Controller::next(const Proposal& proposal) {
    if (count_ >= limit_) return Next::stop;
    if (probing_) return model_ ? Next::draft : proposal.token >= 0 ? Next::take : Next::stop;
    const double gain = gain_of_draft(count_, survival_, match_class(proposal.length));
    if (proposal.token < 0) return gain > 0.0 ? Next::draft : Next::stop;
    const double better =
        survival_ * (acceptance_.expected(match_class(proposal.length)) - proposal.chance) * kFollowers;
    if (gain > 0.0 && better > value_of_time() * draft_ms_) return Next::draft;
    return survival_ * proposal.chance > kLeastSurvival ? Next::take : Next::stop;
}

DraftStopRule::Lookahead Controller::lookahead(const Proposal& proposal) const {
    using Lookahead = DraftStopRule::Lookahead;
    if (count_ + 1 >= limit_) return Lookahead::end;
    if (probing_) return Lookahead::more;
    // The gain grows with the chance that the draft survives, so bisection finds the least sufficient chance.
    // Nothing is known of the tokens after the next one.
    double enough = survival_;
    if (gain_of_draft(count_ + 1, enough, 0) <= 0.0) return Lookahead::end;
    for (double low = 0.0, step = 0; step < kHalvings; ++step) {
        const double middle = 0.5 * (low + enough);
        (gain_of_draft(count_ + 1, middle, 0) > 0.0 ? enough : low) = middle;
    }
    const int match = match_class(proposal.length);
    double chance = 0.0;
    for (const View view : {View::alone, View::same, View::other}) {
        const double share = acceptance_.view_share(match, view);
        for (int bin = 0; share > 0.0 && bin < kMarginBins; ++bin) {
            const bool goes_on = survival_ * acceptance_.bin_rate(match, view, bin) >= enough;
            chance += goes_on ? share * acceptance_.bin_share(view, bin) : 0.0;
        }
    }
    // A step that proves unwanted keeps the device busy while the host could have started the next round.
    const bool pays = chance * kRoundTripMs > (1.0 - chance) * (draft_ms_ - kRoundTripMs);
    return pays ? Lookahead::more : Lookahead::unknown;
}

void Controller::take(const Proposal& proposal) {
    if (count_ >= core::kMaxDraft) return;
    draft_[static_cast<std::size_t>(count_++)] = {.chance = proposal.chance};
    survival_ *= proposal.chance;
    step_start_ = -1.0;
}

void Controller::drafted(const Proposal& proposal, std::int32_t token, float margin) {
    if (count_ >= core::kMaxDraft) return;
    const double now = now_();
    // The first of several steps also brings the draft model's cache up to date, so it is not timed.
    if (step_start_ >= 0.0) {
        const double ms = now - step_start_;
        const double clamped = draft_ms_ > 0.0 ? std::clamp(ms, 0.5 * draft_ms_, 2.0 * draft_ms_) : ms;
        const double blend = clamped < draft_ms_ ? kDraftShorter : kDraftLonger;
        draft_ms_ = draft_ms_ > 0.0 ? draft_ms_ + blend * (clamped - draft_ms_) : clamped;
    }
    step_start_ = now;
    Token& entry = draft_[static_cast<std::size_t>(count_++)];
    entry = {.drafted = true, .match = match_class(proposal.length), .margin = margin};
    if (proposal.token >= 0) entry.view = proposal.token == token ? View::same : View::other;
    entry.chance = acceptance_.given(entry.match, entry.view, margin);
    survival_ *= entry.chance;
    ++steps_;
}

std::int32_t Controller::finish_draft(double draft_ms) {
    if (steps_ == 1 && draft_ms_ <= 0.0) draft_ms_ = draft_ms;
    if (probing_) return count_;
    // The drafting time is spent; only what each row adds to the cost of the verification counts.
    const double time_value = value_of_time();
    const double base = costs_.verify_ms(1);
    double chain = 1.0;
    double sum = 0.0;
    double best = 0.0;
    std::int32_t keep = 0;
    for (std::int32_t n = 1; n <= count_; ++n) {
        chain *= draft_[static_cast<std::size_t>(n - 1)].chance;
        sum += chain;
        const double value = sum - time_value * (costs_.verify_ms(n + 1) - base);
        if (value > best) {
            best = value;
            keep = n;
        }
    }
    return keep;
}

void Controller::observe(std::int32_t verified, std::int32_t accepted, std::int32_t emitted, double verify_ms,
                         double round_ms, double emit_ms) {
    costs_.observe(verified + 1, verify_ms);
    // The target has not judged tokens after the first rejection or after the end of the text.
    for (std::int32_t i = 0; i < verified && i <= accepted; ++i) {
        if (i == accepted && emitted <= accepted) break;
        const Token& token = draft_[static_cast<std::size_t>(i)];
        if (token.drafted) acceptance_.observe(token.match, token.view, token.margin, i < accepted);
    }
    if (emitted < 1 || !(round_ms > 0.0)) return;
    // An interruption would have hit plain steps as well, so it must not count against drafting.
    const double step = costs_.verify_ms(1);
    const double usual = costs_.verify_ms(verified + 1) + static_cast<double>(steps_) * draft_ms_;
    const double ms = std::min(std::max(round_ms - emit_ms, verify_ms), kInterrupted * usual);
    if (count_ == 0) {
        acceptance_.relax();
    } else {
        ledger_ms_ = std::max(ledger_ms_ + ms - static_cast<double>(emitted) * step, -kCredit * step);
    }
    // The average time per token over about 1 / kRateBlend tokens.
    const double time = rate_ > 0.0 ? 1.0 / rate_ : step;
    const double blend = std::min(0.5, kRateBlend * static_cast<double>(emitted));
    rate_ = 1.0 / (time + blend * (ms / static_cast<double>(emitted) - time));
}

}  // namespace foresay::speculative
