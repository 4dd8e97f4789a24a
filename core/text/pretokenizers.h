// core/text/pretokenizers.h: how text is cut into pieces before merging, by the names that GGUF files use.
//
// A pre-tokenizer is a list of steps. Each step cuts every piece of the steps before it: each match of its expression
// becomes a piece, and so does the text between matches. An expression sees one piece at a time, not its surroundings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/regex.h"

namespace foresay::core {

// What happens to a match of a step's expression and to the text between matches; the names are those of
// tokenizer.json. `invert` exchanges the two.
enum class SplitBehavior : std::uint8_t {
    isolated,              // each match is a piece, and so is the text between
    removed,               // matches are dropped
    merged_with_previous,  // a match ends the piece before it
    merged_with_next,      // a match starts the piece after it
    contiguous,            // matches that touch are one piece
};

// Where a space, or its mark, is put before the text.
enum class SpaceBefore : std::uint8_t {
    never,
    first,   // the start of the text
    always,  // and after every added token
};

struct SplitStep {
    // What the step does. Digits are grouped by code, because the usual expressions look ahead to the end of the number
    // from each digit, which takes hours on a megabyte of digits.
    enum class Match : std::uint8_t {
        piece,      // what `behavior` says
        thousands,  // a match becomes pieces of three characters, counted from its end; the first may be shorter
        cuts_only,  // a match is cut before each whole group of three characters, and nowhere else
        metaspace,  // no expression: spaces become `mark`; with `space`, one more before a text that has none there
        space,      // no expression: a space before a text that has none there, as `space` says
    };
    std::string regex;  // Oniguruma's syntax
    Match match = Match::piece;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    RegexAnchors anchors = RegexAnchors::lines;
    SpaceBefore space = SpaceBefore::never;
    std::string mark;          // metaspace: what a space becomes, usually U+2581
    bool cut_at_mark = false;  // metaspace: each mark starts a piece
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
    bool literal = false;  // for tokens that are spelled literally, not byte by byte
};

// The pre-tokenizer of that name (`tokenizer.ggml.pre`). Throws Error for any other name; `source` is the
// file, for the error.
NamedPretokenizer named_pretokenizer(std::string_view name, const std::string& source);

// All names that named_pretokenizer knows, in alphabetical order.
std::vector<std::string_view> pretokenizer_names();

// A step for an expression from a file: `regex` itself, or a fast equivalent of the known slow ones.
SplitStep split_step(std::string_view regex);

// Trusted are the expressions of the table, and their variants in published files.
RegexTrust trust_of(std::string_view regex);

// The expression of GPT-2, which tokenizer.json's ByteLevel implies.
std::string_view gpt2_regex();

}  // namespace foresay::core
