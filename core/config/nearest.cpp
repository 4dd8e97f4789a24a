#include "core/config/nearest.h"

#include <algorithm>
#include <array>

namespace foresay::core {

namespace {
constexpr std::size_t kMaxWord = 64;
constexpr std::size_t kShortList = 12;
}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
    a = a.substr(0, kMaxWord);
    b = b.substr(0, kMaxWord);
    // rows[i % 3][j]: the distance between the first i bytes of a and the first j of b. Three rows, for swaps.
    std::array<std::array<int, kMaxWord + 1>, 3> rows{};
    for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
    for (std::size_t i = 1; i <= a.size(); ++i) {
        auto& row = rows[i % 3];
        const auto& above = rows[(i - 1) % 3];
        row[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const int change = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a.size() % 3][b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
    const int size = static_cast<int>(std::min(word.size(), kMaxWord));
    const int reach = size > 3 ? std::max(2, size / 3) : 1;
    std::string best;
    int best_distance = reach + 1;
    for (const std::string& candidate : candidates) {
        const int distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    if (!best.empty() || word.size() < 2) return best;
    for (const std::string& candidate : candidates) {
        if (candidate.starts_with(word)) return candidate;
    }
    return best;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
    const std::string near = nearest(word, candidates);
    if (!near.empty()) return "; did you mean '" + near + "'?";
    if (candidates.empty() || candidates.size() > kShortList) return "";
    std::string list;
    for (const std::string& candidate : candidates) list += (list.empty() ? "" : ", ") + candidate;
    return "; known are " + list;
}

}  // namespace foresay::core
