// core/text/unigram_model.h: cuts a piece of text into the tokens with the highest sum of scores.
//
// Search:   Viterbi over the characters of the piece: the best way to reach each place, from left to right. A character
//           that no token covers alone may become the unknown token, whose score is 10 below the lowest of the
//           vocabulary. Neighbouring unknown characters are one token, or the bytes of the text if all have tokens.
//
// Threads:  immutable.
// Cost:     for each character, as many steps as the longest token that starts there has bytes, at most
// kMaxUnigramBytes. Errors:   the constructor throws Error for scores that are not finite or tokens that are too long.
// Source:   SentencePiece's unigram model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/text/subword_model.h"
#include "core/text/token_table.h"
#include "core/text/tokenizer_data.h"

namespace foresay::core {

inline constexpr std::size_t kMaxUnigramBytes = 512;

class UnigramModel final : public SubwordModel {
public:
    // `tokens` must outlive the model.
    UnigramModel(const TokenizerData& data, const TokenTable& tokens);

    void encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const override;
    std::size_t kept_bytes(std::string_view character, std::int32_t unknown) const override;
    bool keeps_every_byte(std::int32_t) const override { return tokens_.has_every_byte(); }

private:
    // A trie in breadth-first order: the children of a node follow each other, by their bytes.
    struct Node {
        std::uint32_t children = 0;
        std::int32_t token = -1;
        std::uint16_t count = 0;
        unsigned char byte = 0;
    };
    bool build(std::vector<std::int32_t> ids);  // false: too large
    std::int32_t child(std::int32_t node, unsigned char byte) const;
    template <typename Score>
    void search(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const;
    void append_unknown(std::string_view text, std::int32_t unknown, std::vector<std::int32_t>& ids) const;

    const TokenTable& tokens_;
    std::vector<Node> nodes_;
    std::vector<double> scores_;
    double unknown_score_ = 0;
    bool single_precision_ = false;
};

}  // namespace foresay::core
