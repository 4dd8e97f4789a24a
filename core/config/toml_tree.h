// core/config/toml_tree.h: a TOML document as a plain tree with positions, in file order. Only its .cpp
// includes the TOML library.
//
// Errors:   std::nullopt and a Diagnostic for text that is not TOML, is not UTF-8, or nests deeper than kMaxTomlDepth.
// Cost:     linear in the text; recursion is bounded by kMaxTomlDepth.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/diagnostic.h"

namespace foresay::core {

inline constexpr int kMaxTomlDepth = 32;

struct TomlNode {
    enum class Kind : std::uint8_t { boolean, integer, real, text, date, list, table };
    struct Member;

    Kind kind = Kind::table;
    int line = 0;  // of the value, from 1
    int column = 0;
    bool boolean = false;
    std::int64_t integer = 0;
    double real = 0.0;
    std::string text;
    std::vector<TomlNode> items;  // of a list
    std::vector<Member> members;  // of a table, by position

    // "a table", "an integer": for messages.
    std::string_view kind_name() const;
    // Null: there is no such key, or this is no table.
    const Member* find(std::string_view key) const;
};

struct TomlNode::Member {
    std::string key;
    int line = 0;  // of the key
    int column = 0;
    TomlNode value;
};

// `place` names the document in the diagnostic.
std::optional<TomlNode> parse_toml(std::string_view text, const std::string& place, Diagnostic& error);

// Line `line` (from 1) of `text`, at most 200 bytes of it; empty when there is none.
std::string line_of(std::string_view text, int line);

}  // namespace foresay::core
