#include "samplers/parameter_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include "base/error.h"

namespace foresay::samplers {
namespace {

// By path. Empty but in processes that have kept some.
std::map<std::string, std::string>& kept() {
    static auto& files = *new std::map<std::string, std::string>();
    return files;
}

}  // namespace

void keep_parameter_file(const std::string& path, const std::string& key) {
    kept()[path] = read_parameter_file(path, key);
}

std::string read_parameter_file(const std::string& path, const std::string& key) {
    if (const auto found = kept().find(path); found != kept().end()) return found->second;
    const std::string what = key + ": the file " + path;
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw Error(what + " does not exist");
    if (!std::filesystem::is_regular_file(status)) throw Error(what + " is not a regular file");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(what + " cannot be read: " + std::strerror(errno));
    std::string bytes(kMaxParameterFile + 1, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (file.bad()) throw Error(what + " cannot be read");
    bytes.resize(static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > kMaxParameterFile) throw Error(what + " has more than 16 MiB");
    return bytes;
}

}  // namespace foresay::samplers
