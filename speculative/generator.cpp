#include "speculative/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "samplers/chain.h"
#include "speculative/controller.h"
#include "speculative/run_builder.h"
#include "speculative/text_stream.h"
#include "speculative/walk.h"

namespace foresay::speculative {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string_view mode_name(core::SpeculationMode mode) {
    switch (mode) {
        case core::SpeculationMode::automatic:
            return "auto";
        case core::SpeculationMode::off:
            return "off";
        case core::SpeculationMode::fixed:
            return "fixed";
    }
    return "";
}

// Times forwards of a few widths behind what the cache holds, the most telling ones first, within a budget. The rows are
// forgotten again.
void calibrate(core::Context& target, CostModel& costs, std::int32_t max_width) {
    constexpr double kBudgetMs = 60.0;
    constexpr std::int32_t kWidths[] = {1, 4, 2, 8, 3, 6, 16, 5, 12, 32};
    const Clock::time_point start = Clock::now();
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(CostModel::kMaxWidth), 0);
    const std::int32_t length = target.length();
    bool warm = false;
    for (const std::int32_t width : kWidths) {
        if (width > std::min({max_width, target.options().decode_rows, target.capacity() - length})) continue;
        double best = 0.0;
        for (int repeat = warm ? 0 : -1; repeat < 3; ++repeat) {
            const Clock::time_point begin = Clock::now();
            target.decode(std::span(tokens).first(static_cast<std::size_t>(width)));
            target.logits(0);
            const double ms = ms_since(begin);
            target.truncate(length);
            if (repeat >= 0) best = repeat == 0 ? ms : std::min(best, ms);
            if (ms_since(start) > kBudgetMs && best > 0.0) break;
        }
        warm = true;
        costs.calibrate(width, best);
        if (ms_since(start) > kBudgetMs) break;
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
    }
    return "";
}

struct Generator::State {
    GeneratorParts parts;
    std::vector<std::int32_t> tokens;     // the session
    std::vector<std::uint8_t> generated;  // per token: evaluated as a decode row
    Controller controller;
    TextStream text;
    RunBuilder builder;
    std::vector<std::int32_t> rows;  // of a verification

    explicit State(GeneratorParts given) : parts(std::move(given)), text(parts.tokenizer), builder(parts.drafters) {}

    core::Context& target() { return *parts.target; }
    std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }

    void append(std::int32_t token, bool was_generated) {
        tokens.push_back(token);
        generated.push_back(was_generated ? 1 : 0);
    }

    void truncate(std::int32_t length) {
        if (length < size()) {
            tokens.resize(static_cast<std::size_t>(length));
            generated.resize(static_cast<std::size_t>(length));
        }
        if (target().length() > length) target().truncate(length);
        for (const auto& drafter : parts.drafters) drafter->rewind(length);
    }

    bool evaluate_session(const std::atomic<bool>* cancel);
    void warm_up();
    bool is_end(std::int32_t token) const {
        return std::ranges::find(parts.end_tokens, token) != parts.end_tokens.end();
    }
};

// Brings the cache up to the whole session: tokens that were generated as decode rows, input as input rows (law 1).
// Afterwards logits(0) belongs to the last token. False when cancelled.
bool Generator::State::evaluate_session(const std::atomic<bool>* cancel) {
    if (target().length() >= size()) target().truncate(size() - 1);
    while (target().length() < size()) {
        const std::int32_t start = target().length();
        const std::uint8_t kind = generated[static_cast<std::size_t>(start)];
        std::int32_t end = start;
        while (end < size() && generated[static_cast<std::size_t>(end)] == kind) ++end;
        if (kind != 0) end = std::min(end, start + target().options().decode_rows);
        const auto span = std::span<const std::int32_t>(tokens).subspan(static_cast<std::size_t>(start),
                                                                        static_cast<std::size_t>(end - start));
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        if (!(kind != 0 ? target().decode(span, end == size() ? 1 : 0) : target().prefill(span, 0, cancel)))
            return false;
    }
    return true;
}

// Costs are measured in quiet, once, before the first token.
void Generator::State::warm_up() {
    if (parts.drafters.empty() || parts.speculation.mode != core::SpeculationMode::automatic) return;
    if (controller.costs().calibrated()) return;
    calibrate(target(), controller.costs(), std::min(parts.speculation.max_draft, core::kMaxDraft) + 1);
    for (const auto& drafter : parts.drafters) drafter->warm_up();
    if (const Drafter* model = builder.model()) controller.calibrate_draft(model->step_ms());
}

namespace {

// One call of generate().
template <class State>
class Generation {
public:
    Generation(State& state, const GenerateRequest& request, const TokenCallback& callback)
        : s_(state), request_(request), callback_(callback), start_(Clock::now()) {}

