// core/text/bpe_model.h: the vocabulary's strings, and merging a piece of text into tokens.
//
// Merging: a piece starts as its bytes, or as its characters in a SentencePiece vocabulary. The adjacent pair whose
//           merge has the lowest rank (the leftmost of equal ones) becomes one token, and so on until no adjacent pair
//           merges.
//
// Threads:  immutable except for a memo of pieces that merge into one token. Any thread may set an entry at any time;
//           all set the same value.
// Cost:     O(n log n) for a piece of n bytes. Short pieces, and pieces that are a token, allocate nothing.
// Errors:   the constructor throws Error for a vocabulary that contradicts itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

class BpeModel {
public:
    explicit BpeModel(const TokenizerData& data);

    // Appends the tokens of `piece`. Bytes without a token become `unknown`, or nothing when that is -1.
    void encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;

    std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
    // `id` must be below size().
    std::string_view text(std::int32_t id) const { return view(entries_[static_cast<std::size_t>(id)].text); }
    std::string_view bytes(std::int32_t id) const { return view(entries_[static_cast<std::size_t>(id)].bytes); }
    std::int32_t find(std::string_view text) const;  // -1: none
    // Whether each byte of any piece becomes a part of some token; false when there are bytes that vanish.
    bool keeps_every_byte(std::int32_t unknown) const;

private:
    struct Range {
        std::uint32_t offset = 0, length = 0;
    };
    struct Entry {
        Range text, bytes;
    };
    struct Merge {
        std::uint32_t rank;  // kNoRank: these two do not merge
        std::int32_t product;
    };
    struct MergeSlot {
        std::uint64_t key;
        Merge merge;
    };
    enum class Memo : std::uint8_t { unknown, one_token, several };

    std::string_view view(Range range) const { return {strings_.data() + range.offset, range.length}; }
    // Appends the bytes that a normal token spelled `text` stands for; false when it spells none.
    bool append_bytes(std::string_view text, std::string& out) const;
    // Calls emit(token) for each token of `piece` before any merge.
    template <typename Emit>
    void start(std::string_view piece, std::int32_t unknown, Emit emit) const;
    void add_byte_token(std::int32_t id, std::string_view text);
    void add_token(std::int32_t id, std::string_view text, TokenType type, const std::string& source);
    void add_merges(const TokenizerData& data);
    // The slot of `key` in a hash table of ids: the one that holds it, or the free one that it would take.
    std::size_t slot(const std::vector<std::int32_t>& table, std::string_view key, bool spelled) const;
    void insert(std::vector<std::int32_t>& table, std::int32_t id, bool spelled, const std::string& source);
    [[noreturn]] void refuse_twins(const std::string& source, std::int32_t a, std::int32_t b) const;
    Merge merge_of(std::int32_t left, std::int32_t right) const;
    void merge_short(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;
    void merge_long(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;

    std::string strings_;
    std::vector<Entry> entries_;
    std::vector<std::int32_t> by_bytes_;  // hash table of the tokens that text can become; -1: free
    std::vector<std::int32_t> by_text_;   // of all others, by their spelling
    std::vector<MergeSlot> merges_;
    std::array<std::int32_t, 256> byte_ids_{};
    Spelling spelling_ = Spelling::byte_level;
    std::size_t longest_bytes_ = 0;
    bool ignore_merges_ = false;
    std::unique_ptr<std::atomic<Memo>[]> memo_;
};

}  // namespace foresay::core
