// app/repl/line_reader.h: reads lines and entries, from a terminal or a pipe.
//
// On a terminal, lines are edited and kept in the history. In a pipe (with --lines), with --simple-io, or with
// TERM=dumb they are only read.
//
// Threads:  one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "app/repl/command.h"
#include "app/repl/completion.h"
#include "app/repl/keyboard.h"

namespace foresay::app {

enum class LineEnd : std::uint8_t {
    line,       // `text` is the line
    end,        // end of input (Ctrl-D)
    interrupt,  // Ctrl-C; the typed text is dropped
};

struct Line {
    LineEnd how = LineEnd::end;
    std::string text;
    bool literal = false;  // a paste of several lines, or text between quotes: never a command
    bool pasted = false;   // the text has its own last newline, if any: Enter adds none
};

class LineReader {
public:
    virtual ~LineReader() = default;
    // `prompt` is shown on a terminal only. `initial` is the text that an edited line starts with. `continues`: the
    // line is not the first of its entry.
    virtual Line read(const std::string& prompt, const std::string& initial = {}, bool continues = false) = 0;
    // Adds an entry to the history, if there is one. An entry that begins with a blank is not kept.
    virtual void remember(const std::string&) {}
};

struct EditingOptions {
    std::function<LineCompletion(std::string_view line)> complete;
    // Called when the user stops typing for a moment, with the first line of the entry so far.
    std::function<void(const std::string& text)> pause;
};

// Plain lines. `prompts`: input and output are a terminal, so show prompts.
std::unique_ptr<LineReader> make_plain_reader(bool prompts);
// Lines edited with libedit; nullptr if the program was built without it. `keyboard` must outlive the reader.
std::unique_ptr<LineReader> make_editing_reader(Keyboard& keyboard, EditingOptions options);

// Reads an entry: what one Enter key ends (on a terminal, line breaks are typed with Ctrl-J), or the lines between two
// lines of three or more double quotes and nothing else; the quotes can also end a line that begins with a command.
// Both lines must have the same number of quotes, so more quotes can enclose text with such lines. Adds it to the
// history.
Line read_entry(LineReader& reader, const std::string& prompt, const std::string& continuation,
                const std::string& initial = {});

}  // namespace foresay::app
