// app/repl/repl.h: the conversation loop: entries are sent to the model, and commands begin with a slash.
//
// The commands are a table (app/repl/command.h). An entry that begins with a slash is never sent to the model; two
// slashes send one. What is piped in is one prompt, and no command, unless ReplOptions::lines is set.
//
// Messages:  errors and notes begin with "foresay: ", whatever they are about; what a command was asked for does not.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
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
    // Since the chain was made, which has counted its calls from then on.
    std::int64_t chain_tokens = 0;
    double chain_ms = 0.0;
    double token_ms() const { return chain_tokens > 0 ? chain_ms / static_cast<double>(chain_tokens) : 0.0; }
};

struct ReplOptions {
    bool simple_io = false;  // plain lines even on a terminal
    bool lines = false;      // read what is piped in line by line, as entries and commands
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
    // Whether drafted tokens are marked in answers. On anything but a terminal with a movable cursor they cannot be;
    // why_no_tint() says so, and is empty where they can.
    bool tints_drafts() const { return tint_; }
    void tint_drafts(bool tint) { tint_ = tint; }
    std::string why_no_tint() const;
    // Puts text into the line of the next entry, for the user to change.
    void offer(std::string text) { offered_ = std::move(text); }
    // Opens `text` in the user's editor. The time it is open does not count as waiting for the model.
    std::string edited_text(const std::string& text);
    // Sends `text` to the model, from `seed` and branch 0 if there is one, and shows the answer.
    void answer(const std::string& text, std::optional<std::uint64_t> seed = {});
    // The entry that was sent last, if no answer to it came because of an error and nothing has changed since.
    std::optional<std::string> unanswered() const;
    void remember_unanswered(const std::string& text);
    void quit() { quit_ = true; }
    // The files that commands have written, and those whose text is kept in the context.
    FileWrites& writes() { return writes_; }
    WatchedFiles& watched() { return watched_; }
    // Asks a yes-or-no question at the terminal; anything but yes is no. Keys typed ahead do not count. There must be a
    // terminal.
    bool confirm(const std::string& question);
    // Runs `generate`, which answers the new message `text`, with the changed watched files attached to it. If that
    // fails, the files are dropped, and /retry sends the message again.
    void send(const std::string& text, const std::function<void()>& generate);
    // Runs `generate`, which attaches files and answers a new message. If that fails, the files are dropped.
    void with_files(const std::function<void()>& generate);
    // What the ops of the last answer took: up to its first token, and after it. Empty before the first answer.
    const std::vector<MeteredOps::Meters>& profile() const { return profile_; }
    Conversation::Limits limits();
    // Shows an answer while `generate` produces it, then the line of statistics. `generate` calls its argument with
    // every token and returns the answer.
    using Show = speculative::TokenCallback;
    using Generate = std::function<Conversation::Answer(const Show&)>;
    // `before`: the text that the answer continues, which decides how code in it is coloured. `given`: text to show
    // before the answer, which continues it on the same line.
    void show_answer(const Generate& generate, const std::string& before, const std::string& given = {});
    // The end of the document before the answer to `said`, or before the last answer; empty if answers begin a text of
    // their own, or if no code in them is coloured.
    std::string text_before(const std::optional<std::string>& said = std::nullopt);
    // The last answer as show_answer() left it on the screen. There must be one.
    std::string shown_answer();
    // Shows `line` in place of the statistics of the answer that is being generated.
    void replace_statistics(std::string line) { closing_ = std::move(line); }
    // Switches to another configuration and prints notes about the change.
    void configure(const Configuration& next);
    // Prints a note for the user: a sentence without a capital at its beginning or a full stop.
    void note(const std::string& sentence) const;
    // Says what went wrong, and remembers it for the exit status.
    void fail(const std::string& sentence);

private:
    // The turns of the conversation when an entry failed, and the entry.
    struct Unanswered {
        std::string text;
        TurnTree::State state;
        std::size_t turns = 0;
    };

    int run_prompt();
    // Handles an entry, prints its error if there is one, and saves the conversation.
    void attempt(const Line& entry);
    void handle(const Line& entry);
    // Saves an answer that standard output could not take any more.
    void save_before_end();
    std::string prompt();
    // Evaluates the part of the next prompt that cannot change any more, `text` being the entry so far. Runs in the
    // thread of reading_.
    void read_ahead(const std::string& text, const std::atomic<bool>& cancel);
    bool colours_answers() const;
    // What colours an answer that continues `before`; none without colours.
    std::optional<Highlighter> highlighter(const std::string& before);
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
    AnswerView* view_ = nullptr;  // of the answer that is being shown
    std::string closing_;         // the line after the answer, if it is not that of its statistics
    std::optional<Unanswered> unanswered_;
    bool one_prompt_;  // what is piped in is one prompt
    bool tint_ = false;
    bool quit_ = false;
    bool failed_ = false;                // an entry ended in an error
    std::exception_ptr output_failure_;  // of the answer that is being shown
    std::optional<std::chrono::steady_clock::time_point> last_interrupt_;
};

}  // namespace foresay::app
