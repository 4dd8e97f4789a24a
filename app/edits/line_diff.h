// app/edits/line_diff.h: what differs between two texts, line by line, and how a person sees it.
//
// Source:   E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986. Where texts differ in more than
//           kMostDifferences lines, lines that both have exactly once divide them first (patience diff).
// Cost:     O(lines * differences) between two such lines, at most kMostDifferences^2 integers of memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/edits/file_text.h"

namespace foresay::app {

inline constexpr std::size_t kMostDifferences = 512;

// The edits that turn `before` into `after`. Deterministic, and as few lines as kMostDifferences allows.
std::vector<LineEdit> diff_lines(const std::vector<std::string_view>& before,
                                 const std::vector<std::string_view>& after);

struct DiffSize {
    std::size_t added = 0, removed = 0;  // lines
};
DiffSize size_of(std::span<const LineEdit> edits);

struct DiffLook {
    bool colours = false;          // removed lines red, added ones green
    std::size_t most_lines = 500;  // more are counted and left out
};
// A unified diff with three lines of context and no file header, every line printable. Empty for no edits.
std::string shown_diff(const std::vector<std::string_view>& before, std::span<const LineEdit> edits,
                       const DiffLook& look);

}  // namespace foresay::app
