// app/repl/blocks.h: long pieces of text that stand in a line as a label: "[def fib(n): ... 200 lines]".
//
// A line editor is made for a line: 200 pasted ones would fill the screen. Labels are put back when the line is
// entered.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace foresay::app {

class Blocks {
public:
    // Whether `text` is better shown as a label.
    static bool is_long(std::string_view text);
    // The label that stands for `text` from now on; the same text always has the same one.
    const std::string& label(const std::string& text);
    // `line` with every label replaced by its text.
    std::string expanded(const std::string& line) const;

private:
    std::map<std::string, std::string> texts_;   // by label
    std::map<std::string, std::string> labels_;  // by text
};

}  // namespace foresay::app
