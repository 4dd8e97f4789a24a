// core/text/token_table.h: the strings of a vocabulary: how tokens are spelled, what bytes they stand for, and which
// token a text is.
//
// A token has a key, by which models find it in a text: for a byte-level spelling the bytes that it stands for, else
// its spelling. Only normal tokens are found by key. All others are found by their spelling alone.
//
// Threads:  immutable; any thread may look up.
// Cost:     a lookup hashes its key; it allocates nothing.
// Errors:   the constructor throws Error for a vocabulary that contradicts itself, or is crafted to be slow.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

inline constexpr std::size_t kMaxProbes = 4096;  // only a file crafted to collide needs as many

// The hash of the table, and of the merges.
std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b);

// A token or a part of one for messages: quoted, cut, and valid UTF-8.
std::string quoted_token(std::string_view text);

class TokenTable {
public:
    explicit TokenTable(const TokenizerData& data);

    std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
    // `id` must be below size().
    std::string_view text(std::int32_t id) const { return view(entries_[static_cast<std::size_t>(id)].text); }
    std::string_view bytes(std::int32_t id) const { return view(entries_[static_cast<std::size_t>(id)].bytes); }
    std::string_view key(std::int32_t id) const { return spelling_ == Spelling::literal ? text(id) : bytes(id); }

    // From now on the token stands for what `rules` make of `text`.
    void show(std::int32_t id, std::string_view text, const DecoderRules& rules);

    std::int32_t find(std::string_view text) const;     // by spelling; -1: none
    std::int32_t find_key(std::string_view key) const;  // normal tokens; -1: none
    std::int32_t byte_id(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }  // -1: none
    std::size_t longest_key() const { return longest_key_; }
    // No token stands for more bytes of a normalized text, as keys for normal tokens and spelled out for others.
    std::size_t longest_token() const { return longest_token_; }
    bool has_every_byte() const { return has_every_byte_; }  // byte_id() knows all bytes
    Spelling spelling() const { return spelling_; }

private:
    struct Range {
        std::uint32_t offset = 0, length = 0;
    };
    struct Entry {
        Range text, bytes;
    };

    std::string_view view(Range range) const { return {strings_.data() + range.offset, range.length}; }
    void add(std::int32_t id, std::string_view text, TokenType type, const TokenizerData& data);
    // The slot of `key` in a hash table of ids: the one that holds it, or the free one that it would take.
    std::size_t slot(const std::vector<std::int32_t>& table, std::string_view key, bool spelled) const;
    void insert(std::vector<std::int32_t>& table, std::int32_t id, bool spelled, const std::string& source);
    [[noreturn]] void refuse_twins(const std::string& source, std::int32_t a, std::int32_t b) const;

    std::string strings_;
    std::vector<Entry> entries_;
    std::vector<std::int32_t> by_key_;   // hash table of the normal tokens; -1: free
    std::vector<std::int32_t> by_text_;  // of all others
    std::array<std::int32_t, 256> byte_ids_{};
    Spelling spelling_ = Spelling::byte_level;
    std::size_t longest_key_ = 0, longest_token_ = 1;
    bool has_every_byte_ = false;
};

// Throws Error: the vocabulary of `source` collides more than chance would have it.
[[noreturn]] void refuse_collisions(const std::string& source);

}  // namespace foresay::core
