// core/text/tokenizer.h: text to token ids and back, with any tokenizer that models have.
//
// encode() accepts any bytes; invalid UTF-8 becomes pieces of its own. decode(encode(text)) without `add_special`
// returns the same bytes if the vocabulary has a token for every byte that occurs (a byte without one becomes the
// unknown token, or nothing) and the tokenizer does not normalize: NFC, for example, composes letters. If a vocabulary
// wants a space before a text, encode() adds it only with `add_special`, so that a continuation stays unchanged, and
// decode() keeps it; whole_text() removes it.
//
// Data flow: encode() finds special and added tokens (added_tokens.h), normalizes the text between them (normalizer.h),
//           cuts it into pieces (splitter.h, by the rules of pretokenizers.h), and turns each piece into tokens
//           (bpe_model.h, unigram_model.h). tokenizer_<format>.cpp reads the tables into a TokenizerData.
// Threads:  immutable after loading; any thread may call the const methods. Copies share the tables.
// Cost:     encoding is linear in the text, except that a piece of n bytes takes O(n log n). bytes(), text() and the
//           queries allocate nothing.
// Errors:   loading treats files as untrusted and throws Error naming the file. encode() throws only when an expression
//           or a normalizer from the file exceeds its limit on the text.
// Source:   `tokenizer.ggml.*` of the GGUF specification; tokenizer.json of the Hugging Face tokenizers library;
//           tokenizer.model of SentencePiece; tekken.json of mistral-common; rank files of tiktoken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

class GgufFile;
class ModelSource;

struct EncodeOptions {
    bool add_special = true;    // BOS and EOS if the model wants them
    bool parse_special = true;  // the text of a special token becomes that token; false: it is plain text
    // encode() stops when it has appended more ids than this; how many more is up to it. They are a beginning of all
    // ids, except that those of a piece that is too long by itself are only as many as it has at least.
    std::size_t enough = std::numeric_limits<std::size_t>::max();
};

// Bytes [begin, end) of a text.
struct TextRange {
    std::size_t begin = 0, end = 0;
    bool operator==(const TextRange&) const = default;
};

// A text of which some parts, ascending and disjoint, came from outside: control tokens, and the user-defined ones in
// `markup` (ascending ids), are not recognised where they touch such a part.
struct MarkedText {
    std::string_view bytes;
    std::span<const TextRange> plain = {};
    std::span<const std::int32_t> markup = {};
};

// An added token found in a text, with the white space that it swallows.
struct FoundToken {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
};

class Tokenizer {
public:
    explicit Tokenizer(const TokenizerData& data);

    // The tokenizer of an open model, from wherever its format stores it. Throws Error when the model has none.
    static Tokenizer of(const ModelSource& model);
    static std::optional<Tokenizer> of_optional(const ModelSource& model);  // nullopt when it has none
    // The tokenizer of the model at `path`, or from a tokenizer.json. Opens no weights, so a vocabulary-only file is
    // enough.
    static Tokenizer open(const std::filesystem::path& path);

    // Reads `tokenizer.ggml.*`. Throws Error for a file without a tokenizer; call has_tokenizer() first if one is
    // optional.
    static Tokenizer from_gguf(const GgufFile& file);
    static bool has_tokenizer(const GgufFile& file);
    // Reads the text of a tokenizer.json; `path` is named in errors.
    static Tokenizer from_json(std::string_view json, std::string path);
    static Tokenizer from_json(const std::filesystem::path& path);
    // Reads the bytes of a SentencePiece model (tokenizer.model), of a tekken.json, or of a tiktoken rank file.
    static Tokenizer from_sentencepiece(std::string_view model, std::string path);
    static Tokenizer from_tekken(std::string_view json, std::string path);
    static Tokenizer from_tiktoken(std::string_view ranks, std::string path);
    // Reads the tokenizer in a model's directory, and the special tokens and the chat template from the
    // tokenizer_config.json, generation_config.json and config.json beside it. Of several, the first of tokenizer.json,
    // tekken.json, tokenizer.model and *.tiktoken.
    static Tokenizer from_directory(const std::filesystem::path& directory);
    static bool has_tokenizer(const std::filesystem::path& directory);
    // The same for one of these files, by its name and its first bytes.
    static Tokenizer from_file(const std::filesystem::path& path);

    // ---- text to ids
    std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
    void encode_append(std::string_view text, EncodeOptions options, std::vector<std::int32_t>& ids) const;
    // The ids of a whole text that holds its own BOS, if it wants one: what encode() gives without `add_special`,
    // except that the text begins here, and that special tokens come from its markup only. The texts on both sides of a
    // mark are one text for merges. `start` false: it continues one.
    std::vector<std::int32_t> encode_marked(const MarkedText& text, bool start = true) const;
    // The added tokens that encode_marked() finds in the text as it is, in order.
    std::vector<FoundToken> find_added(const MarkedText& text) const;
    // A number of tokens that any text of `bytes` bytes has at least; 0 if this vocabulary allows no such statement.
    std::int64_t least_tokens(std::size_t bytes) const;

    // ---- ids to text. Ids outside the vocabulary have no bytes.
    std::string_view bytes(std::int32_t id) const;  // the bytes of the token; for a control token, its text
    std::string_view text(std::int32_t id) const;   // the token as the file spells it
    std::string decode(std::span<const std::int32_t> ids, bool show_special = false) const;  // raw bytes
    // The bytes of a text that begins with `ids`: without the space that encode() puts before it.
    std::string whole_text(std::span<const std::int32_t> ids, bool show_special = false) const;
    // The same for one token after the other. A TextStart is the state of one text.
    class TextStart {
        friend class Tokenizer;
        bool done_ = false;
        std::int32_t stripped_ = 0;
        std::string shown_;
    };
    // Valid until the next call with the same `start`.
    std::string_view bytes(std::int32_t id, TextStart& start) const;

    // ---- the vocabulary
    std::int32_t vocab_size() const;
    std::optional<std::int32_t> find(std::string_view text) const;  // by the file's spelling
    TokenType type(std::int32_t id) const;                          // unused when outside
    bool is_control(std::int32_t id) const { return type(id) == TokenType::control; }
    bool is_end_of_text(std::int32_t id) const;             // a generation ends with it
    std::span<const std::int32_t> end_of_text_ids() const;  // increasing
    // The same tokenizer, with `ids` among the ends of a generation.
    Tokenizer with_ends(std::span<const std::int32_t> ids) const;
    const SpecialTokens& special() const;
    bool adds_bos() const;  // encode() with add_special starts with special().bos
    std::string_view pretokenizer() const;
    std::string_view chat_template() const;  // the default one; empty: none
    // All of them, the default one too, which has the name "default".
    const std::vector<NamedTemplate>& chat_templates() const;

private:
    struct Tables;
    std::shared_ptr<const Tables> tables_;
    std::shared_ptr<const std::vector<std::int32_t>> ends_;  // increasing
};

}  // namespace foresay::core
