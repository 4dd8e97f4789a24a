#include "core/text/bpe_model.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <queue>
#include <system_error>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
constexpr std::uint64_t kFree = ~std::uint64_t{0};
constexpr std::size_t kShortPiece = 48;  // bytes; for longer pieces a heap is faster than scanning for the lowest rank
constexpr std::size_t kMaxTokenBytes = 1 << 16;
constexpr std::size_t kMaxStringBytes = std::size_t{1} << 30;
constexpr std::string_view kSpaceMark = "\u2581";  // a space, in SentencePiece vocabularies
constexpr std::size_t kMaxProbes = 4096;           // only a file crafted to collide gets this far

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t hash(std::string_view key) {
    std::uint64_t h = 0x9E3779B97F4A7C15u ^ key.size();
    std::size_t at = 0;
    std::uint64_t word = 0;
    for (; at + 8 <= key.size(); at += 8) {
        std::memcpy(&word, key.data() + at, 8);
        h = mix(h ^ word, 0xD6E8FEB86659FD93u);
    }
    word = 0;
    for (std::size_t i = at; i < key.size(); ++i) word = (word << 8) | static_cast<unsigned char>(key[i]);
    return mix(h ^ word, 0xA0761D6478BD642Fu);
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(16, entries * 2)); }

std::string quoted(std::string_view text) {
    return "'" + to_valid_utf8(text.substr(0, 64)) + (text.size() > 64 ? "...'" : "'");
}

[[noreturn]] void crowded(const std::string& source) {
    throw Error(source + ": the vocabulary's strings are crafted to collide; get the model from its original source");
}

}  // namespace

BpeModel::BpeModel(const TokenizerData& data) : spelling_(data.spelling), ignore_merges_(data.ignore_merges) {
    if (data.tokens.empty()) throw Error(data.source + ": the tokenizer has no tokens; get or convert the model again");
    if (data.tokens.size() > static_cast<std::size_t>(kMaxVocabulary))
        throw Error(data.source + ": the tokenizer has more than " + std::to_string(kMaxVocabulary) +
                    " tokens; get or convert the model again");
    check(data.types.size() == data.tokens.size(), "a token type for each token");
    const auto count = static_cast<std::int32_t>(data.tokens.size());
    entries_.resize(data.tokens.size());
    by_bytes_.assign(table_size(data.tokens.size()), -1);
    by_text_.assign(table_size(data.tokens.size()), -1);
    std::size_t total = 0;
    for (const std::string_view token : data.tokens) total += token.size();
    if (total > kMaxStringBytes / 2) throw Error(data.source + ": the vocabulary is too large; get the model again");
    strings_.reserve(total * 2);
    byte_ids_.fill(-1);
    for (std::int32_t id = 0; id < count; ++id)
        add_token(id, data.tokens[static_cast<std::size_t>(id)], data.types[static_cast<std::size_t>(id)], data.source);
    for (int byte = 0; byte < 256 && spelling_ == Spelling::byte_level; ++byte) {
        const char c = static_cast<char>(byte);
        byte_ids_[static_cast<std::size_t>(byte)] = by_bytes_[slot(by_bytes_, {&c, 1}, false)];
    }
    add_merges(data);
    memo_ = std::make_unique<std::atomic<Memo>[]>(entries_.size());
}

void BpeModel::add_token(std::int32_t id, std::string_view text, TokenType type, const std::string& source) {
    if (text.empty()) return;  // a hole or padding
    if (text.size() > kMaxTokenBytes)
        throw Error(source + ": token " + std::to_string(id) + " is " + std::to_string(text.size()) +
                    " bytes long; get or convert the model again");
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    entry.text = {static_cast<std::uint32_t>(strings_.size()), static_cast<std::uint32_t>(text.size())};
    strings_.append(text);
    entry.bytes = entry.text;
    const auto offset = static_cast<std::uint32_t>(strings_.size());
    // A spelling is in one of the two tables, never in both.
    const bool by_bytes = append_bytes(text, strings_);
    const std::int32_t twin = !by_bytes ? -1
                              : type == TokenType::normal
                                  ? by_text_[slot(by_text_, text, true)]
                                  : by_bytes_[slot(by_bytes_, std::string_view(strings_).substr(offset), false)];
    if (twin >= 0) refuse_twins(source, twin, id);
    if (type != TokenType::normal) strings_.resize(offset);
    if (type == TokenType::byte && spelling_ == Spelling::sentencepiece) add_byte_token(id, text);
    if (type != TokenType::normal || !by_bytes) return insert(by_text_, id, true, source);
    entry.bytes = {offset, static_cast<std::uint32_t>(strings_.size()) - offset};
    if (bytes(id) == text) {
        strings_.resize(offset);
        entry.bytes = entry.text;
    }
    longest_bytes_ = std::max<std::size_t>(longest_bytes_, entry.bytes.length);
    insert(by_bytes_, id, false, source);
}

bool BpeModel::append_bytes(std::string_view text, std::string& out) const {
    if (spelling_ == Spelling::byte_level) return append_spelled_bytes(text, out);
    for (std::size_t at = 0; at < text.size();) {
        const bool space = text.substr(at).starts_with(kSpaceMark);
        out += space ? ' ' : text[at];
        at += space ? kSpaceMark.size() : 1;
    }
    return true;
}

// "<0x0A>" stands for a line feed. Other texts of byte tokens stand for themselves.
void BpeModel::add_byte_token(std::int32_t id, std::string_view text) {
    unsigned int value = 256;
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return;
    const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
    if (error != std::errc() || end != text.data() + 5) return;
    entries_[static_cast<std::size_t>(id)].bytes = {static_cast<std::uint32_t>(strings_.size()), 1};
    strings_ += static_cast<char>(value);
    byte_ids_[value] = id;
}

