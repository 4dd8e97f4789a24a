// One generation: evaluate the sequence, sample the first token, then rounds until the text ends. A round
//   1. drafts tokens (DraftBuilder, led by the Controller in mode auto),
//   2. evaluates the sequence's last token and the draft as decode rows of one forward,
//   3. samples every row, on the device (DeviceSampling) or in step 4 on the host,
//   4. accepts tokens until one differs from the draft (accept.h), emits them, and drops the rest from the cache.
// The Controller learns from each round's times and outcome. Everything runs on the caller's thread; only the cancel
// flag is shared. Where a device samples and nothing is drafted, run_ahead() or plain_ahead() replaces the rounds.
#include "speculative/generator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "samplers/grammar_stages.h"
#include "speculative/accept.h"
#include "speculative/failures.h"
#include "speculative/forward_times.h"
#include "speculative/generator_state.h"
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

std::string_view name(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::deadline:
            return "deadline";
    }
    return "";
}

// Costs are measured once, before the first token, while nothing else runs.
void Generator::State::warm_up() {
    if (!speculating() || parts.speculation.mode != core::SpeculationMode::automatic) return;
    if (controller.costs().calibrated()) return;
    sequence.make_room(CostModel::kMaxWidth);
    calibrate(target(), sequence.id(), controller.costs(), std::min(parts.speculation.max_draft, core::kMaxDraft) + 1,
              parts.now);
    for (const auto& drafter : parts.drafters) drafter->warm_up(parts.now);
    if (const Drafter* model = builder.model()) controller.calibrate_draft(model->step_ms());
}

void Generator::State::take_open_drafts() {
    token_source = builder.model() != nullptr ? builder.model()->token_source() : nullptr;
    if (token_source != nullptr && &token_source->ops() != &target().ops()) token_source = nullptr;
    target().take_slots_of(token_source);
}

void Generator::State::check_input(std::span<const std::int32_t> input) const {
    check_prompt(target(), sequence.size(), input);
}

void Generator::State::fail_broken() const { throw Error(broken_logits(target().model())); }

namespace {

// One call of generate().
template <class State>
class Generation {
public:
    Generation(State& state, const GenerateRequest& request, const TokenCallback& callback)
        : s_(state),
          request_(request),
          callback_(callback),
          answer_(state.answer),
          result_(state.answer.result),
          start_(state.parts.now()) {
        if (!request.ignore_eos || samplers::under_grammar(*state.parts.chain)) ends_ = state.parts.end_tokens;
    }

    GenerateResult run() {
        prepare();
        if (answer_.room() < 1) {
            result_.finish = FinishReason::length;
            if (!s_.sequence.evaluate(request_.cancel)) result_.finish = FinishReason::cancelled;
            return finish();
        }
        if (!s_.sequence.evaluate(request_.cancel)) {
            result_.finish = FinishReason::cancelled;
            return finish();
        }
        result_.prefill_ms = now() - start_;
        const RowSource source = s_.sampling.sample(s_.target(), *s_.parts.chain, {});
        if (source == RowSource::tokens && !s_.speculating()) {
            run_ahead();
            return finish();
        }
        // The row of a guess must be one that can be made again, so not the prompt's.
        known_ = source;
        bool more = step({}, unless_ahead(source)).end == AcceptEnd::row;
        while (more) more = may_run_ahead() ? plain_ahead() : round();
        return finish();
    }

private:
    double now() const { return s_.parts.now(); }

    void prepare() {
        s_.check_input(request_.input);
        for (const std::int32_t token : request_.input) s_.sequence.append(token, false);
        std::int32_t room = s_.target().capacity() - s_.sequence.size();
        if (request_.max_tokens > 0) room = std::min(room, request_.max_tokens);
        answer_.begin({.strings = request_.stop, .tokens = ends_, .more_tokens = {}}, room, start_);
        answer_.reserve();
        result_.prompt_tokens = s_.sequence.size();
        const std::size_t most = s_.sequence.tokens().size() + static_cast<std::size_t>(room);
        s_.sequence.reserve(most);
        s_.parts.chain->begin(request_.seed, request_.branch, s_.sequence.tokens(), most,
                              static_cast<std::size_t>(request_.begun));
        const bool drafts = s_.parts.speculation.mode != core::SpeculationMode::off;
        s_.prediction.predict(s_.sequence.tokens(), drafts ? request_.prediction : std::span<const std::int32_t>{},
                              static_cast<std::size_t>(room));
        if (s_.prediction.active() || s_.parts.chain->forces()) s_.warm_up();  // where nothing has drafted before
        s_.target().take_slots_of(s_.speculating() ? s_.token_source : nullptr);
        s_.controller.begin();
        if (drafts) {
            for (const auto& drafter : s_.parts.drafters) {
                drafter->begin(s_.sequence.tokens());
                result_.speculation.sources.push_back({.name = std::string(drafter->name())});
            }
            if (s_.prediction.active()) {
                result_.speculation.sources.push_back({.name = std::string(s_.prediction.name())});
            }
            s_.forced->begin(s_.sequence.tokens());
            if (s_.parts.chain->forces())
                result_.speculation.sources.push_back({.name = std::string(s_.forced->name())});
        }
        result_.speculation.mode = mode_name(s_.parts.speculation.mode);
    }

