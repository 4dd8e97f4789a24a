#include "app/edits/code_blocks.h"

#include <algorithm>

namespace foresay::app {

namespace {

struct Fence {
    std::size_t indent = 0, length = 0;
    char mark = 0;
    std::string_view rest;  // of the line
};

// The fence that a line begins with; its length is 0 if there is none.
Fence fence_of(std::string_view line) {
    Fence fence;
    fence.indent = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(fence.indent);
    if (line.empty() || (line[0] != '`' && line[0] != '~')) return fence;
    const std::size_t length = std::min(line.find_first_not_of(line[0]), line.size());
    if (length < 3) return fence;
    // Backquotes later in the line: it is a code span.
    const std::string_view rest = line.substr(length);
    if (line[0] == '`' && rest.find('`') != rest.npos) return fence;
    return {fence.indent, length, line[0], rest};
}

std::string_view first_word(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    return text.substr(0, text.find_first_of(" \t\r\n"));
}

}  // namespace

std::vector<CodeBlock> code_blocks(std::string_view text) {
    std::vector<CodeBlock> blocks;
    Fence open;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end);
        const Fence fence = fence_of(line);
        if (open.length == 0) {
            if (fence.length == 0) continue;
            open = fence;
            blocks.push_back({"", std::string(first_word(fence.rest)), false});
        } else if (fence.mark == open.mark && fence.length >= open.length && first_word(fence.rest).empty()) {
            blocks.back().closed = true;
            open = {};
        } else {
            const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
            blocks.back().text += line.substr(std::min(blanks, open.indent));
        }
    }
    if (open.length > 0 && blocks.back().text.empty()) blocks.pop_back();
    return blocks;
}

}  // namespace foresay::app
