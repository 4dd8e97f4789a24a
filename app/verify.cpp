#include "app/verify.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include "base/error.h"
#include "core/weights/checksums.h"
#include "core/weights/mapped_file.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

std::string sha256(std::span<const std::byte> bytes, const std::function<void(std::int64_t)>& progress) {
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    bool fine = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
    const auto add = [&](std::span<const std::byte> piece) {
        fine = fine && EVP_DigestUpdate(context.get(), piece.data(), piece.size()) == 1;
    };
    core::add_in_pieces(bytes, add, progress);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    fine = fine && EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1;
    if (!fine) throw Error("OpenSSL cannot compute a SHA-256");
    return core::hexadecimal(std::span(digest).first(size));
}

bool is_sha256(const std::string& text) {
    return text.size() == core::kSha256Digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// What the metadata of the Hub's client say: DIR/.cache/huggingface/download/FILE.metadata has the commit, the ETag and
// a time, a line each. The ETag of a large file is its SHA-256.
std::string downloaded_digest(const fs::path& file) {
    std::ifstream metadata(file.parent_path() / ".cache" / "huggingface" / "download" /
                           (file.filename().string() + ".metadata"));
    std::string commit, tag;
    std::getline(metadata, commit);
    std::getline(metadata, tag);
    return is_sha256(tag) ? tag : "";
}

// The SHA-256 that the name of a blob is.
std::string blob_digest(const fs::path& file) {
    std::error_code problem;
    const fs::path blob = fs::canonical(file, problem);
    if (problem || blob.parent_path().filename() != "blobs") return "";
    std::string name = blob.filename().string();
    if (name.starts_with("sha256-")) name = name.substr(7);
    return is_sha256(name) ? name : "";
}

}  // namespace

std::string bytes_sha256(std::span<const std::byte> bytes) { return sha256(bytes, {}); }

std::string file_sha256(const fs::path& file) { return bytes_sha256(core::MappedFile(file).bytes()); }

std::vector<VerifiedFile> verify_model(const fs::path& path, const std::function<void(std::int64_t)>& progress) {
    std::vector<VerifiedFile> verified;
    for (const fs::path& file : core::model_files(path)) {
        std::vector<std::pair<std::string, std::string>> known;  // sources of a SHA-256, and the digest
        if (const auto listed = core::listed_digest(file, core::kSha256List, core::kSha256Digits))
            known.emplace_back(core::kSha256List, listed->digits);
        if (const std::string digits = downloaded_digest(file); !digits.empty())
            known.emplace_back("the Hub's metadata", digits);
        if (const std::string digits = blob_digest(file); !digits.empty())
            known.emplace_back("the name of its blob", digits);
        const auto fast = core::listed_digest(file, core::kXxh128List, core::kXxh128Digits);
        if (known.empty() && !fast && file.extension() == ".json") continue;
        const core::MappedFile mapping(file);
        VerifiedFile& one = verified.emplace_back();
        one.file = file;
        const auto compare = [&](const std::string& source, bool same) {
            (same ? one.agreeing : one.differing).push_back(source);
        };
        if (!known.empty() || !fast) one.sha256 = sha256(mapping.bytes(), progress);
        for (const auto& [source, digits] : known) compare(source, digits == one.sha256);
        if (fast) compare(std::string(core::kXxh128List), fast->digits == core::xxh128(mapping.bytes(), progress));
    }
    return verified;
}

}  // namespace foresay::app
