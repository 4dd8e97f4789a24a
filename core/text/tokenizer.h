// core/text/tokenizer.h: BPE, byte-level or as SentencePiece has it: text to token ids and back.
//
// Any bytes can be encoded; invalid UTF-8 becomes pieces of its own. Decoding what encode() made without `add_special`
// gives the same bytes back whenever the vocabulary has a token for every byte that occurs (a byte without one becomes
// the unknown token, or nothing); with `parse_special`, decode with `show_special`. Unicode normalisation is not
// applied, even where a tokenizer.json asks for NFC: text is bytes as given. Where a SentencePiece vocabulary wants a
// space before a text, encode() adds it with `add_special` alone, so that a continuation stays as given.
//
// Threads:  immutable after loading; any thread may call the const methods. Copies share the tables.
// Cost:     encoding is linear in the text but for a piece of n bytes, which takes O(n log n). bytes(), text() and the
//           queries allocate nothing.
// Errors:   loading treats files as untrusted and throws Error naming the file. encode() throws only when an expression
//           of the file needs unbounded effort on the text.
// Source:   `tokenizer.ggml.*` of the GGUF specification; tokenizer.json of the Hugging Face tokenizers library.
#pragma once

#include <cstdint>
#include <filesystem>
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
    bool add_special = true;    // BOS and EOS as the model asks for them
    bool parse_special = true;  // special-token text becomes that token; else it is plain text
};

class Tokenizer {
public:
    explicit Tokenizer(const TokenizerData& data);

    // The tokenizer of an open model, wherever its format keeps it. Throws Error when the model has none.
    static Tokenizer of(const ModelSource& model);
    static std::optional<Tokenizer> of_optional(const ModelSource& model);  // nullopt when it has none
    // The tokenizer of the model at `path`, or of a tokenizer.json. Opens no weights, so a file with a vocabulary alone
    // will do.
    static Tokenizer open(const std::filesystem::path& path);

    // Reads `tokenizer.ggml.*`. A file without a tokenizer is an Error that says so: ask has_tokenizer() first where
    // one is not needed.
    static Tokenizer from_gguf(const GgufFile& file);
    static bool has_tokenizer(const GgufFile& file);
    // Reads the text of a tokenizer.json; `path` is named in errors.
    static Tokenizer from_json(std::string_view json, std::string path);
    static Tokenizer from_json(const std::filesystem::path& path);
    // Reads tokenizer.json of a model's directory, and what tokenizer_config.json, generation_config.json and
    // config.json beside it say about special tokens and the chat template.
    static Tokenizer from_directory(const std::filesystem::path& directory);

    // ---- text to ids
    std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
    void encode_append(std::string_view text, EncodeOptions options, std::vector<std::int32_t>& ids) const;

    // ---- ids to text. Ids outside the vocabulary stand for no bytes.
    std::string_view bytes(std::int32_t id) const;  // what the token stands for; a control token's own text
    std::string_view text(std::int32_t id) const;   // the token as the file spells it
    std::string decode(std::span<const std::int32_t> ids, bool show_special = false) const;  // raw bytes

    // ---- the vocabulary
    std::int32_t vocab_size() const;
    std::optional<std::int32_t> find(std::string_view text) const;  // by the file's spelling
    TokenType type(std::int32_t id) const;                          // unused when outside
    bool is_control(std::int32_t id) const { return type(id) == TokenType::control; }
    bool is_end_of_text(std::int32_t id) const;             // a generation stops at it
    std::span<const std::int32_t> end_of_text_ids() const;  // increasing
    const SpecialTokens& special() const;
    bool adds_bos() const;  // encode() with add_special starts with special().bos
    std::string_view pretokenizer() const;
    std::string_view chat_template() const;  // empty: none

private:
    struct Tables;
    std::shared_ptr<const Tables> tables_;
};

}  // namespace foresay::core
