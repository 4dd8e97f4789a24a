// app/repl/blocks.h: labels for long texts in the line editor: "[def fib(n): ... 200 lines]".
//
// 200 pasted lines would fill the screen of a line editor, so a label stands for them. Labels are replaced by their
// texts when the line is entered.
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
