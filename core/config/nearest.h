// core/config/nearest.h: suggestions for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

// The least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Both are cut
// to 64 bytes.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if within a third of its length (at least 2 for words longer than 3) or if `word` is
// its beginning; else empty. Ties go to the first.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?", or "; known are a, b, c" when nothing is near and the list is short, or nothing.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

}  // namespace foresay::core
