// tests/app/small_model.h: a GGUF file of a published family, small enough to write and run at once.
#pragma once

#include <filesystem>
#include <string>

#include "tests/app/pairings.h"

namespace foresay::testing {

// Kept from the family: the architecture, heads and their width, biases, rope, the kind of tokenizer with its
// special tokens, the chat template, the padding of the vocabulary. Made small: one layer, a width of
// 256, a 32nd of the vocabulary. Weights are random, in Q8_0 with `q8`, else in Q4_K with the LM head in Q6_K.
void write_small_model(const std::filesystem::path& path, Family family, const kernels::ModelShape& published,
                       bool tied, bool q8);

}  // namespace foresay::testing
