#include "core/text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <string>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr std::uint64_t kFree = ~std::uint64_t{0};
constexpr std::size_t kShortPiece = 48;  // bytes; for longer pieces a heap is faster than scanning for the lowest rank
std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(16, entries * 2)); }

}  // namespace

BpeModel::BpeModel(const TokenizerData& data, const TokenTable& tokens)
    : tokens_(tokens), ignore_merges_(data.ignore_merges), fuse_unknown_(data.fuse_unknown) {
    add_merges(data);
    memo_ = std::make_unique<std::atomic<Memo>[]>(static_cast<std::size_t>(tokens_.size()));
}

template <typename Emit>
void BpeModel::start(std::string_view piece, std::int32_t unknown, Emit emit) const {
    if (tokens_.spelling() == Spelling::byte_level) {
        for (const char c : piece) {
            const std::int32_t id = tokens_.byte_id(c);
            if (id >= 0 || unknown >= 0) emit(id >= 0 ? id : unknown);
        }
        return;
    }
    bool after_unknown = false;
    while (!piece.empty()) {
        const Utf8Step step = next_utf8(piece);
        const std::string_view character = piece.substr(0, step.length_bytes);
        piece.remove_prefix(character.size());
        const auto has_byte = [this](char c) { return tokens_.byte_id(c) >= 0; };
        const std::int32_t id = tokens_.find_key(character);
        if (id >= 0) {
            emit(id);
        } else if (std::all_of(character.begin(), character.end(), has_byte)) {
            for (const char c : character) emit(tokens_.byte_id(c));
        } else {
            if (unknown >= 0 && !(after_unknown && fuse_unknown_)) emit(unknown);
            after_unknown = true;
            continue;
        }
        after_unknown = false;
    }
}

// As start(): what it emits for the character, before any merge.
std::size_t BpeModel::kept_bytes(std::string_view character, std::int32_t unknown) const {
    const auto has_byte = [this](char c) { return tokens_.byte_id(c) >= 0; };
    const auto with_token = static_cast<std::size_t>(std::ranges::count_if(character, has_byte));
    if (tokens_.spelling() == Spelling::byte_level) return unknown >= 0 ? character.size() : with_token;
    if (with_token == character.size() || tokens_.find_key(character) >= 0) return character.size();
    return unknown >= 0 && !fuse_unknown_ ? 1 : 0;
}

bool BpeModel::keeps_every_byte(std::int32_t unknown) const {
    return tokens_.has_every_byte() || (tokens_.spelling() == Spelling::byte_level && unknown >= 0);
}

void BpeModel::add_merges(const TokenizerData& data) {
    if (data.merges.size() > static_cast<std::size_t>(kMaxVocabulary))
        throw Error(data.source + ": the tokenizer has more than " + std::to_string(kMaxVocabulary) +
                    " merges; get or convert the model again");
    merges_.assign(table_size(data.merges.size()), {kFree, {kNoRank, -1}});
    const std::size_t mask = merges_.size() - 1;
    std::string both;
    const bool literal = tokens_.spelling() == Spelling::literal;
    const auto append_key = [literal](std::string_view text, std::string& out) {
        if (!literal) return append_spelled_bytes(text, out);
        out.append(text);
        return true;
    };
    check(data.ranks.empty() || data.ranks.size() == data.merges.size(), "a rank for each merge");
    for (std::size_t i = 0; i < data.merges.size(); ++i) {
        const MergeRule& rule = data.merges[i];
        const std::size_t rank = data.ranks.empty() ? i : data.ranks[i];
        // The usual case: all are normal tokens, so the spelling needs no second look.
        both.clear();
        std::int32_t left = -1, right = -1, product = -1;
        std::size_t middle = 0;
        if (append_key(rule.left, both) && (middle = both.size(), append_key(rule.right, both))) {
            const std::string_view keys = both;
            left = tokens_.find_key(keys.substr(0, middle));
            right = tokens_.find_key(keys.substr(middle));
            product = tokens_.find_key(keys);
        }
        if (left < 0) left = tokens_.find(rule.left);
        if (right < 0) right = tokens_.find(rule.right);
        if (product < 0) product = tokens_.find(std::string(rule.left).append(rule.right));
        if (left < 0 || right < 0 || product < 0)
            throw Error(data.source + ": merge " + std::to_string(i) + " joins " + quoted_token(rule.left) + " and " +
                        quoted_token(rule.right) +
                        ", but the vocabulary has no token for one of these or for the result; convert the model "
                        "again, or get another copy");
        const std::uint64_t key = pair_key(left, right);
        std::size_t at = mix_hash(key, 0x9E3779B97F4A7C15u) & mask;
        for (std::size_t probes = 0; merges_[at].key != kFree && merges_[at].key != key; at = (at + 1) & mask)
            if (++probes > kMaxProbes) refuse_collisions(data.source);
        if (merges_[at].key == kFree) merges_[at] = {key, {static_cast<std::uint32_t>(rank), product}};
    }
}

