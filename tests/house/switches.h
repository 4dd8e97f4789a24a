// tests/house/switches.h: rules that the tree does not keep everywhere yet. A rule that is off counts its complaints
// and is shown as skipped; FORESAY_HOUSE_ALL=1 turns all of them on for one run and lists every place.
#pragma once

namespace foresay::house {

constexpr bool kColumnsAreKept = true;  // at most 120 columns
constexpr bool kFormatIsKept = true;    // clang-format changes nothing
constexpr bool kWordsAreKept = true;    // none of the words of words.cpp

}  // namespace foresay::house
