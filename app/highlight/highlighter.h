// app/highlight/highlighter.h: colours an answer as it comes: code, or Markdown with blocks of code in it.
//
// As in CodeHighlighter, looks depend on the text alone, and the end of what came may be undecided for a while. It is
// never longer than kMostHeld bytes and holds no newline.
//
// Threads:  one caller at a time.
// Cost:     a few tens of nanoseconds per byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "app/highlight/code_highlighter.h"
#include "app/highlight/language.h"
#include "app/highlight/look.h"

namespace foresay::app {

class Highlighter {
public:
    // Markdown; blocks that name no language are in `unnamed`, null: plain text.
    static Highlighter markdown(const Language* unnamed = nullptr);
    static Highlighter code(const Language& language);

    // Adds `text` and appends what is decided now to `out`. Its text is that of all undecided() before and of `text`,
    // without what is undecided() then.
    void add(std::string_view text, Runs& out);
    // Decides the rest: the text has ended, or what comes next cannot change the looks of what is on the screen.
    void finish(Runs& out);
    std::string_view undecided() const { return code_ && held_.empty() ? code_->undecided() : held_; }

private:
    enum class Mode : unsigned char { only_code, line_start, prose, inline_code, heading, fence, code_line };

    Highlighter() = default;
    void take(std::size_t count, Look look, Runs& out);
    bool step(Runs& out, bool last);
    bool prose_line_start(Runs& out, bool last);
    bool code_line_start(Runs& out, bool last);
    void end_fence_line();
    void inline_step(Runs& out);

    Mode mode_ = Mode::line_start;
    std::string held_;  // Markdown that is not decided; during add(), also what has just been decided
    std::size_t at_ = 0;

    const Language* unnamed_ = nullptr;
    char fence_ = 0;              // of the block that is open: '`' or '~'; 0: none
    std::size_t fence_size_ = 0;  // its number of characters
    std::string info_;            // what follows the opening fence in its line
    bool in_block_ = false;
    std::optional<CodeHighlighter> code_;  // of the open block, if its language is known
    std::size_t ticks_ = 0;                // that begin inline code, and must end it
    std::size_t tick_run_ = 0;             // just seen within it
    bool opening_ = false;                 // still counting ticks_
};

}  // namespace foresay::app
