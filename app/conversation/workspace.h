// app/conversation/workspace.h: a conversation, its generator, and the file it is saved in; keeps them consistent when
// the configuration or the models change.
//
// Life:     must be destroyed before its engine.
// Errors:   Error; the previous state stays in use. If the file cannot be written, the conversation is kept in memory
//           and saved with the next change.
// Cost:     while an answer is generated, what there is of it is appended to the file kSavesPerSecond times a second,
//           without waiting for the disk.
#pragma once

#include <chrono>
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

// How often the tokens of an answer that is being generated are saved.
inline constexpr int kSavesPerSecond = 20;

class Workspace : private AnswerRecorder {
public:
    explicit Workspace(OpenedEngine& engine);
    ~Workspace() override = default;
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

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
    // the user. If the file cannot be written, a note says so and saving() is off.
    std::vector<std::string> resume(const std::filesystem::path& path, const SavedSession& saved, bool with_settings);
    // If saving() is on, writes the changes since the last call. They are on the disk when it returns. Deletes the
    // oldest unnamed sessions when it has created one.
    void save();
    // Writes a copy of the conversation to `path`; `replace` as in write_session(). The conversation's own file is only
    // brought up to date.
    void save_copy(const std::filesystem::path& path, Replace replace);
    // Writes what the target's cache holds of the conversation beside the session at `path`: resume() then need not
    // evaluate it again. Errors: there is nothing in the cache, or the file cannot be written.
    speculative::SavedPages save_pages(const std::filesystem::path& path);
    // Tokens whose keys and values were written, and came back, since the program began.
    struct PageTotals {
        std::int64_t saved = 0, loaded = 0;
    };
    const PageTotals& page_totals() const { return page_totals_; }
    bool saving() const { return saving_; }
    // Empty until the file has been created.
    std::filesystem::path file() const { return journal_ ? journal_->path() : std::filesystem::path(); }

private:
    void build();
    EngineRecord record() const;
    std::string load_pages(const std::filesystem::path& path);
    void note_changes();
    std::vector<SessionRecord> with_header() const;
    // Writes records_ to the journal, which it creates if need be, followed by `more`, which is not kept on an error.
    void write(std::vector<SessionRecord> more, Until keep);

    // ---- AnswerRecorder
    void begin(const TurnTree::Change& change) override;
    void token(std::size_t turn, std::int32_t token) override;
    void fail() override;

    OpenedEngine& engine_;
    std::optional<speculative::Generator> generator_;
    std::unique_ptr<Conversation> conversation_;

    PageTotals page_totals_;
    bool saving_ = false;
    std::filesystem::path wanted_path_;
    std::optional<Journal> journal_;
    std::string created_;                 // when the conversation began
    std::vector<SessionRecord> records_;  // not written yet

    // The answer that is being generated, while it is saved.
    struct Recorded {
        std::int64_t file_bytes = -1;                   // of the journal before it; -1: the journal was created for it
        std::vector<SessionRecord> records;             // records_ before that
        std::vector<std::vector<std::int32_t>> tokens;  // not written yet, per turn
        std::chrono::steady_clock::time_point next;     // when they are to be written
        bool failed = false;                            // no more tokens can be written
    };
    std::optional<Recorded> recorded_;
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
