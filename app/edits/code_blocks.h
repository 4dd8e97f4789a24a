// app/edits/code_blocks.h: finds the fenced blocks of a Markdown text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

struct CodeBlock {
    std::string text;      // its lines, without the indentation of the fence
    std::string language;  // the first word after the opening fence; may be empty
    bool closed = false;   // false: the text ends inside it
};

// A block begins with a line of three or more backquotes or tildes, perhaps indented, and ends with a line of as many
// of the same. An open block without lines does not count.
std::vector<CodeBlock> code_blocks(std::string_view text);

}  // namespace foresay::app
