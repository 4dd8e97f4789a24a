#include "plugins/host/file_rights.h"

#include <sys/stat.h>
#include <unistd.h>

namespace foresay::plugins {

namespace fs = std::filesystem;

namespace {

// The file or folder on the way to `file` that any user of the machine can change; empty when there is none.
fs::path open_to_everyone(const fs::path& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) return {};
    if ((status.st_mode & S_IWOTH) != 0) return file;
    const uid_t owner = status.st_uid;
    for (fs::path folder = fs::absolute(file).parent_path();; folder = folder.parent_path()) {
        if (::stat(folder.c_str(), &status) != 0) return {};
        if ((status.st_mode & S_IWOTH) != 0) {
            // In a sticky folder such as /tmp everyone can put a file, but only its owner can replace it.
            const bool ours = owner == ::geteuid() || owner == 0;
            if ((status.st_mode & S_ISVTX) == 0 || !ours) return folder;
        }
        if (!folder.has_relative_path()) return {};
    }
}

}  // namespace

std::string rights_problem(const fs::path& file) {
    const fs::path open = open_to_everyone(file);
    if (open.empty()) return {};
    return "every user of this machine can change " + open.string() +
           ", so anyone can run code as you through it; chmod o-w it first";
}

}  // namespace foresay::plugins
