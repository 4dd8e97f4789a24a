// speculative/drafters/ngram_drafter.h: n-gram lookup: proposes what followed the same tokens earlier in the text.
//
// It searches for earlier occurrences of the sequence's last tokens and follows the one with the longest match, the
// latest of equals. It follows that place while it predicts the tokens, so most tokens need no search. The chance of a
// match of each length is learnt from every token of the sequence, input included, whether or not a draft was asked
// for.
//
// Layout:   two chained hash tables, of single tokens and of pairs: per position the previous one of the same hash.
//           Appending pushes and going back pops, so any prefix of the sequence can be restored exactly. A suffix
//           automaton would find the same matches but cannot be truncated.
// Cost:     a token costs O(1), a search at most kMostPlaces comparisons of at most kLongest tokens. No allocation
//           within `capacity` tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "speculative/drafter.h"

namespace foresay::speculative {

std::unique_ptr<Drafter> make_ngram_drafter(std::int32_t capacity, std::string name = "ngram");

}  // namespace foresay::speculative
