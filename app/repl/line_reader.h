// app/repl/line_reader.h: what is entered, line by line: from the person at a terminal, or from a pipe.
//
// On a terminal lines are edited and remembered; elsewhere, with --simple-io, or where TERM is dumb they are simply
// read.
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
    line,       // `text` is what was entered
    end,        // the input has ended (Ctrl-D)
    interrupt,  // Ctrl-C; what was typed is dropped
};

struct Line {
    LineEnd how = LineEnd::end;
    std::string text;
    bool literal = false;  // begins with a paste of several lines, or stands between """: text, never a command
};

class LineReader {
public:
    virtual ~LineReader() = default;
    // `prompt` is shown to a person only; `initial` stands in the line at first, where lines are edited. `continues`:
    // the line is not the first of its entry.
    virtual Line read(const std::string& prompt, const std::string& initial = {}, bool continues = false) = 0;
    // Keeps an entry for later sessions too, where lines are edited. One that begins with a blank is not kept.
    virtual void remember(const std::string&) {}
};

struct EditingOptions {
    std::function<LineCompletion(std::string_view line)> complete;
    // Called when the person stops typing for a moment, with what stands in the first line of an entry.
    std::function<void(const std::string& text)> pause;
};

// Plain lines; `prompts`: a person sits there.
std::unique_ptr<LineReader> make_plain_reader(bool prompts);
// Lines edited with libedit; nullptr when the program was built without it. `keyboard` must outlive the reader.
std::unique_ptr<LineReader> make_editing_reader(Keyboard& keyboard, EditingOptions options);

// An entry: a line, several joined by a backslash at their ends, or what stands between """ and """, also behind the
// name of a command. Remembers it.
Line read_entry(LineReader& reader, const std::string& prompt, const std::string& continuation,
                const std::string& initial = {});

}  // namespace foresay::app
