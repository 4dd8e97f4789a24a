// speculative/pairing.h: checks that a draft model can draft for a target.
//
// Errors:   check_pairing() throws Error with one sentence about what differs.
#pragma once

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

// Vocabularies are compared token by token; the number of padding rows after the vocabulary may differ.
void check_pairing(const PairingModel& target, const PairingModel& draft);

}  // namespace foresay::speculative
