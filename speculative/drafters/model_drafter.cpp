#include "speculative/drafters/model_drafter.h"

#include <algorithm>

#include "core/config/schema.h"
#include "samplers/chain.h"
#include "speculative/device_draws.h"

namespace foresay::speculative {
namespace {

class ModelDrafter final : public Drafter {
public:
    ModelDrafter(std::unique_ptr<core::Context> context, std::string name)
        : context_(std::move(context)), name_(std::move(name)) {
        held_.reserve(static_cast<std::size_t>(context_->capacity()));
    }

    std::string_view name() const override { return name_; }
    double step_ms() const override { return step_ms_; }
    core::Context* drawer() override { return context_.get(); }

    void warm_up(Now now) override {
        constexpr int kSteps = 4;
        held_.clear();
        const std::int32_t token = 0;
        step_ms_ = 0.0;
        for (int step = 0; step < std::min(kSteps, context_->capacity()); ++step) {
            context_->truncate(0);
            const double start = now();
            context_->decode(std::span(&token, 1));
            context_->wait();
            const double ms = now() - start;
            step_ms_ = step == 0 ? ms : std::min(step_ms_, ms);
        }
        prepare_widths();
        context_->truncate(0);
        checked_ = 0;
    }

    void begin(std::span<const std::int32_t> tokens) override { rewind(static_cast<std::int32_t>(tokens.size())); }

    void rewind(std::int32_t length) override { checked_ = std::clamp(length - base_, 0, checked_); }

    void propose(const DraftTask& task, DraftRun& run) override {
        const std::int32_t before = static_cast<std::int32_t>(run.tokens.size());
        if (task.max_tokens <= before || task.tokens.empty() || !catch_up(task, run.tokens)) return;
        if (context_->ops().asynchronous()) {
            chain_.start_without_masks(*task.chain);
        } else {
            chain_.start(*task.chain);
        }
        for (const std::int32_t token : run.tokens) chain_.advance(token);
        const std::int32_t limit =
            std::min(task.max_tokens, before + context_->capacity() - static_cast<std::int32_t>(held_.size()) + 1);
        for (std::int32_t count = before + 1;; ++count) {
            // Where a draw runs apart from the host, the next step follows it without waiting, as long as it is likely
            // to be wanted. If it is not, the cache holds the token already when it is accepted.
            const std::int32_t slot = count % 2;
            const RowSource source = start_draw(slot);
            bool evaluated = false;
            const auto outlook = source != RowSource::tokens ? RunGauge::Outlook::unknown
                                 : count == limit            ? RunGauge::Outlook::end
                                 : task.gauge == nullptr     ? RunGauge::Outlook::more
                                                             : task.gauge->outlook();
            if (outlook == RunGauge::Outlook::end && task.may_stay_open) {
                run.open_slot = slot;
                return;
            }
            if (outlook == RunGauge::Outlook::more) {
                const kernels::TokenRef next = kernels::TokenRef::slot(slot);
                evaluated = context_->decode(std::span(&next, 1));
            }
            const kernels::Drawn drawn = draw(source, slot);
            if (drawn.token < 0) {
                context_->truncate(static_cast<std::int32_t>(held_.size()));
                return;
            }
            if (evaluated) held_.push_back(drawn.token);
            run.tokens.push_back(drawn.token);
            run.margins.push_back(drawn.margin);
            if (count == limit || std::ranges::find(task.end_tokens, drawn.token) != task.end_tokens.end()) return;
            if (task.gauge != nullptr && !task.gauge->extend(count, drawn.margin)) return;
            chain_.advance(drawn.token);
            if (evaluated) continue;
            if (!context_->decode(std::span(&drawn.token, 1))) return;
            held_.push_back(drawn.token);
        }
    }

private:
    // A device prepares itself for a number of rows in two forwards: any may be missing behind a run of another source.
    void prepare_widths() {
        if (!context_->ops().asynchronous()) return;
        const std::int32_t widest = std::min(context_->options().decode_rows, core::kMaxDraft + 1);
        const std::vector<std::int32_t> rows(static_cast<std::size_t>(std::max(widest, 0)), 0);
        for (std::size_t width = 2; width <= rows.size(); ++width) {
            for (int repeat = 0; repeat < 2; ++repeat) {
                context_->truncate(0);
                context_->decode(std::span(rows).first(width), 1);
            }
        }
        context_->wait();
    }

