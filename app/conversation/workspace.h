// app/conversation/workspace.h: a conversation, its generator, and the file it is saved in; keeps them consistent when
// the configuration or the models change.
//
// Life:     must be destroyed before its engine.
// Errors:   Error; the previous state stays in use. If the file cannot be written, the conversation is kept in memory
//           and saved with the next change.
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

// Branches of a conversation that stay in the KV cache besides the current one.
inline constexpr std::int32_t kCachedBranches = 16;

class Workspace {
public:
    explicit Workspace(OpenedEngine& engine);

    OpenedEngine& engine() { return engine_; }
    Conversation& conversation() { return *conversation_; }
    const Conversation& conversation() const { return *conversation_; }
    speculative::Generator& generator() { return *generator_; }

    // Switches to another configuration and loads the models that it changes; the conversation stays. Returns notes for
    // the user, one sentence each.
    std::vector<std::string> configure(const Configuration& next);

    // ---- the file
    // Saves every change from now on: to `path`, which must not exist yet, or to a new file among the user's sessions
    // if `path` is empty. The file is created with the first turn.
    void start_saving(std::filesystem::path path);
    // Takes over a saved session and continues to save to its file. `saved` is what read_session(`path`) returned.
    // `with_settings`: also apply the session's settings, which the configuration does not have yet. Returns notes for
    // the user.
    std::vector<std::string> resume(const std::filesystem::path& path, const SavedSession& saved, bool with_settings);
    // If saving() is on, writes the changes since the last call. They are on the disk when it returns.
    void save();
    // Writes a copy of the conversation to `path`. Replaces an existing file.
    void save_copy(const std::filesystem::path& path);
    bool saving() const { return saving_; }
    // Empty until the file has been created.
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
    std::vector<SessionRecord> records_;  // not written yet
    std::optional<EngineRecord> noted_engine_;
    std::string noted_settings_;
    mutable std::string identity_, identity_of_;  // model_identity() of identity_of_, a path; computed once
};

// All settings of a configuration as TOML, as a session keeps them.
std::string settings_text(const core::Config& config);

// The settings of a saved session as a configuration layer; nullopt if it has none.
std::optional<core::ConfigLayer> session_layer(const std::filesystem::path& path, const SavedSession& saved);

// A message if the model of `engine`, which generated a saved session, is not that of `present`; nullopt if it is.
std::optional<std::string> model_difference(const EngineRecord& engine, const EngineRecord& present);

}  // namespace foresay::app
