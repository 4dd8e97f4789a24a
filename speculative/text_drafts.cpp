#include "speculative/text_drafts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "speculative/drafters/forced_drafter.h"
#include "speculative/forward_times.h"
#include "speculative/mode_name.h"

namespace foresay::speculative {
namespace {

// Times forwards of several widths after what the cache holds, the most informative ones first, within a time budget.
// Leaves the cache as it was.
void calibrate(core::Context& target, core::SequenceId sequence, CostModel& costs, std::int32_t max_width, Now now) {
    std::vector<std::int32_t> widths = {1, 4, 2, 8, 3, 6, 16, 5, 12, 32};
    double budget_ms = 60.0;
    const bool device = target.ops().asynchronous();
    if (device) {
        // A device computes rows in tiles, and the first two forwards of a width capture its graph, so every width is
        // timed, however long a forward is.
        widths = {1, 8, 16, 4, max_width, 2, 12};
        for (std::int32_t width = 1; width < max_width; ++width) {
            if (std::ranges::find(widths, width) == widths.end()) widths.push_back(width);
        }
    }
    constexpr double kDeviceForwards = 80.0;  // budget in plain steps
    const double start = now();
    const std::vector<std::int32_t> tokens = timed_tokens(target, CostModel::kMaxWidth);
    const auto bytes = [&](std::int32_t width) { return target.model().bytes_per_forward(width); };
    double single = 0.0;  // of width 1
    std::size_t measured = 0;
    const std::int32_t length = target.length(sequence);
    bool warm = false;
    for (const std::int32_t width : widths) {
        if (width > std::min({max_width, target.options().decode_rows, target.capacity() - length})) continue;
        double best = 0.0;
        for (int repeat = warm ? 0 : -1; repeat < 3; ++repeat) {
            const double begin = now();
            target.decode(std::span(tokens).first(static_cast<std::size_t>(width)), -1, sequence);
            target.wait();
            const double ms = now() - begin;
            target.truncate(length, sequence);
            if (repeat >= 0) best = repeat == 0 ? ms : std::min(best, ms);
            if (now() - start > budget_ms && best > 0.0) break;
        }
        warm = true;
        costs.calibrate(width, best);
        if (width == 1) single = best;
        ++measured;
        if (device && width == 1) budget_ms = std::max(budget_ms, kDeviceForwards * best);
        if (now() - start > budget_ms) break;
    }
    // More rows read more experts. Where there was no time to measure a width, it costs the bytes that it reads.
    for (std::size_t i = measured; i < widths.size() && bytes(2) > bytes(1); ++i) {
        if (widths[i] <= max_width) costs.calibrate(widths[i], single * bytes(widths[i]) / bytes(1));
    }
}

}  // namespace

TextDrafts::TextDrafts(std::vector<std::unique_ptr<Drafter>> drafters, core::Context& target,
                       const SpeculationOptions& options, Now now)
    : drafters_(std::move(drafters)),
      target_(target),
      options_(options),
      now_(now),
      forced_(make_forced_drafter()),
      builder_(drafters_, now, forced_.get()),
      controller_(now) {
    builder_.add(prediction_);
    if (builder_.model() != nullptr) token_source_ = builder_.model()->token_source();
    // The target can verify a token that the draft model is still sampling where both run on one backend.
    if (token_source_ != nullptr && &token_source_->ops() != &target_.ops()) token_source_ = nullptr;
}

void TextDrafts::rewind(std::int32_t length) {
    for (const auto& drafter : drafters_) drafter->rewind(length);
    forced_->rewind(length);
}

void TextDrafts::forget() {
    for (const auto& drafter : drafters_) drafter->forget();
    forced_->forget();
}

bool TextDrafts::drafts_with(bool forces) const {
    return options_.mode != core::SpeculationMode::off && (!drafters_.empty() || prediction_.active() || forces);
}

void TextDrafts::warm_up(const TimedPlace& place, bool forces) {
    if (!automatic() || !drafts_with(forces) || controller_.costs().calibrated()) return;
    place.make_room(CostModel::kMaxWidth);
    calibrate(target_, place.id, controller_.costs(), std::min(options_.max_draft, core::kMaxDraft) + 1, now_);
    for (const auto& drafter : drafters_) drafter->warm_up(now_);
    if (const Drafter* model = builder_.model()) controller_.calibrate_draft(model->step_ms());
}

void TextDrafts::begin(std::span<const std::int32_t> tokens, const TimedPlace& place, const samplers::Chain& chain,
                       std::span<const std::int32_t> prediction, std::int32_t room) {
    if (options_.mode == core::SpeculationMode::off) prediction = {};
    prediction_.predict(tokens, prediction, static_cast<std::size_t>(std::max(room, 0)));
    forces_ = chain.forces();
    active_ = drafts_with(forces_);
    resting_ = !active_;
    builder_.clear();
    count_ = 0;
    verifies_open_ = false;
    target_.take_slots_of(nullptr);
    if (!active_) return;
    warm_up(place, forces_);  // where nothing has drafted before
    controller_.begin();
    for (const auto& drafter : drafters_) drafter->begin(tokens);
    forced_->begin(tokens);
}

SpeculationStatistics TextDrafts::statistics() const {
    SpeculationStatistics statistics;
    statistics.mode = mode_name(options_.mode);
    if (options_.mode == core::SpeculationMode::off) return statistics;
    const auto add = [&](const Drafter& source) { statistics.sources.push_back({.name = std::string(source.name())}); };
    for (const auto& drafter : drafters_) add(*drafter);
    if (prediction_.active()) add(prediction_);
    if (forces_) add(*forced_);
    return statistics;
}

std::size_t TextDrafts::source(std::int32_t index) const {
    const Drafter* const source = builder_.source(index);
    std::size_t place = 0;
    while (place < drafters_.size() && drafters_[place].get() != source) ++place;
    if (source == forced_.get() && prediction_.active()) ++place;
    return place;
}

DraftTask TextDrafts::task(const Text& text) const {
    // A draft of k tokens may emit k + 1.
    const std::int32_t limit = std::min({automatic() ? options_.max_draft : options_.draft_length, text.room - 1,
                                         target_.options().decode_rows - 1, core::kMaxDraft});
    return {.tokens = text.tokens,
            .max_tokens = limit,
            .chain = text.chain,
            .end_tokens = text.end_tokens,
            .may_stay_open = token_source_ != nullptr};
}

void TextDrafts::draft(const Text& text, bool ahead) {
    builder_.clear();
    count_ = 0;
    verifies_open_ = false;
    resting_ = !active_ || (ahead && automatic() && builder_.rests(task(text), controller_));
    // While the target runs ahead, slots are its own; else those of the draft model.
    target_.take_slots_of(resting_ ? nullptr : token_source_);
    if (resting_) return;
    count_ = automatic() ? builder_.build(task(text), controller_) : builder_.build_fixed(task(text));
    cut_unknown();
    verifies_open_ = builder_.open() >= 0 && count_ == static_cast<std::int32_t>(builder_.tokens().size());
}

bool TextDrafts::rests(const Text& text) {
    if (!resting_) return false;
    return !active_ || builder_.rests(task(text), controller_);
}

bool TextDrafts::close() {
    if (builder_.open() < 0) return false;
    builder_.close();
    if (std::exchange(verifies_open_, false)) count_ = static_cast<std::int32_t>(builder_.tokens().size());
    cut_unknown();
    return true;
}

// Cuts the draft before the first id that the target's vocabulary lacks.
void TextDrafts::cut_unknown() {
    const std::int32_t vocab = target_.model().config().shape.vocab;
    const auto unknown =
        std::ranges::find_if(tokens(), [vocab](std::int32_t token) { return token < 0 || token >= vocab; });
    count_ = static_cast<std::int32_t>(unknown - tokens().begin());
}

void TextDrafts::observe(std::int32_t accepted, std::int32_t emitted, double verify_ms, double round_ms,
                         double emit_ms) {
    if (automatic() && active_) controller_.observe(count_, accepted, emitted, verify_ms, round_ms, emit_ms);
}

}  // namespace foresay::speculative