BpeModel::Merge BpeModel::merge_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pair_key(left, right);
    const std::size_t mask = merges_.size() - 1;
    std::size_t at = mix_hash(key, 0x9E3779B97F4A7C15u) & mask;
    while (merges_[at].key != key) {
        if (merges_[at].key == kFree) return {kNoRank, -1};
        at = (at + 1) & mask;
    }
    return merges_[at].merge;
}

void BpeModel::encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    std::int32_t whole = -1;
    if (piece.size() <= tokens_.longest_key()) whole = tokens_.find_key(piece);
    if (whole >= 0) {
        std::atomic<Memo>& memo = memo_[static_cast<std::size_t>(whole)];
        const Memo known = ignore_merges_ ? Memo::one_token : memo.load(std::memory_order_relaxed);
        if (known == Memo::one_token) return ids.push_back(whole);
        if (known == Memo::unknown) {
            const std::size_t before = ids.size();
            piece.size() <= kShortPiece ? merge_short(piece, unknown, ids) : merge_long(piece, unknown, ids);
            const bool one = ids.size() == before + 1 && ids.back() == whole;
            memo.store(one ? Memo::one_token : Memo::several, std::memory_order_relaxed);
            return;
        }
    }
    piece.size() <= kShortPiece ? merge_short(piece, unknown, ids) : merge_long(piece, unknown, ids);
}

void BpeModel::merge_short(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    // token[i] and, for the pair (i, i + 1), its merge.
    std::array<std::int32_t, kShortPiece> token;
    std::array<Merge, kShortPiece> pair;
    std::size_t count = 0;
    start(piece, unknown, [&](std::int32_t id) { token[count++] = id; });
    for (std::size_t i = 0; i + 1 < count; ++i) pair[i] = merge_of(token[i], token[i + 1]);
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i)
            if (pair[i].rank < pair[best].rank) best = i;
        if (pair[best].rank == kNoRank) break;
        token[best] = pair[best].product;
        --count;
        for (std::size_t i = best + 1; i < count; ++i) token[i] = token[i + 1];
        for (std::size_t i = best + 1; i + 1 < count; ++i) pair[i] = pair[i + 1];
        if (best + 1 < count) pair[best] = merge_of(token[best], token[best + 1]);
        if (best > 0) pair[best - 1] = merge_of(token[best - 1], token[best]);
    }
    ids.insert(ids.end(), token.begin(), token.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeModel::merge_long(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    struct Symbol {
        std::int32_t token;
        std::int32_t previous, next;  // -1: none
        Merge pair;                   // with the next symbol
    };
    struct Candidate {
        std::uint32_t rank;
        std::int32_t at;
        bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
    };
    check(piece.size() < (std::size_t{1} << 31), "a piece is shorter than 2 GiB");
    std::vector<Symbol> symbols;
    symbols.reserve(piece.size());
    start(piece, unknown, [&](std::int32_t id) {
        const auto at = static_cast<std::int32_t>(symbols.size());
        symbols.push_back({id, at - 1, at + 1, {kNoRank, -1}});
    });
    if (symbols.empty()) return;
    symbols.back().next = -1;
    std::vector<Candidate> heap;
    const auto consider = [&](std::int32_t at) {
        Symbol& symbol = symbols[static_cast<std::size_t>(at)];
        symbol.pair = {kNoRank, -1};
        if (symbol.next >= 0)
            symbol.pair = merge_of(symbol.token, symbols[static_cast<std::size_t>(symbol.next)].token);
        return symbol.pair.rank != kNoRank;
    };
    for (std::int32_t at = 0; at >= 0; at = symbols[static_cast<std::size_t>(at)].next)
        if (consider(at)) heap.push_back({symbols[static_cast<std::size_t>(at)].pair.rank, at});
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{}, std::move(heap));
    while (!queue.empty()) {
        const Candidate candidate = queue.top();
        queue.pop();
        Symbol& left = symbols[static_cast<std::size_t>(candidate.at)];
        if (left.pair.rank != candidate.rank) continue;  // its pair has changed, or it is merged away
        Symbol& right = symbols[static_cast<std::size_t>(left.next)];
        left.token = left.pair.product;
        left.next = right.next;
        right.pair = {kNoRank, -1};
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = candidate.at;
        if (consider(candidate.at)) queue.push({left.pair.rank, candidate.at});
        if (left.previous >= 0 && consider(left.previous))
            queue.push({symbols[static_cast<std::size_t>(left.previous)].pair.rank, left.previous});
    }
    for (std::int32_t at = 0; at >= 0; at = symbols[static_cast<std::size_t>(at)].next)
        ids.push_back(symbols[static_cast<std::size_t>(at)].token);
}

}  // namespace foresay::core
