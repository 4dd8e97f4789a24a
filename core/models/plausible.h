// core/models/plausible.h: refuses numbers that no model can mean, by the name of the key that holds them.
//
// Errors:   Error "FILE: KEY is VALUE, but ...; get or convert the model again".
// Threads:  any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace foresay::core {

// The epsilon of a norm as float32. Published models have 1e-8 to 1e-5; above 0 and up to 0.1 is accepted.
float plausible_epsilon(double value, const std::string& path, std::string_view key);

// A number that must be positive and finite, as float32: the base of rope, its factors.
float plausible_positive(double value, const std::string& path, std::string_view key);

// A vocabulary size that a file states beside its embedding table of `rows` rows.
void check_vocab_size(std::int64_t stated, std::int64_t rows, const std::string& path, std::string_view key);

}  // namespace foresay::core
