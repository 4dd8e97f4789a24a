#include "app/conversation/replay.h"

#include <algorithm>

#include "app/journal/identity.h"

namespace foresay::app {

namespace {

// The sampling of `settings` with the models and the machine of `present`.
Configuration with_sampling(const Configuration& present, const std::string& settings) {
    Configuration next = present;
    if (settings.empty()) return next;
    next.set_text(settings, "the session");
    std::string own;
    for (const auto& [key, setting] : present.config().settings()) {
        const bool stays = key.starts_with("target.") || key.starts_with("draft.") || key.starts_with("runtime.") ||
                           key.starts_with("speculation.");
        if (stays) own += key + " = " + core::to_toml(setting.value) + "\n";
    }
    next.set_text(own, "this program");
    return next;
}

}  // namespace

bool replay(OpenedEngine& engine, const SavedSession& saved, const std::atomic<bool>& cancel,
            const std::function<void(const ReplayedTurn&)>& report) {
    const Configuration present = engine.configuration();
    const std::string identity = model_identity(engine.target().source().path());
    speculative::Generator generator = engine.make_generator();
    std::size_t settings = saved.all_settings.size();  // none yet
    const auto& nodes = saved.tree.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Turn& turn = nodes[i].turn;
        ReplayedTurn result{.turn = i, .tokens = turn.answer.size()};
        const EngineRecord& recorded = saved.engines[saved.engine_of[i]];
        Document prompt = saved.tree.document(nodes[i].parent);
        prompt.add_prompt(turn);
        const bool hidden_end =
            turn.ended && (turn.answer.empty() || !engine.tokenizer().is_end_of_text(turn.answer.back()));
        const std::size_t drawn = turn.answer.size() + (hidden_end ? 1 : 0);
        if (recorded.identity != identity) {
            result.outcome = ReplayedTurn::Outcome::skipped;
            result.note = "drawn by another model, " + recorded.model;
        } else if (static_cast<std::int64_t>(prompt.tokens.size() + drawn) > generator.capacity()) {
            result.outcome = ReplayedTurn::Outcome::skipped;
            result.note = "longer than the context; raise --context";
        } else if (drawn > 0) {
            if (settings != saved.settings_of[i]) {
                settings = saved.settings_of[i];
                engine.reconfigure(with_sampling(present, saved.all_settings[settings]));
                generator.set_chain(engine.make_chain());
            }
            generator.switch_to(prompt.tokens, prompt.generated);
            speculative::GenerateRequest request;
            request.max_tokens = static_cast<std::int32_t>(drawn);
            request.seed = turn.seed;
            request.branch = turn.branch;
            request.cancel = &cancel;
            std::vector<std::int32_t> tokens = generator.generate(request).tokens;
            if (cancel.load()) return false;
            const bool ended = !tokens.empty() && engine.tokenizer().is_end_of_text(tokens.back());
            if (hidden_end && ended) tokens.pop_back();
            const auto differ = std::mismatch(tokens.begin(), tokens.end(), turn.answer.begin(), turn.answer.end());
            const bool same = tokens == turn.answer && ended == turn.ended;
            result.outcome = same ? ReplayedTurn::Outcome::same : ReplayedTurn::Outcome::differs;
            result.first_difference = static_cast<std::size_t>(differ.first - tokens.begin());
            if (!same && recorded.backend != engine.instruction_set()) {
                result.note = "drawn with " + recorded.backend + ", and this is " + engine.instruction_set();
            }
        }
        report(result);
    }
    return true;
}

}  // namespace foresay::app
