// Whatever a file of pages holds, it is refused with an error, or it is what its header and its checksums say and would
// be written so again. A second attempt has its checksums put right, because the fuzzer would not get past them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "core/cache/page_file.h"

namespace {

using foresay::core::PageFileHeader;
using foresay::core::PageFileReader;
using foresay::core::PageHash;

constexpr std::size_t kHash = sizeof(PageHash);

void read(const std::vector<std::byte>& bytes) {
    try {
        const PageFileReader reader(static_cast<std::int64_t>(bytes.size()),
                                    [&](std::int64_t offset, std::span<std::byte> to) {
                                        if (offset < 0 || offset > std::ssize(bytes)) __builtin_trap();
                                        const auto rest = std::span(bytes).subspan(static_cast<std::size_t>(offset));
                                        if (rest.size() < to.size()) return false;
                                        std::copy_n(rest.begin(), to.size(), to.begin());
                                        return true;
                                    });
        const PageFileHeader& header = reader.header();
        const std::vector<std::byte> again = foresay::core::page_file_header(header);
        if (again.size() > bytes.size() || !std::equal(again.begin(), again.end(), bytes.begin())) __builtin_trap();
        std::vector<std::byte> page(static_cast<std::size_t>(header.page_bytes));
        for (std::size_t i = 0; i < header.pages(); ++i) reader.read_page(i, page);
    } catch (const foresay::Error&) {
    }
}

// Puts the hash of what lies before it at `offset`.
void seal(std::vector<std::byte>& bytes, std::size_t begin, std::size_t offset) {
    if (offset < begin || offset + kHash > bytes.size()) return;
    const PageHash hash = foresay::core::page_hash(std::span(bytes).subspan(begin, offset - begin));
    std::memcpy(bytes.data() + offset, &hash, kHash);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size > 0) std::memcpy(bytes.data(), data, size);
    read(bytes);
    if (size < 56) return 0;
    std::uint32_t rows = 0;
    std::uint64_t page = 0;
    std::memcpy(&rows, data + 12, sizeof rows);
    std::memcpy(&page, data + 16, sizeof page);
    if (rows > size || page > size) return 0;
    const std::size_t header = 56 + std::size_t{4} * rows + std::size_t{8} * ((rows + 63) / 64);
    seal(bytes, 0, header);
    for (std::size_t begin = header + kHash; page > 0 && begin + page + kHash <= size; begin += page + kHash)
        seal(bytes, begin, begin + page);
    read(bytes);
    return 0;
}
