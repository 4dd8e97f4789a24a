#include "app/conversation/workspace.h"

#include <ctime>
#include <system_error>

#include "app/conversation/style.h"
#include "app/files.h"
#include "app/journal/identity.h"
#include "app/journal/store.h"
#include "base/error.h"
#include "core/text/vocabulary_match.h"

namespace foresay::app {

namespace fs = std::filesystem;

std::string settings_text(const core::Config& config) {
    // No plugins is a setting, too: those of the files below are not wanted.
    return (config.plugins.empty() ? "plugin = []\n\n" : "") + core::to_toml(config, stage_schemas(), false);
}

std::optional<core::ConfigLayer> session_layer(const fs::path& path, const SavedSession& saved) {
    if (saved.settings.empty()) return std::nullopt;
    return core::ConfigLayer{std::string(kSessionPlace) + path.stem().string(), saved.settings, path.parent_path(),
                             true};
}

std::optional<std::string> model_difference(const EngineRecord& engine, const EngineRecord& present) {
    if (engine.identity == present.identity) return std::nullopt;
    return "the session was drawn by " + engine.model + ", and this is another model, " + present.model;
}

Workspace::Workspace(OpenedEngine& engine) : engine_(engine) { build(); }

void Workspace::build() {
    generator_.emplace(engine_.make_generator());
    const ChatStyle style = chat_style(engine_.config(), engine_.tokenizer());
    if (!conversation_) conversation_ = std::make_unique<Conversation>(*generator_, engine_.tokenizer(), style);
}

EngineRecord Workspace::record() const {
    const core::Model& model = engine_.target();
    const std::string& path = model.source().path();
    if (identity_of_ != path) {
        std::error_code ignored;
        identity_ = fs::exists(path, ignored) ? model_identity(path) : path;
        identity_of_ = path;
    }
    return {path, identity_, model.config().shape.vocab, engine_.instruction_set()};
}

std::vector<std::string> Workspace::configure(const Configuration& next) {
    std::vector<std::string> notes;
    if (!engine_.needs_reload(next.config())) {
        chat_style(next.config(), engine_.tokenizer());  // complains before anything changes
        engine_.reconfigure(next);
        generator_->set_chain(engine_.make_chain());
        generator_->set_speculation(engine_.speculation());
        conversation_->set_style(chat_style(engine_.config(), engine_.tokenizer()));
        return notes;
    }
    const core::Tokenizer before = engine_.tokenizer();
    const auto rebind = [&] {
        build();
        const bool same = core::compare_vocabularies(before, engine_.tokenizer()).differing == 0 &&
                          before.vocab_size() == engine_.tokenizer().vocab_size();
        conversation_->rebind(*generator_, engine_.tokenizer(), chat_style(engine_.config(), engine_.tokenizer()),
                              same);
        return same;
    };
    try {
        notes = engine_.reload(next, [this] { generator_.reset(); });
    } catch (...) {
        if (!generator_) rebind();
        throw;
    }
    if (!rebind() && !conversation_->tree().nodes().empty()) {
        notes.push_back("the new model has another vocabulary, so the conversation was spelt anew in its tokens");
        // Other tokens are another session: the file keeps what it has, and a new one begins.
        journal_.reset();
        wanted_path_.clear();
        records_.clear();
        noted_engine_.reset();
        noted_settings_.clear();
        note_changes();
        for (TurnTree::Change& change : conversation_->tree().snapshot()) records_.emplace_back(std::move(change));
    }
    return notes;
}

void Workspace::start_saving(fs::path path) {
    saving_ = true;
    wanted_path_ = std::move(path);
    journal_.reset();
}

// What has happened since the last call, as records.
void Workspace::note_changes() {
    std::vector<TurnTree::Change> changes = conversation_->take_unsaved();
    const EngineRecord now = record();
    if (!noted_engine_ || *noted_engine_ != now) {
        records_.emplace_back(now);
        noted_engine_ = now;
    }
    std::string settings = settings_text(engine_.config());
    if (settings != noted_settings_) {
        // Settings that nothing was drawn with are forgotten again.
        if (!records_.empty() && std::holds_alternative<SettingsRecord>(records_.back())) records_.pop_back();
        records_.emplace_back(SettingsRecord{settings});
        noted_settings_ = std::move(settings);
    }
    for (TurnTree::Change& change : changes) records_.emplace_back(std::move(change));
}

std::vector<SessionRecord> Workspace::with_header() const {
    std::vector<SessionRecord> all;
    all.emplace_back(SessionHeader{kSessionVersion, utc_time(std::time(nullptr))});
    all.insert(all.end(), records_.begin(), records_.end());
    return all;
}

void Workspace::save() {
    note_changes();
    if (!saving_) return;
    if (journal_) {
        journal_->append(records_);
        records_.clear();
        return;
    }
    if (conversation_->tree().nodes().empty()) return;
    const fs::path path = wanted_path_.empty() ? new_session_path() : wanted_path_;
    journal_ = Journal::create(path, with_header(), false);
    records_.clear();
}

void Workspace::save_copy(const fs::path& path) {
    save();
    if (!journal_) return write_session(path, with_header());
    std::error_code ignored;
    if (fs::equivalent(path, journal_->path(), ignored)) return;  // it is there already
    copy_session(journal_->path(), path);
}

std::vector<std::string> Workspace::resume(const fs::path& path, const SavedSession& saved, bool with_settings) {
    std::error_code ignored;
    if (journal_ && fs::equivalent(path, journal_->path(), ignored)) {
        throw Error("this is already the session " + path.string());
    }
    std::vector<std::string> notes;
    Configuration next = engine_.configuration();
    if (with_settings && !saved.settings.empty())
        next.set_text(saved.settings, std::string(kSessionPlace) + path.stem().string());
    const EngineRecord& drawn = saved.engines.back();
    std::string wanted = next.config().target_model.string();
    if (!with_settings || wanted.empty()) wanted = engine_.target().source().path();
    const EngineRecord present{wanted, fs::exists(wanted, ignored) ? model_identity(wanted) : wanted, 0, {}};
    if (const auto difference = model_difference(drawn, present)) {
        throw Error(path.string() + ": " + *difference +
                    "; use that model, or continue the session with it and switch with /model");
    }
    Journal journal = Journal::open(path, saved);
    if (with_settings) notes = configure(next);
    conversation_->restore(saved.tree);
    journal_ = std::move(journal);
    saving_ = true;
    records_.clear();
    noted_engine_ = drawn;
    noted_settings_ = saved.settings;
    if (saved.cut_off) notes.push_back("the last change was cut off when the program died, and is gone");
    if (drawn.backend != record().backend) {
        notes.push_back("it was drawn with " + drawn.backend + ", and this is " + record().backend +
                        ": what was said stays, but the same seed may say something else from here on");
    }
    return notes;
}

}  // namespace foresay::app
