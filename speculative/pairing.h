// speculative/pairing.h: checks that a draft model can draft for a target.
//
// Errors:   check_pairing() throws Error with one sentence about what differs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/models/model_config.h"

namespace foresay::core {
class Tokenizer;
}

namespace foresay::speculative {

struct PairingModel {
    const core::ModelConfig& config;
    const core::Tokenizer* tokenizer;  // null: the model has none, and only sizes are compared
    std::string path;                  // for messages
};

struct Pairing {
    std::string explanation;  // one sentence about the vocabularies; empty when one has no tokenizer
    // Ids that the draft must not propose, increasing: see core/text/vocabulary_match.h.
    std::vector<std::int32_t> never_proposed;
};

// Vocabularies are compared token by token; some tokens may differ, and the number of padding rows after them.
Pairing check_pairing(const PairingModel& target, const PairingModel& draft);

}  // namespace foresay::speculative
