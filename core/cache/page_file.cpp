#include "core/cache/page_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace foresay::core {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "page files hold little-endian numbers");

constexpr char kMagic[8] = {'F', 'S', 'Y', 'P', 'A', 'G', 'E', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kFixedBytes = 56, kHashBytes = 16;
constexpr std::int64_t kRows = kernels::kPagePositions;

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
}

template <class T>
T get(std::span<const std::byte> bytes, std::int64_t offset) {
    T value{};
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

std::int64_t header_bytes(std::int64_t rows) {
    return kFixedBytes + 4 * rows + 8 * ((rows + kRows - 1) / kRows) + kHashBytes;
}

// Closes a file, and deletes it unless it has become what it was to be.
struct Unfinished {
    fs::path path;
    int descriptor = -1;
    bool done = false;
    ~Unfinished() {
        if (descriptor >= 0) ::close(descriptor);
        if (!done) ::unlink(path.c_str());
    }
};

[[noreturn]] void cannot_write(const fs::path& path, int problem) {
    throw Error("cannot write " + path.string() + ": " + std::strerror(problem));
}

}  // namespace

std::string PageHash::text() const {
    char digits[33];
    std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(high),
                  static_cast<unsigned long long>(low));
    return digits;
}

PageHash page_hash(std::span<const std::byte> bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.high64, hash.low64};
}

PageHash page_hash(std::string_view text) { return page_hash(std::as_bytes(std::span(text))); }

PageHash PageId::hash() const {
    static_assert(sizeof(PageId) == 16 + 4 * kRows + 8, "no padding is hashed");
    return page_hash(std::as_bytes(std::span(this, 1)));
}

std::vector<std::byte> page_file_header(const PageFileHeader& header) {
    std::vector<std::byte> out;
    out.reserve(static_cast<std::size_t>(header_bytes(std::ssize(header.tokens))));
    for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
    put(out, kVersion);
    put(out, static_cast<std::uint32_t>(header.tokens.size()));
    put(out, static_cast<std::uint64_t>(header.page_bytes));
    put(out, header.fingerprint);
    put(out, header.parent);
    for (const std::int32_t token : header.tokens) put(out, token);
    for (const std::uint64_t bits : header.decode_rows) put(out, bits);
    put(out, page_hash(out));
    return out;
}

PageFileReader::PageFileReader(std::int64_t size, Read read) : read_(std::move(read)) {
    if (size < header_bytes(1)) throw Error("it is no page file, or was cut off");
    std::vector<std::byte> bytes(static_cast<std::size_t>(kFixedBytes));
    if (!read_(0, bytes)) throw Error("it cannot be read");
    if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) throw Error("it is no page file");
    if (const auto version = get<std::uint32_t>(bytes, 8); version != kVersion)
        throw Error("its version is " + std::to_string(version) + ", and this program reads version 1");
    const std::int64_t rows = get<std::uint32_t>(bytes, 12);
    const std::uint64_t page_bytes = get<std::uint64_t>(bytes, 16);
    if (rows < 1 || rows > kMostPageRows || page_bytes < 1 || page_bytes > std::uint64_t{kMostPageBytes})
        throw Error("its sizes are impossible");
    header_.page_bytes = static_cast<std::int64_t>(page_bytes);
    header_.fingerprint = get<PageHash>(bytes, 24);
    header_.parent = get<PageHash>(bytes, 40);
    first_page_ = header_bytes(rows);
    const std::int64_t pages = (rows + kRows - 1) / kRows;
    // At most 2^18 pages of 2^32 bytes: no product overflows.
    if (size != first_page_ + pages * (header_.page_bytes + kHashBytes))
        throw Error("it was cut off or has bytes too many");
    bytes.resize(static_cast<std::size_t>(first_page_));
    if (!read_(kFixedBytes, std::span(bytes).subspan(static_cast<std::size_t>(kFixedBytes))))
        throw Error("it cannot be read");
    const auto checked = std::span<const std::byte>(bytes).first(bytes.size() - kHashBytes);
    if (get<PageHash>(bytes, first_page_ - kHashBytes) != page_hash(checked)) throw Error("its beginning is damaged");
    header_.tokens.resize(static_cast<std::size_t>(rows));
    std::memcpy(header_.tokens.data(), bytes.data() + kFixedBytes, 4 * header_.tokens.size());
    header_.decode_rows.resize(static_cast<std::size_t>(pages));
    std::memcpy(header_.decode_rows.data(), bytes.data() + kFixedBytes + 4 * rows, 8 * header_.decode_rows.size());
}

void PageFileReader::read_page(std::size_t index, std::span<std::byte> to) const {
    check(index < header_.pages() && std::ssize(to) == header_.page_bytes, "a page that the file does not have");
    const std::int64_t offset = first_page_ + static_cast<std::int64_t>(index) * (header_.page_bytes + kHashBytes);
    std::byte hash[kHashBytes];
    if (!read_(offset, to) || !read_(offset + header_.page_bytes, hash)) throw Error("it cannot be read");
    if (get<PageHash>(hash, 0) != page_hash(to)) throw Error("page " + std::to_string(index + 1) + " is damaged");
}

OpenPageFile::OpenPageFile(const fs::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
        size_ = status.st_size;
        return;
    }
    const std::string why = descriptor_ < 0 ? std::strerror(errno) : "it is no regular file";
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Error(why);
}

OpenPageFile::~OpenPageFile() { ::close(descriptor_); }

PageFileReader::Read OpenPageFile::reader() const {
    return [descriptor = descriptor_](std::int64_t offset, std::span<std::byte> to) {
        while (!to.empty()) {
            const ssize_t got = ::pread(descriptor, to.data(), to.size(), offset);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            to = to.subspan(static_cast<std::size_t>(got));
            offset += got;
        }
        return true;
    };
}

std::int64_t write_page_file(const fs::path& path, const PageFileHeader& header,
                             const std::function<std::span<const std::byte>(std::size_t page)>& page) {
    static std::atomic<unsigned> count{0};
    Unfinished file{.path = path.parent_path() /
                            (kUnfinishedPageFile + std::to_string(::getpid()) + "-" + std::to_string(++count))};
    file.descriptor = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file.descriptor < 0) {
        file.done = true;  // it is not ours
        cannot_write(path, errno);
    }
    std::int64_t written = 0;
    const auto write = [&](std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t done = ::write(file.descriptor, bytes.data(), bytes.size());
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) cannot_write(path, errno);
            bytes = bytes.subspan(static_cast<std::size_t>(done));
            written += done;
        }
    };
    write(page_file_header(header));
    for (std::size_t i = 0; i < header.pages(); ++i) {
        const std::span<const std::byte> bytes = page(i);
        check(std::ssize(bytes) == header.page_bytes, "a page of another size than the header says");
        write(bytes);
        const PageHash hash = page_hash(bytes);
        write(std::as_bytes(std::span(&hash, 1)));
    }
    // Some file systems tell here that there was no room.
    if (::close(std::exchange(file.descriptor, -1)) != 0 || ::rename(file.path.c_str(), path.c_str()) != 0)
        cannot_write(path, errno);
    file.done = true;
    return written;
}

}  // namespace foresay::core
