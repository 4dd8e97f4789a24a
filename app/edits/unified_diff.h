// app/edits/unified_diff.h: reads unified diffs, as tools and models write them, and finds where their hunks fit.
//
// Tolerated: prose around the diff, no file headers, wrong line numbers and counts, "@@" without numbers, empty lines
// for empty lines of context, CRLF, and white space that differs at the ends of lines. Not tolerated: lines that are in
// neither text, and hunks that fit nowhere or, away from their line numbers, in several places.
// Errors:   Error for text that is not a diff, or a hunk that does not fit; names its line or its number.
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/edits/file_text.h"

namespace foresay::app {

struct DiffHunk {
    struct Line {
        char tag = ' ';  // ' ', '-' or '+'
        std::string text;
    };
    std::optional<std::size_t> old_begin;  // counted from 0; nullopt: the header has no numbers
    std::vector<Line> lines;
    bool old_ends_open = false, new_ends_open = false;  // "\ No newline at end of file"
};

struct FileDiff {
    std::string old_name, new_name;  // as in the headers, without a/ and b/; empty if there are none
    std::vector<DiffHunk> hunks;
};

// Whether a line of `text` can only be the header of a hunk.
bool looks_like_diff(std::string_view text);

// The files that a diff changes. `fenced`: `text` is the content of a code block, so every line after a hunk's header
// belongs to the diff; otherwise prose may follow a hunk. Errors: no hunk at all, a malformed line.
std::vector<FileDiff> parse_diff(std::string_view text, bool fenced);

struct PlacedDiff {
    std::vector<LineEdit> edits;
    FinalNewline final_newline = FinalNewline::keep;
};
// Where the hunks change a file of these lines. Errors: a hunk does not fit, or overlaps another.
PlacedDiff place_diff(const FileDiff& diff, const std::vector<std::string_view>& lines);

}  // namespace foresay::app