    // Accepts tokens from the rows of the last forward and emits them.
    AcceptOutcome step(std::span<const std::int32_t> drafted, RowSource source) {
        std::int32_t row = 0;
        const AcceptOutcome outcome =
            accept_tokens(s_.target(), *s_.parts.chain, drafted, source, [&](std::int32_t token, bool agreed) {
                const std::string_view drafter = agreed ? s_.builder.source(row)->name() : std::string_view{};
                ++row;
                return emit(token, agreed, drafter);
            });
        if (outcome.end == AcceptEnd::failure || outcome.end == AcceptEnd::broken) s_.sequence.trim();
        if (outcome.end == AcceptEnd::failure) throw Error(no_token(outcome.failure));  // what was emitted stays
        if (outcome.end == AcceptEnd::broken) s_.fail_broken();
        return outcome;
    }

    // True when the text ends here.
    bool emit(std::int32_t token, bool drafted, std::string_view source) {
        s_.sequence.append(token, true);
        const TokenEvent event{
            .token = token, .text = answer_.push(token), .drafted = drafted, .source = source, .logprobs = {}};
        if (callback_) callback_(event);
        if (request_.stop_when && result_.finish != FinishReason::stop && request_.stop_when(event)) answer_.stop();
        return answer_.over();
    }

    bool cancelled() {
        if (request_.cancel == nullptr || !request_.cancel->load(std::memory_order_relaxed)) return false;
        result_.finish = FinishReason::cancelled;
        return true;
    }

    bool automatic() const { return s_.parts.speculation.mode == core::SpeculationMode::automatic; }

    DraftTask draft_task() const {
        const SpeculationOptions& options = s_.parts.speculation;
        // A draft of k tokens may emit k + 1.
        const std::int32_t limit = std::min({automatic() ? options.max_draft : options.draft_length, answer_.room() - 1,
                                             s_.target().options().decode_rows - 1, core::kMaxDraft});
        return {.tokens = s_.sequence.tokens(),
                .max_tokens = limit,
                .chain = s_.parts.chain.get(),
                .end_tokens = ends_,
                .may_stay_open = s_.token_source != nullptr};
    }

    // Drafts for this round; keep_ tokens are worth verifying.
    void draft() {
        s_.builder.clear();
        keep_ = 0;
        if (!s_.speculating()) return;
        const DraftTask task = draft_task();
        keep_ = automatic() ? s_.builder.build(task, s_.controller) : s_.builder.build_fixed(task);
        check_ids();
    }

    // Whether nothing is drafted now. Under `automatic` the controller says so, round by round.
    bool rests() {
        if (!s_.speculating()) return true;
        return automatic() && s_.builder.rests(draft_task(), s_.controller);
    }

    // Whether the next token is decoded without a draft, and the device knows it before the host does.
    bool may_run_ahead() {
        if (known_ != RowSource::tokens && known_ != RowSource::guesses) return false;
        return !lost_ && rests();
    }

    // Cuts the draft before the first id that the target's vocabulary lacks.
    void check_ids() {
        const std::int32_t vocab = s_.target().model().config().shape.vocab;
        const auto drafted = s_.builder.tokens().first(static_cast<std::size_t>(keep_));
        keep_ = static_cast<std::int32_t>(
            std::ranges::find_if(drafted, [vocab](std::int32_t token) { return token < 0 || token >= vocab; }) -
            drafted.begin());
    }

    // The rows of the verification: the last token of the sequence and the draft. A token that is still being sampled
    // is named by its slot. Returns true if there is such a row.
    bool make_rows() {
        s_.rows.assign(1, kernels::TokenRef::id(s_.sequence.tokens().back()));
        const auto drafted = s_.builder.tokens().first(static_cast<std::size_t>(keep_));
        for (const std::int32_t token : drafted) s_.rows.push_back(kernels::TokenRef::id(token));
        if (s_.builder.open() < 0 || drafted.size() < s_.builder.tokens().size()) return false;
        s_.rows.push_back(kernels::TokenRef::slot(s_.builder.open()));
        return true;
    }

