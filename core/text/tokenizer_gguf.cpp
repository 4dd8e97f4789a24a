// Tokenizers from `tokenizer.ggml.*` of a GGUF file.
#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "core/text/byte_tokens.h"
#include "core/text/score_merges.h"
#include "core/text/special_names.h"
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"
#include "core/weights/gguf.h"

namespace foresay::core {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kCharsmap = "tokenizer.ggml.precompiled_charsmap";

void read_tokens(const GgufFile& file, TokenizerData& data) {
    data.tokens = file.get_strings(kTokens);
    data.types.assign(data.tokens.size(), TokenType::normal);
    if (!file.has("tokenizer.ggml.token_type")) return;
    const std::vector<std::int64_t> types = file.get_ints("tokenizer.ggml.token_type");
    if (types.size() != data.tokens.size())
        throw Error(data.source + ": tokenizer.ggml.token_type has " + std::to_string(types.size()) + " entries for " +
                    std::to_string(data.tokens.size()) + " tokens; convert the model again");
    constexpr TokenType kTypes[] = {TokenType::normal,       TokenType::normal, TokenType::unknown, TokenType::control,
                                    TokenType::user_defined, TokenType::unused, TokenType::byte};
    for (std::size_t i = 0; i < types.size(); ++i)
        if (types[i] >= 0 && types[i] < 7) data.types[i] = kTypes[types[i]];
}

void read_merges(const GgufFile& file, TokenizerData& data) {
    for (const std::string_view merge : file.get_strings("tokenizer.ggml.merges")) {
        const std::size_t space = merge.find(' ', 1);
        if (space == std::string_view::npos)
            throw Error(data.source + ": '" + to_valid_utf8(merge.substr(0, 64)) +
                        "' in tokenizer.ggml.merges is not two tokens and a space between; convert the model again");
        data.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
}

void read_special(const GgufFile& file, TokenizerData& data) {
    const auto vocabulary = static_cast<std::int64_t>(data.tokens.size());
    const auto read = [&](std::string_view key, std::int32_t& id) {
        const std::int64_t value = file.get_int_or("tokenizer.ggml." + std::string(key), -1);
        // Converters write ids beyond the vocabulary, or 2^32 - 1, for a token that the model lacks.
        if (value >= 0 && value < vocabulary) id = static_cast<std::int32_t>(value);
    };
    // They leave these two out instead, and both change every text.
    const auto read_in_use = [&](std::string_view name, std::int32_t& id) {
        const std::string key = "tokenizer.ggml." + std::string(name);
        if (!file.has(key)) return;
        const std::int64_t value = file.get_int(key);
        check_token_id(value, vocabulary, data.source, key);
        id = static_cast<std::int32_t>(value);
    };
    SpecialTokens& special = data.special;
    read_in_use("bos_token_id", special.bos);
    read_in_use("eos_token_id", special.eos);
    read("eot_token_id", special.eot);
    read("eom_token_id", special.eom);
    read("padding_token_id", special.pad);
    read("unknown_token_id", special.unknown);
    read("prefix_token_id", special.fim_prefix);  // the names that older files use
    read("suffix_token_id", special.fim_suffix);
    read("middle_token_id", special.fim_middle);
    read("fim_pre_token_id", special.fim_prefix);
    read("fim_suf_token_id", special.fim_suffix);
    read("fim_mid_token_id", special.fim_middle);
    read("fim_pad_token_id", special.fim_pad);
    read("fim_rep_token_id", special.fim_repo);
    read("fim_sep_token_id", special.fim_file);
}

// Which tokens go around a text, unless the file says otherwise.
struct Around {
    bool bos = false, eos = false;
};

// Reads the tokens put around a text, and the chat template.
void read_text_rules(const GgufFile& file, Around usual, TokenizerData& data) {
    if (file.get_bool_or("tokenizer.ggml.add_bos_token", usual.bos) && data.special.bos >= 0)
        data.prefix = {data.special.bos};
    if (file.get_bool_or("tokenizer.ggml.add_eos_token", usual.eos) && data.special.eos >= 0)
        data.suffix = {data.special.eos};
    constexpr std::string_view kTemplate = "tokenizer.chat_template";
    data.set_chat_template("default", std::string(file.get_string_or(kTemplate, "")));
    for (const GgufEntry& entry : file.metadata()) {
        const std::string_view key = entry.key;
        if (!key.starts_with(kTemplate) || key.size() <= kTemplate.size() + 1 || key[kTemplate.size()] != '.') continue;
        if (entry.type != GgufType::string) continue;
        data.set_chat_template(to_valid_utf8(key.substr(kTemplate.size() + 1)), std::string(file.get_string(key)));
    }
}

constexpr std::string_view kSpaceMark = "\u2581";

// Spaces become U+2581, in the text and back.
void escape_spaces(SpaceBefore before, TokenizerData& data) {
    data.spelling = Spelling::literal;
    data.fuse_unknown = true;
    if (before != SpaceBefore::never)
        data.normalizer.push_back(
            {.kind = NormalizeStep::Kind::prepend, .pattern = {}, .content = std::string(kSpaceMark), .space = before});
    data.normalizer.push_back(
        {.kind = NormalizeStep::Kind::replace, .pattern = " ", .content = std::string(kSpaceMark)});
    data.decoder.replacements = {{std::string(kSpaceMark), " "}};
    if (before == SpaceBefore::never) return;
    data.decoder.start = DecoderRules::Start::strip;
    data.decoder.strip_count = 1;
}

std::vector<double> read_scores(const GgufFile& file, const TokenizerData& data) {
    const std::vector<float> scores = file.get_floats("tokenizer.ggml.scores");
    if (scores.size() != data.tokens.size())
        throw Error(data.source + ": tokenizer.ggml.scores has " + std::to_string(scores.size()) + " entries for " +
                    std::to_string(data.tokens.size()) + " tokens; convert the model again");
    return {scores.begin(), scores.end()};
}

SpaceBefore space_before(const GgufFile& file) {
    return file.get_bool_or("tokenizer.ggml.add_space_prefix", true) ? SpaceBefore::always : SpaceBefore::never;
}

// SentencePiece BPE, model "llama".
void read_sentencepiece(const GgufFile& file, TokenizerData& data) {
    data.pretokenizer.name = "sentencepiece";
    read_tokens(file, data);
    make_merges(read_scores(file, data), data);
    read_special(file, data);
    escape_spaces(space_before(file), data);
    read_text_rules(file, {.bos = true}, data);
}

// SentencePiece Unigram, model "t5".
void read_unigram(const GgufFile& file, TokenizerData& data) {
    data.pretokenizer.name = "unigram";
    data.model = TokenModel::unigram;
    data.single_precision = true;
    read_tokens(file, data);
    data.scores = read_scores(file, data);
    read_special(file, data);
    std::string map;
    if (file.has(kCharsmap))
        for (const std::int64_t byte : file.get_ints(kCharsmap)) map.push_back(static_cast<char>(byte));
    escape_spaces(space_before(file), data);
    data.normalizer = {{.kind = NormalizeStep::Kind::sentencepiece,
                        .pattern = std::move(map),
                        .content = std::string(kSpaceMark),
                        .space = space_before(file),
                        .join_spaces = file.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", false)}};
    if (data.special.unknown < 0) {
        const auto unknown = std::find(data.types.begin(), data.types.end(), TokenType::unknown);
        if (unknown != data.types.end()) data.special.unknown = static_cast<std::int32_t>(unknown - data.types.begin());
    }
    read_text_rules(file, {.eos = true}, data);
}

// BPE with a list of merges: over the bytes of the text, or, for gemma4, over its characters with spaces escaped.
void read_bpe(const GgufFile& file, bool literal, TokenizerData& data) {
    const std::string name(file.get_string_or("tokenizer.ggml.pre", literal ? "gemma4" : "default"));
    const NamedPretokenizer pre = named_pretokenizer(name, data.source);
    if (literal != pre.literal)
        throw Error(data.source + ": the pre-tokenizer '" + name + "' does not belong to a tokenizer of the model '" +
                    (literal ? "gemma4" : "gpt2") + "'; convert the model again");
    data.pretokenizer = pre.pretokenizer;
    data.ignore_merges = pre.ignore_merges;
    read_tokens(file, data);
    if (!file.has("tokenizer.ggml.merges"))
        throw Error(data.source + ": the tokenizer has no merges (tokenizer.ggml.merges); convert the model again");
    read_merges(file, data);
    if (literal) {
        mark_byte_tokens(data);  // converters write them as normal tokens
        escape_spaces(SpaceBefore::never, data);
    }
    read_special(file, data);
    read_text_rules(file, {.bos = pre.add_bos}, data);
}

}  // namespace

bool Tokenizer::has_tokenizer(const GgufFile& file) { return file.has(kTokens); }

Tokenizer Tokenizer::from_gguf(const GgufFile& file) {
    TokenizerData data;
    data.source = file.path();
    if (!has_tokenizer(file))
        throw Error(data.source + ": the file has no tokenizer, so text cannot be turned into tokens; " +
                    "use a model file with one (tokenizer.ggml.tokens)");
    const std::string_view model = file.get_string_or(kModel, "gpt2");
    if (model == "llama") {
        read_sentencepiece(file, data);
    } else if (model == "t5") {
        read_unigram(file, data);
    } else if (model == "gpt2" || model == "gemma4") {
        read_bpe(file, model == "gemma4", data);
    } else {
        throw Error(data.source + ": tokenizer.ggml.model is '" + to_valid_utf8(model.substr(0, 64)) +
                    "'; known are 'gpt2' (byte-level BPE), 'llama' (SentencePiece BPE), 't5' (Unigram) and 'gemma4': " +
                    "use a model with such a tokenizer");
    }
    return Tokenizer(data);
}

}  // namespace foresay::core
