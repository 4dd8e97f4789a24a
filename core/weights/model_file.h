// core/weights/model_file.h: recognises the format of the model at a path.
//
// Errors:   throws Error for anything else, in one sentence: what the path is, and what to do.
#pragma once

#include <filesystem>
#include <vector>

namespace foresay::core {

enum class ModelFormat { gguf, safetensors };

// A file that begins with the GGUF magic, a directory with config.json and safetensors, or a .safetensors file.
ModelFormat detect_model_format(const std::filesystem::path& path);

// The weights of a directory that has neither model.safetensors nor an index, as tools for quantised models leave them:
// output.safetensors, all parts of NAME-00001-of-00003.safetensors, or the only .safetensors file. Empty: there are
// none. Throws Error when a part is missing or two sets of weights lie there.
std::vector<std::filesystem::path> safetensors_files(const std::filesystem::path& directory);

}  // namespace foresay::core
