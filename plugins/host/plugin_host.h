// plugins/host/plugin_host.h: finds, checks and loads sampler plugins.
//
// Search:   an explicit path, or NAME.so in the folders of the plugin path, first match wins. The current folder is
//           never searched.
// Checks:   before any code of a file runs, file_rights.h looks at who can change it, and elf_check.h reads it as data.
//           Then a child process loads it and reads its description: a file that crashes or hangs there harms only the
//           child. Damage in code that runs later cannot be detected without a signature, and a plugin runs with the
//           program's rights: load only plugins you trust.
// Crashes:  while a plugin's code runs, a mapped marker file records it (crash_marker.h). A build of a plugin that has
//           crashed is barred: it is not loaded again until it is freed. Another build is.
// Lifetime: a library stays loaded until the program ends; factories and stages may outlive the host.
// Threads:  one caller at a time.
// Errors:   load() throws Error with one sentence that names the file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "plugins/host/bar_list.h"
#include "samplers/stage.h"

namespace foresay::plugins {

class CrashMarker;

struct PluginOptions {
    std::vector<std::filesystem::path> folders;  // the plugin path, in order; see default_folders()
    // Where crash markers go, MARKER.running.*, and the list of barred builds, MARKER.barred; empty: nowhere.
    std::filesystem::path marker;
    bool runs = true;  // false: this process only looks, and needs no marker of its own
    // Why `bytes` must not be loaded, which are what would be, from `path` as load() was given it; empty: they may.
    using Admit = std::function<std::string(const std::filesystem::path& path, std::span<const std::byte> bytes)>;
    Admit admit = {};  // empty: everything may
};

// A file on the plugin path, not loaded.
struct PluginFile {
    std::string name;  // file name without .so
    std::filesystem::path path;
    std::string problem;     // why it cannot be loaded; empty when it looks right
    std::optional<Bar> bar;  // it crashed, and is not loaded
};

// load() of a barred plugin. The sentence says how to free it.
class PluginBarred : public Error {
public:
    using Error::Error;
};

// FORESAY_PLUGIN_PATH (folders separated by ':'), the user's data folder, `program`/../lib/foresay/plugins, and
// `program`/../plugins (a build tree). `program` is the folder of the executable.
std::vector<std::filesystem::path> default_folders(const std::filesystem::path& program);

// The first NAME.so in `folders`, which is what load() takes; empty when there is none. Looks at names only.
std::filesystem::path find_plugin(const std::string& name, const std::vector<std::filesystem::path>& folders);

class PluginHost {
public:
    explicit PluginHost(PluginOptions options);
    ~PluginHost();
    PluginHost(const PluginHost&) = delete;
    PluginHost& operator=(const PluginHost&) = delete;

    // Loads the sampler `name`: from `path`, or found on the plugin path when that is empty.
    std::shared_ptr<const samplers::StageFactory> load(const std::string& name, const std::filesystem::path& path = {});
    // Loads every sampler of the file at `path`.
    std::vector<std::shared_ptr<const samplers::StageFactory>> load_all(const std::filesystem::path& path);

    // Every .so on the plugin path, by name, as `foresay plugin list` shows it. Loads nothing.
    std::vector<PluginFile> scan() const;
    // The same for one file, wherever it is.
    static PluginFile inspect(const std::filesystem::path& path);

    // Why the file that load() would take is not loaded again; nothing when it is, or when there is no such file.
    std::optional<Bar> bar(const std::string& name, const std::filesystem::path& path = {}) const;
    // "barred since 2026-11-23 06:40 UTC: its sampler 'x' crashed in process(): segmentation fault"
    static std::string bar_text(const Bar& bar);
    const std::vector<Bar>& bars() const;
    // Frees the builds that `which` picks, and returns their bars. Throws Error when the list cannot be written.
    std::vector<Bar> free(const std::function<bool(const Bar&)>& which);

    // What the last processes left, and what cannot be kept; sentences for the user, see CrashMarker::notices().
    const std::vector<std::string>& notices() const;

private:
    struct Opened;
    Opened open(const std::filesystem::path& path);

    PluginOptions options_;
    std::unique_ptr<CrashMarker> marker_;
    std::vector<Build> opened_;  // builds that run here, whatever becomes of them in another process
};

}  // namespace foresay::plugins