    // Plain decoding with sampling on the device: each forward reads its token from the slot that the previous one was
    // sampled into, and the host fetches that token while the forward runs. The forward after the last token is
    // dropped.
    void run_ahead() {
        const kernels::TokenRef next = kernels::TokenRef::slot(0);
        for (;;) {
            const double start = now();
            const bool first = result_.tokens.empty();
            const bool decoded = answer_.room() > 1 && s_.sequence.decode(std::span(&next, 1));
            const AcceptOutcome outcome = step({}, RowSource::tokens);
            if (!first) account(outcome, now() - start, now() - start, 0.0);
            if (outcome.end != AcceptEnd::row || !decoded || cancelled()) break;
            if (const RowSource source = s_.sampling.sample(s_.target(), *s_.parts.chain, {});
                source != RowSource::tokens) {
                // A stage cannot say what it does to this row, so the host runs the chain, and says why it fails.
                s_.target().wait();
                for (bool more = step({}, unless_ahead(source)).end == AcceptEnd::row; more;) more = round();
                return;
            }
        }
        s_.sequence.trim();
    }

    static RowSource unless_ahead(RowSource source) {
        return source == RowSource::guesses ? RowSource::candidates : source;
    }

    // Plain decoding while nothing is drafted, or where the host only drops candidates: as run_ahead(), with the
    // device's token or its guess in the slot. Under `automatic` the host looks for a draft while a forward runs, and
    // where it finds one, no further forward begins. Ends with a guess that was wrong, or whose candidates do not tell,
    // too: what was evaluated from it is dropped. True when the text goes on.
    bool plain_ahead() {
        // Slots are the target's own here, and not those of the draft model.
        s_.target().take_slots_of(nullptr);
        const bool more = decode_ahead();
        s_.target().take_slots_of(s_.speculating() ? s_.token_source : nullptr);
        return more;
    }

    bool decode_ahead() {
        s_.builder.clear();
        keep_ = 0;
        if (cancelled()) return false;
        double ready = now();
        const kernels::TokenRef last = kernels::TokenRef::id(s_.sequence.tokens().back());
        if (!s_.sequence.decode(std::span(&last, 1))) {
            result_.finish = FinishReason::length;
            return false;
        }
        for (;;) {
            known_ = s_.sampling.sample(s_.target(), *s_.parts.chain, {});
            const RowSource source = known_;
            const kernels::TokenRef next = kernels::TokenRef::slot(0);
            const bool decoded = answer_.room() > 1 && may_run_ahead() && s_.sequence.decode(std::span(&next, 1));
            wait_for_row(source);
            const double before = std::exchange(ready, now());
            const AcceptOutcome outcome = step({}, decoded ? source : unless_ahead(source));
            if (outcome.end == AcceptEnd::lost) {
                lost_ = true;
                s_.sequence.trim();
                return true;
            }
            // From row to row: what the host does meanwhile takes no time of its own.
            account(outcome, ready - before, ready - before, 0.0);
            const bool right =
                decoded && s_.target().ops().sampled(s_.target().workspace(), 0).token == s_.sequence.tokens().back();
            if (outcome.end != AcceptEnd::row || !right || cancelled()) {
                s_.sequence.trim();
                return outcome.end == AcceptEnd::row && result_.finish != FinishReason::cancelled;
            }
        }
    }

    void wait_for_row(RowSource source) {
        if (source == RowSource::logits) {
            s_.target().wait();
        } else {
            s_.target().ops().sampled(s_.target().workspace(), 0);
        }
    }

    // One forward of the target. True when the text goes on.
    bool round() {
        lost_ = false;
        if (cancelled()) return false;
        const double start = now();
        draft();
        const bool open = make_rows();
        double forward = now();
        if (!s_.sequence.decode(s_.rows)) {
            result_.finish = FinishReason::length;
            return false;
        }
        if (s_.builder.open() >= 0) {
            s_.builder.close();
            if (open) keep_ = static_cast<std::int32_t>(s_.builder.tokens().size());
            check_ids();
            forward = now();
        }
        result_.speculation.draft_ms += s_.builder.draft_ms();
        const auto drafted = s_.builder.tokens().first(static_cast<std::size_t>(keep_));
        // A device starts sampling before the host waits for logits.
        const RowSource source = s_.sampling.sample(s_.target(), *s_.parts.chain, drafted);
        wait_for_row(source);
        known_ = source;
        const double ready = now();
        const AcceptOutcome outcome = step(drafted, unless_ahead(source));
        s_.sequence.trim();
        const double end = now();
        account(outcome, ready - forward, end - start, end - ready);
        return outcome.end == AcceptEnd::row;
    }

