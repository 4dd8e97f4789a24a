// app/repl/line_reader.h: one line from the person, or from a pipe.
//
// On a terminal lines are edited and remembered ($XDG_STATE_HOME/foresay/history, for its owner only); elsewhere they are
// simply read. A line that ends in a backslash goes on in the next one.
//
// Threads:  one caller.
#pragma once

#include <memory>
#include <string>

namespace foresay::app {

enum class LineEnd : std::uint8_t {
    line,       // `text` is what was entered
    end,        // the input has ended (Ctrl-D)
    interrupt,  // Ctrl-C; what was typed is dropped
};

struct Line {
    LineEnd how = LineEnd::end;
    std::string text;
};

class LineReader {
public:
    virtual ~LineReader() = default;
    // `prompt` is shown on terminals only.
    virtual Line read(const std::string& prompt) = 0;
};

// For a terminal on standard input and output: editing with libedit if the program has it. Else plain lines; then
// `interactive` says whether prompts are shown.
std::unique_ptr<LineReader> make_line_reader(bool interactive);
std::unique_ptr<LineReader> make_plain_reader(bool interactive);
#ifdef FORESAY_HAVE_LIBEDIT
std::unique_ptr<LineReader> make_editing_reader();
#endif

// Reads lines until one does not end in a backslash, and joins them with newlines.
Line read_entry(LineReader& reader, const std::string& prompt, const std::string& continuation);

}  // namespace foresay::app
