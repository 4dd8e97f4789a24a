// grammar/parted_table.h: a hash table that grows a part at a time, so that no insertion takes long.
//
// A table that doubles at once moves all of its entries while one token waits: half a second for some millions. Here
// an entry belongs to one of 256 parts. Each grows when it is as full as its number says, from three to six eighths,
// so that the moves are spread evenly over the insertions.
//
// Layout:   open addressing in each part; Entry{} is a free place.
// Threads:  one caller at a time.
// Cost:     of one insertion: 1/256 of the entries are moved at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace foresay::grammar {

template <typename Entry>
class PartedTable {
public:
    // Spreads the bits of a key over all bits of its hash.
    static std::uint64_t mix(std::uint64_t key) {
        key = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
        return (key ^ key >> 29) * 0xFF51AFD7ED558CCDu;
    }

    // The entry with this hash that is `same`; null: there is none.
    template <typename Same>
    const Entry* find(std::uint64_t hash, const Same& same) const {
        const Part& part = parts_[number(hash)];
        if (part.entries.empty()) return nullptr;
        const Entry& entry = part.entries[place(part, hash, same)];
        return entry == Entry{} ? nullptr : &entry;
    }
    // Adds an entry that find() does not find. `hash_of` gives the hash of any entry.
    template <typename HashOf>
    void insert(std::uint64_t hash, const Entry& entry, const HashOf& hash_of) {
        const std::size_t n = number(hash);
        Part& part = parts_[n];
        const auto never = [](const Entry&) { return false; };
        if ((part.count + 1) * 8 * kParts > part.entries.size() * (3 * kParts + 3 * n)) {
            std::vector<Entry> old(part.entries.empty() ? 4 : part.entries.size() * 2);
            old.swap(part.entries);
            for (const Entry& e : old) {
                if (!(e == Entry{})) part.entries[place(part, hash_of(e), never)] = e;
            }
        }
        part.entries[place(part, hash, never)] = entry;
        ++part.count;
    }

private:
    static constexpr std::size_t kParts = 256;
    struct Part {
        std::vector<Entry> entries;
        std::size_t count = 0;
    };

    static std::size_t number(std::uint64_t hash) { return hash >> 56; }
    // Where the entry is, or the free place where it would be.
    template <typename Same>
    static std::size_t place(const Part& part, std::uint64_t hash, const Same& same) {
        const std::size_t mask = part.entries.size() - 1;
        std::size_t at = (hash >> 24) & mask;
        while (!(part.entries[at] == Entry{}) && !same(part.entries[at])) at = (at + 1) & mask;
        return at;
    }

    Part parts_[kParts];
};

}  // namespace foresay::grammar
