// core/text/tokenizer_data.h: a BPE tokenizer as plain data, filled by the GGUF and tokenizer.json readers.
//
// Layout:   tokens[id] is the text of a token as its file spells it: normal tokens as `spelling` says, all others as
//           they read. Merges are in order of rank, unless `ranks` says their ranks.
// Life:     string views point into the file that was read, or into `pool`; the struct is only needed until a
//           Tokenizer is made of it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pretokenizers.h"

namespace foresay::core {

// Ids beyond this are refused: no tokenizer comes near, and a lying file must not make us allocate.
inline constexpr std::int32_t kMaxVocabulary = 1 << 22;

enum class TokenType : std::uint8_t {
    normal,        // made by merges
    unknown,       // stands for what has no token
    control,       // special: recognised in text only on request, hidden when decoding
    user_defined,  // added: always recognised in text, shown when decoding
    unused,        // padding of the vocabulary; no text leads to it
    byte,          // <0x..> of SentencePiece vocabularies: a byte of a character that has no token
};

// How files spell normal tokens, and what merging starts from.
enum class Spelling : std::uint8_t {
    byte_level,     // each byte one printable character, a space is U+0120; merging starts from bytes
    sentencepiece,  // as they read, but a space is U+2581; merging starts from characters, or the bytes of those that
                    // have no token
};

// How an added token takes part in matching (tokenizer.json only; a GGUF file does not say).
struct AddedTokenRule {
    std::int32_t id = -1;
    bool left_strip = false;   // swallows white space before it
    bool right_strip = false;  // swallows white space behind it
    bool single_word = false;  // only where no letter, digit or underscore touches it
};

// Ids with a meaning; -1: the model has none.
struct SpecialTokens {
    std::int32_t bos = -1;
    std::int32_t eos = -1;
    std::int32_t eot = -1;  // end of a turn
    std::int32_t eom = -1;  // end of a message that expects a tool's answer
    std::int32_t pad = -1;
    std::int32_t unknown = -1;
    std::int32_t fim_prefix = -1;
    std::int32_t fim_suffix = -1;
    std::int32_t fim_middle = -1;
    std::int32_t fim_pad = -1;
    std::int32_t fim_repo = -1;
    std::int32_t fim_file = -1;
};

struct MergeRule {
    std::string_view left;
    std::string_view right;
};

struct TokenizerData {
    std::string source;  // the file, for errors
    std::vector<std::string_view> tokens;
    std::vector<TokenType> types;  // one per token
    std::vector<AddedTokenRule> added_rules;
    Spelling spelling = Spelling::byte_level;
    std::vector<MergeRule> merges;
    std::vector<std::uint32_t> ranks;  // of the merges; empty: their order
    Pretokenizer pretokenizer;
    bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
    SpecialTokens special;
    std::vector<std::int32_t> end_of_text;  // ids the file names as ends, beside special.eos, eot and eom
    std::vector<std::int32_t> prefix;       // what encode() puts before a text on request (BOS)
    std::vector<std::int32_t> suffix;       // and behind it (EOS)
    bool prefix_space = false;              // and a space before what follows a special token or nothing
    std::string chat_template;              // as the file has it; empty: none
    std::deque<std::string> pool;           // owns what the views need and the file does not hold

    std::string_view keep(std::string text) { return pool.emplace_back(std::move(text)); }
};

}  // namespace foresay::core
