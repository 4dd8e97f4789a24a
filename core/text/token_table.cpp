#include "core/text/token_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "core/text/byte_alphabet.h"
#include "core/text/byte_tokens.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxTokenBytes = 1 << 16;
constexpr std::size_t kMaxStringBytes = std::size_t{1} << 30;

std::uint64_t hash(std::string_view key) {
    std::uint64_t h = 0x9E3779B97F4A7C15u ^ key.size();
    std::size_t at = 0;
    std::uint64_t word = 0;
    for (; at + 8 <= key.size(); at += 8) {
        std::memcpy(&word, key.data() + at, 8);
        h = mix_hash(h ^ word, 0xD6E8FEB86659FD93u);
    }
    word = 0;
    for (std::size_t i = at; i < key.size(); ++i) word = (word << 8) | static_cast<unsigned char>(key[i]);
    return mix_hash(h ^ word, 0xA0761D6478BD642Fu);
}

std::size_t table_size(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(16, entries * 2)); }

// Appends what a literal spelling shows.
void append_shown(std::string_view text, const DecoderRules& rules, std::string& out) {
    if (rules.replacements.empty()) {
        out.append(text);
        return;
    }
    std::string shown(text);
    for (const DecoderRules::Replacement& rule : rules.replacements) {
        if (rule.from.empty() || shown.find(rule.from) == std::string::npos) continue;
        std::string next;
        std::size_t done = 0;
        for (std::size_t at; (at = shown.find(rule.from, done)) != std::string::npos; done = at + rule.from.size())
            next.append(shown, done, at - done).append(rule.to);
        shown = next.append(shown, done);
    }
    out.append(shown);
}

}  // namespace

std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::string quoted_token(std::string_view text) {
    return "'" + to_valid_utf8(text.substr(0, 64)) + (text.size() > 64 ? "...'" : "'");
}

void refuse_collisions(const std::string& source) {
    throw Error(source + ": the vocabulary's strings are crafted to collide; get the model from its original source");
}

TokenTable::TokenTable(const TokenizerData& data) : spelling_(data.spelling) {
    if (data.tokens.empty()) throw Error(data.source + ": the tokenizer has no tokens; get or convert the model again");
    if (data.tokens.size() > static_cast<std::size_t>(kMaxVocabulary))
        throw Error(data.source + ": the tokenizer has more than " + std::to_string(kMaxVocabulary) +
                    " tokens; get or convert the model again");
    check(data.types.size() == data.tokens.size(), "a token type for each token");
    const auto count = static_cast<std::int32_t>(data.tokens.size());
    entries_.resize(data.tokens.size());
    by_key_.assign(table_size(data.tokens.size()), -1);
    by_text_.assign(table_size(data.tokens.size()), -1);
    std::size_t total = 0;
    for (const std::string_view token : data.tokens) total += token.size();
    if (total > kMaxStringBytes / 2) throw Error(data.source + ": the vocabulary is too large; get the model again");
    strings_.reserve(total * 2);
    byte_ids_.fill(-1);
    for (std::int32_t id = 0; id < count; ++id)
        add(id, data.tokens[static_cast<std::size_t>(id)], data.types[static_cast<std::size_t>(id)], data);
    for (int byte = 0; byte < 256 && spelling_ == Spelling::byte_level; ++byte) {
        const char c = static_cast<char>(byte);
        byte_ids_[static_cast<std::size_t>(byte)] = find_key({&c, 1});
    }
    has_every_byte_ = std::ranges::all_of(byte_ids_, [](std::int32_t id) { return id >= 0; });
}

