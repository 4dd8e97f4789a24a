#include "core/config/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace foresay::core {

namespace {

// Names of the process's own descriptors.
bool is_own_descriptor(const std::string& path) {
    return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a named pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) {
    const bool own = is_own_descriptor(path.string());
    const auto refuse = [&](mode_t mode) {
        const bool readable = S_ISREG(mode) || (own && !S_ISDIR(mode));
        if (!readable) problem_ = std::string("it is ") + kind_of(mode) + ", not a file";
        return !readable;
    };
    struct stat status {};
    // Looks before it opens, because opening a device may already do something.
    if (::stat(path.c_str(), &status) == 0 && refuse(status.st_mode)) return;
    // Without O_NONBLOCK, opening a pipe waits for a writer. Of regular files, only those of /proc care.
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0 || ::fstat(opened, &status) != 0) {
        problem_ = std::strerror(errno);
        if (opened >= 0) ::close(opened);
        return;
    }
    if (refuse(status.st_mode)) {
        ::close(opened);
        return;
    }
    if (!S_ISREG(status.st_mode)) ::fcntl(opened, F_SETFL, ::fcntl(opened, F_GETFL) & ~O_NONBLOCK);
    descriptor_ = opened;
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace foresay::core
