// core/text/pretokenizers.h: how text is cut into pieces before merging, by the names that GGUF files use.
//
// A pre-tokenizer is a list of steps. Each step cuts every piece of the steps before it: each match of its expression
// becomes a piece, and so does the text between matches. An expression sees one piece at a time, not its surroundings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

struct SplitStep {
    // What happens to a match. Digits are grouped by code, because the usual expressions look ahead to the end of the
    // number from each digit, which takes hours on a megabyte of digits.
    enum class Match {
        piece,      // becomes a piece
        thousands,  // becomes pieces of three characters, counted from its end; the first may be shorter
        cuts_only,  // is cut before each whole group of three characters, and nowhere else
    };
    std::string regex;  // PCRE syntax; \s and \S mean Unicode White_Space as they do in other engines
    Match match = Match::piece;
};

struct Pretokenizer {
    std::string name;
    std::vector<SplitStep> steps;  // none: the text is one piece
};

// What the name of a pre-tokenizer in a GGUF file implies.
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

// A step for an expression from a file: `regex` itself, or a fast equivalent of the known slow ones.
SplitStep split_step(std::string_view regex);

// The expression of GPT-2, which tokenizer.json's ByteLevel implies.
std::string_view gpt2_regex();

}  // namespace foresay::core
