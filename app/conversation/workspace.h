// app/conversation/workspace.h: a conversation, the generator it runs on, and the file it is saved in, kept in step
// when the configuration or the models change.
//
// Life:     must be gone before its session is.
// Errors:   Error; what was there before stays in use. A file that cannot be written does not lose the conversation:
//           what was not saved is saved with the next change.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/conversation/conversation.h"
#include "app/journal/journal.h"
#include "app/opened_engine.h"

namespace foresay::app {

// Branches of a conversation that stay in the cache besides the present one.
inline constexpr std::int32_t kCachedBranches = 16;

class Workspace {
public:
    explicit Workspace(OpenedEngine& engine);

    OpenedEngine& engine() { return engine_; }
    Conversation& conversation() { return *conversation_; }
    speculative::Generator& generator() { return *generator_; }

    // Goes over to another configuration. Models that it changes are loaded; the conversation stays. What the person
    // should know is returned, a sentence each.
    std::vector<std::string> configure(const Configuration& next);

    // ---- the file
    // From now on every change is saved: to `path`, which must not exist yet, or to a new file of the user's when it is
    // empty. The file appears with the first turn.
    void start_saving(std::filesystem::path path);
    // The conversation of a saved session, with its settings, and goes on saving there. `session` is what was read from
    // `path`. `with_settings`: the configuration does not have the session's settings yet. Returns sentences.
    std::vector<std::string> resume(const std::filesystem::path& path, const SavedSession& saved, bool with_settings);
    // Saves what has changed since the last call, if it is to be saved at all. On the disk when it returns.
    void save();
    // The conversation as it is now as a file of its own, which replaces one that is there.
    void save_copy(const std::filesystem::path& path);
    bool saving() const { return saving_; }
    // Empty as long as there is none.
    std::filesystem::path file() const { return journal_ ? journal_->path() : std::filesystem::path(); }

private:
    void build();
    EngineRecord record() const;
    void note_changes();
    std::vector<SessionRecord> with_header() const;

    OpenedEngine& engine_;
    std::optional<speculative::Generator> generator_;
    std::unique_ptr<Conversation> conversation_;

    bool saving_ = false;
    std::filesystem::path wanted_path_;
    std::optional<Journal> journal_;
    std::vector<SessionRecord> records_;  // not in the file yet; all of them while there is none
    std::optional<EngineRecord> noted_engine_;
    std::string noted_settings_;
    mutable std::string identity_, identity_of_;  // of the model at a path, found once
};

// The settings of a configuration that a session keeps: all of them, as TOML.
std::string settings_text(const core::Config& config);

// The settings of a saved session as a layer of a configuration; none when it has none.
std::optional<core::ConfigLayer> session_layer(const std::filesystem::path& path, const SavedSession& saved);

// What makes `engine`, which drew a saved session, another one than `present`; nothing when its tokens mean the same.
std::optional<std::string> model_difference(const EngineRecord& engine, const EngineRecord& present);

}  // namespace foresay::app
