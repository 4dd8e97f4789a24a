// core/text/tokenizer_data.h: a tokenizer as plain data, filled by the readers of the file formats.
//
// Layout:   tokens[id] is the text of a token as its file spells it: normal tokens in the form of `spelling`, all
//           others literally. A BPE vocabulary has merges, in order of rank unless `ranks` gives their ranks; a Unigram
//           vocabulary has scores.
// Life:     string views point into the file, or into `pool`. The struct is needed only until a Tokenizer is made from
//           it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/normalizer.h"
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

enum class TokenModel : std::uint8_t {
    bpe,      // merges adjacent tokens, the lowest rank first
    unigram,  // chooses the tokens with the highest sum of scores
};

// How a file spells normal tokens, and what merging starts from.
enum class Spelling : std::uint8_t {
    byte_level,  // one printable character per byte, a space is U+0120; merging starts from bytes
    literal,     // as the normalized text has it, a space usually as U+2581; merging starts from characters, and from
                 // the bytes of those without a token
};

// How an added token matches. Tokens without a rule have all flags off.
struct AddedTokenRule {
    std::int32_t id = -1;
    bool left_strip = false;   // swallows white space before it
    bool right_strip = false;  // swallows white space after it
    bool single_word = false;  // only where no letter, digit or underscore touches it
    bool normalized = false;   // is found in the normalized text, not in the text as it is
};

// How the spelling of a token becomes text again. Spelling::byte_level needs none of it.
struct DecoderRules {
    struct Replacement {
        std::string from, to;
    };
    // What happens to the start of a text, where encoding may have put a space.
    enum class Start : std::uint8_t {
        keep,
        strip,        // up to `strip_count` times `strip_text` go
        first_token,  // all of `strip_text` in the spelling of the first token go
    };
    std::vector<Replacement> replacements;  // in every token but control tokens, in this order
    bool bytes = true;                      // byte tokens become their byte; false: they show as <0x..>
    Start start = Start::keep;
    std::string strip_text = " ";
    std::int32_t strip_count = 0;
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

// A chat template of a model, as it is in the file.
struct NamedTemplate {
    std::string name;  // "default", "tool_use"
    std::string source;
};

struct TokenizerData {
    std::string source;  // the file, for errors
    std::vector<std::string_view> tokens;
    std::vector<TokenType> types;  // one per token
    std::vector<AddedTokenRule> added_rules;
    bool unknown_in_text = true;        // the text of an unknown token becomes that token, as that of a control token
    bool added_are_normalized = false;  // normalized added tokens are spelled as the normalized text has them
    Spelling spelling = Spelling::byte_level;
    TokenModel model = TokenModel::bpe;
    std::vector<MergeRule> merges;
    std::vector<std::uint32_t> ranks;  // of the merges; empty: their order
    std::vector<double> scores;        // one per token, for Unigram
    bool single_precision = false;     // sums of scores are floats, as SentencePiece's own are
    std::vector<NormalizeStep> normalizer;
    Pretokenizer pretokenizer;
    DecoderRules decoder;
    bool ignore_merges = false;  // a piece that is a token becomes that token, without merging
    bool fuse_unknown = false;   // neighbouring characters without a token become one unknown token
    SpecialTokens special;
    std::vector<std::int32_t> end_of_text;  // further ids that the file names as ends, besides special.eos, eot and eom
    std::vector<std::int32_t> prefix;       // what encode() puts before a text with add_special (BOS)
    std::vector<std::int32_t> suffix;       // and after it (EOS)
    std::vector<NamedTemplate> chat_templates;
    std::deque<std::string> pool;  // owns the strings that the file does not hold

    // Sets the template of this name. An empty one removes it.
    void set_chat_template(std::string_view name, std::string template_source);
    std::string_view keep(std::string text) { return pool.emplace_back(std::move(text)); }
};

}  // namespace foresay::core
