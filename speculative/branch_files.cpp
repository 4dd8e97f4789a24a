// The pages of a sequence in a file: BranchCache::save() and load().
#include <algorithm>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "core/cache/page_file.h"
#include "speculative/branch_cache.h"

namespace foresay::speculative {

namespace {

constexpr std::int32_t kRows = kernels::kPagePositions;

std::int64_t page_bytes(core::Context& context) {
    const kernels::KvPages& pages = context.cache().pages();
    return context.ops().kv_bytes(pages.shape, 1, pages.format);
}

// A file that is there and holds something else is not ours to replace.
void require_own(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    try {
        const core::OpenPageFile file(path);
        const core::PageFileReader reader(file.size(), file.reader());
    } catch (const Error& problem) {
        throw Error(path.string() + " would be replaced, and is no file of pages (" + problem.what() +
                    "); move it away or save under another name");
    }
}

}  // namespace

SavedPages BranchCache::save(const std::filesystem::path& path, std::string_view fingerprint) {
    if (held() == 0)
        throw Error("the cache holds nothing of this text yet, so there is nothing to write to " + path.string());
    require_own(path);
    const auto rows = static_cast<std::size_t>(held());
    core::PageFileHeader header{.page_bytes = page_bytes(*target_),
                                .fingerprint = core::page_hash(fingerprint),
                                .parent = {},
                                .tokens = {tokens_.begin(), tokens_.begin() + held()},
                                .decode_rows = {}};
    header.decode_rows.resize((rows + kRows - 1) / kRows);
    for (std::size_t i = 0; i < rows; ++i) {
        if (classes_[i] == kernels::RowClass::decode) header.decode_rows[i / kRows] |= std::uint64_t{1} << i % kRows;
    }
    const std::unique_ptr<kernels::HostMemory> memory =
        target_->ops().allocate_host(static_cast<std::size_t>(header.page_bytes));
    const std::int64_t bytes = core::write_page_file(path, header, [&](std::size_t page) {
        const std::int32_t from = target_->cache().view(sequence_).pages[page];
        target_->ops().read_page(target_->cache().pages(), from, memory->bytes);
        return std::span<const std::byte>(memory->bytes);
    });
    return {.tokens = held(), .bytes = bytes};
}

SavedPages BranchCache::load(const std::filesystem::path& path, std::string_view fingerprint) {
    SavedPages loaded;
    try {
        const core::OpenPageFile file(path);
        const core::PageFileReader reader(file.size(), file.reader());
        const core::PageFileHeader& header = reader.header();
        if (header.fingerprint != core::page_hash(fingerprint) || header.page_bytes != page_bytes(*target_))
            throw Error("it belongs to another model, device, format or context");
        loaded.bytes = file.size();
        const auto same = std::ranges::mismatch(header.tokens, tokens_).in1;
        const auto common = static_cast<std::int32_t>(same - header.tokens.begin());
        const std::int32_t before = held();
        if (common <= before) return loaded;
        const std::unique_ptr<kernels::HostMemory> memory =
            target_->ops().allocate_host(static_cast<std::size_t>(header.page_bytes));
        classes_.resize(std::max<std::size_t>(classes_.size(), static_cast<std::size_t>(common)));
        for (std::int32_t begin = before / kRows * kRows; begin < common; begin += kRows) {
            const auto page = static_cast<std::size_t>(begin / kRows);
            reader.read_page(page, memory->bytes);
            if (held() > begin) target_->truncate(begin, sequence_);
            const std::int32_t rows = std::min(kRows, common - begin);
            make_room(rows);
            if (target_->cache().reserve(sequence_, rows) != core::Reserve::ok) break;
            const std::int32_t to = target_->cache().view(sequence_).pages[page];
            target_->ops().write_page(target_->cache().pages(), to, memory->bytes);
            target_->cache().commit(sequence_, rows);
            for (std::int32_t i = 0; i < rows; ++i) {
                const bool decodes = (header.decode_rows[page] >> i & 1) != 0;
                classes_[static_cast<std::size_t>(begin + i)] =
                    decodes ? kernels::RowClass::decode : kernels::RowClass::prefill;
            }
            loaded.tokens = held() - before;
        }
    } catch (const Error& problem) {
        throw Error("the pages in " + path.string() + " are not used" +
                    (loaded.tokens > 0 ? " from token " + std::to_string(held()) + " on" : "") + ": " + problem.what());
    }
    return loaded;
}

}  // namespace foresay::speculative
