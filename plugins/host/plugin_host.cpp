#include "plugins/host/plugin_host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/error.h"
#include "plugins/host/crash_marker.h"
#include "plugins/host/elf_check.h"
#include "samplers/plugin_stage.h"

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{256} << 20;
constexpr std::uint32_t kMaxSamplers = 256;
constexpr unsigned kProbeSeconds = 10;

// A file mapped for reading.
class MappedBytes {
public:
    explicit MappedBytes(const fs::path& path) {
        const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (handle < 0) {
            problem_ = std::string("it cannot be opened: ") + std::strerror(errno);
            return;
        }
        struct stat status {};
        if (::fstat(handle, &status) != 0 || !S_ISREG(status.st_mode)) {
            problem_ = "it is not a regular file";
        } else if (static_cast<std::uintmax_t>(status.st_size) > kMaxFileBytes) {
            problem_ = "it is larger than 256 MiB";
        } else if (status.st_size > 0) {
            size_ = static_cast<std::size_t>(status.st_size);
            data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, handle, 0);
            if (data_ == MAP_FAILED) problem_ = std::string("it cannot be mapped: ") + std::strerror(errno);
        }
        ::close(handle);
    }
    ~MappedBytes() {
        if (data_ != MAP_FAILED) ::munmap(data_, size_);
    }
    MappedBytes(const MappedBytes&) = delete;
    MappedBytes& operator=(const MappedBytes&) = delete;
    const std::string& problem() const { return problem_; }
    std::span<const std::byte> bytes() const {
        return data_ == MAP_FAILED ? std::span<const std::byte>()
                                   : std::span(static_cast<const std::byte*>(data_), size_);
    }

private:
    void* data_ = MAP_FAILED;
    std::size_t size_ = 0;
    std::string problem_;
};

std::string file_problem(const fs::path& path) {
    const MappedBytes file(path);
    if (!file.problem().empty()) return file.problem();
    return elf_problem(file.bytes(), FORESAY_SAMPLER_ENTRY, sizeof(foresay_sampler_library));
}

// What is wrong with the exported entry; empty when it can be used.
std::string entry_problem(const foresay_sampler_library& entry) {
    if (entry.struct_size < sizeof entry) return "its entry is incomplete";
    if (entry.abi_major != FORESAY_SAMPLER_ABI_MAJOR || entry.abi_minor > FORESAY_SAMPLER_ABI_MINOR) {
        return "it was built for version " + std::to_string(entry.abi_major) + "." + std::to_string(entry.abi_minor) +
               " of the sampler contract, and this program has " + std::to_string(FORESAY_SAMPLER_ABI_MAJOR) + "." +
               std::to_string(FORESAY_SAMPLER_ABI_MINOR) + "; build it again";
    }
    if (entry.sampler_count == 0 || entry.sampler_count > kMaxSamplers || entry.samplers == nullptr) {
        return "it holds no samplers";
    }
    return {};
}

enum ProbeResult : int { kProbeOk = 0, kProbeRefused = 3 };

// In a child process: loads the library and reads every description. Never returns.
[[noreturn]] void probe_child(const fs::path& path) {
    for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM}) ::signal(fatal, SIG_DFL);
    ::alarm(kProbeSeconds);
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const void* symbol = library != nullptr ? ::dlsym(library, FORESAY_SAMPLER_ENTRY) : nullptr;
    if (symbol == nullptr) ::_exit(kProbeRefused);
    const auto& entry = *static_cast<const foresay_sampler_library*>(symbol);
    if (!entry_problem(entry).empty()) ::_exit(kProbeOk);  // the parent reports it
    try {
        for (std::uint32_t i = 0; i < entry.sampler_count; ++i) {
            samplers::make_plugin_factory(entry.samplers[i], nullptr, path.string());
        }
    } catch (const Error&) {
        // The parent reports it.
    }
    ::_exit(kProbeOk);
}

// Whether loading the file crashes or hangs; empty when it does not.
std::string probe_problem(const fs::path& path) {
    const pid_t child = ::fork();
    if (child < 0) return {};  // fork failed: the checks before have to suffice
    if (child == 0) probe_child(path);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return {};
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "it hangs when it is loaded";
    const bool fine = WIFEXITED(status) && (WEXITSTATUS(status) == kProbeOk || WEXITSTATUS(status) == kProbeRefused);
    return fine ? "" : "it crashes when it is loaded; the file is damaged or was built for another system";
}

