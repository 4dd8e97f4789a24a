// Commands that change the models and the speculation.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/files.h"
#include "app/hub_models.h"
#include "app/output.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/config/layers.h"

namespace foresay::app {

namespace {

std::string quoted_toml(const std::string& text) { return core::to_toml(core::ConfigValue(text)); }

std::string draft_text(Repl& repl) {
    const core::Config& config = repl.engine().config();
    std::string out = "speculation ";
    switch (config.speculation_mode) {
        case core::SpeculationMode::automatic:
            out += "auto, up to " + std::to_string(config.max_draft) + " tokens per step";
            break;
        case core::SpeculationMode::off:
            out += "off";
            break;
        case core::SpeculationMode::fixed:
            out += "fixed, " + std::to_string(config.draft_length) + " tokens per step";
            break;
    }
    const core::Model* draft = repl.engine().draft();
    return out + "\ndraft model " + (draft ? draft->source().path() : "none") + "\n";
}

// The draft model of `layers` if their target is `target`; empty if it is not, or if there is none.
std::string draft_of(std::vector<core::ConfigLayer> layers, const std::filesystem::path& target) {
    try {
        const core::Config config = engine::load_config(std::move(layers), false, find_local_model);
        return config.target_model == target ? config.draft_model.string() : std::string();
    } catch (const Error&) {
        return {};  // some layers are valid only together with those above them
    }
}

// The draft model that the present target had before /draft none, or a layer above it, removed it: that of the topmost
// layers that state one, or of the bundled pair, which is no layer of a saved session. Empty if there was none.
std::string earlier_draft(Repl& repl) {
    const std::vector<core::ConfigLayer>& layers = repl.engine().configuration().layers();
    const std::filesystem::path target = repl.engine().config().target_model;
    for (auto end = layers.end(); end != layers.begin(); --end) {
        const std::string draft = draft_of({layers.begin(), end}, target);
        if (!draft.empty()) return draft;
    }
    try {
        return draft_of(core::read_config_layers(data_file("configs/python-coder.toml")), target);
    } catch (const Error&) {
        return {};  // there is no bundled pair here
    }
}

void draft(Repl& repl, const std::string& arguments) {
    if (arguments.empty()) return say(draft_text(repl));
    Configuration next = repl.engine().configuration();
    if (arguments == "on" || arguments == "auto") {
        next.set("speculation.mode=auto", "/draft");
        if (next.config().draft_model.empty() && !next.config().draft_auto) {
            const std::string model = earlier_draft(repl);
            next.set_text("draft.model = " + quoted_toml(model.empty() ? "auto" : model), "/draft");
        }
    } else if (arguments == "off" || arguments == "0") {
        next.set("speculation.mode=off", "/draft");
    } else if (arguments.find_first_not_of("0123456789") == std::string::npos) {
        const std::size_t length = whole_number(arguments, "the number of drafted tokens", 1, core::kMaxDraft);
        next.set_text("speculation.length = " + std::to_string(length) + "\nspeculation.mode = \"fixed\"", "/draft");
    } else if (arguments == "none") {
        next.set_text("draft.model = \"\"", "/draft");
    } else {
        const std::vector<std::string> words = split_words(arguments);
        if (words.size() != 1) throw Error("write /draft on, off, a number, or the path of a model");
        std::string toml = "draft.model = " + quoted_toml(user_path(words[0]).string());
        if (next.config().speculation_mode == core::SpeculationMode::off) toml += "\nspeculation.mode = \"auto\"";
        next.set_text(toml, "/draft");
    }
    repl.configure(next);
    if (repl.engine().config().draft_auto && repl.engine().draft() == nullptr) {
        repl.note("no draft model was found for this target; /draft PATH loads one");
    }
    say(draft_text(repl));
}

void model(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.size() > 2) throw Error("write /model PATH or /model PATH DRAFT");
    if (!words.empty()) {
        Configuration next = repl.engine().configuration();
        std::string toml = "target.model = " + quoted_toml(user_path(words[0]).string());
        if (words.size() == 2) toml += "\ndraft.model = " + quoted_toml(user_path(words[1]).string());
        next.set_text(toml, "/model");
        repl.configure(next);
    }
    say("target      " + repl.engine().target().source().path() + "\n" + draft_text(repl));
}

Candidates complete_draft(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    Candidates candidates = complete_files(request);
    candidates.insert(candidates.end(), {"on", "off", "none"});
    return candidates;
}

constexpr ReplCommand kCommands[] = {
    {"draft", "[on|off|N|MODEL]",
     "show or change speculation: as many drafted tokens as pay off, none, N per step, or another draft model",
     "Speculation changes the speed, never the text. `/draft none` unloads the draft model, `/draft on` loads it "
     "again.",
     draft, complete_draft},
    {"model", "[PATH [DRAFT]]", "switch to another model, and keep the conversation",
     "What you have set stays; what the bundled pair sets goes with it, such as its samplers and its context. A draft "
     "model that does not fit the new model is not used, and the reason is shown. If the new model has another "
     "vocabulary, the conversation is tokenised again. Without PATH, shows the models in use.",
     model, complete_files},
};

}  // namespace

CommandTopic model_commands() { return {"Models", kCommands}; }

}  // namespace foresay::app
