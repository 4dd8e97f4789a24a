#include "app/repl/blocks.h"

#include <algorithm>

#include "app/output.h"
#include "app/terminal.h"

namespace foresay::app {

namespace {

constexpr std::ptrdiff_t kMostLines = 8;
constexpr std::size_t kMostBytes = 800;
constexpr std::size_t kBeginning = 32;  // columns of the first line that a label shows

// The beginning of the first line that is not blank, printable and without tabs.
std::string beginning(std::string_view text) {
    const std::size_t start = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    std::string_view line = text.substr(start, std::min(text.find('\n', start), text.size()) - start);
    std::size_t at = 0, columns = 0, end = 0;
    while (at < line.size() && columns < kBeginning) {
        columns += columns_of(next_character(line, at));
        end = at;
    }
    std::string out = printable(line.substr(0, end));
    std::replace(out.begin(), out.end(), '\t', ' ');
    return out.substr(0, out.find_last_not_of(' ') + 1);
}

}  // namespace

bool Blocks::is_long(std::string_view text) {
    return text.size() > kMostBytes || std::count(text.begin(), text.end(), '\n') >= kMostLines;
}

const std::string& Blocks::label(const std::string& text) {
    const auto known = labels_.find(text);
    if (known != labels_.end()) return known->second;
    const auto lines = std::count(text.begin(), text.end(), '\n') + (text.ends_with('\n') ? 0 : 1);
    const std::string what =
        "[" + beginning(text) + " ... " + std::to_string(lines) + (lines == 1 ? " line" : " lines");
    std::string label = what + "]";
    for (int i = 2; texts_.contains(label); ++i) label = what + " #" + std::to_string(i) + "]";
    texts_[label] = text;
    return labels_[text] = std::move(label);
}

std::string Blocks::expanded(const std::string& line) const {
    std::string out;
    for (std::size_t at = 0; at < line.size();) {
        const auto block =
            line[at] != '[' ? texts_.end() : std::find_if(texts_.begin(), texts_.end(), [&](const auto& entry) {
                return line.compare(at, entry.first.size(), entry.first) == 0;
            });
        if (block == texts_.end()) {
            out += line[at++];
        } else {
            out += block->second;
            at += block->first.size();
        }
    }
    return out;
}

}  // namespace foresay::app
