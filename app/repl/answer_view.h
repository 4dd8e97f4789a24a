// app/repl/answer_view.h: an answer as it is shown while it is being generated.
//
// On a terminal a thread of the view's own writes it, because the one that generates must not wait: bursts of accepted
// tokens are spread over the time until the next one is due, and keys that are typed meanwhile are shown below the
// answer and kept for the next prompt. Elsewhere text is written as it comes.
//
// Threads:  the caller's one; the live view has another inside, which owns terminal and keyboard until finish().
// Cost:     add() takes about a microsecond in the live view; a write(2) in the plain one.
// Errors:   add() and finish() throw what a failing write throws (output.h).
#pragma once

#include <memory>
#include <string_view>

#include "app/repl/keyboard.h"

namespace foresay::app {

class AnswerView {
public:
    virtual ~AnswerView() = default;
    // More text; `drafted`: a drafter proposed it.
    virtual void add(std::string_view text, bool drafted) = 0;
    // All is shown, and the view is done.
    virtual void finish() = 0;
    // Time of processors that showing took, of both threads. After finish().
    virtual double cost_ms() const { return 0.0; }
    // Whether the last line shown has something on it. After finish().
    virtual bool line_open() const = 0;
};

// `clean`: for a person, so control characters are replaced.
std::unique_ptr<AnswerView> make_plain_view(bool clean);
// `tint`: mark what was drafted. `keyboard` must outlive the view.
std::unique_ptr<AnswerView> make_live_view(Keyboard& keyboard, bool tint);

}  // namespace foresay::app
