// app/repl/repl.h: the conversation loop: entries are sent to the model, and commands begin with a slash.
//
// The commands are a table (app/repl/command.h). An entry that begins with a slash is never sent to the model; two
// slashes send one.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/metered_ops.h"
#include "app/conversation/workspace.h"
#include "app/opened_engine.h"
#include "app/repl/answer_view.h"
#include "app/repl/command.h"
#include "app/repl/file_writes.h"
#include "app/repl/keyboard.h"
#include "app/repl/latencies.h"
#include "app/repl/line_reader.h"
#include "app/repl/read_ahead.h"
#include "app/repl/watched_files.h"
#include "app/terminal.h"

namespace foresay::app {

struct ReplTotals {
    std::int64_t answers = 0, tokens = 0;
    std::int64_t rounds = 0, drafted = 0, accepted = 0;
    double prefill_ms = 0.0, decode_ms = 0.0;
    double show_ms = 0.0;  // CPU time for showing answers
};

struct ReplOptions {
    bool simple_io = false;  // plain lines even on a terminal
};

class Repl {
public:
    Repl(OpenedEngine& engine, const ReplOptions& options);

    // Shows the models and the backend, on a terminal.
    void banner();
    // Runs until the input ends or /quit. Returns the exit status.
    int run();

    // ---- for the commands
    OpenedEngine& engine() { return engine_; }
    Workspace& workspace() { return workspace_; }
    Conversation& conversation() { return workspace_.conversation(); }
    const ReplTotals& totals() const { return totals_; }
    const Latencies& latencies() const { return latencies_; }
    bool interactive() const { return interactive_; }
    // Whether drafted tokens are marked in answers.
    bool tints_drafts() const { return tint_; }
    void tint_drafts(bool tint) { tint_ = tint; }
    // Puts text into the line of the next entry, for the user to change.
    void offer(std::string text) { offered_ = std::move(text); }
    void quit() { quit_ = true; }
    // The files that commands have written, and those whose text is kept in the context.
    FileWrites& writes() { return writes_; }
    WatchedFiles& watched() { return watched_; }
    // Asks a yes-or-no question at the terminal; anything but yes is no. Keys typed ahead do not count. There must be a
    // terminal.
    bool confirm(const std::string& question);
    // Runs `generate`, which answers a new message, with the changed watched files attached to the message.
    void send(const std::function<void()>& generate);
    // What the ops of the last answer took: up to its first token, and after it. Empty before the first answer.
    const std::vector<MeteredOps::Meters>& profile() const { return profile_; }
    Conversation::Limits limits() const;
    // Shows an answer while `generate` produces it, then the line of statistics. `generate` calls its argument with
    // every token and returns the answer.
    using Show = speculative::TokenCallback;
    using Generate = std::function<Conversation::Answer(const Show&)>;
    void show_answer(const Generate& generate);
    // Switches to another configuration and prints notes about the change.
    void configure(const Configuration& next);

private:
    void handle(const Line& entry);
    void answer(const std::string& text);
    // Evaluates the part of the next prompt that cannot change any more, `text` being the entry so far. Runs in the
    // thread of reading_.
    void read_ahead(const std::string& text, const std::atomic<bool>& cancel);
    void finish(const Conversation::Answer& answer);
    // Whether a Ctrl-C at the prompt is the second one within two seconds.
    bool second_interrupt();

    OpenedEngine& engine_;
    bool interactive_;  // standard input and output are a terminal
    bool edits_;        // and its cursor can be moved: lines are edited, answers are live
    std::optional<TerminalMode> terminal_;
    std::optional<Keyboard> keyboard_;
    Workspace workspace_;
    std::unique_ptr<LineReader> reader_;
    std::vector<std::int32_t> prepared_;  // the generator's tokens as read_ahead() left them
    std::optional<ReadAhead> reading_;    // works while an entry is typed
    ReplTotals totals_;
    Latencies latencies_;
    std::vector<MeteredOps::Meters> profile_;
    FileWrites writes_;
    WatchedFiles watched_;
    std::string offered_;
    bool tint_ = false;
    bool quit_ = false;
    bool failed_ = false;  // an entry ended in an error
    std::optional<std::chrono::steady_clock::time_point> last_interrupt_;
};

}  // namespace foresay::app
