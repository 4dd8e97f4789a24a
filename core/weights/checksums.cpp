#include "core/weights/checksums.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <system_error>

#include "core/weights/mapped_file.h"
#include "core/weights/quote.h"

namespace foresay::core {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPiece = std::size_t{16} << 20;  // between two calls of the progress

bool is_hexadecimal(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// The digest for `name` in the text of a list; empty when there is none.
std::string find_line(std::string_view text, std::string_view name) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const auto end = std::find_if_not(line.begin(), line.end(), is_hexadecimal);
        std::string digits(line.begin(), end);
        std::string_view rest = line.substr(digits.size());
        if (digits.empty() || !rest.starts_with(' ')) continue;
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        if (rest.starts_with('*')) rest.remove_prefix(1);
        if (rest.starts_with("./")) rest.remove_prefix(2);
        if (rest.ends_with('\r')) rest.remove_suffix(1);
        if (rest != name) continue;
        std::transform(digits.begin(), digits.end(), digits.begin(),
                       [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
        return digits;
    }
    return "";
}

std::optional<KnownDigest> listed_beside(const fs::path& file, std::string_view list, std::size_t digits) {
    const fs::path path = file.parent_path() / list;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return std::nullopt;
    const MappedFile mapping(path);
    const std::string_view text(reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size());
    if (static_cast<std::int64_t>(text.size()) > kMaxListBytes) {
        throw Error(path.string() + ": larger than " + std::to_string(kMaxListBytes) +
                    " bytes; this is not a list of checksums");
    }
    const std::string name = file.filename().string();
    const std::string found = find_line(text, name);
    if (found.empty()) return std::nullopt;
    if (found.size() != digits) {
        throw Error(path.string() + ": the checksum of " + quote(name) + " has " + std::to_string(found.size()) +
                    " digits instead of " + std::to_string(digits) + "; correct the line or remove it");
    }
    return KnownDigest{found, path};
}

// NAME-00001-of-00003.gguf with another number; empty when `path` is not named like a part.
fs::path part_of(const fs::path& path, int number, int& count) {
    const std::string name = path.filename().string();
    constexpr std::string_view kShape = "-00001-of-00001.gguf";
    if (name.size() < kShape.size()) return {};
    std::string tail = name.substr(name.size() - kShape.size());
    for (std::size_t i = 0; i < kShape.size(); ++i) {
        const bool digit = kShape[i] == '0' || kShape[i] == '1';
        if (digit ? tail[i] < '0' || tail[i] > '9' : tail[i] != kShape[i]) return {};
    }
    count = std::stoi(tail.substr(10, 5));
    const std::string digits = std::to_string(number);
    tail.replace(1, 5, std::string(5 - digits.size(), '0') + digits);
    return path.parent_path() / (name.substr(0, name.size() - kShape.size()) + tail);
}

}  // namespace

std::optional<KnownDigest> listed_digest(const fs::path& file, std::string_view list, std::size_t digits) {
    std::error_code problem;
    if (auto known = listed_beside(file, list, digits)) return known;
    if (!fs::is_symlink(file, problem)) return std::nullopt;
    const fs::path target = fs::canonical(file, problem);
    return problem ? std::nullopt : listed_beside(target, list, digits);
}

std::vector<fs::path> model_files(const fs::path& path) {
    std::error_code problem;
    std::vector<fs::path> files;
    if (!fs::is_directory(path, problem)) {
        int count = 1;
        if (part_of(path, 1, count).empty()) return {path};
        for (int part = 1; part <= std::min(count, 1000); ++part) files.push_back(part_of(path, part, count));
        return files;
    }
    for (const auto& entry : fs::directory_iterator(path, problem)) {
        const std::string extension = entry.path().extension().string();
        if (extension == ".safetensors" || extension == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

void add_in_pieces(std::span<const std::byte> bytes, const std::function<void(std::span<const std::byte>)>& add,
                   const DigestProgress& progress) {
    while (!bytes.empty()) {
        const std::span<const std::byte> piece = bytes.first(std::min(kPiece, bytes.size()));
        add(piece);
        bytes = bytes.subspan(piece.size());
        if (progress) progress(static_cast<std::int64_t>(piece.size()));
    }
}

std::string hexadecimal(std::span<const unsigned char> digest) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string digits;
    for (const unsigned char byte : digest) {
        digits += kDigits[byte >> 4];
        digits += kDigits[byte & 15];
    }
    return digits;
}

std::string xxh128(std::span<const std::byte> bytes, const DigestProgress& progress) {
    const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
    if (!state || XXH3_128bits_reset(state.get()) != XXH_OK) throw Error("out of memory while checking a file");
    const auto add = [&](std::span<const std::byte> piece) {
        XXH3_128bits_update(state.get(), piece.data(), piece.size());
    };
    add_in_pieces(bytes, add, progress);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
    return hexadecimal(canonical.digest);
}

bool check_listed_files(const fs::path& path, const std::string& way_on,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
    struct Listed {
        fs::path file;
        KnownDigest known;
        MappedFile mapping;
    };
    std::vector<Listed> listed;
    std::int64_t all = 0, done = 0;
    for (const fs::path& file : model_files(path)) {
        auto known = listed_digest(file, kXxh128List, kXxh128Digits);
        if (!known) continue;
        listed.push_back({file, *std::move(known), MappedFile(file)});
        all += static_cast<std::int64_t>(listed.back().mapping.bytes().size());
    }
    for (const Listed& one : listed) {
        const std::string digits = xxh128(one.mapping.bytes(), [&](std::int64_t bytes) {
            done += bytes;
            if (progress) progress(done, all);
        });
        if (digits == one.known.digits) continue;
        throw DamagedFile(one.file.string() + ": damaged or changed, because its checksum is not the one in " +
                          one.known.list.string() + "; restore it with 'git checkout -- " + one.file.string() +
                          "', install foresay or get the model again" + way_on);
    }
    return !listed.empty();
}

}  // namespace foresay::core
