// app/verify.h: compares model files with the digests that are known for them.
//
// A digest is known from SHA256SUMS or XXH128SUMS beside the file, and from where the file lies: a cache of the Hugging
// Face Hub (its blobs are named by their SHA-256), a folder that the Hub's client downloaded to (its metadata name it),
// or ollama's blobs.
// Cost:     reads every byte, for SHA-256 at 0.4 to 2 GB/s.
// Errors:   Error for files that cannot be read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace foresay::app {

struct VerifiedFile {
    std::filesystem::path file;
    std::vector<std::string> agreeing, differing;  // names of the sources: "SHA256SUMS"
    std::string sha256;                            // of the file; empty if no source asked for it and one was known

    bool known() const { return !agreeing.empty() || !differing.empty(); }
};

// The files of the model at `path`. Settings of a directory count only where a digest is known for them. `progress` is
// called with the bytes read since the last call, and may throw.
std::vector<VerifiedFile> verify_model(const std::filesystem::path& path,
                                       const std::function<void(std::int64_t bytes)>& progress);

std::string bytes_sha256(std::span<const std::byte> bytes);
// The same of a file's contents. Throws Error when it cannot be read.
std::string file_sha256(const std::filesystem::path& file);

}  // namespace foresay::app
