// grammar/vocabulary.h: the tokens of a model, as bytes in tries.
//
// Layout:   a trie is one array of nodes in depth-first order; a node says where its subtree ends, so that a walk that
//           turns back is one assignment. Tokens made of whole characters that a JSON string may have as they are
//           (`plain` tokens) are also grouped by their number of characters: most of a vocabulary is judged by one
//           look at a state instead of a walk.
// Threads:  immutable; any.
// Cost:     about 100 ms and 10 MB for 128,256 tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::grammar {

struct TokenText {
    enum class Kind : std::uint8_t {
        text,     // bytes of the text; empty ones are never allowed
        special,  // a control token: `bytes` is its name, which is no text. Allowed only where text is free
        end,      // ends the text: allowed where the grammar may end
        unused,   // never allowed
    } kind = Kind::text;
    std::string bytes;
};

struct TrieNode {
    std::uint32_t end = 0;    // the node after the last one below this
    std::int32_t token = -1;  // that ends here
    std::uint8_t byte = 0;
    std::uint8_t depth = 0;  // 1 for the first byte
};

class Trie {
public:
    // For the tokens in `order`, sorted by their bytes.
    Trie(const std::vector<TokenText>& tokens, const std::vector<std::int32_t>& order);
    const std::vector<TrieNode>& nodes() const { return nodes_; }
    // The node of a first byte; nodes().size() where there is none.
    std::uint32_t first(std::uint8_t byte) const { return first_[byte]; }

private:
    std::vector<TrieNode> nodes_;
    std::uint32_t first_[256];
};

class Vocabulary {
public:
    static constexpr std::uint32_t kEndless = UINT32_MAX;
    // Plain tokens of `least` to `most` characters; and all others, with least 0.
    struct Group {
        std::uint32_t least = 0;
        std::uint32_t most = 0;
        Trie trie;
        std::vector<std::uint32_t> bits;
    };

    // `token` is asked for the ids [0, size).
    Vocabulary(std::int32_t size, const std::function<TokenText(std::int32_t)>& token);

    std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
    std::size_t words() const { return (tokens_.size() + 31) / 32; }  // of a mask
    const TokenText& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
    const std::vector<std::int32_t>& special() const { return special_; }
    const std::vector<std::int32_t>& ends() const { return ends_; }
    const std::vector<std::int32_t>& long_tokens() const { return long_; }  // of more than 255 bytes, in no trie
    // Pairs: the first one is in the tries, the second one has the same bytes.
    const std::vector<std::pair<std::int32_t, std::int32_t>>& twins() const { return twins_; }
    const Trie& all() const { return *all_; }
    const std::vector<Group>& groups() const { return groups_; }

private:
    std::vector<TokenText> tokens_;
    std::vector<std::int32_t> special_, ends_, long_;
    std::vector<std::pair<std::int32_t, std::int32_t>> twins_;
    std::unique_ptr<Trie> all_;
    std::vector<Group> groups_;
};

// Whether a JSON string may have the byte as it is, and grammars usually let it.
inline bool is_plain(std::uint8_t byte) { return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F; }

}  // namespace foresay::grammar
