#include "app/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "app/interrupt.h"
#include "app/output.h"
#include "base/error.h"
#include "core/config/input_file.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kChunk = 1 << 16;
constexpr int kFoldersUp = 5;

std::string read_descriptor(int descriptor, const std::string& what, std::int64_t limit) {
    std::string text;
    for (;;) {
        const std::size_t before = text.size();
        text.resize(before + kChunk);
        // Only standard input may have to be waited for.
        char* const place = text.data() + before;
        const ssize_t got = descriptor == STDIN_FILENO ? read_unless_interrupted(descriptor, place, kChunk)
                                                       : ::read(descriptor, place, kChunk);
        const int problem = errno;
        text.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
        if (got == 0) return text;
        if (got < 0 && problem == EINTR && !interrupted()) continue;
        if (got < 0) throw Error("cannot read " + what + ": " + std::strerror(problem));
        if (static_cast<std::int64_t>(text.size()) > limit) {
            throw Error(what + " is larger than " + std::to_string(limit >> 20) + " MiB; give a smaller one");
        }
    }
}

}  // namespace

std::string read_file(const fs::path& path, const std::string& what, std::int64_t limit) {
    const std::string name = what + " " + path.string();
    const core::InputFile file(path);
    if (!file.problem().empty()) throw Error("cannot read " + name + ": " + file.problem());
    return read_descriptor(file.descriptor(), name, limit);
}

std::string read_stdin(const std::string& what, std::int64_t limit) {
    return read_descriptor(STDIN_FILENO, what + " from standard input", limit);
}

std::string read_text(const std::string& file, const std::string& what, const std::string& otherwise) {
    if (!file.empty() && file != "-") return read_file(file, what);
    if (file.empty() && stdin_is_terminal()) {
        const std::string also = otherwise.empty() ? "" : otherwise + " or ";
        throw UsageError("nothing to read: give " + what + " with " + also + "-f FILE, or pipe it in");
    }
    return read_stdin(what);
}

fs::path data_file(const std::string& relative) {
    std::error_code ignored;
    fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (int i = 0; i < kFoldersUp && folder.has_relative_path(); ++i, folder = folder.parent_path()) {
        for (const fs::path& candidate : {folder / relative, folder / "share" / "foresay" / relative}) {
            if (fs::exists(candidate, ignored)) return candidate;
        }
    }
    const fs::path candidate = fs::path(FORESAY_DATA_DIR) / relative;
    if (fs::exists(candidate, ignored)) return candidate;
    throw Error("cannot find " + relative + " next to the program; name a configuration or a model instead");
}

fs::path state_place() {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    if (state && *state == '/') return fs::path(state) / "foresay";
    if (home && *home == '/') return fs::path(home) / ".local" / "state" / "foresay";
    return {};
}

fs::path state_folder() {
    const fs::path folder = state_place();
    if (folder.empty()) return {};
    std::error_code problem;
    fs::create_directories(folder, problem);
    return problem ? fs::path() : folder;
}

}  // namespace foresay::app
