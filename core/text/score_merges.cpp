#include "core/text/score_merges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/error.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxPieceBytes = 512;  // of a spelling; a byte may take two

}  // namespace

void make_merges(const std::vector<double>& scores, TokenizerData& data) {
    check(scores.size() == data.tokens.size(), "a score for each token");
    std::unordered_set<std::string_view> normal;
    normal.reserve(data.tokens.size());
    std::vector<std::uint32_t> by_score;
    by_score.reserve(data.tokens.size());
    for (std::uint32_t id = 0; id < data.tokens.size(); ++id) {
        if (data.types[id] != TokenType::normal || data.tokens[id].empty()) continue;
        if (data.tokens[id].size() > kMaxPieceBytes)
            throw Error(data.source + ": token " + std::to_string(id) + " is " +
                        std::to_string(data.tokens[id].size()) + " bytes long; get or convert the model again");
        normal.insert(data.tokens[id]);
        by_score.push_back(id);
    }
    const auto score = [&](std::uint32_t id) {
        return std::isnan(scores[id]) ? -std::numeric_limits<double>::infinity() : scores[id];
    };
    std::stable_sort(by_score.begin(), by_score.end(), [&](auto a, auto b) { return score(a) > score(b); });
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < by_score.size(); ++i) {
        if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
        const std::string_view token = data.tokens[by_score[i]];
        for (std::size_t cut = 1; cut < token.size(); ++cut) {
            // Inside a character, which in a byte-level spelling is a byte of the text.
            if ((static_cast<unsigned char>(token[cut]) & 0xc0) == 0x80) continue;
            if (!normal.contains(token.substr(0, cut)) || !normal.contains(token.substr(cut))) continue;
            if (data.merges.size() >= static_cast<std::size_t>(kMaxVocabulary))
                throw Error(data.source + ": the tokens merge in more than " + std::to_string(kMaxVocabulary) +
                            " ways; get or convert the model again");
            data.merges.push_back({token.substr(0, cut), token.substr(cut)});
            data.ranks.push_back(rank);
        }
    }
}

}  // namespace foresay::core
