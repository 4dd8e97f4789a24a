// core/text/rank_vocabulary.h: collects byte strings with ranks and special tokens into a byte-level BPE vocabulary.
//
// Threads:  one caller at a time.
// Errors:   throws Error naming the file for ids that contradict each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

class RankVocabulary {
public:
    // `kind` is what errors call the file.
    RankVocabulary(std::string source, std::string kind);

    const std::string& source() const { return data_.source; }
    std::size_t size() const { return added_; }  // byte strings
    void add(std::string_view bytes, std::int32_t rank, std::int32_t id);
    // A control token; an empty text leaves a hole.
    void add_special(std::int32_t id, std::string_view text);

    // Throws Error when a byte has no token.
    TokenizerData finish(Pretokenizer pretokenizer);

private:
    [[noreturn]] void refuse(const std::string& what) const;
    void put(std::int32_t id, std::string text, TokenType type, double score);

    TokenizerData data_;
    std::string kind_;
    std::vector<double> scores_;  // minus the rank: the lowest rank is the best score
    std::size_t added_ = 0, all_ = 0;
    bool bytes_[256] = {};
};

}  // namespace foresay::core
