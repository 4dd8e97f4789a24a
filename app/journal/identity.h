// app/journal/identity.h: which model it is, told by what is in its files and not by where they lie.
//
// Cost:     reads sizes and some hundred kilobytes, however large the model is.
// Errors:   Error when a file cannot be read.
#pragma once

#include <filesystem>
#include <string>

namespace foresay::app {

// Sixteen hexadecimal digits: the sizes, the beginning and samples all over the files at `path`, a GGUF file or a
// directory. Not proof against somebody who wants to deceive; it notices another model.
std::string model_identity(const std::filesystem::path& path);

}  // namespace foresay::app
