// core/text/tokenizer_data.h: a BPE tokenizer as plain data, filled by the GGUF and tokenizer.json readers.
//
// Layout:   tokens[id] is the text of a token as its file spells it: normal tokens in the form of `spelling`, all
//           others literally. Merges are in order of rank, unless `ranks` gives their ranks.
// Life:     string views point into the file, or into `pool`. The struct is needed only until a Tokenizer is made from
//           it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pretokenizers.h"

namespace foresay::core {

// Larger ids are refused: no tokenizer comes near, and a hostile file must not make the reader allocate.
inline constexpr std::int32_t kMaxVocabulary = 1 << 22;

enum class TokenType : std::uint8_t {
    normal,        // the result of merges
    unknown,       // replaces text that has no token
    control,       // special: recognised in text only on request, hidden when decoding
    user_defined,  // added: always recognised in text, shown when decoding
    unused,        // padding of the vocabulary; no text becomes it
    byte,          // <0x..> of SentencePiece vocabularies: a byte of a character that has no token
};

// How a file spells normal tokens, and what merging starts from.
enum class Spelling : std::uint8_t {
    byte_level,     // one printable character per byte, a space is U+0120; merging starts from bytes
    sentencepiece,  // literally, but a space is U+2581; merging starts from characters, and from the bytes of those
                    // without a token
};

// How an added token matches (tokenizer.json only; GGUF files do not record it).
struct AddedTokenRule {
    std::int32_t id = -1;
    bool left_strip = false;   // swallows white space before it
    bool right_strip = false;  // swallows white space after it
    bool single_word = false;  // only where no letter, digit or underscore touches it
};

// Ids of special tokens; -1: the model has none.
struct SpecialTokens {
    std::int32_t bos = -1;
    std::int32_t eos = -1;
    std::int32_t eot = -1;  // end of a turn
    std::int32_t eom = -1;  // end of a message that calls a tool
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
    bool ignore_merges = false;  // a piece that is a token becomes that token, without merging
    SpecialTokens special;
    std::vector<std::int32_t> end_of_text;  // further ids that the file names as ends, besides special.eos, eot and eom
    std::vector<std::int32_t> prefix;       // what encode() puts before a text with add_special (BOS)
    std::vector<std::int32_t> suffix;       // and after it (EOS)
    bool prefix_space = false;              // and a space at the start of a text and after a special token
    std::string chat_template;              // unchanged from the file; empty: none
    std::deque<std::string> pool;           // owns the strings that the file does not hold

    std::string_view keep(std::string text) { return pool.emplace_back(std::move(text)); }
};

}  // namespace foresay::core
