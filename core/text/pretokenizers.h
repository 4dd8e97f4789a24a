// core/text/pretokenizers.h: how text is cut into pieces before merging, by the names GGUF files use.
//
// A pre-tokenizer is a list of steps. Each step cuts every piece that the steps before it left: a match of its
// expression becomes a piece, and so does each stretch between matches. Expressions see one piece at a time, never its
// surroundings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

struct SplitStep {
    // What happens to a match. Thousands grouping is done here because the expressions in use for it look ahead to the
    // end of the number from each of its digits, which takes hours on a megabyte of digits.
    enum class Match {
        piece,      // is a piece
        thousands,  // is a piece, cut into groups of three characters counted from its end
        cuts_only,  // is cut before each such group, but not isolated from its surroundings
    };
    std::string regex;  // PCRE syntax; \s and \S mean Unicode White_Space as they do in other engines
    Match match = Match::piece;
};

struct Pretokenizer {
    std::string name;
    std::vector<SplitStep> steps;  // none: the text is one piece
};

// What a GGUF file implies by naming a pre-tokenizer.
struct NamedPretokenizer {
    Pretokenizer pretokenizer;
    bool ignore_merges = false;
    bool add_bos = false;  // unless the file says otherwise
};

// The byte-level pre-tokenizer of that name (`tokenizer.ggml.pre`). Throws Error for any other name; `source` is the
// file, for the error.
NamedPretokenizer named_pretokenizer(std::string_view name, const std::string& source);

// All names that named_pretokenizer knows, in alphabetical order.
std::vector<std::string_view> pretokenizer_names();

// A step for an expression found in a file: `regex` itself, or a fast equivalent for those that would be slow.
SplitStep split_step(std::string_view regex);

// The expression of GPT-2, which tokenizer.json's ByteLevel implies.
std::string_view gpt2_regex();

}  // namespace foresay::core