    GenerateResult run() {
        prepare();
        if (room_ < 1) {
            result_.finish = FinishReason::length;
            if (!s_.evaluate_session(request_.cancel)) result_.finish = FinishReason::cancelled;
            return finish();
        }
        if (!s_.evaluate_session(request_.cancel)) {
            result_.finish = FinishReason::cancelled;
            return finish();
        }
        result_.prefill_ms = ms_since(start_);
        bool more = step({}).end == WalkEnd::row;
        first_ = Clock::now();
        result_.ttft_ms = std::chrono::duration<double, std::milli>(first_ - start_).count();
        while (more) more = round();
        return finish();
    }

private:
    void prepare() {
        const std::int64_t length = static_cast<std::int64_t>(s_.tokens.size() + request_.input.size());
        if (length > s_.target().capacity()) {
            throw Error("the text is " + std::to_string(length) + " tokens long but the context holds " +
                        std::to_string(s_.target().capacity()) + "; shorten it or raise --context");
        }
        if (length == 0) throw Error("there is no text to continue, and this model has no token that begins one");
        const std::int32_t vocab = s_.target().model().config().shape.vocab;
        for (const std::int32_t token : request_.input) {
            if (token < 0 || token >= vocab) {
                throw Error("the token id " + std::to_string(token) + " is outside the model's vocabulary of " +
                            std::to_string(vocab));
            }
        }
        s_.text.begin(request_.stop);
        for (const std::int32_t token : request_.input) s_.append(token, false);
        result_.prompt_tokens = s_.size();
        room_ = s_.target().capacity() - s_.size();
        if (request_.max_tokens > 0) room_ = std::min(room_, request_.max_tokens);
        result_.tokens.reserve(static_cast<std::size_t>(room_));
        s_.tokens.reserve(s_.tokens.size() + static_cast<std::size_t>(room_));
        s_.generated.reserve(s_.tokens.size() + static_cast<std::size_t>(room_));
        result_.text.reserve(static_cast<std::size_t>(room_) * 8);
        s_.parts.chain->begin(request_.seed, request_.branch, s_.tokens,
                              s_.tokens.size() + static_cast<std::size_t>(room_));
        s_.controller.begin();
        if (s_.parts.speculation.mode != core::SpeculationMode::off) {
            for (const auto& drafter : s_.parts.drafters) {
                drafter->begin(s_.tokens);
                result_.speculation.sources.push_back({.name = std::string(drafter->name())});
            }
        }
        result_.speculation.mode = mode_name(s_.parts.speculation.mode);
    }

    // Walks over the rows of the last forward and takes over what was emitted.
    WalkOutcome step(std::span<const std::int32_t> drafted) {
        std::int32_t row = 0;
        const WalkOutcome outcome = walk(s_.target(), *s_.parts.chain, drafted, [&](std::int32_t token, bool agreed) {
            const std::string_view source = agreed ? s_.builder.source(row)->name() : std::string_view{};
            ++row;
            return emit(token, agreed, source);
        });
        if (outcome.end == WalkEnd::failure) fail(outcome.failure);
        return outcome;
    }

    // True when the text ends here.
    bool emit(std::int32_t token, bool drafted, std::string_view source) {
        s_.append(token, true);
        result_.tokens.push_back(token);
        --room_;
        const bool end = !request_.ignore_eos && s_.is_end(token);
        const std::string_view text = end ? std::string_view{} : s_.text.push(token);
        result_.text += text;
        if (callback_) callback_({.token = token, .text = text, .drafted = drafted, .source = source});
        if (end || s_.text.stopped()) {
            result_.finish = FinishReason::stop;
            return true;
        }
        result_.finish = FinishReason::length;
        return room_ == 0;
    }

    // The chain could not draw. What was emitted stays; the cache ends one before it, as always.
    [[noreturn]] void fail(const samplers::StageFailure* failure) {
        s_.target().truncate(std::min(s_.target().length(), s_.size()));
        throw Error(failure != nullptr ? failure->message : "the sampling chain ruled out every token");
    }

    bool cancelled() {
        if (request_.cancel == nullptr || !request_.cancel->load(std::memory_order_relaxed)) return false;
        result_.finish = FinishReason::cancelled;
        return true;
    }

