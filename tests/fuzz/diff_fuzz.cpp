// Whatever an answer and a file hold, the answer is refused with one Error or changes the file as its diff says: lines
// outside the edits keep their bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/edits/answer_edit.h"
#include "app/edits/file_text.h"
#include "app/edits/unified_diff.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::app;
    // The file, and after a NUL the answer.
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t end = input.find('\0');
    const FileText file{std::string(input.substr(0, end))};
    const std::string answer(end == input.npos ? input : input.substr(end + 1));
    const std::size_t count = file.line_count();
    for (const bool fenced : {true, false}) {
        try {
            for (const FileDiff& diff : parse_diff(answer, fenced)) {
                if (diff.hunks.empty()) __builtin_trap();
                const PlacedDiff placed = place_diff(diff, file.lines());
                std::size_t at = 0;
                for (const LineEdit& edit : placed.edits) {
                    if (edit.begin < at || edit.end < edit.begin || edit.end > count) __builtin_trap();
                    at = edit.end;
                }
                // Without the edited lines, both texts are the same.
                const FileText after(file.with_edits(placed.edits, placed.final_newline));
                const auto old_lines = file.lines();
                const auto new_lines = after.lines();
                std::size_t from = 0, to = 0;
                const auto compare = [&](std::size_t until) {
                    for (; from < until; ++from, ++to) {
                        const bool cut = to + 1 >= new_lines.size();  // an empty last line may lose its line end
                        if (!cut && old_lines[from] != new_lines[to]) __builtin_trap();
                    }
                };
                for (const LineEdit& edit : placed.edits) {
                    compare(edit.begin);
                    from = edit.end;
                    to += edit.lines.size();
                }
                compare(count);
            }
        } catch (const foresay::Error&) {
        }
    }
    try {
        edited_by_answer(file, "f", answer, AskedFor::whole_file);
    } catch (const foresay::Error&) {
    }
    return 0;
}
