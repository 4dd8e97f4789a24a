#include "core/weights/safetensors.h"

#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "core/weights/model_file.h"
#include "core/weights/quote.h"
#include "core/weights/safetensors_reader.h"

namespace foresay::core {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

std::string_view characters(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

JsonConfig read_json(const fs::path& path) {
    const MappedFile file(path);
    return JsonConfig::parse(characters(file), path.string());
}

}  // namespace

SafetensorsDir SafetensorsDir::open(const std::filesystem::path& path) {
    if (detect_model_format(path) != ModelFormat::safetensors) {
        throw Error(path.string() + ": a GGUF file, not a directory of safetensors");
    }
    SafetensorsDir model;
    model.path_ = path.string();
    model.tensors_ = TensorTable(model.path_);
    std::error_code ignored;
    const bool directory = fs::is_directory(path, ignored);
    model.directory_ = directory ? path : path.parent_path();
    model.config_ = read_json(model.directory_ / "config.json");
    const fs::path single = directory ? path / "model.safetensors" : path;
    if (is_there(single)) {
        model.add_file(single);
    } else if (is_there(path / "model.safetensors.index.json")) {
        model.add_shards(path / "model.safetensors.index.json");
    } else {
        for (const fs::path& file : safetensors_files(path)) model.add_file(file);
    }
    model.tensors_.seal();
    return model;
}

std::optional<JsonConfig> SafetensorsDir::json_beside(std::string_view name) const {
    if (directory_.empty() || !is_there(directory_ / name)) return std::nullopt;
    return read_json(directory_ / name);
}

void SafetensorsDir::add_file(const std::filesystem::path& file) {
    MappedFile mapping(file);
    for (TensorInfo& tensor : read_safetensors(mapping.bytes(), file.string(), file.filename().string())) {
        tensors_.add(std::move(tensor));
    }
    files_.push_back(std::move(mapping));
}

void SafetensorsDir::add_shards(const std::filesystem::path& index_path) {
    const MappedFile index(index_path);
    const auto map = read_safetensors_index(characters(index), index_path.string());
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map) shards.insert(shard);
    for (const std::string& shard : shards) {
        const fs::path file = index_path.parent_path() / shard;
        if (!is_there(file))
            throw Error(index_path.string() + ": the shard " + quote(shard) + " is missing; get the remaining files");
        add_file(file);
    }
    tensors_.seal();
    for (const auto& [name, shard] : map) {
        const TensorInfo* tensor = tensors_.find(name);
        if (tensor == nullptr || tensor->file != shard) {
            throw Error(index_path.string() + ": tensor " + quote(name) + " should be in " + quote(shard) +
                        " but is not; get the files again, all of one version");
        }
    }
}

SafetensorsDir SafetensorsDir::from_memory(std::string_view config_json, std::span<const std::byte> bytes,
                                           std::string path) {
    SafetensorsDir model;
    model.path_ = std::move(path);
    model.config_ = JsonConfig::parse(config_json, model.path_ + " (config.json)");
    model.tensors_ = TensorTable(model.path_);
    for (TensorInfo& tensor : read_safetensors(bytes, model.path_, model.path_)) model.tensors_.add(std::move(tensor));
    model.tensors_.seal();
    return model;
}

}  // namespace foresay::core