    // Builds the round's run, of which keep_ tokens are worth verifying.
    void draft() {
        s_.builder.clear();
        keep_ = 0;
        const SpeculationOptions& options = s_.parts.speculation;
        if (options.mode == core::SpeculationMode::off || s_.parts.drafters.empty()) return;
        const bool automatic = options.mode == core::SpeculationMode::automatic;
        // A run of k tokens may emit k + 1.
        const std::int32_t limit = std::min({automatic ? options.max_draft : options.draft_length, room_ - 1,
                                             s_.target().options().decode_rows - 1, core::kMaxDraft});
        const DraftTask task{.tokens = s_.tokens,
                             .max_tokens = limit,
                             .chain = s_.parts.chain.get(),
                             .end_tokens = request_.ignore_eos ? std::span<const std::int32_t>{}
                                                               : std::span<const std::int32_t>(s_.parts.end_tokens)};
        keep_ = automatic ? s_.builder.build(task, s_.controller) : s_.builder.build_fixed(task);
        result_.speculation.draft_ms += s_.builder.draft_ms();
        // A drafted id that the target does not have ends the run.
        const std::int32_t vocab = s_.target().model().config().shape.vocab;
        const auto run = s_.builder.tokens().first(static_cast<std::size_t>(keep_));
        keep_ = static_cast<std::int32_t>(
            std::ranges::find_if(run, [vocab](std::int32_t token) { return token < 0 || token >= vocab; }) -
            run.begin());
    }

    // One forward of the target. True when the text goes on.
    bool round() {
        if (cancelled()) return false;
        const Clock::time_point start = Clock::now();
        draft();
        const auto drafted = s_.builder.tokens().first(static_cast<std::size_t>(keep_));
        s_.rows.assign(1, s_.tokens.back());
        s_.rows.insert(s_.rows.end(), drafted.begin(), drafted.end());
        const Clock::time_point forward = Clock::now();
        if (!s_.target().decode(s_.rows)) {
            result_.finish = FinishReason::length;
            return false;
        }
        s_.target().logits(0);
        const double verify_ms = ms_since(forward);
        const WalkOutcome outcome = step(drafted);
        s_.target().truncate(s_.size() - 1);
        account(outcome, verify_ms, ms_since(start));
        return outcome.end == WalkEnd::row;
    }

    void account(const WalkOutcome& outcome, double verify_ms, double round_ms) {
        SpeculationStatistics& statistics = result_.speculation;
        ++statistics.rounds;
        statistics.drafted += keep_;
        statistics.accepted += outcome.accepted;
        statistics.verify_ms += verify_ms;
        for (std::size_t i = 0; i < statistics.sources.size(); ++i) {
            const Drafter* drafter = s_.parts.drafters[i].get();
            SourceStatistics& entry = statistics.sources[i];
            std::int32_t verified = 0;
            std::int32_t accepted = 0;
            for (std::int32_t k = 0; k < keep_; ++k) {
                if (s_.builder.source(k) != drafter) continue;
                ++verified;
                if (k < outcome.accepted) ++accepted;
            }
            entry.rounds += verified > 0 ? 1 : 0;
            entry.drafted += verified;
            entry.accepted += accepted;
        }
        if (s_.parts.speculation.mode != core::SpeculationMode::automatic || s_.parts.drafters.empty()) return;
        s_.controller.observe(keep_, outcome.accepted, outcome.emitted, verify_ms, round_ms);
    }

    GenerateResult finish() {
        if (!result_.tokens.empty()) {
            result_.decode_ms = ms_since(first_);
            if (result_.decode_ms > 0.0) {
                result_.decode_tokens_per_second =
                    1000.0 * static_cast<double>(result_.tokens.size() - 1) / result_.decode_ms;
            }
        }
        const std::string rest = s_.text.finish();
        if (!rest.empty()) {
            result_.text += rest;
            if (callback_) callback_({.token = -1, .text = rest, .drafted = false, .source = {}});
        }
        return std::move(result_);
    }

    State& s_;
    const GenerateRequest& request_;
    const TokenCallback& callback_;
    GenerateResult result_;
    Clock::time_point start_;
    Clock::time_point first_;
    std::int32_t room_ = 0;  // tokens that may still be emitted
    std::int32_t keep_ = 0;  // drafted tokens that this round verifies
};

}  // namespace

Generator::Generator(GeneratorParts parts) : state_(std::make_unique<State>(std::move(parts))) {
    State& s = *state_;
    check(s.parts.target != nullptr && s.parts.chain != nullptr, "a generator needs a target and a chain");
    s.rows.reserve(core::kMaxDraft + 1);
    s.tokens.reserve(static_cast<std::size_t>(s.target().capacity()));
    s.generated.reserve(static_cast<std::size_t>(s.target().capacity()));
    s.warm_up();
}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

GenerateResult Generator::generate(const GenerateRequest& request, const TokenCallback& callback) {
    return Generation<State>(*state_, request, callback).run();
}

std::span<const std::int32_t> Generator::tokens() const { return state_->tokens; }
std::int32_t Generator::capacity() const { return state_->parts.target->capacity(); }

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
