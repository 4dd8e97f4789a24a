#include "app/journal/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kHeadBytes = 64 << 10;
constexpr std::int64_t kSampleBytes = 4 << 10;
constexpr std::int64_t kSamples = 64;

// FNV-1a, 64 bits.
class Hash {
public:
    void add(std::string_view bytes) {
        for (const char byte : bytes) value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
    }
    void add(std::int64_t number) { add(std::string_view(reinterpret_cast<const char*>(&number), sizeof number)); }
    std::string text() const {
        std::array<char, 17> out{};
        std::snprintf(out.data(), out.size(), "%016llx", static_cast<unsigned long long>(value_));
        return out.data();
    }

private:
    std::uint64_t value_ = 0xcbf29ce484222325ull;
};

void add_file(Hash& hash, const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
        const std::string why = std::strerror(errno);
        if (descriptor >= 0) ::close(descriptor);
        throw Error("cannot read the model " + path.string() + ": " + why);
    }
    const std::int64_t size = status.st_size;
    hash.add(size);
    std::vector<char> buffer(static_cast<std::size_t>(kHeadBytes));
    const auto add = [&](std::int64_t offset, std::int64_t bytes) {
        const ssize_t got = ::pread(descriptor, buffer.data(), static_cast<std::size_t>(bytes), offset);
        if (got > 0) hash.add(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    };
    add(0, kHeadBytes);
    for (std::int64_t i = 1; i <= kSamples; ++i)
        add(std::max<std::int64_t>(0, size / kSamples * i - kSampleBytes), kSampleBytes);
    ::close(descriptor);
}

}  // namespace

std::string model_identity(const fs::path& path) {
    Hash hash;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
        add_file(hash, path);
        return hash.text();
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".safetensors" || extension == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
        hash.add(file.filename().string());
        add_file(hash, file);
    }
    return hash.text();
}

}  // namespace foresay::app
