#include "plugins/host/plugin_host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/error.h"
#include "plugins/host/crash_marker.h"
#include "plugins/host/crash_watch.h"
#include "plugins/host/elf_check.h"
#include "plugins/host/file_rights.h"
#include "samplers/float_state.h"
#include "samplers/plugin_call.h"
#include "samplers/plugin_description.h"
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

// A file as it is before it is loaded.
struct FileState {
    std::string problem;  // why it cannot be loaded; empty when it looks right
    Build build;
};

FileState state_of(const fs::path& path) {
    const MappedBytes file(path);
    if (!file.problem().empty()) return {file.problem(), {}};
    std::string problem = rights_problem(path);
    if (problem.empty()) problem = elf_problem(file.bytes(), FORESAY_SAMPLER_ENTRY, samplers::kLibrarySize);
    return {std::move(problem), build_of(file.bytes())};
}

// A private copy of a file in memory that nothing can change: what is checked is what is loaded, and a file that is
// built again is another library, not the one that is mapped already. Where memory gives no room for a file
// (RLIMIT_FSIZE), the file itself is loaded.
class LibraryCopy {
public:
    // Of the file at `path`, which `stated` leads to.
    LibraryCopy(const fs::path& path, const fs::path& stated, const PluginOptions::Admit& admit) : path_(path) {
        const MappedBytes file(path);
        if (problem_ = file.problem(); !problem_.empty()) return;
        const std::string name = "foresay:" + path.filename().string().substr(0, 200);
        handle_ = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (handle_ < 0 || !fill(file.bytes()) ||
            ::fcntl(handle_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
            if (handle_ >= 0) ::close(handle_);
            handle_ = -1;
        } else {
            path_ = "/proc/self/fd/" + std::to_string(handle_);
        }
        const MappedBytes copy(path_);
        problem_ = copy.problem();
        if (!problem_.empty()) return;
        build_ = build_of(copy.bytes());
        problem_ = rights_problem(path);
        if (problem_.empty() && admit) problem_ = admit(stated, copy.bytes());
        if (problem_.empty()) problem_ = elf_problem(copy.bytes(), FORESAY_SAMPLER_ENTRY, samplers::kLibrarySize);
    }
    ~LibraryCopy() {
        if (handle_ >= 0) ::close(handle_);
    }
    LibraryCopy(const LibraryCopy&) = delete;
    LibraryCopy& operator=(const LibraryCopy&) = delete;
    const std::string& problem() const { return problem_; }
    const Build& build() const { return build_; }
    // Where this process, and a child of it, can open the copy.
    const fs::path& path() const { return path_; }
    // Keeps it open until the process ends.
    void keep() { handle_ = -1; }

private:
    bool fill(std::span<const std::byte> bytes) const {
        const FileSizeSignalHeld held;
        while (!bytes.empty()) {
            const ssize_t put = ::write(handle_, bytes.data(), bytes.size());
            if (put < 0 && errno == EINTR) continue;
            if (put <= 0) return false;
            bytes = bytes.subspan(static_cast<std::size_t>(put));
        }
        return true;
    }

    fs::path path_;
    int handle_ = -1;
    std::string problem_;
    Build build_;
};

// What is wrong with the exported entry; empty when it can be used. Its members of 1.0 are all that is read.
std::string entry_problem(const foresay_sampler_library& entry) {
    if (entry.struct_size < samplers::kLibrarySize) return "its entry is incomplete";
    const std::string own = std::to_string(FORESAY_SAMPLER_ABI_MAJOR) + "." + std::to_string(FORESAY_SAMPLER_ABI_MINOR);
    if (entry.abi_major != FORESAY_SAMPLER_ABI_MAJOR) {
        return "it was built for version " + std::to_string(entry.abi_major) + "." + std::to_string(entry.abi_minor) +
               " of the sampler contract, and this program has " + own + "; build it again";
    }
    if (entry.needs_minor > FORESAY_SAMPLER_ABI_MINOR) {
        return "it needs version " + std::to_string(entry.abi_major) + "." + std::to_string(entry.needs_minor) +
               " of the sampler contract, and this program has " + own + "; use a newer foresay";
    }
    if (entry.sampler_count == 0) return "it holds no samplers";
    if (entry.sampler_count > kMaxSamplers) {
        return "its sampler_count is " + std::to_string(entry.sampler_count) + ", but a library holds at most " +
               std::to_string(kMaxSamplers) + " samplers";
    }
    if (entry.samplers == nullptr) return "its list of samplers is missing";
    return {};
}

// Unlikely numbers: a library that calls exit() while it is loaded must not look like a good one.
enum ProbeResult : int { kProbeOk = 117, kProbeRefused = 118, kProbeFloats = 119 };

// In a child process: loads the library and reads every description. Never returns.
[[noreturn]] void probe_child(const fs::path& path) {
    for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM}) ::signal(fatal, SIG_DFL);
    ::alarm(kProbeSeconds);
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    const samplers::FloatState before;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (samplers::FloatState() != before) ::_exit(kProbeFloats);
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
    if (WIFEXITED(status) && WEXITSTATUS(status) == kProbeFloats) {
        return "it changes how this thread computes with small numbers (flush-to-zero), which changes the text; build "
               "and link it without -ffast-math";
    }
    if (WIFEXITED(status)) {
        const bool fine = WEXITSTATUS(status) == kProbeOk || WEXITSTATUS(status) == kProbeRefused;
        return fine ? "" : "it ends the program when it is loaded";
    }
    if (WTERMSIG(status) == SIGALRM) return "it hangs when it is loaded";
    return "it crashes when it is loaded; the file is damaged or was built for another system";
}

