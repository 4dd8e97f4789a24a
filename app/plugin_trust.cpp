#include "app/plugin_trust.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include "app/configuration.h"
#include "app/files.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "app/question.h"
#include "app/verify.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxLines = 1000;

fs::path allowed_file() {
    const fs::path state = state_folder();
    return state.empty() ? state : state / "plugins.allowed";
}

bool on_plugin_path(const fs::path& stated) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(fs::absolute(stated).parent_path(), ignored);
    const std::vector<fs::path> folders = plugin_options(false).folders;
    return std::any_of(folders.begin(), folders.end(),
                       [&](const fs::path& one) { return one.is_absolute() && fs::canonical(one, ignored) == folder; });
}

// The SHA-256 of what was allowed, by the path that a configuration or a session states; empty: nothing was. By the
// time that it is loaded, the path may lead to another file, and the file may have changed.
std::map<fs::path, std::string>& allowed_contents() {
    static auto& contents = *new std::map<fs::path, std::string>();
    return contents;
}

// The SHA-256 of a file's contents; empty when they cannot be read.
std::string contents_of(const fs::path& file) {
    try {
        return file_sha256(file);
    } catch (const Error&) {
        return {};
    }
}

bool is_allowed(const std::string& wanted) {
    const fs::path list = allowed_file();
    struct stat status {};
    // A list that others can write proves nothing.
    if (wanted.empty() || list.empty() || ::stat(list.c_str(), &status) != 0) return false;
    if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return false;
    std::ifstream lines(list);
    std::string line;
    for (std::size_t i = 0; i < kMaxLines && std::getline(lines, line); ++i) {
        if (line.starts_with(wanted + " ")) return true;
    }
    return false;
}

// Remembers `contents` of `file` as "SHA-256 PATH". The path is for readers: only the contents count. Returns why that
// failed; empty: it is remembered.
std::string remember(const fs::path& file, const std::string& contents) {
    if (contents.empty()) return "cannot read " + file.string();
    if (is_allowed(contents)) return {};
    const fs::path list = allowed_file();
    const std::string line = contents + " " + printable(file.string()) + "\n";
    if (list.empty()) return "there is no state folder; set HOME or XDG_STATE_HOME to a writable folder";
    // The newest lines count, so a list that is full begins again.
    std::ifstream lines(list);
    const bool full = std::count(std::istreambuf_iterator<char>(lines), {}, '\n') >= static_cast<long>(kMaxLines);
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (full ? O_TRUNC : O_APPEND);
    const int descriptor = ::open(list.c_str(), flags, 0600);
    if (descriptor < 0) return "cannot write " + list.string() + ": " + std::strerror(errno);
    const ssize_t put = ::write(descriptor, line.data(), line.size());
    const int problem = put < 0 ? errno : ENOSPC;
    const bool written = put == static_cast<ssize_t>(line.size());
    // Half a line would spoil the next one.
    const off_t end = ::lseek(descriptor, 0, SEEK_CUR);
    if (!written && put > 0 && end >= put) static_cast<void>(::ftruncate(descriptor, end - put) == 0);
    ::close(descriptor);
    return written ? "" : "cannot write " + list.string() + ": " + std::strerror(problem);
}

// What states the path: "session NAME" or "configuration FILE". Empty: the user does, on the command line, in the
// environment or in the conversation.
std::string stated_by(const core::PluginSpec& plugin) {
    const core::Origin& origin = plugin.path_origin;
    if (plugin.path.empty()) return {};
    if (origin.place.starts_with(kSessionPlace)) return origin.place;
    return origin.flag ? "" : "configuration " + origin.place;
}

void require_allowed(const std::string& place, const fs::path& file, const std::string& contents) {
    if (is_allowed(contents)) return;
    const std::string named = "the " + place + " names the plugin " + file.string();
    if (!stdin_is_terminal() || !stderr_is_terminal()) {
        throw Error(named +
                    ", which is outside the plugin path and was not allowed yet; if you trust it: foresay plugin "
                    "trust " +
                    file.string());
    }
    const std::string question = "The " + place + " names a plugin outside the plugin path:\n  " + file.string() +
                                 "\nIt is native code and runs with your rights. Load it? [y/N] ";
    if (!ask(printable(question))) throw Error(named + ", which you did not allow");
    if (const std::string problem = remember(file, contents); !problem.empty()) {
        complain("foresay: you will be asked again: " + problem);
    }
}

}  // namespace

std::string trust_plugin(const fs::path& file) {
    const plugins::PluginFile found = plugins::PluginHost::inspect(fs::absolute(file));
    if (!found.problem.empty()) {
        throw Error("plugin '" + found.path.string() + "' cannot be loaded: " + found.problem);
    }
    const std::string contents = contents_of(found.path);
    if (const std::string problem = remember(found.path, contents); !problem.empty()) throw Error(problem);
    return contents;
}

void check_plugin_trust(const core::Config& config) {
    allowed_contents().clear();
    for (const core::PluginSpec& plugin : config.plugins) {
        const std::string place = stated_by(plugin);
        if (place.empty() || on_plugin_path(plugin.path)) continue;
        std::string& allowed = allowed_contents()[plugin.path];
        const plugins::PluginFile file = plugins::PluginHost::inspect(plugin.path);
        if (!file.problem.empty()) continue;  // loading it gives the reason
        const std::string contents = contents_of(file.path);
        require_allowed(place, file.path, contents);
        allowed = contents;
    }
}

std::string admit_plugin(const fs::path& path, std::span<const std::byte> bytes) {
    const auto allowed = allowed_contents().find(path);
    if (allowed == allowed_contents().end() || allowed->second == bytes_sha256(bytes)) return {};
    return "it changed while it was being loaded, and what it is now was not allowed; try again";
}

void remember_plugins(const core::Config& config) {
    for (const core::PluginSpec& plugin : config.plugins) {
        if (plugin.path.empty() || on_plugin_path(plugin.path)) continue;
        std::error_code ignored;
        const fs::path file = fs::canonical(plugin.path, ignored);
        const std::string problem = remember(file, contents_of(file));
        if (!problem.empty()) spdlog::info("the plugin {} will be asked for: {}", plugin.path.string(), problem);
    }
}

}  // namespace foresay::app