template <typename Emit>
void BpeModel::start(std::string_view piece, std::int32_t unknown, Emit emit) const {
    const auto byte = [&](char c) {
        const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
        if (id >= 0 || unknown >= 0) emit(id >= 0 ? id : unknown);
    };
    if (spelling_ == Spelling::byte_level) {
        for (const char c : piece) byte(c);
        return;
    }
    while (!piece.empty()) {
        const Utf8Step step = next_utf8(piece);
        const std::string_view character = piece.substr(0, step.length_bytes);
        const std::int32_t id = by_bytes_[slot(by_bytes_, character, false)];
        if (id >= 0) {
            emit(id);
        } else {
            for (const char c : character) byte(c);
        }
        piece.remove_prefix(character.size());
    }
}

std::size_t BpeModel::slot(const std::vector<std::int32_t>& table, std::string_view key, bool spelled) const {
    const std::size_t mask = table.size() - 1;
    std::size_t at = hash(key) & mask;
    while (table[at] >= 0 && (spelled ? text(table[at]) : bytes(table[at])) != key) at = (at + 1) & mask;
    return at;
}

void BpeModel::refuse_twins(const std::string& source, std::int32_t a, std::int32_t b) const {
    throw Error(source + ": tokens " + std::to_string(a) + " and " + std::to_string(b) + " are both " +
                quoted(text(b)) + "; get or convert the model again");
}

void BpeModel::insert(std::vector<std::int32_t>& table, std::int32_t id, bool spelled, const std::string& source) {
    const std::string_view key = spelled ? text(id) : bytes(id);
    const std::size_t mask = table.size() - 1;
    const std::size_t home = hash(key) & mask;
    std::size_t at = home;
    for (std::size_t probes = 0; table[at] >= 0; at = (at + 1) & mask) {
        if ((spelled ? text(table[at]) : bytes(table[at])) == key) refuse_twins(source, table[at], id);
        if (++probes > kMaxProbes) crowded(source);
    }
    table[at] = id;
}

std::int32_t BpeModel::find(std::string_view text) const {
    if (text.empty()) return -1;
    const std::int32_t other = by_text_[slot(by_text_, text, true)];
    if (other >= 0) return other;
    std::string spelled;
    return append_bytes(text, spelled) ? by_bytes_[slot(by_bytes_, spelled, false)] : -1;
}

bool BpeModel::keeps_every_byte(std::int32_t unknown) const {
    return unknown >= 0 || std::ranges::all_of(byte_ids_, [](std::int32_t id) { return id >= 0; });
}

void BpeModel::add_merges(const TokenizerData& data) {
    if (data.merges.size() > static_cast<std::size_t>(kMaxVocabulary))
        throw Error(data.source + ": the tokenizer has more than " + std::to_string(kMaxVocabulary) +
                    " merges; get or convert the model again");
    merges_.assign(table_size(data.merges.size()), {kFree, {kNoRank, -1}});
    const std::size_t mask = merges_.size() - 1;
    std::string both;
    check(data.ranks.empty() || data.ranks.size() == data.merges.size(), "a rank for each merge");
    for (std::size_t i = 0; i < data.merges.size(); ++i) {
        const MergeRule& rule = data.merges[i];
        const std::size_t rank = data.ranks.empty() ? i : data.ranks[i];
        // The usual case: all are normal tokens, so the spelling needs no second look.
        both.clear();
        std::int32_t left = -1, right = -1, product = -1;
        std::size_t middle = 0;
        if (append_bytes(rule.left, both) && (middle = both.size(), append_bytes(rule.right, both))) {
            const std::string_view bytes = both;
            left = by_bytes_[slot(by_bytes_, bytes.substr(0, middle), false)];
            right = by_bytes_[slot(by_bytes_, bytes.substr(middle), false)];
            product = by_bytes_[slot(by_bytes_, bytes, false)];
        }
        if (left < 0) left = find(rule.left);
        if (right < 0) right = find(rule.right);
        if (product < 0) product = find(std::string(rule.left).append(rule.right));
        if (left < 0 || right < 0 || product < 0)
            throw Error(
                data.source + ": merge " + std::to_string(i) + " joins " + quoted(rule.left) + " and " +
                quoted(rule.right) +
                ", but one of them, or both together, is not in the vocabulary; get or convert the model again");
        const std::uint64_t key = pair_key(left, right);
        std::size_t at = mix(key, 0x9E3779B97F4A7C15u) & mask;
        for (std::size_t probes = 0; merges_[at].key != kFree && merges_[at].key != key; at = (at + 1) & mask)
            if (++probes > kMaxProbes) crowded(data.source);
        if (merges_[at].key == kFree) merges_[at] = {key, {static_cast<std::uint32_t>(rank), product}};
    }
}

BpeModel::Merge BpeModel::merge_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pair_key(left, right);
    const std::size_t mask = merges_.size() - 1;
    std::size_t at = mix(key, 0x9E3779B97F4A7C15u) & mask;
    while (merges_[at].key != key) {
        if (merges_[at].key == kFree) return {kNoRank, -1};
        at = (at + 1) & mask;
    }
    return merges_[at].merge;
}

void BpeModel::encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const {
    std::int32_t whole = -1;
    if (piece.size() <= longest_bytes_) whole = by_bytes_[slot(by_bytes_, piece, false)];
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
