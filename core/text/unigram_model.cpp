#include "core/text/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr std::size_t kMaxNodes = std::size_t{1} << 25;  // published vocabularies have a million

}  // namespace

UnigramModel::UnigramModel(const TokenizerData& data, const TokenTable& tokens)
    : tokens_(tokens), scores_(data.scores), single_precision_(data.single_precision) {
    check(scores_.size() == data.tokens.size(), "a score for each token");
    std::vector<std::int32_t> ids;
    double lowest = 0;
    bool any = false;
    for (std::int32_t id = 0; id < tokens.size(); ++id) {
        const double score = scores_[static_cast<std::size_t>(id)];
        if (!std::isfinite(score) || std::abs(score) > 1e30)
            throw Error(data.source + ": the score of token " + std::to_string(id) +
                        " is not a finite number; get or convert the model again");
        // SentencePiece's own minimum is over the normal tokens, that of the Hugging Face library over all.
        if (data.types[static_cast<std::size_t>(id)] == TokenType::normal || !data.single_precision) {
            lowest = any ? std::min(lowest, score) : score;
            any = true;
        }
        const TokenType type = data.types[static_cast<std::size_t>(id)];
        // The Hugging Face library also finds the text of the unknown token and of byte tokens.
        const bool in_text = type == TokenType::normal ||
                             (!data.single_precision && (type == TokenType::unknown || type == TokenType::byte));
        if (!in_text || tokens.text(id).empty()) continue;
        if (tokens.text(id).size() > kMaxUnigramBytes)
            throw Error(data.source + ": token " + std::to_string(id) + " is " +
                        std::to_string(tokens.text(id).size()) + " bytes long; get or convert the model again");
        ids.push_back(id);
    }
    unknown_score_ = lowest - kUnknownPenalty;
    if (!build(std::move(ids)))
        throw Error(data.source + ": the vocabulary is too large for a Unigram model; get the model again");
}

bool UnigramModel::build(std::vector<std::int32_t> ids) {
    std::sort(ids.begin(), ids.end(), [this](auto a, auto b) { return tokens_.text(a) < tokens_.text(b); });
    // A node and the sorted tokens that start with its bytes.
    struct Range {
        std::size_t begin, end, depth;
    };
    std::vector<Range> ranges = {{0, ids.size(), 0}};
    nodes_.resize(1);
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
        auto [begin, end, depth] = ranges[node];
        if (begin < end && tokens_.text(ids[begin]).size() == depth) nodes_[node].token = ids[begin++];
        nodes_[node].children = static_cast<std::uint32_t>(nodes_.size());
        if (nodes_.size() > kMaxNodes) return false;
        while (begin < end) {
            const auto byte = static_cast<unsigned char>(tokens_.text(ids[begin])[depth]);
            const auto other = [&, at = depth](std::int32_t id) {
                return static_cast<unsigned char>(tokens_.text(id)[at]) != byte;
            };
            const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
            const auto next = static_cast<std::size_t>(
                std::find_if(first, ids.begin() + static_cast<std::ptrdiff_t>(end), other) - ids.begin());
            Node made;
            made.byte = byte;
            nodes_.push_back(made);
            ranges.push_back({begin, next, depth + 1});
            ++nodes_[node].count;
            begin = next;
        }
    }
    return true;
}

std::int32_t UnigramModel::child(std::int32_t node, unsigned char byte) const {
    const Node& parent = nodes_[static_cast<std::size_t>(node)];
    const auto begin = nodes_.begin() + parent.children, end = begin + parent.count;
    const auto at = parent.count < 8
                        ? std::find_if(begin, end, [byte](const Node& each) { return each.byte == byte; })
                        : std::lower_bound(begin, end, byte, [](const Node& each, auto b) { return each.byte < b; });
    return at != end && at->byte == byte ? static_cast<std::int32_t>(at - nodes_.begin()) : -1;
}

void UnigramModel::encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    single_precision_ ? search<float>(piece, unknown, ids) : search<double>(piece, unknown, ids);
}

template <typename Score>
void UnigramModel::search(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    // The best way to reach a place in the piece.
    struct Way {
        Score score = 0;
        std::int32_t token = -1;
        std::uint32_t from = 0;
        bool reached = false;
    };
    check(piece.size() < (std::size_t{1} << 31), "a piece is shorter than 2 GiB");
    std::vector<Way> ways(piece.size() + 1);
    const auto offer = [&ways](std::size_t to, std::size_t from, std::int32_t token, Score score) {
        Way& way = ways[to];
        if (way.reached && !(score > way.score)) return;
        way = {score, token, static_cast<std::uint32_t>(from), true};
    };
    for (std::size_t at = 0; at < piece.size();) {
        const std::size_t character = next_utf8(piece.substr(at)).length_bytes;
        const Score before = ways[at].score;
        bool alone = false;
        std::int32_t node = 0;
        for (std::size_t i = at; i < piece.size(); ++i) {
            node = child(node, static_cast<unsigned char>(piece[i]));
            if (node < 0) break;
            const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
            if (token < 0) continue;
            offer(i + 1, at, token, static_cast<Score>(scores_[static_cast<std::size_t>(token)]) + before);
            alone = alone || i + 1 - at == character;
        }
        if (!alone) offer(at + character, at, -1, static_cast<Score>(unknown_score_) + before);
        at += character;
    }
    std::vector<Way> path;
    for (std::size_t at = piece.size(); at > 0; at = ways[at].from) path.push_back(ways[at]);
    std::size_t begin = 0, end = 0;  // of the characters that no token covers
    const auto flush = [&] {
        if (end > begin) append_unknown(piece.substr(begin, end - begin), unknown, ids);
    };
    for (std::size_t i = path.size(); i-- > 0;) {
        const std::size_t next = i > 0 ? path[i - 1].from : piece.size();
        if (path[i].token < 0 || path[i].token == unknown) {
            if (end == begin) begin = path[i].from;
            end = next;
            continue;
        }
        flush();
        begin = end = next;
        ids.push_back(path[i].token);
    }
    flush();
}

// A character that is a token is never taken for unknown: see search().
std::size_t UnigramModel::kept_bytes(std::string_view character, std::int32_t unknown) const {
    if (tokens_.has_every_byte()) return character.size();
    // The text of the unknown token is part of a run of unknown characters where it is in the trie.
    if (!single_precision_ && unknown >= 0 && tokens_.text(unknown).find(character) != std::string_view::npos) return 0;
    std::int32_t node = 0;
    for (const char c : character) {
        node = child(node, static_cast<unsigned char>(c));
        if (node < 0) return 0;
    }
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    return token >= 0 && token != unknown ? character.size() : 0;
}

void UnigramModel::append_unknown(std::string_view text, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    const auto has_byte = [this](char c) { return tokens_.byte_id(c) >= 0; };
    if (unknown >= 0 && tokens_.text(unknown) == text) return ids.push_back(unknown);
    if (std::all_of(text.begin(), text.end(), has_byte)) {
        for (const char c : text) ids.push_back(tokens_.byte_id(c));
    } else if (unknown >= 0) {
        ids.push_back(unknown);
    }
}

}  // namespace foresay::core
