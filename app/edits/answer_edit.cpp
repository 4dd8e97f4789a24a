#include "app/edits/answer_edit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "app/edits/code_blocks.h"
#include "app/edits/unified_diff.h"
#include "base/error.h"

namespace foresay::app {

namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The hunks for the file `name`.
FileDiff diff_for(std::vector<FileDiff> diffs, const std::string& name) {
    const auto names = [](const FileDiff& diff) {
        return last_part(diff.new_name.empty() || diff.new_name == "/dev/null" ? diff.old_name : diff.new_name);
    };
    const bool one_file = std::all_of(diffs.begin(), diffs.end(),
                                      [&](const FileDiff& diff) { return names(diff) == names(diffs.front()); });
    FileDiff all;
    for (FileDiff& diff : diffs) {
        if (!one_file && names(diff) != name) continue;
        std::move(diff.hunks.begin(), diff.hunks.end(), std::back_inserter(all.hunks));
    }
    if (all.hunks.empty()) throw Error("the diff of the answer changes other files, and not " + name);
    return all;
}

}  // namespace

std::string edited_by_answer(const FileText& file, const std::string& name, const std::string& answer, AskedFor asked) {
    const std::vector<CodeBlock> blocks = code_blocks(answer);
    std::vector<FileDiff> diffs;
    const CodeBlock* longest = nullptr;
    for (const CodeBlock& block : blocks) {
        if (looks_like_diff(block.text)) {
            std::vector<FileDiff> more = parse_diff(block.text, true);
            std::move(more.begin(), more.end(), std::back_inserter(diffs));
        } else if (!longest || block.text.size() > longest->text.size()) {
            longest = &block;
        }
    }
    if (diffs.empty() && blocks.empty() && looks_like_diff(answer)) diffs = parse_diff(answer, false);
    if (!diffs.empty()) {
        const PlacedDiff placed = place_diff(diff_for(std::move(diffs), name), file.lines());
        return file.with_edits(placed.edits, placed.final_newline);
    }
    if (!longest) throw Error("the answer has no code block and no diff, so nothing was changed");
    if (asked == AskedFor::diff)
        throw Error("the answer has no diff, so nothing was changed; /write takes its code block");
    return file.with_text(longest->text);
}

}  // namespace foresay::app
