#include "core/weights/model_file.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
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

// "output" of "output-00002-of-00003.safetensors", with the numbers; empty for another name.
struct Part {
    std::string name;
    int number = 0, count = 0;
};
Part part_of(const std::string& file) {
    constexpr std::string_view kEnd = "-00000-of-00000.safetensors", kOf = "-of-";
    if (file.size() <= kEnd.size() || !file.ends_with(".safetensors")) return {};
    const std::string tail = file.substr(file.size() - kEnd.size());
    const auto digits = [&](std::size_t at) {
        int number = 0;
        for (std::size_t i = at; i < at + 5; ++i) {
            if (tail[i] < '0' || tail[i] > '9') return -1;
            number = number * 10 + tail[i] - '0';
        }
        return number;
    };
    const Part part{file.substr(0, file.size() - kEnd.size()), digits(1), digits(10)};
    if (tail[0] != '-' || tail.substr(6, kOf.size()) != kOf || part.number < 1 || part.count < part.number) return {};
    return part;
}

ModelFormat detect_directory(const fs::path& path) {
    const bool config = is_there(path / "config.json");
    const bool weights = is_there(path / "model.safetensors") || is_there(path / "model.safetensors.index.json");
    if (config && weights) return ModelFormat::safetensors;
    if (config && !safetensors_files(path).empty()) return ModelFormat::safetensors;
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

std::vector<fs::path> safetensors_files(const fs::path& directory) {
    if (is_there(directory / "output.safetensors")) return {directory / "output.safetensors"};
    constexpr int kMostEntries = 10'000;
    std::error_code error;
    std::vector<std::string> single;
    std::map<std::string, std::set<int>> parts;  // numbers by name
    std::map<std::string, int> counts;
    int seen = 0;
    for (fs::directory_iterator at(directory, error), end; !error && at != end && seen < kMostEntries;
         at.increment(error)) {
        ++seen;
        const std::string file = at->path().filename().string();
        if (!file.ends_with(".safetensors")) continue;
        const Part part = part_of(file);
        if (part.count == 0) {
            single.push_back(file);
        } else {
            parts[part.name].insert(part.number);
            counts[part.name] = std::max(counts[part.name], part.count);
        }
    }
    if (parts.size() > 1 || (parts.empty() && single.size() > 1)) {
        throw Error(directory.string() + ": more than one set of weights lies here; keep one, or name a file");
    }
    if (parts.empty()) return single.empty() ? std::vector<fs::path>() : std::vector{directory / single.front()};
    const auto& [name, numbers] = *parts.begin();
    const int count = counts[name];
    std::vector<fs::path> files;
    for (int number = 1; number <= count; ++number) {
        char tail[40];
        std::snprintf(tail, sizeof tail, "-%05d-of-%05d.safetensors", number, count);
        if (!numbers.contains(number)) {
            throw Error(directory.string() + ": the part " + name + tail + " is missing; get the remaining files");
        }
        files.push_back(directory / (name + tail));
    }
    return files;
}

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
