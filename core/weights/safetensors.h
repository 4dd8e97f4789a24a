// core/weights/safetensors.h: reader of Hugging Face model directories: config.json and safetensors files, mapped.
//
// Layout:   a safetensors file is u64 header length, a JSON header {name: {dtype, shape, data_offsets}, ...}, then the
//           data that offsets count from. Shards are listed by model.safetensors.index.json ("weight_map").
// Life:     tensor views point into the mappings and live as long as the object; moving it keeps them valid.
// Threads:  immutable after opening; any thread may read.
// Cost:     opening parses the headers and touches no tensor data.
// Errors:   the files are untrusted: every length, offset and shape is checked before use, and the first
//           inconsistency throws Error. Shard names may not leave the directory.
// Source:   the safetensors format description (huggingface/safetensors, README).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/json_config.h"
#include "core/weights/mapped_file.h"
#include "core/weights/tensor_table.h"

namespace foresay::core {

class SafetensorsDir {
public:
    // Opens a directory with config.json and model.safetensors or model.safetensors.index.json, or else the files that
    // core::safetensors_files() finds there; or one .safetensors file that has a config.json beside it.
    static SafetensorsDir open(const std::filesystem::path& path);
    // Reads one safetensors file image, which must outlive the object, and the text of its config.json.
    static SafetensorsDir from_memory(std::string_view config_json, std::span<const std::byte> bytes, std::string path);

    const std::string& path() const { return path_; }                      // as given to open()
    const std::filesystem::path& directory() const { return directory_; }  // where tokenizer.json would be
    const JsonConfig& config() const { return config_; }
    const TensorTable& tensors() const { return tensors_; }
    // Another JSON document of the directory; empty when there is none.
    std::optional<JsonConfig> json_beside(std::string_view name) const;

private:
    SafetensorsDir() = default;
    void add_file(const std::filesystem::path& file);
    void add_shards(const std::filesystem::path& index_path);

    std::string path_;
    std::filesystem::path directory_;
    JsonConfig config_;
    std::vector<MappedFile> files_;  // empty for from_memory
    TensorTable tensors_;
};

}  // namespace foresay::core
