// core/weights/mapped_file.h: a whole file mapped into memory, read only.
//
// Life:     the bytes stay valid, at the same address, until the object that owns the mapping is destroyed. Moving the
//           object does not change the address.
// Threads:  any thread may read the bytes.
// Errors:   a missing, unreadable or irregular file (a directory, a device) throws Error. An empty file maps to an
//           empty span. A file that another program truncates while it is mapped kills the process with SIGBUS when the
//           lost part is read, as for every memory-mapped reader; replacing a file by renaming is safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace foresay::core {

class MappedFile {
public:
    MappedFile() = default;
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return bytes_; }

private:
    void release();

    std::span<const std::byte> bytes_;
};

}  // namespace foresay::core
