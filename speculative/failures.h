// speculative/failures.h: what every generator refuses, and the sentences for what can go wrong while one runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/models/context.h"
#include "samplers/chain.h"

namespace foresay::speculative {

// Throws Error when `held` tokens followed by `input` cannot be a prompt in this context: too long, empty, or with ids
// that do not exist.
void check_prompt(const core::Context& context, std::int64_t held, std::span<const std::int32_t> input);

// A model whose logits are not finite.
std::string broken_logits(const core::Model& model);

// A chain that sampled no token; null: no stage failed, but none left a candidate.
std::string no_token(const samplers::StageFailure* failure);

}  // namespace foresay::speculative
