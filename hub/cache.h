// hub/cache.h: the hub's own cache on this disk, which other programs share.
//
// Layout:   models--ORG--NAME/blobs/OID              contents, by checksum; OID.incomplete while they arrive
//           models--ORG--NAME/snapshots/COMMIT/PATH  a relative link to a blob
//           models--ORG--NAME/refs/REVISION          the commit that a branch or a tag was when it was last fetched
//           .locks/models--ORG--NAME/OID.lock        held (flock) by the program that fetches the blob
//           A file OID.incomplete is always a beginning of the contents, which any of these programs can continue.
// Threads:  any; programs exclude each other by locks, and what becomes visible does so by rename(2).
// Errors:   Error naming the file and the problem.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/choice.h"
#include "hub/name.h"

namespace foresay::hub {

class Cache {
public:
    explicit Cache(std::filesystem::path folder) : folder_(std::move(folder)) {}

    const std::filesystem::path& folder() const { return folder_; }
    std::filesystem::path repo_folder(const std::string& repo) const;
    std::filesystem::path blob(const std::string& repo, const std::string& oid) const;
    std::filesystem::path snapshot(const std::string& repo, const std::string& commit) const;

    // The repositories that are here, in alphabetical order.
    std::vector<std::string> repos() const;
    // The commits that have a snapshot, and the revisions that are here with their commits, both in order.
    std::vector<std::string> commits(const std::string& repo) const;
    std::vector<std::pair<std::string, std::string>> refs(const std::string& repo) const;
    // The commit of a revision, if it is known here. A commit may be shortened to 7 digits.
    std::optional<std::string> commit_of(const std::string& repo, const std::string& revision) const;
    // The files of a snapshot that lead to something. `oid` is the name of the blob; empty for a file in its own right.
    std::vector<HubFile> files(const std::string& repo, const std::string& commit) const;

    // Makes the folders of `repo`.
    void prepare(const std::string& repo) const;
    // Whether the blob is complete.
    bool has(const std::string& repo, const HubFile& file) const;
    // Bytes of it that have arrived; 0 if none.
    std::int64_t arrived(const std::string& repo, const HubFile& file) const;
    // Makes the complete OID.incomplete the blob.
    void keep(const std::string& repo, const HubFile& file) const;
    // Makes the file visible in a snapshot. The blob is complete.
    void link(const std::string& repo, const std::string& commit, const HubFile& file) const;
    void set_ref(const std::string& repo, const std::string& revision, const std::string& commit) const;
    // Free bytes on its file system.
    std::int64_t free_bytes() const;

private:
    std::filesystem::path folder_;
};

// The lock of a blob that is being fetched.
class BlobLock {
public:
    // Waits until no other program has it. `wait` is called while one does; it may throw.
    BlobLock(const Cache& cache, const std::string& repo, const std::string& oid, const std::function<void()>& wait);
    ~BlobLock();
    BlobLock(const BlobLock&) = delete;
    BlobLock& operator=(const BlobLock&) = delete;

private:
    int descriptor_ = -1;
};

// Where a model lies in the cache: a GGUF file or a folder. Nothing if it, or a part of it, is not here.
std::optional<std::filesystem::path> find_model(const Cache& cache, const ModelName& name);
// The same of one snapshot. Safetensors with an index count when all shards are here; their files are complete then.
std::vector<ModelFiles> complete_models(const Cache& cache, const std::string& repo, const std::string& commit);

// What removing a model, or a whole repository if the name has neither choice nor revision, would delete.
struct Removal {
    std::string repo;
    std::vector<std::filesystem::path> links;  // in snapshots
    std::vector<std::filesystem::path> blobs;  // to which no other link leads, with what is incomplete
    std::vector<std::filesystem::path> refs;   // of snapshots that will be empty
    std::int64_t bytes = 0;
    bool whole = false;  // nothing else remains of the repository
};
// Errors:   Error if the model is not here, is being fetched, or its folders are links to elsewhere.
Removal plan_removal(const Cache& cache, const ModelName& name);
// Deletes that. Never follows a link.
void remove(const Cache& cache, const Removal& removal);

}  // namespace foresay::hub
