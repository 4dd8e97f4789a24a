#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "hub/digest.h"

namespace foresay::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kIncomplete = ".incomplete";
constexpr std::size_t kShortCommit = 7;
constexpr std::uintmax_t kMostIndexBytes = std::uintmax_t{64} << 20;

std::string folder_name(const std::string& repo) {
    std::string name(kPrefix);
    for (const char c : repo) name += c == '/' ? "--" : std::string(1, c);
    return name;
}

[[noreturn]] void fail(const std::string& what, const fs::path& path, int problem) {
    throw Error("cannot " + what + " " + path.string() + ": " + std::strerror(problem) +
                "; HF_HUB_CACHE names another folder");
}

void make_folders(const fs::path& path) {
    std::error_code problem;
    fs::create_directories(path, problem);
    if (problem) fail("make the folder", path, problem.value());
}

bool is_folder_itself(const fs::path& path) {
    std::error_code ignored;
    return fs::symlink_status(path, ignored).type() == fs::file_type::directory;
}

// A name beside `path` that no other process takes.
fs::path beside(const fs::path& path) {
    static int count = 0;
    return path.parent_path() /
           ("." + std::to_string(::getpid()) + "-" + std::to_string(++count) + std::string(kIncomplete));
}

void move_over(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) == 0) return;
    const int problem = errno;
    ::unlink(from.c_str());
    fail("write", to, problem);
}

// What is written to a file system that fails in the middle must not have a blob's name, so data come first.
void flush(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail("open", path, errno);
    const int problem = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    if (problem != 0 && problem != EINVAL) fail("write", path, problem);
}

std::string read_line(const fs::path& path) {
    std::ifstream stream(path);
    std::string line;
    std::getline(stream, line);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
    return line;
}

// All files below `folder`, links included, by their paths in it. Folders that are links are not entered.
std::vector<fs::path> files_below(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code problem;
    if (!is_folder_itself(folder)) return found;
    for (auto it = fs::recursive_directory_iterator(folder, problem);
         !problem && it != fs::recursive_directory_iterator(); it.increment(problem)) {
        std::error_code ignored;
        if (!it->is_directory(ignored) || it->is_symlink(ignored)) found.push_back(it->path());
    }
    std::sort(found.begin(), found.end());
    return found;
}

// The blob to which a link of a snapshot leads, by the text of the link; empty for anything else.
std::string blob_of(const fs::path& link, const fs::path& blobs) {
    std::error_code problem;
    const fs::path text = fs::read_symlink(link, problem);
    if (problem) return "";
    const fs::path target = (text.is_absolute() ? text : link.parent_path() / text).lexically_normal();
    return target.parent_path() == blobs.lexically_normal() ? target.filename().string() : "";
}

}  // namespace

fs::path Cache::repo_folder(const std::string& repo) const { return folder_ / folder_name(repo); }
fs::path Cache::blob(const std::string& repo, const std::string& oid) const {
    return repo_folder(repo) / "blobs" / oid;
}
fs::path Cache::snapshot(const std::string& repo, const std::string& commit) const {
    return repo_folder(repo) / "snapshots" / commit;
}

std::vector<std::string> Cache::repos() const {
    std::vector<std::string> repos;
    std::error_code problem;
    for (auto it = fs::directory_iterator(folder_, problem); !problem && it != fs::directory_iterator();
         it.increment(problem)) {
        std::string name = it->path().filename().string();
        if (!name.starts_with(kPrefix)) continue;
        name.erase(0, kPrefix.size());
        const std::size_t mark = name.find("--");
        if (mark != name.npos) name.replace(mark, 2, "/");
        try {  // a folder that no hub has made
            if (parse_model_name(name).repo == name) repos.push_back(name);
        } catch (const Error&) {
            continue;
        }
    }
    std::sort(repos.begin(), repos.end());
    return repos;
}

std::vector<std::string> Cache::commits(const std::string& repo) const {
    std::vector<std::string> commits;
    std::error_code problem;
    for (auto it = fs::directory_iterator(repo_folder(repo) / "snapshots", problem);
         !problem && it != fs::directory_iterator(); it.increment(problem)) {
        if (is_folder_itself(it->path())) commits.push_back(it->path().filename().string());
    }
    std::sort(commits.begin(), commits.end());
    return commits;
}

