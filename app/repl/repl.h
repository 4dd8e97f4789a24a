// app/repl/repl.h: the conversation loop: lines that are said to the model, and commands that begin with a slash.
//
// The commands are a table (app/repl/command.h). What begins with a slash is never sent to the model; two slashes send
// one.
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
#include "app/repl/keyboard.h"
#include "app/repl/latencies.h"
#include "app/repl/line_reader.h"
#include "app/repl/read_ahead.h"
#include "app/terminal.h"

namespace foresay::app {

struct ReplTotals {
    std::int64_t answers = 0, tokens = 0;
    std::int64_t rounds = 0, drafted = 0, accepted = 0;
    double prefill_ms = 0.0, decode_ms = 0.0;
    double show_ms = 0.0;  // of processor time, for showing answers
};

struct ReplOptions {
    bool simple_io = false;  // plain lines even on a terminal
};

class Repl {
public:
    Repl(OpenedEngine& engine, const ReplOptions& options);

    // Says what runs here, to a person.
    void banner();
    // Until the input ends; the exit status.
    int run();

    // For the commands.
    OpenedEngine& engine() { return engine_; }
    Workspace& workspace() { return workspace_; }
    Conversation& conversation() { return workspace_.conversation(); }
    const ReplTotals& totals() const { return totals_; }
    const Latencies& latencies() const { return latencies_; }
    bool interactive() const { return interactive_; }
    // Whether what a drafter proposed is marked in answers.
    bool tints_drafts() const { return tint_; }
    void tint_drafts(bool tint) { tint_ = tint; }
    // Text that stands in the next entry's line at first, for the person to change.
    void offer(std::string text) { offered_ = std::move(text); }
    void quit() { quit_ = true; }
    // What the stages of the last answer took: up to its first token, and behind it. Empty before there was an answer.
    const std::vector<MeteredOps::Meters>& profile() const { return profile_; }
    Conversation::Limits limits() const;
    // Shows what `generate` makes while it makes it, then the line of statistics. `generate` calls what it is given
    // with every token and returns the answer.
    using Show = speculative::TokenCallback;
    using Generate = std::function<Conversation::Answer(const Show&)>;
    void show_answer(const Generate& generate);
    // Goes over to another configuration, and says what the person should know of it.
    void configure(const Configuration& next);

private:
    void handle(const Line& entry);
    void answer(const std::string& text);
    // Evaluates what is sure of the prompt that `text` is the beginning of. In the thread of reading_.
    void read_ahead(const std::string& text, const std::atomic<bool>& cancel);
    void finish(const Conversation::Answer& answer);
    // Whether a Ctrl-C at the prompt is the second one within two seconds.
    bool second_interrupt();

    OpenedEngine& engine_;
    bool interactive_;  // a person sits there
    bool edits_;        // and the terminal can move its cursor
    std::optional<TerminalMode> terminal_;
    std::optional<Keyboard> keyboard_;
    Workspace workspace_;
    std::unique_ptr<LineReader> reader_;
    std::vector<std::int32_t> prepared_;  // the session as read_ahead() left it
    std::optional<ReadAhead> reading_;    // works between the beginning and the end of an entry
    ReplTotals totals_;
    Latencies latencies_;
    std::vector<MeteredOps::Meters> profile_;
    std::string offered_;
    bool tint_ = false;
    bool quit_ = false;
    bool failed_ = false;  // a line led to an error
    std::optional<std::chrono::steady_clock::time_point> last_interrupt_;
};

}  // namespace foresay::app
