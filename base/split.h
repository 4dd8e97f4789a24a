// base/split.h: the parts of a list in one text, such as "cuda:0,cpu".
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace foresay {

// What stands between the separators, empty parts included: always one more than there are separators. The parts refer
// to `text`.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

}  // namespace foresay