void TokenTable::add(std::int32_t id, std::string_view text, TokenType type, const TokenizerData& data) {
    if (text.empty()) return;  // a hole or padding
    if (text.size() > kMaxTokenBytes)
        throw Error(data.source + ": token " + std::to_string(id) + " is " + std::to_string(text.size()) +
                    " bytes long; get or convert the model again");
    if (strings_.size() > kMaxStringBytes)
        throw Error(data.source + ": the vocabulary is too large; get the model again");
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    entry.text = {static_cast<std::uint32_t>(strings_.size()), static_cast<std::uint32_t>(text.size())};
    strings_.append(text);
    entry.bytes = entry.text;
    const auto offset = static_cast<std::uint32_t>(strings_.size());
    const bool literal = spelling_ == Spelling::literal;
    // A spelling is in one of the two tables, never in both.
    const bool has_key = literal || append_spelled_bytes(text, strings_);
    const std::string_view key = literal ? text : std::string_view(strings_).substr(offset);
    const bool by_key = has_key && type == TokenType::normal;
    const std::int32_t twin = !has_key ? -1 : by_key ? by_text_[slot(by_text_, text, true)] : find_key(key);
    if (twin >= 0) refuse_twins(data.source, twin, id);
    if (literal || !by_key) strings_.resize(offset);
    if (type == TokenType::byte) {
        // Other texts of byte tokens stand for themselves.
        if (const auto byte = byte_of_token(text)) {
            byte_ids_[*byte] = id;
            if (data.decoder.bytes) strings_ += static_cast<char>(*byte);
        }
    } else if (literal && type != TokenType::control) {
        append_shown(text, data.decoder, strings_);
    }
    const std::string_view bytes = std::string_view(strings_).substr(offset);
    if (!bytes.empty() || (literal && type != TokenType::control && type != TokenType::byte)) {
        entry.bytes = {offset, static_cast<std::uint32_t>(bytes.size())};
        if (bytes == text) {
            strings_.resize(offset);
            entry.bytes = entry.text;
        }
    }
    const std::size_t stands_for = by_key ? this->key(id).size() : std::max(text.size(), bytes.size());
    longest_token_ = std::max(longest_token_, stands_for);
    if (!by_key) return insert(by_text_, id, true, data.source);
    longest_key_ = std::max<std::size_t>(longest_key_, stands_for);
    insert(by_key_, id, false, data.source);
}

void TokenTable::show(std::int32_t id, std::string_view text, const DecoderRules& rules) {
    const auto offset = static_cast<std::uint32_t>(strings_.size());
    append_shown(text, rules, strings_);
    entries_[static_cast<std::size_t>(id)].bytes = {offset, static_cast<std::uint32_t>(strings_.size()) - offset};
}

std::size_t TokenTable::slot(const std::vector<std::int32_t>& table, std::string_view key, bool spelled) const {
    const std::size_t mask = table.size() - 1;
    std::size_t at = hash(key) & mask;
    while (table[at] >= 0 && (spelled ? text(table[at]) : this->key(table[at])) != key) at = (at + 1) & mask;
    return at;
}

void TokenTable::refuse_twins(const std::string& source, std::int32_t a, std::int32_t b) const {
    throw Error(source + ": tokens " + std::to_string(a) + " and " + std::to_string(b) + " are both " +
                quoted_token(text(b)) + "; get or convert the model again");
}

void TokenTable::insert(std::vector<std::int32_t>& table, std::int32_t id, bool spelled, const std::string& source) {
    const std::string_view wanted = spelled ? text(id) : key(id);
    const std::size_t mask = table.size() - 1;
    std::size_t at = hash(wanted) & mask;
    for (std::size_t probes = 0; table[at] >= 0; at = (at + 1) & mask) {
        if ((spelled ? text(table[at]) : key(table[at])) == wanted) refuse_twins(source, table[at], id);
        if (++probes > kMaxProbes) refuse_collisions(source);
    }
    table[at] = id;
}

std::int32_t TokenTable::find_key(std::string_view key) const { return by_key_[slot(by_key_, key, false)]; }

std::int32_t TokenTable::find(std::string_view text) const {
    if (text.empty()) return -1;
    const std::int32_t other = by_text_[slot(by_text_, text, true)];
    if (other >= 0) return other;
    if (spelling_ == Spelling::literal) return find_key(text);
    std::string spelled;
    return append_spelled_bytes(text, spelled) ? find_key(spelled) : -1;
}

}  // namespace foresay::core
