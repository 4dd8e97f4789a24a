// core/text/vocabulary_match.h: whether the token ids of a draft model mean the same as those of the target model.
#pragma once

#include <cstdint>
#include <string>

#include "core/text/tokenizer.h"

namespace foresay::core {

struct VocabularyMatch {
    bool compatible = false;
    std::string explanation;     // one sentence, for errors and for `inspect`
    std::int32_t shared = 0;     // ids that both have with equal text
    std::int32_t differing = 0;  // ids that both have with different text
    std::int32_t first_difference = -1;
};

// Compares token by token. One vocabulary may be longer if its tail is padding: unused, empty or control tokens, which
// no plain text becomes. BOS and the ends of text must agree if both models have them.
VocabularyMatch compare_vocabularies(const Tokenizer& target, const Tokenizer& draft);

}  // namespace foresay::core