    // Starts the chain's draw from the last forward's row where the logits are, as far as it can be run there.
    RowSource start_draw(std::int32_t slot) {
        if (!context_->ops().asynchronous()) return RowSource::logits;
        const auto compile = [&] { return chain_.compile(plan_) == nullptr || chain_.compile_head(plan_); };
        if (!compile()) return RowSource::logits;
        if (make_room(plan_)) compile();
        context_->ops().draw(context_->activations(), {&plan_.plan, 1}, {&slot, 1});
        return plan_.plan.keep ? RowSource::candidates : RowSource::tokens;
    }

    kernels::Drawn draw(RowSource source, std::int32_t slot) {
        if (source == RowSource::logits) return chain_.propose(context_->logits(0));
        kernels::Activations& act = context_->activations();
        if (source == RowSource::tokens) return context_->ops().drawn(act, slot);
        return chain_.propose(context_->ops().candidates(act, slot));
    }

    // Lists of counted tokens grow with the text; the first time that there is one, it gets room for all of it. True: what
    // the plan refers to has moved.
    bool make_room(samplers::PlanBuffer& plan) const {
        const std::size_t most = held_.capacity();
        bool moved = false;
        for (std::vector<kernels::TokenCount>& counts : plan.counts) {
            if (counts.empty() || counts.capacity() >= most) continue;
            counts.reserve(most);
            moved = true;
        }
        return moved;
    }

    // Brings the cache to the end of the session and of `run` behind it, logits of the last token included. What the
    // cache holds and the text still says is not evaluated again.
    bool catch_up(const DraftTask& task, std::span<const std::int32_t> run) {
        const std::int32_t session = static_cast<std::int32_t>(task.tokens.size());
        const std::int32_t length = session + static_cast<std::int32_t>(run.size());
        if (session < base_ || length - base_ + 1 > context_->capacity()) {
            // The text has outgrown the cache: go on with its latest half.
            base_ = std::max(0, session - context_->capacity() / 2);
            held_.clear();
            context_->truncate(0);
            checked_ = 0;
        }
        const auto text = [&](std::size_t index) {
            const std::size_t i = index + static_cast<std::size_t>(base_);
            return i < task.tokens.size() ? task.tokens[i] : run[i - task.tokens.size()];
        };
        if (length - base_ > context_->capacity()) return false;
        const std::size_t size = static_cast<std::size_t>(length - base_);
        std::size_t same = static_cast<std::size_t>(checked_);
        const std::size_t most = std::min(held_.size(), size - 1);
        while (same < most && held_[same] == text(same)) ++same;
        same = std::min(same, most);
        held_.resize(same);
        context_->truncate(static_cast<std::int32_t>(same));
        while (held_.size() < size) held_.push_back(text(held_.size()));
        const std::span<const std::int32_t> missing = std::span<const std::int32_t>(held_).subspan(same);
        const bool fits = static_cast<std::int32_t>(missing.size()) <= context_->options().decode_rows
                              ? context_->decode(missing, 1)
                              : context_->prefill(missing);
        if (!fits) {
            held_.resize(same);
            return false;
        }
        checked_ = std::min(static_cast<std::int32_t>(held_.size()), session - base_);
        return true;
    }

    std::unique_ptr<core::Context> context_;
    std::string name_;
    samplers::DraftChain chain_;
    samplers::PlanBuffer plan_;
    std::vector<std::int32_t> held_;  // tokens in the cache, from session index base_ on
    std::int32_t base_ = 0;
    std::int32_t checked_ = 0;  // of them known to be the session's
    double step_ms_ = 0.0;
};

}  // namespace

std::unique_ptr<Drafter> make_model_drafter(std::unique_ptr<core::Context> context, std::string name) {
    return std::make_unique<ModelDrafter>(std::move(context), std::move(name));
}

}  // namespace foresay::speculative
