// foresay plugin dev: builds a plugin whenever one of its files is saved, for a conversation that has it loaded.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/repl/rebuilt_plugins.h"
#include "base/error.h"

namespace foresay::app {

namespace {

namespace fs = std::filesystem;
using Times = std::map<fs::path, fs::file_time_type>;

constexpr std::size_t kMostFiles = 10000;  // of a folder that is watched
constexpr auto kPause = std::chrono::milliseconds(200);

// When the files below `folder` were written; the build folder and what begins with a dot are left out.
Times times_of(const fs::path& folder) {
    Times times;
    std::error_code ended;
    for (fs::recursive_directory_iterator at(folder, ended), end; !ended && at != end; at.increment(ended)) {
        std::error_code missing;
        const std::string name = at->path().filename().string();
        const bool own_build = at->path() == folder / "build";
        if (name.starts_with('.') || own_build) {
            if (at->is_directory(missing)) at.disable_recursion_pending();
            continue;
        }
        if (!at->is_regular_file(missing)) continue;
        times.emplace(at->path(), at->last_write_time(missing));
        if (times.size() > kMostFiles)
            throw Error(folder.string() + " has more than " + std::to_string(kMostFiles) +
                        " files; name the folder of one plugin");
    }
    return times;
}

// Runs a program with this terminal and waits for it. Returns its exit status; 128 + signal where one ended it.
int run_program(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
    if (child == 0) {
        ::execvp(arguments[0], arguments.data());
        ::_exit(127);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) throw Error("cannot run " + words[0] + "; install it");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Says, while it exists, that the plugins are being worked on.
class Markers {
public:
    Markers() = default;
    Markers(const Markers&) = delete;
    Markers& operator=(const Markers&) = delete;
    ~Markers() {
        std::error_code ignored;
        for (const fs::path& marker : made_) fs::remove(marker, ignored);
    }
    void add(const fs::path& library) {
        const fs::path marker = dev_marker(library);
        if (std::ranges::find(made_, marker) != made_.end()) return;
        if (!std::ofstream(marker)) throw Error("cannot write " + marker.string());
        made_.push_back(marker);
    }

private:
    std::vector<fs::path> made_;
};

class Dev : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(folder_, {.value = "FOLDER",
                                  .doc = "folder with a CMakeLists.txt, as `foresay plugin new` makes it",
                                  .hint = ValueHint::file,
                                  .required = true});
        parser.details(
            "Builds the plugins in FOLDER/build/plugins now, and again whenever a file is\n"
            "saved, until Ctrl-C. A conversation that has loaded one of them (/plugin load)\n"
            "runs the new code from its next entry on: /retry 0 shows what changed, because\n"
            "it repeats the answer with the noise of seed 0.\n");
    }

    int run() override {
        const fs::path folder = fs::weakly_canonical(folder_);
        if (!fs::exists(folder / "CMakeLists.txt"))
            throw Error(folder_ + " has no CMakeLists.txt; `foresay plugin new NAME` makes a folder that has one");
        Markers markers;
        Times before;
        while (!interrupted()) {
            const Times now = times_of(folder);
            if (now == before) {
                std::this_thread::sleep_for(kPause);
                continue;
            }
            // An editor may write a file in several steps.
            std::this_thread::sleep_for(kPause / 4);
            before = times_of(folder);
            build(folder, markers);
        }
        print("\n");
        return 0;
    }

private:
    static Times libraries(const fs::path& folder) {
        Times found;
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(folder / "build" / "plugins", none)) {
            std::error_code missing;
            if (entry.path().extension() == ".so") found.emplace(entry.path(), entry.last_write_time(missing));
        }
        return found;
    }

    static void build(const fs::path& folder, Markers& markers) {
        const auto start = std::chrono::steady_clock::now();
        const std::string build = (folder / "build").string();
        const Times old = libraries(folder);
        int status = 0;
        if (!fs::exists(folder / "build" / "CMakeCache.txt")) {
            status = run_program(
                {"cmake", "-S", folder.string(), "-B", build, "-DCMAKE_BUILD_TYPE=Release", "--log-level=WARNING"});
        }
        if (status == 0) status = run_program({"cmake", "--build", build});
        if (interrupted()) return;
        if (status != 0) {
            complain("foresay: it does not build; waiting for the next change");
            return;
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        char took[32];
        std::snprintf(took, sizeof took, "%.1f s", seconds);
        std::string text;
        const Times built = libraries(folder);
        for (const auto& [library, written] : built) {
            markers.add(library);
            const auto known = old.find(library);
            const bool is_new = known == old.end() || known->second != written;
            text += printable(library.string()) + (is_new ? " built in " + std::string(took) : " is up to date") + "\n";
        }
        if (built.empty()) throw Error("the build leaves no plugin in " + build + "/plugins; use add_sampler_plugin()");
        print(text + "waiting for changes; Ctrl-C ends\n");
    }

    std::string folder_;
};

const RegisterCommand<Dev> kDev("plugin dev", "build a plugin on every change, for an open conversation",
                                CommandGroup::models);

}  // namespace

}  // namespace foresay::app
