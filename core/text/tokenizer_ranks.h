// core/text/tokenizer_ranks.h: reads vocabularies that are lists of byte strings with ranks: tiktoken's rank files and
// tekken.json.
//
// Merging: any two neighbours whose bytes together are in the list merge, the lowest rank first. A piece that is in the
//          list becomes that token.
// Threads:  pure functions.
// Errors:   the text is untrusted: anything malformed throws Error naming `path`.
// Source:   openai/tiktoken, mistralai/mistral-common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

// What a rank file leaves to the program that reads it.
struct RankFileSettings {
    std::string pattern;  // the expression that cuts the text; empty: that of the known tokenizer with as many ranks
    struct Special {
        std::int32_t id = -1;
        std::string text;
    };
    std::vector<Special> special;  // empty: those of the known tokenizer with as many ranks
};

TokenizerData parse_tiktoken(std::string_view ranks, const RankFileSettings& settings, std::string path);
TokenizerData parse_tekken(std::string_view json, std::string path);

// Whether a file looks like a rank file, or like a tekken.json.
bool is_tiktoken(std::string_view text);
bool is_tekken(std::string_view text);

}  // namespace foresay::core
