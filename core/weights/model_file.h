// core/weights/model_file.h: recognises the format of the model at a path.
//
// Errors:   throws Error for anything else, in one sentence: what the path is, and what to do.
#pragma once

#include <filesystem>

namespace foresay::core {

enum class ModelFormat { gguf, safetensors };

// A file that begins with the GGUF magic, a directory with config.json and safetensors, or a .safetensors file.
ModelFormat detect_model_format(const std::filesystem::path& path);

}  // namespace foresay::core