// Who is to blame while a library is loaded and what it says of its samplers is read: its pointers may lead anywhere,
// and what was mapped there in the child process need not be here.
const samplers::PluginSite* load_sites(const fs::path& path, std::atomic<std::uint32_t>* running) {
    return samplers::plugin_sites(path.string(), "", running);
}

// A build of a library is loaded once per process and kept until the process ends, for all hosts: code of it may run
// for as long.
using Builds = std::map<std::pair<fs::path, std::pair<std::uint64_t, std::uint64_t>>, const foresay_sampler_library*>;
Builds& loaded_builds() {
    static auto& loaded = *new Builds();
    return loaded;
}

const foresay_sampler_library& open_library(const fs::path& path, LibraryCopy& copy,
                                            std::atomic<std::uint32_t>* running) {
    const auto [place, added] =
        loaded_builds().try_emplace({path, {copy.build().checksum, copy.build().size}}, nullptr);
    if (!added) return *place->second;
    const auto refuse = [&, place = place](const std::string& why) {
        loaded_builds().erase(place);
        throw Error("plugin '" + path.string() + "' cannot be loaded: " + why);
    };
    // A thread's first call maps memory. It comes before the child process is made, so that the library's place is the
    // same there as here: damaged pointers then do the same.
    { const samplers::PluginCall first(load_sites(path, running), samplers::PluginFunction::load); }
    if (const std::string problem = probe_problem(copy.path()); !problem.empty()) refuse(problem);
    const samplers::PluginCall call(load_sites(path, running), samplers::PluginFunction::load);
    const samplers::FloatState before;
    void* const library = ::dlopen(copy.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    before.restore();
    const void* const entry = library != nullptr ? ::dlsym(library, FORESAY_SAMPLER_ENTRY) : nullptr;
    if (entry == nullptr) {
        const char* const said = ::dlerror();
        std::string why = said != nullptr ? said : "the loader gives no reason";
        if (const std::size_t at = why.find(copy.path().string()); at != why.npos) {
            why.replace(at, copy.path().string().size(), path.string());
        }
        refuse(why);
    }
    copy.keep();
    place->second = static_cast<const foresay_sampler_library*>(entry);
    return *place->second;
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

fs::path find_plugin(const std::string& name, const std::vector<fs::path>& folders) {
    if (name.find('/') != std::string::npos) return {};
    for (const fs::path& folder : folders) {
        std::error_code error;
        // What a relative folder is depends on the current one.
        if (folder.is_absolute() && fs::exists(folder / (name + ".so"), error)) return folder / (name + ".so");
    }
    return {};
}

PluginHost::PluginHost(PluginOptions options)
    : options_(std::move(options)), marker_(std::make_unique<CrashMarker>(options_.marker, options_.runs)) {}
PluginHost::~PluginHost() = default;
const std::vector<std::string>& PluginHost::notices() const { return marker_->notices(); }
const std::vector<Bar>& PluginHost::bars() const { return marker_->barred().bars(); }
std::vector<Bar> PluginHost::free(const std::function<bool(const Bar&)>& which) {
    return marker_->barred().remove(which);
}

std::string PluginHost::bar_text(const Bar& bar) {
    return "barred since " + time_text(bar.since_s) + ": " + bar.reason;
}

std::optional<Bar> PluginHost::bar(const std::string& name, const fs::path& path) const {
    if (bars().empty()) return std::nullopt;
    const fs::path file = path.empty() ? find_plugin(name, options_.folders) : path;
    const Bar* found = file.empty() ? nullptr : marker_->barred().find(state_of(file).build);
    return found != nullptr ? std::optional(*found) : std::nullopt;
}

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
            const FileState state = state_of(path);
            files.push_back({name, path, state.problem, std::nullopt});
            if (const Bar* bar = marker_->barred().find(state.build)) files.back().bar = *bar;
        }
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return files;
}