    void account(const AcceptOutcome& outcome, double verify_ms, double round_ms, double emit_ms) {
        SpeculationStatistics& statistics = result_.speculation;
        ++statistics.rounds;
        statistics.verify_ms += verify_ms;
        answer_.count(keep_, outcome.accepted, [this](std::int32_t i) { return s_.place_of(s_.builder.source(i)); });
        if (!automatic() || !s_.speculating()) return;
        s_.controller.observe(keep_, outcome.accepted, outcome.emitted, verify_ms, round_ms, emit_ms);
    }

    GenerateResult finish() {
        const std::string rest = answer_.finish();
        if (!rest.empty() && callback_) {
            callback_({.token = -1, .text = rest, .drafted = false, .source = {}, .logprobs = {}});
        }
        return std::move(result_);
    }

    State& s_;
    const GenerateRequest& request_;
    const TokenCallback& callback_;
    Emission& answer_;
    GenerateResult& result_;
    std::span<const std::int32_t> ends_;   // tokens that end the text
    double start_;                         // ms
    std::int32_t keep_ = 0;                // drafted tokens that this round verifies
    bool lost_ = false;                    // the next row is decided before a forward runs ahead
    RowSource known_ = RowSource::logits;  // where the last plain row was sampled
};

}  // namespace

Generator::Generator(GeneratorParts parts) {
    check(parts.target != nullptr && parts.chain != nullptr, "a generator needs a target and a chain");
    if (parts.end_tokens.empty() && parts.tokenizer != nullptr) {
        const auto ends = parts.tokenizer->end_of_text_ids();
        parts.end_tokens.assign(ends.begin(), ends.end());
    }
    state_ = std::make_unique<State>(std::move(parts));
    State& s = *state_;
    s.rows.reserve(core::kMaxDraft + 1);
    s.take_open_drafts();
    s.warm_up();
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

GenerateResult Generator::generate(const GenerateRequest& request, const TokenCallback& callback) {
    return Generation<State>(*state_, request, callback).run();
}

std::span<const std::int32_t> Generator::tokens() const { return state_->sequence.tokens(); }
std::int32_t Generator::capacity() const { return state_->parts.target->capacity(); }

std::span<const std::uint8_t> Generator::generated() const { return state_->sequence.generated(); }
std::int32_t Generator::held() const { return state_->sequence.held(); }

bool Generator::prepare(std::span<const std::int32_t> input, const std::atomic<bool>* cancel) {
    constexpr std::int32_t kStep = 64;  // tokens between two checks of `cancel`
    State& s = *state_;
    if (s.sequence.size() + static_cast<std::int64_t>(input.size()) > s.target().capacity()) return false;
    if (s.sequence.size() + input.size() == 0) return true;
    s.check_input(input);
    for (const std::int32_t token : input) s.sequence.append(token, false);
    if (s.sequence.held() == s.sequence.size() || s.sequence.evaluate(cancel, kStep)) return true;
    s.truncate(s.sequence.held());
    return false;
}

void Generator::switch_to(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
    State& s = *state_;
    const std::int32_t shared = s.sequence.switch_to(tokens, generated);
    for (const auto& drafter : s.parts.drafters) drafter->rewind(shared);
}

SavedPages Generator::save_pages(const std::filesystem::path& path, std::string_view fingerprint) {
    return state_->sequence.save(path, fingerprint);
}

SavedPages Generator::load_pages(const std::filesystem::path& path, std::string_view fingerprint) {
    return state_->sequence.load(path, fingerprint);
}

void Generator::visit_logits(std::int32_t from, const LogitsVisitor& visit) {
    state_->sequence.visit_logits(from, visit);
}

void Generator::visit_logits(std::int32_t from, std::int32_t count, const LogitsVisitor& visit) {
    state_->sequence.visit_logits(from, visit, from + count);
}

void Generator::truncate(std::int32_t length) { state_->truncate(std::max(0, length)); }

void Generator::set_speculation(const SpeculationOptions& options) {
    state_->parts.speculation = options;
    state_->warm_up();
}
const SpeculationOptions& Generator::speculation() const { return state_->parts.speculation; }
samplers::Chain& Generator::chain() { return *state_->parts.chain; }
void Generator::set_chain(std::unique_ptr<samplers::Chain> chain) { state_->parts.chain = std::move(chain); }
core::Context& Generator::target() { return *state_->parts.target; }

}  // namespace foresay::speculative
