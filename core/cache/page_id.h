// core/cache/page_id.h: names of pages: what the bits of a page of the KV cache depend on within one model.
//
// Law 1:    the keys and values of a page follow from the tokens up to its end and the class of each of those rows. A
//           page is named by its own tokens and classes and by the hash of the page before it, so a name says all of
//           that. Hashes find pages; tokens and classes are compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/ops.h"

namespace foresay::core {

// XXH3, 128 bits.
struct PageHash {
    std::uint64_t high = 0, low = 0;
    bool operator==(const PageHash&) const = default;
    std::string text() const;  // 32 hexadecimal digits
};

PageHash page_hash(std::span<const std::byte> bytes);
PageHash page_hash(std::string_view text);

// A whole page of a text.
struct PageId {
    PageHash parent;  // of the page before it; of the first page: of what separates texts
    std::array<std::int32_t, kernels::kPagePositions> tokens{};
    // Bit i: row i is a decode row. 0 where the backend's classes agree.
    std::uint64_t decode_rows = 0;
    bool operator==(const PageId&) const = default;
    PageHash hash() const;
};

static_assert(kernels::kPagePositions == 64, "a bit for each row of a page");

struct PageHashes {
    std::size_t operator()(const PageHash& hash) const { return static_cast<std::size_t>(hash.low); }
};

}  // namespace foresay::core
