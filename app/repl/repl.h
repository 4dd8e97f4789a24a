// app/repl/repl.h: the conversation loop: lines that are said to the model, and commands that begin with a slash.
//
// The commands are a table (app/repl/command.h). What begins with a slash is never sent to the model; two slashes send one.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "app/repl/command.h"
#include "app/repl/conversation.h"
#include "app/repl/line_reader.h"
#include "app/session.h"

namespace foresay::app {

struct ReplTotals {
    std::int64_t answers = 0, tokens = 0;
    std::int64_t rounds = 0, drafted = 0, accepted = 0;
    double prefill_ms = 0.0, decode_ms = 0.0;
};

class Repl {
public:
    explicit Repl(Session& session);

    // Until the input ends; the exit status.
    int run();

    // For the commands.
    Session& session() { return session_; }
    Conversation& conversation() { return *conversation_; }
    const ReplTotals& totals() const { return totals_; }
    bool interactive() const { return interactive_; }
    void quit() { quit_ = true; }
    void retry(std::optional<std::uint64_t> seed);
    // Applies the present configuration to the parts that are running.
    void refresh();

private:
    void banner();
    void handle(const std::string& text);
    void answer(const std::string& text);
    void finish(const Conversation::Answer& answer);
    Conversation::Limits limits() const;
    // Whether a Ctrl-C at the prompt is the second one within two seconds.
    bool second_interrupt();

    Session& session_;
    bool interactive_;
    speculative::Generator generator_;
    std::unique_ptr<Conversation> conversation_;
    std::unique_ptr<LineReader> reader_;
    ReplTotals totals_;
    bool quit_ = false;
    bool line_open_ = false;  // the cursor stands behind text of the model
    std::optional<std::chrono::steady_clock::time_point> last_interrupt_;
};

// The format of chat.style, "auto" by the model's template. Throws Error when the model lacks the format's tokens.
core::ChatFormat chat_format(const core::Config& config, const core::Tokenizer& tokenizer);

}  // namespace foresay::app
