// core/weights/checksums.h: lists of checksums beside models, and the check of a model's files against them.
//
// Layout:   a list is a text file in the folder of the files that it names. A line is a digest in hexadecimal, blanks,
//           a '*' or not, and a file's name: what sha256sum and `xxhsum -H2` print. Other lines do not count.
//           XXH128SUMS is compared at every load, since XXH128 is as fast as memory. It finds damage; it is no defence
//           against an author of files who means harm. SHA256SUMS is read by `foresay inspect --verify`.
// Threads:  any.
// Cost:     reads every byte of the files: about 0.1 s per GB that is in memory already.
// Errors:   lists are untrusted: a list larger than kMaxListBytes, or a digest of another length, throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace foresay::core {

inline constexpr std::string_view kXxh128List = "XXH128SUMS";
inline constexpr std::string_view kSha256List = "SHA256SUMS";
inline constexpr std::size_t kXxh128Digits = 32, kSha256Digits = 64;
inline constexpr std::int64_t kMaxListBytes = 1 << 20;

// A digest that is known for a file, and the list that says so.
struct KnownDigest {
    std::string digits;  // lower case
    std::filesystem::path list;
};

// What the list named `list` beside `file` says; beside the file that `file` is a link to, if the first says nothing.
std::optional<KnownDigest> listed_digest(const std::filesystem::path& file, std::string_view list, std::size_t digits);

// The files that the model at `path` is read from: a GGUF file with all parts of a split one; the weights and settings
// in a directory of safetensors.
std::vector<std::filesystem::path> model_files(const std::filesystem::path& path);

// Called now and then while a digest is computed, with the bytes done since the last call. May throw, to cancel.
using DigestProgress = std::function<void(std::int64_t bytes)>;

// Calls add(piece) for all of `bytes`, piece by piece, and `progress` after each.
void add_in_pieces(std::span<const std::byte> bytes, const std::function<void(std::span<const std::byte>)>& add,
                   const DigestProgress& progress);
// A digest as the lists have it, in lower case.
std::string hexadecimal(std::span<const unsigned char> digest);

// The XXH128 of `bytes`, as xxhsum prints it.
std::string xxh128(std::span<const std::byte> bytes, const DigestProgress& progress = {});

class DamagedFile : public Error {
public:
    using Error::Error;
};

// Throws DamagedFile if a file of the model at `path` is not what the XXH128SUMS beside it says. `way_on` ends the
// sentence: how to use the model all the same. False: nothing is listed, so nothing was read.
bool check_listed_files(const std::filesystem::path& path, const std::string& way_on,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace foresay::core
