// app/repl/answer_view.h: shows an answer while it is generated.
//
// On a terminal, the live view writes from its own thread, so that generation never waits for the terminal. It spreads
// the tokens that one verification accepts over the time until the next ones are due, shows keys typed meanwhile below
// the answer, and keeps them for the next prompt. It colours code. The plain view writes text as it comes.
//
// Threads:  one caller; the live view's own thread owns the terminal and the keyboard until finish().
// Cost:     add() takes about a microsecond in the live view, and a write(2) in the plain one.
// Errors:   add() and finish() throw OutputClosed or OutputFailed if a write fails (output.h).
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "app/highlight/highlighter.h"
#include "app/repl/keyboard.h"

namespace foresay::app {

class AnswerView {
public:
    virtual ~AnswerView() = default;
    // Adds text; `drafted`: it was a drafted token.
    virtual void add(std::string_view text, bool drafted) = 0;
    // Adds a token's text of reasoning. On a terminal it is one dim line, its end while it grows and then how long it
    // was; anywhere else it is not shown.
    virtual void reason(std::string_view text) = 0;
    // Shows the rest and ends the view.
    virtual void finish() = 0;
    // CPU time of both threads spent on showing. Call after finish().
    virtual double cost_ms() const { return 0.0; }
    // Whether the last line shown is not empty. Call after finish().
    virtual bool line_open() const = 0;
};

// The line that stands for reasoning of `tokens` tokens.
std::string reasoning_line(std::size_t tokens);

// `clean`: for a terminal: replace control characters, because a terminal would act on them.
std::unique_ptr<AnswerView> make_plain_view(bool clean);
struct LiveViewOptions {
    bool tint = false;                       // mark drafted tokens, and nothing else
    std::optional<Highlighter> highlighter;  // of code, if it is to be coloured
};
// `keyboard` must outlive the view.
std::unique_ptr<AnswerView> make_live_view(Keyboard& keyboard, LiveViewOptions options);

}  // namespace foresay::app