std::vector<std::pair<std::string, std::string>> Cache::refs(const std::string& repo) const {
    std::vector<std::pair<std::string, std::string>> refs;
    const fs::path folder = repo_folder(repo) / "refs";
    for (const fs::path& file : files_below(folder)) {
        refs.emplace_back(file.lexically_relative(folder).generic_string(), read_line(file));
    }
    return refs;
}

std::optional<std::string> Cache::commit_of(const std::string& repo, const std::string& revision) const {
    if (is_safe_path(revision)) {
        const std::string commit = read_line(repo_folder(repo) / "refs" / revision);
        if (is_commit(commit)) return commit;
    }
    std::optional<std::string> found;
    for (const std::string& commit : commits(repo)) {
        if (commit == revision) return commit;
        if (revision.size() < kShortCommit || !commit.starts_with(revision)) continue;
        if (found) return std::nullopt;
        found = commit;
    }
    return found;
}

std::vector<HubFile> Cache::files(const std::string& repo, const std::string& commit) const {
    std::vector<HubFile> files;
    const fs::path folder = snapshot(repo, commit), blobs = repo_folder(repo) / "blobs";
    for (const fs::path& path : files_below(folder)) {
        struct stat status {};
        if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
        files.push_back({path.lexically_relative(folder).generic_string(), status.st_size, blob_of(path, blobs)});
    }
    return files;
}

void Cache::prepare(const std::string& repo) const {
    for (const char* name : {"blobs", "refs", "snapshots"}) make_folders(repo_folder(repo) / name);
    make_folders(folder_ / ".locks" / folder_name(repo));
}

bool Cache::has(const std::string& repo, const HubFile& file) const {
    std::error_code problem;
    const fs::path path = blob(repo, file.oid);
    return fs::is_regular_file(path, problem) &&
           fs::file_size(path, problem) == static_cast<std::uintmax_t>(file.size) && !problem;
}

std::int64_t Cache::arrived(const std::string& repo, const HubFile& file) const {
    std::error_code problem;
    const std::uintmax_t bytes = fs::file_size(blob(repo, file.oid + std::string(kIncomplete)), problem);
    return problem ? 0 : std::min(static_cast<std::int64_t>(bytes), file.size);
}

void Cache::keep(const std::string& repo, const HubFile& file) const {
    const fs::path incomplete = blob(repo, file.oid + std::string(kIncomplete));
    flush(incomplete);
    const fs::path path = blob(repo, file.oid);
    if (::rename(incomplete.c_str(), path.c_str()) != 0) fail("write", path, errno);
}

void Cache::link(const std::string& repo, const std::string& commit, const HubFile& file) const {
    check(is_safe_path(file.path) && is_oid(file.oid), "the hub's names have been checked");
    const fs::path root = snapshot(repo, commit), path = root / file.path;
    make_folders(path.parent_path());
    // A folder on the way that is a link would lead out of the snapshot.
    fs::path up = "..";
    for (fs::path folder = path.parent_path(); folder != root; folder = folder.parent_path()) {
        up /= "..";
        if (!is_folder_itself(folder)) throw Error(folder.string() + " is a link; remove it");
    }
    const fs::path text = up / ".." / "blobs" / file.oid;
    std::error_code problem;
    if (fs::read_symlink(path, problem) == text) return;
    const fs::path temporary = beside(path);
    if (::symlink(text.c_str(), temporary.c_str()) != 0) fail("make the link", temporary, errno);
    move_over(temporary, path);
}

void Cache::set_ref(const std::string& repo, const std::string& revision, const std::string& commit) const {
    check(is_safe_path(revision) && is_commit(commit), "the hub's names have been checked");
    if (revision == commit) return;
    const fs::path path = repo_folder(repo) / "refs" / revision;
    if (read_line(path) == commit) return;
    make_folders(path.parent_path());
    const fs::path temporary = beside(path);
    std::ofstream stream(temporary);
    stream << commit;
    stream.close();
    if (!stream) {
        ::unlink(temporary.c_str());
        fail("write", path, ENOSPC);
    }
    flush(temporary);
    move_over(temporary, path);
}

