// core/text/added_tokens.h: finds the texts of special and added tokens in a text.
//
// The leftmost match counts, and of those that start there the longest. A match may swallow the white space around it,
// or count only as a whole word, where the token's rule says so.
// Threads:  immutable; any thread may search.
// Cost:     a lookup per byte, more only where a token's text begins.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

class AddedTokens {
public:
    // `always`: recognised in every text, not only when special tokens are parsed.
    void add(std::string_view text, std::int32_t id, bool always, const std::string& source);
    void set_rule(const AddedTokenRule& rule) { rules_[rule.id] = rule; }

    struct Found {
        std::size_t begin = 0, end = 0;  // with the white space it swallows
        std::int32_t id = -1;            // -1: none
    };
    // The first match in text[from..]; it swallows no white space before `from`.
    Found find(std::string_view text, std::size_t from, bool parse_special) const;

private:
    struct Node {
        std::int32_t child = -1, sibling = -1;
        std::int32_t id = -1;
        bool always = false;
        unsigned char byte = 0;
    };
    std::int32_t child_of(std::int32_t node, unsigned char byte) const;
    bool allowed(std::string_view text, Found& found, std::size_t from) const;

    std::vector<Node> nodes_{1};
    std::array<bool, 256> starts_{};         // bytes that start the text of some token
    std::array<bool, 256> starts_always_{};  // of some token that is always recognised
    std::unordered_map<std::int32_t, AddedTokenRule> rules_;
};

}  // namespace foresay::core
