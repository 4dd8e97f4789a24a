#include "core/weights/model_file.h"

#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "core/weights/mapped_file.h"

namespace foresay::core {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

// A file in this directory with one of the extensions, or empty. Examines a bounded number of entries.
std::string find_extension(const fs::path& directory, std::initializer_list<std::string_view> extensions) {
    constexpr int kMostEntries = 10'000;
    std::error_code error;
    int seen = 0;
    for (fs::directory_iterator at(directory, error), end; !error && at != end && seen < kMostEntries;
         at.increment(error)) {
        ++seen;
        const std::string extension = at->path().extension().string();
        for (std::string_view wanted : extensions) {
            if (extension == wanted) return at->path().filename().string();
        }
    }
    return {};
}

ModelFormat detect_directory(const fs::path& path) {
    const bool config = is_there(path / "config.json");
    const bool weights = is_there(path / "model.safetensors") || is_there(path / "model.safetensors.index.json");
    if (config && weights) return ModelFormat::safetensors;
    const std::string gguf = find_extension(path, {".gguf"});
    if (!gguf.empty()) {
        throw Error(path.string() +
                    ": a directory without config.json and model.safetensors, but with GGUF files; give the "
                    "path of one, such as " +
                    (path / gguf).string());
    }
    if (weights) throw Error(path.string() + ": the directory has no config.json; get the model's config.json into it");
    const std::string pickle = find_extension(path, {".bin", ".pt", ".pth"});
    if (!pickle.empty()) {
        throw Error(path.string() + ": the weights are in a PyTorch file (" + pickle +
                    "), which foresay does not read; get the model as safetensors or GGUF");
    }
    if (config) {
        throw Error(path.string() +
                    ": the directory has a config.json but no model.safetensors or "
                    "model.safetensors.index.json; get the model's weights into it");
    }
    throw Error(path.string() +
                ": the directory holds no model (config.json and model.safetensors); give the path of a "
                ".gguf file or of a model's directory");
}

ModelFormat detect_safetensors(const fs::path& path) {
    const fs::path directory = path.parent_path();
    if (!is_there(directory / "config.json")) {
        throw Error(path.string() +
                    ": no config.json lies beside the file; get the model's config.json into the same "
                    "directory");
    }
    if (path.filename().string().find("-of-") != std::string::npos) {
        throw Error(path.string() + ": one shard of a larger model; give the path of its directory instead");
    }
    return ModelFormat::safetensors;
}

}  // namespace

ModelFormat detect_model_format(const std::filesystem::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
        throw Error(path.string() + ": no such file or directory; check the path");
    }
    if (error) throw Error(path.string() + ": cannot examine the path: " + error.message());
    if (fs::is_directory(status)) return detect_directory(path);

    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.empty()) throw Error(path.string() + ": the file is empty; get it again");
    if (text.starts_with("GGUF")) return ModelFormat::gguf;
    const std::string extension = path.extension().string();
    if (extension == ".safetensors") return detect_safetensors(path);
    if (text.starts_with("version https://git-lfs")) {
        throw Error(path.string() + ": a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'");
    }
    if (extension == ".gguf")
        throw Error(path.string() + ": does not begin with 'GGUF'; the file is damaged, get it again");
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
        throw Error(path.string() +
                    ": a PyTorch or old ggml file, which foresay does not read; get the model as "
                    "safetensors or GGUF");
    }
    throw Error(path.string() +
                ": neither a GGUF file nor a directory with config.json and safetensors; give the path of "
                "one of these");
}

}  // namespace foresay::core
