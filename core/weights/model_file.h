// core/weights/model_file.h: what kind of model lies at a path, by looking at it.
//
// Errors:   anything that is no model throws Error with one sentence that says what it is instead and what to do.
#pragma once

#include <filesystem>

namespace foresay::core {

enum class ModelFormat { gguf, safetensors };

// A file that begins with the GGUF magic, a directory with config.json and safetensors, or a .safetensors file.
ModelFormat detect_model_format(const std::filesystem::path& path);

}  // namespace foresay::core