// Loads a library once per process and keeps it until the process ends, for all hosts.
const foresay_sampler_library& open_library(const fs::path& path) {
    struct Loaded {
        boost::dll::shared_library library;
        const foresay_sampler_library* entry;
    };
    static auto& loaded = *new std::map<fs::path, Loaded>();  // never destroyed: plugin code must outlive everything
    const auto found = loaded.find(path);
    if (found != loaded.end()) return *found->second.entry;
    const std::string problem = probe_problem(path);
    if (!problem.empty()) throw Error("plugin '" + path.string() + "' cannot be loaded: " + problem);
    std::error_code error;
    boost::dll::shared_library library(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local,
                                       error);
    if (error || !library.is_loaded()) {
        const char* why = ::dlerror();
        throw Error("plugin '" + path.string() + "' cannot be loaded: " + (why != nullptr ? why : error.message()));
    }
    const auto* entry = &library.get<const foresay_sampler_library>(FORESAY_SAMPLER_ENTRY);
    loaded.emplace(path, Loaded{std::move(library), entry});
    return *entry;
}

}  // namespace

std::vector<fs::path> default_folders(const fs::path& program) {
    std::vector<fs::path> folders;
    if (const char* stated = std::getenv("FORESAY_PLUGIN_PATH")) {
        std::string_view rest = stated;
        while (!rest.empty()) {
            const std::size_t end = std::min(rest.find(':'), rest.size());
            if (end > 0) folders.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }
    const char* data = std::getenv("XDG_DATA_HOME");
    const char* home = std::getenv("HOME");
    if (data != nullptr && *data == '/') {
        folders.push_back(fs::path(data) / "foresay" / "plugins");
    } else if (home != nullptr && *home == '/') {
        folders.push_back(fs::path(home) / ".local" / "share" / "foresay" / "plugins");
    }
    folders.push_back(program / ".." / "lib" / "foresay" / "plugins");
    folders.push_back(program / ".." / "plugins");
    return folders;
}

PluginHost::PluginHost(PluginOptions options)
    : options_(std::move(options)), marker_(std::make_unique<CrashMarker>(options_.marker)) {}
PluginHost::~PluginHost() = default;
const std::string& PluginHost::culprit() const { return marker_->culprit(); }
void PluginHost::forgive() { marker_->forgive(); }

std::vector<PluginFile> PluginHost::scan() const {
    std::vector<PluginFile> files;
    for (const fs::path& folder : options_.folders) {
        std::error_code error;
        if (folder.is_relative()) continue;  // that would depend on the current folder
        for (const auto& entry : fs::directory_iterator(folder, error)) {
            if (entry.path().extension() != ".so") continue;
            const std::string name = entry.path().stem().string();
            const bool shadowed =
                std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.name == name; });
            if (shadowed) continue;
            std::error_code ignored;
            const fs::path path = fs::weakly_canonical(entry.path(), ignored);
            files.push_back({name, path, file_problem(path)});
        }
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return files;
}

PluginFile PluginHost::inspect(const fs::path& path) {
    std::error_code ignored;
    const fs::path whole = fs::weakly_canonical(path, ignored);
    return {path.stem().string(), whole, file_problem(whole)};
}

std::shared_ptr<const samplers::StageFactory> PluginHost::load(const std::string& name, const fs::path& stated) {
    fs::path path = stated;
    if (path.empty()) {
        for (const fs::path& folder : options_.folders) {
            std::error_code error;
            const bool plain = name.find('/') == std::string::npos;
            if (plain && folder.is_absolute() && fs::exists(folder / (name + ".so"), error)) {
                path = folder / (name + ".so");
                break;
            }
        }
    }
    if (path.empty()) {
        std::string searched;
        for (const fs::path& folder : options_.folders)
            searched += (searched.empty() ? "" : ", ") + folder.lexically_normal().string();
        throw Error("plugin '" + name + "' was not found; searched for " + name + ".so in " +
                    (searched.empty() ? "no folder at all" : searched));
    }
    std::error_code error;
    const fs::path whole = fs::canonical(path, error);
    if (error) throw Error("plugin '" + path.string() + "' cannot be loaded: " + error.message());
    if (marker_->quarantined(whole)) {
        throw Error("plugin '" + whole.string() + "' was running when foresay died; delete '" +
                    marker_->quarantine_file().string() + "' to load it again");
    }
    const std::string problem = file_problem(whole);
    if (!problem.empty()) throw Error("plugin '" + whole.string() + "' cannot be loaded: " + problem);

    std::atomic<std::uint32_t>* running = marker_->counter(whole);
    const foresay_sampler_library& entry = open_library(whole);
    const std::string wrong = entry_problem(entry);
    if (!wrong.empty()) throw Error("plugin '" + whole.string() + "' cannot be used: " + wrong);
    std::string names;
    for (std::uint32_t i = 0; i < entry.sampler_count; ++i) {
        auto factory = samplers::make_plugin_factory(entry.samplers[i], nullptr, whole.string(), running);
        if (factory->description().name == name) return factory;
        names += (names.empty() ? "'" : ", '") + factory->description().name + "'";
    }
    throw Error("plugin '" + whole.string() + "' holds no sampler '" + name + "', only " + names);
}

}  // namespace foresay::plugins