PluginFile PluginHost::inspect(const fs::path& path) {
    std::error_code ignored;
    const fs::path whole = fs::weakly_canonical(path, ignored);
    return {path.stem().string(), whole, state_of(whole).problem};
}

// A library that is loaded, and what its factories need.
struct PluginHost::Opened {
    fs::path path;
    const foresay_sampler_library& entry;
    std::atomic<std::uint32_t>* running;

    std::shared_ptr<const samplers::StageFactory> factory(std::uint32_t index) const {
        const samplers::PluginCall call(load_sites(path, running), samplers::PluginFunction::load);
        return samplers::make_plugin_factory(entry.samplers[index], nullptr, path.string(), running);
    }
};

PluginHost::Opened PluginHost::open(const fs::path& path) {
    std::error_code error;
    const fs::path whole = fs::canonical(path, error);
    if (error) throw Error("plugin '" + path.string() + "' cannot be loaded: " + error.message());
    LibraryCopy copy(whole, path, options_.admit);
    const bool runs_here = std::find(opened_.begin(), opened_.end(), copy.build()) != opened_.end();
    if (!runs_here) marker_->barred().refresh();
    if (const Bar* bar = runs_here ? nullptr : marker_->barred().find(copy.build())) {
        throw PluginBarred("plugin '" + whole.string() + "' is " + bar_text(*bar) +
                           "; build it again, or allow this build with `foresay plugin free " +
                           bar->path.stem().string() + "`");
    }
    if (!copy.problem().empty()) throw Error("plugin '" + whole.string() + "' cannot be loaded: " + copy.problem());
    std::atomic<std::uint32_t>* running = marker_->counter(whole, copy.build());
    const foresay_sampler_library& entry = open_library(whole, copy, running);
    const samplers::PluginCall call(load_sites(whole, running), samplers::PluginFunction::load);
    watch_library(&entry, load_sites(whole, running));
    const std::string wrong = entry_problem(entry);
    if (!wrong.empty()) throw Error("plugin '" + whole.string() + "' cannot be used: " + wrong);
    if (!runs_here) opened_.push_back(copy.build());
    return {whole, entry, running};
}

std::shared_ptr<const samplers::StageFactory> PluginHost::load(const std::string& name, const fs::path& stated) {
    const fs::path path = stated.empty() ? find_plugin(name, options_.folders) : stated;
    if (path.empty()) {
        std::string searched, relative;
        for (const fs::path& folder : options_.folders) {
            std::string& list = folder.is_absolute() ? searched : relative;
            list += (list.empty() ? "" : ", ") + folder.lexically_normal().string();
        }
        throw Error("plugin '" + name + "' was not found; searched for " + name + ".so in " +
                    (searched.empty() ? "no folder at all" : searched) +
                    (relative.empty() ? "" : "; not in " + relative + ", since only absolute paths are searched"));
    }
    std::string names;
    for (const auto& factory : load_all(path)) {
        const std::string& own = factory->description().name;
        if (own == name) return factory;
        names += (names.empty() ? "'" : ", '") + own + "'";
    }
    std::error_code ignored;
    throw Error("plugin '" + fs::canonical(path, ignored).string() + "' holds no sampler '" + name + "', only " +
                names);
}

std::vector<std::shared_ptr<const samplers::StageFactory>> PluginHost::load_all(const fs::path& path) {
    const Opened opened = open(path);
    std::vector<std::shared_ptr<const samplers::StageFactory>> all;
    for (std::uint32_t i = 0; i < opened.entry.sampler_count; ++i) {
        all.push_back(opened.factory(i));
        const std::string& name = all.back()->description().name;
        const bool twice = std::any_of(all.begin(), all.end() - 1,
                                       [&](const auto& other) { return other->description().name == name; });
        if (twice)
            throw Error("plugin '" + opened.path.string() + "' cannot be used: it holds two samplers '" + name + "'");
    }
    return all;
}

}  // namespace foresay::plugins
