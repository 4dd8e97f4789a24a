// plugins/host/plugin_host.h: finds, checks and loads sampler plugins.
//
// Search:   an explicit path, or NAME.so in the folders of the plugin path, first match wins. The current folder is
//           never searched.
// Checks:   before any code of a file runs, elf_check.h reads it as data. Then a child process loads it and reads its
//           description: a file that crashes or hangs there harms only the child. Damage in code that runs later
//           cannot be detected without a signature, and a plugin runs with the program's rights: load only plugins you
//           trust.
// Crashes:  while a plugin's code runs, a mapped marker file records it. The next start names a plugin that was running
//           when a process died, and does not load it again until it is forgiven.
// Lifetime: a library stays loaded until the program ends; factories and stages may outlive the host.
// Threads:  one caller at a time.
// Errors:   load() throws Error with one sentence that names the file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "samplers/stage.h"

namespace foresay::plugins {

class CrashMarker;

struct PluginOptions {
    std::vector<std::filesystem::path> folders;  // the plugin path, in order; see default_folders()
    std::filesystem::path marker;  // where crash markers go: MARKER.PID and MARKER.quarantine; empty: none
};

// A file on the plugin path, not loaded.
struct PluginFile {
    std::string name;  // file name without .so
    std::filesystem::path path;
    std::string problem;  // why it cannot be loaded; empty when it looks right
};

// FORESAY_PLUGIN_PATH (folders separated by ':'), the user's data folder, `program`/../lib/foresay/plugins, and
// `program`/../plugins (a build tree). `program` is the folder of the executable.
std::vector<std::filesystem::path> default_folders(const std::filesystem::path& program);

class PluginHost {
public:
    explicit PluginHost(PluginOptions options);
    ~PluginHost();
    PluginHost(const PluginHost&) = delete;
    PluginHost& operator=(const PluginHost&) = delete;

    // Loads the sampler `name`: from `path`, or found on the plugin path when that is empty.
    std::shared_ptr<const samplers::StageFactory> load(const std::string& name, const std::filesystem::path& path = {});

    // Every .so on the plugin path, by name, as `foresay plugin list` shows it. Loads nothing.
    std::vector<PluginFile> scan() const;
    // The same for one file, wherever it is.
    static PluginFile inspect(const std::filesystem::path& path);

    // Which plugin was running when the program last died, as a sentence; empty when none was.
    const std::string& culprit() const;
    // Loads quarantined plugins again.
    void forgive();

private:
    PluginOptions options_;
    std::unique_ptr<CrashMarker> marker_;
};

}  // namespace foresay::plugins
