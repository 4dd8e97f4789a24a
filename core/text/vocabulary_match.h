// core/text/vocabulary_match.h: may a draft model's tokens stand for a target model's?
#pragma once

#include <cstdint>
#include <string>

#include "core/text/tokenizer.h"

namespace foresay::core {

struct VocabularyMatch {
    bool compatible = false;
    std::string explanation;     // one sentence, fit for an error or for `inspect`
    std::int32_t shared = 0;     // ids that both have with equal text
    std::int32_t differing = 0;  // ids that both have with different text
    std::int32_t first_difference = -1;
};

// Compares token by token. One vocabulary may be longer when its tail is padding: unused, empty or control tokens that
// the other need never produce. BOS and the ends of text must agree where both models have them.
VocabularyMatch compare_vocabularies(const Tokenizer& target, const Tokenizer& draft);

}  // namespace foresay::core
