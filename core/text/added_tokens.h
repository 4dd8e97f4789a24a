// core/text/added_tokens.h: finds special and added tokens in a text.
//
// The leftmost match wins, and among matches with the same start the longest. A token's rule may make it swallow the
// white space around it, or match only as a whole word.
// Threads:  immutable; any thread may search.
// Cost:     a table lookup per byte; more only where a token may begin.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {
struct MarkedText;
}

namespace foresay::core {

inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

class AddedTokens {
public:
    // `always`: recognised in every text, not only when special tokens are parsed.
    void add(std::string_view text, std::int32_t id, bool always, const std::string& source);
    void set_rule(const AddedTokenRule& rule) { rules_[rule.id] = rule; }
    // Whether some token swallows white space, and so stands for any number of bytes.
    bool swallows_space() const;

    struct Found {
        std::size_t begin = 0, end = 0;  // including the white space that it swallows
        std::int32_t id = -1;            // -1: none
    };
    bool empty() const { return nodes_.size() == 1; }
    // The first match in text[from..]; it swallows no white space before `from`.
    Found find(std::string_view text, std::size_t from, bool parse_special) const;
    // The same, of those that the marks of the text allow.
    Found find(const MarkedText& text, std::size_t from) const;

private:
    struct Node {
        std::int32_t child = -1, sibling = -1;
        std::int32_t id = -1;
        bool always = false;
        unsigned char byte = 0;
    };
    std::int32_t child_of(std::int32_t node, unsigned char byte) const;
    template <typename Accepts>
    Found find_accepted(std::string_view text, std::size_t from, const std::array<bool, 256>& starts,
                        Accepts accepts) const;
    bool allowed(std::string_view text, Found& found, std::size_t from) const;

    std::vector<Node> nodes_{1};
    std::array<bool, 256> starts_{};         // bytes that start the text of some token
    std::array<bool, 256> starts_always_{};  // of some token that is always recognised
    std::unordered_map<std::int32_t, AddedTokenRule> rules_;
};

}  // namespace foresay::core
