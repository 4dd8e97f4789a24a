#include "server/models.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace foresay::server {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 128;

bool letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// No separator, no leading dot, nothing that a shell or a log would read as something else.
bool may_be_name(const std::string& name) {
    if (name.empty() || name.size() > kLongestName || !(letter_or_digit(name[0]) || name[0] == '_')) return false;
    return std::all_of(name.begin(), name.end(),
                       [](char c) { return letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_plain_file(const fs::path& path) {
    std::error_code failed;
    return fs::symlink_status(path, failed).type() == fs::file_type::regular;
}

bool is_model_directory(const fs::path& path) {
    std::error_code failed;
    if (fs::symlink_status(path, failed).type() != fs::file_type::directory || !is_plain_file(path / "config.json"))
        return false;
    fs::directory_iterator entry(path, failed);
    return !failed && std::none_of(entry, fs::directory_iterator(),
                                   [](const fs::directory_entry& one) { return one.is_symlink(); });
}

// The further parts of a model in several files.
bool is_later_part(const std::string& stem) {
    const std::size_t of = stem.rfind("-of-");
    return of != std::string::npos && of >= 6 && stem[of - 6] == '-' && stem.compare(of - 5, 5, "00001") != 0;
}

// What `take` makes of each entry, sorted.
template <typename Take>
std::vector<std::string> names_in(const fs::path& folder, const Take& take) {
    std::vector<std::string> names;
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
        std::string name = take(entry->path());
        if (may_be_name(name)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

void check_name(const std::string& name, const std::string& param) {
    if (!may_be_name(name))
        throw wrong_value(param, "'" + param +
                                     "' must be a name of letters, digits, '.', '_' and '-' that begins with a letter "
                                     "or a digit, and no path");
}

}  // namespace

ModelsFolder::ModelsFolder(fs::path folder) : folder_(std::move(folder)) {
    if (!fs::is_directory(folder_)) throw Error("--models: '" + folder_.string() + "' is no folder");
}

std::vector<std::string> ModelsFolder::models() const {
    return names_in(folder_, [](const fs::path& path) -> std::string {
        if (is_model_directory(path)) return path.filename().string();
        if (!is_plain_file(path)) return {};
        const std::string extension = path.extension().string(), stem = path.stem().string();
        if (extension == ".toml") return stem;
        return extension == ".gguf" && !is_later_part(stem) ? stem : std::string();
    });
}

std::vector<std::string> ModelsFolder::templates() const {
    return names_in(folder_ / "templates", [](const fs::path& path) -> std::string {
        return path.extension() == ".jinja" && is_plain_file(path) ? path.stem().string() : std::string();
    });
}

fs::path ModelsFolder::model(const std::string& name, const std::string& param) const {
    check_name(name, param);
    for (const char* extension : {".toml", ".gguf"}) {
        if (const fs::path file = folder_ / (name + extension); is_plain_file(file)) return fs::canonical(file);
    }
    if (const fs::path folder = folder_ / name; is_model_directory(folder)) return fs::canonical(folder);
    throw ApiError(Problem::not_found, "the model '" + name + "' is not in the server's folder; links do not count",
                   "model_not_found", param);
}

fs::path ModelsFolder::prompt_template(const std::string& name, const std::string& param) const {
    check_name(name, param);
    const fs::path folder = folder_ / "templates", file = folder / (name + ".jinja");
    std::error_code failed;
    if (fs::symlink_status(folder, failed).type() == fs::file_type::directory && is_plain_file(file))
        return fs::canonical(file);
    throw ApiError(Problem::not_found, "the template '" + name + "' is not in the server's folder; links do not count",
                   "template_not_found", param);
}

}  // namespace foresay::server
