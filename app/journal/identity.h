// app/journal/identity.h: a fingerprint of a model, taken from the contents of its files and not from their paths.
//
// Cost:     reads about 320 KiB of each file, however large the model is.
// Errors:   Error when a file cannot be read.
#pragma once

#include <filesystem>
#include <string>

namespace foresay::app {

// A hash, as sixteen hexadecimal digits, of the size, the first bytes and evenly spaced samples of each file at `path`:
// a GGUF file, or a directory of safetensors. It tells models apart; it is not a cryptographic hash.
std::string model_identity(const std::filesystem::path& path);

}  // namespace foresay::app
