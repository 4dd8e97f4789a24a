#include "core/text/rank_vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/score_merges.h"

namespace foresay::core {

RankVocabulary::RankVocabulary(std::string source, std::string kind) : kind_(std::move(kind)) {
    data_.source = std::move(source);
}

void RankVocabulary::refuse(const std::string& what) const {
    throw Error(data_.source + ": " + what + "; get the model's " + kind_ + " again");
}

void RankVocabulary::put(std::int32_t id, std::string text, TokenType type, double score) {
    // Tolerates some holes, but not a table that is mostly holes.
    ++all_;
    if (id < 0 || id >= kMaxVocabulary || static_cast<std::size_t>(id) > all_ * 2 + (1 << 18))
        refuse("a token has id " + std::to_string(id));
    const auto at = static_cast<std::size_t>(id);
    if (at >= data_.tokens.size()) {
        data_.tokens.resize(at + 1);
        data_.types.resize(at + 1, TokenType::unused);
        scores_.resize(at + 1, 0.0);
    }
    if (!data_.tokens[at].empty()) refuse("two tokens have id " + std::to_string(id));
    data_.tokens[at] = data_.keep(std::move(text));
    data_.types[at] = type;
    scores_[at] = score;
}

void RankVocabulary::add(std::string_view bytes, std::int32_t rank, std::int32_t id) {
    if (bytes.empty()) refuse("token " + std::to_string(id) + " is empty");
    if (bytes.size() == 1) bytes_[static_cast<unsigned char>(bytes[0])] = true;
    std::string spelled;
    append_spelling(bytes, spelled);
    put(id, std::move(spelled), TokenType::normal, -static_cast<double>(rank));
    ++added_;
}

void RankVocabulary::add_special(std::int32_t id, std::string_view text) {
    if (!text.empty()) put(id, std::string(text), TokenType::control, 0.0);
}

TokenizerData RankVocabulary::finish(Pretokenizer pretokenizer) {
    if (added_ == 0) refuse("it has no ranks");
    const auto missing = std::find(std::begin(bytes_), std::end(bytes_), false);
    if (missing != std::end(bytes_)) refuse("byte " + std::to_string(missing - std::begin(bytes_)) + " has no rank");
    data_.pretokenizer = std::move(pretokenizer);
    data_.ignore_merges = true;
    make_merges(scores_, data_);
    return std::move(data_);
}

}  // namespace foresay::core
