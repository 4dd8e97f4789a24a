// core/text/vocabulary_match.h: whether the token ids of a draft model mean the same as those of the target model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"

namespace foresay::core {

struct VocabularyMatch {
    bool compatible = false;
    std::string explanation;     // one sentence, for errors and for `inspect`
    std::int32_t shared = 0;     // ids that both have with equal text
    std::int32_t differing = 0;  // ids that both have with different text
    std::int32_t first_difference = -1;
    // Tokens of the target that a draft must not propose, increasing: the draft means something else by the id, or has
    // no such token. Padding is not among them.
    std::vector<std::int32_t> never_proposed;
};

// Compares token by token. Two tokens are equal if they are spelled alike or stand for the same bytes. One vocabulary
// may be longer, and some tokens may differ: a draft that does not propose them still drafts all others. Vocabularies
// of which more than a tenth differs do not match.
VocabularyMatch compare_vocabularies(const Tokenizer& target, const Tokenizer& draft);

}  // namespace foresay::core
