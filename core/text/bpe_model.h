// core/text/bpe_model.h: merges a piece of text into tokens.
//
// Merging:  a piece starts as its bytes, or as its characters in a literal vocabulary. The adjacent pair whose merge
//           has the lowest rank (the leftmost of equal ones) becomes one token, and so on until no adjacent pair
//           merges.
//
// Threads:  immutable except for a memo of pieces that merge into one token. Any thread may set an entry at any time;
//           all set the same value.
// Cost:     O(n log n) for a piece of n bytes. Short pieces, and pieces that are a token, allocate nothing.
// Errors:   the constructor throws Error for merges that contradict the vocabulary.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/text/subword_model.h"
#include "core/text/token_table.h"
#include "core/text/tokenizer_data.h"

namespace foresay::core {

class BpeModel final : public SubwordModel {
public:
    // `tokens` must outlive the model.
    BpeModel(const TokenizerData& data, const TokenTable& tokens);

    void encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const override;
    std::size_t kept_bytes(std::string_view character, std::int32_t unknown) const override;
    bool keeps_every_byte(std::int32_t unknown) const override;

private:
    struct Merge {
        std::uint32_t rank;  // kNoRank: these two do not merge
        std::int32_t product;
    };
    struct MergeSlot {
        std::uint64_t key;
        Merge merge;
    };
    enum class Memo : std::uint8_t { unknown, one_token, several };

    // Calls emit(token) for each token of `piece` before any merge.
    template <typename Emit>
    void start(std::string_view piece, std::int32_t unknown, Emit emit) const;
    void add_merges(const TokenizerData& data);
    Merge merge_of(std::int32_t left, std::int32_t right) const;
    void merge_short(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;
    void merge_long(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;

    const TokenTable& tokens_;
    std::vector<MergeSlot> merges_;
    bool ignore_merges_ = false;
    bool fuse_unknown_ = false;
    std::unique_ptr<std::atomic<Memo>[]> memo_;
};

}  // namespace foresay::core