std::int64_t Cache::free_bytes() const {
    struct statvfs status {};
    if (::statvfs(folder_.c_str(), &status) != 0) fail("examine", folder_, errno);
    return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

BlobLock::BlobLock(const Cache& cache, const std::string& repo, const std::string& oid,
                   const std::function<void()>& wait) {
    const fs::path path = cache.folder() / ".locks" / folder_name(repo) / (oid + ".lock");
    make_folders(path.parent_path());
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) fail("open the lock", path, errno);
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
        const int problem = errno;
        if (problem == EINTR) continue;
        if (problem != EWOULDBLOCK) {  // a file system without locks: programs may then fetch twice, which is no harm
            return;
        }
        try {
            wait();
        } catch (...) {
            ::close(descriptor_);
            throw;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

// The file stays: another program may already have opened it, and would lock a file without a name.
BlobLock::~BlobLock() { ::close(descriptor_); }

std::vector<ModelFiles> complete_models(const Cache& cache, const std::string& repo, const std::string& commit) {
    const std::vector<HubFile> files = cache.files(repo, commit);
    std::vector<ModelFiles> models = models_in(files);
    std::erase_if(models, [&](ModelFiles& model) {
        if (index_of(model) == nullptr) return false;
        const fs::path path = cache.snapshot(repo, commit) / kIndexName;
        std::error_code problem;
        if (fs::file_size(path, problem) > kMostIndexBytes || problem) return true;
        std::ifstream stream(path, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(stream), {}};
        try {
            add_shards(model, files, text, path.string());
        } catch (const Error&) {
            return true;
        }
        return false;
    });
    return models;
}

std::optional<fs::path> find_model(const Cache& cache, const ModelName& name) {
    const std::optional<std::string> commit = cache.commit_of(name.repo, name.revision);
    if (!commit) return std::nullopt;
    std::vector<HubFile> files;
    for (ModelFiles& model : complete_models(cache, name.repo, *commit)) {
        files.insert(files.end(), model.files.begin(), model.files.end());
    }
    if (files.empty()) return std::nullopt;
    ModelFiles model;
    try {
        model = choose(files, name.choice, name.repo);
    } catch (const Error&) {
        // Several fit, or none: what the hub has decides.
        return std::nullopt;
    }
    const fs::path folder = cache.snapshot(name.repo, *commit);
    return model.path.empty() ? folder : folder / model.path;
}

namespace {

// Whether another program is fetching the blob.
bool is_locked(const Cache& cache, const std::string& repo, const std::string& oid) {
    const fs::path path = cache.folder() / ".locks" / folder_name(repo) / (oid + ".lock");
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) return false;
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(descriptor);
    return locked;
}

void refuse_links(const Cache& cache, const std::string& repo) {
    const fs::path folder = cache.repo_folder(repo);
    for (const fs::path& part : {folder, folder / "blobs", folder / "snapshots", folder / "refs"}) {
        std::error_code ignored;
        if (!fs::is_symlink(part, ignored)) continue;
        throw Error(part.string() + " is a link to " + fs::read_symlink(part, ignored).string() +
                    "; foresay removes nothing outside the cache, so remove it by hand");
    }
}

// The paths of the chosen model's files in the snapshot of `commit`; none, and why in `problem`, if it is not there.
std::set<std::string> chosen_files(const Cache& cache, const ModelName& name, const std::string& commit,
                                   std::string& problem) {
    std::set<std::string> chosen;
    const std::vector<ModelFiles> models = complete_models(cache, name.repo, commit);
    std::vector<HubFile> files;
    for (const ModelFiles& model : models) files.insert(files.end(), model.files.begin(), model.files.end());
    try {
        const std::string choice = choose(files, name.choice, name.repo).choice;
        for (const ModelFiles& model : models) {
            if (model.choice != choice) continue;
            for (const HubFile& file : model.files) chosen.insert(file.path);
        }
    } catch (const Error& error) {
        problem = error.what();
    }
    return chosen;
}

}  // namespace

Removal plan_removal(const Cache& cache, const ModelName& name) {
    const fs::path folder = cache.repo_folder(name.repo), blobs = folder / "blobs";
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(folder, ignored))) {
        throw Error("there is no " + name.repo + " in " + cache.folder().string() +
                    "; `foresay list` shows what is there");
    }
    refuse_links(cache, name.repo);
    const bool all_revisions = name.revision == ModelName().revision;
    std::optional<std::string> only;
    if (!all_revisions) {
        only = cache.commit_of(name.repo, name.revision);
        if (!only) throw Error(name.repo + " has no revision " + name.revision + " here; `foresay list` shows them");
    }
    Removal removal;
    removal.repo = name.repo;
    std::set<std::string> kept;           // blobs to which a link leads that stays
    std::set<std::string> empty_commits;  // snapshots that will be empty
    std::string problem;                  // why a snapshot has no chosen model
    bool stays_any = false;
    for (const std::string& commit : cache.commits(name.repo)) {
        const fs::path snapshot = cache.snapshot(name.repo, commit);
        const bool concerned = !only || commit == *only;
        const std::set<std::string> chosen =
            concerned && !name.choice.empty() ? chosen_files(cache, name, commit, problem) : std::set<std::string>();
        bool stays = false;
        for (const fs::path& path : files_below(snapshot)) {
            const std::string inside = path.lexically_relative(snapshot).generic_string();
            if (concerned && (name.choice.empty() || chosen.contains(inside))) {
                removal.links.push_back(path);
                const bool is_file = fs::is_regular_file(fs::symlink_status(path, ignored));
                if (is_file) removal.bytes += static_cast<std::int64_t>(fs::file_size(path, ignored));
            } else {
                stays = true;
                kept.insert(blob_of(path, blobs));
            }
        }
        if (!stays) empty_commits.insert(commit);
        stays_any = stays_any || stays;
    }
    if (removal.links.empty() && !(name.choice.empty() && all_revisions)) {
        if (!problem.empty()) throw Error(problem);
        throw Error("there is no " + name.text() + " in " + cache.folder().string() +
                    "; `foresay list` shows what is there");
    }
    removal.whole = !stays_any;
    for (const auto& [ref, commit] : cache.refs(name.repo)) {
        if (empty_commits.contains(commit) || removal.whole) removal.refs.push_back(folder / "refs" / ref);
    }
    for (const fs::path& path : files_below(blobs)) {
        std::string oid = path.filename().string();
        if (kept.contains(oid)) continue;
        if (oid.ends_with(kIncomplete)) oid.resize(oid.size() - kIncomplete.size());
        if (is_locked(cache, name.repo, oid)) {
            throw Error("a program is fetching files of " + name.repo + " now; wait until it is done, or end it");
        }
        removal.blobs.push_back(path);
        const bool is_file = fs::is_regular_file(fs::symlink_status(path, ignored));
        if (is_file) removal.bytes += static_cast<std::int64_t>(fs::file_size(path, ignored));
    }
    return removal;
}

void remove(const Cache& cache, const Removal& removal) {
    refuse_links(cache, removal.repo);
    const fs::path folder = cache.repo_folder(removal.repo);
    const auto erase = [](const fs::path& path) {
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail("remove", path, errno);
    };
    // Revisions first and contents last: a program that looks now finds a complete model or none.
    for (const fs::path& path : removal.refs) erase(path);
    std::set<fs::path> folders;
    for (const fs::path& path : removal.links) {
        erase(path);
        for (fs::path up = path.parent_path(); up != folder / "snapshots"; up = up.parent_path()) folders.insert(up);
    }
    // Deeper folders first; those that are not empty stay.
    for (auto it = folders.rbegin(); it != folders.rend(); ++it) ::rmdir(it->c_str());
    for (const fs::path& path : removal.blobs) erase(path);
    if (!removal.whole) return;
    // Removes links, not what they lead to.
    std::error_code problem;
    fs::remove_all(folder, problem);
    if (problem) fail("remove", folder, problem.value());
    fs::remove_all(cache.folder() / ".locks" / folder_name(removal.repo), problem);
}

}  // namespace foresay::hub
