// Tokenizers from `tokenizer.ggml.*` of a GGUF file.
#include <algorithm>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"
#include "core/weights/gguf.h"

namespace foresay::core {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

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
    SpecialTokens& special = data.special;
    read("bos_token_id", special.bos);
    read("eos_token_id", special.eos);
    read("eot_token_id", special.eot);
    read("eom_token_id", special.eom);
    read("padding_token_id", special.pad);
    read("unknown_token_id", special.unknown);
    read("prefix_token_id", special.fim_prefix);  // the older names
    read("suffix_token_id", special.fim_suffix);
    read("middle_token_id", special.fim_middle);
    read("fim_pre_token_id", special.fim_prefix);
    read("fim_suf_token_id", special.fim_suffix);
    read("fim_mid_token_id", special.fim_middle);
    read("fim_pad_token_id", special.fim_pad);
    read("fim_rep_token_id", special.fim_repo);
    read("fim_sep_token_id", special.fim_file);
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
    if (model != "gpt2")
        throw Error(data.source + ": tokenizer.ggml.model is '" + to_valid_utf8(model.substr(0, 64)) +
                    "'; only byte-level BPE ('gpt2') is read: use a model with such a tokenizer");
    const NamedPretokenizer pre = named_pretokenizer(file.get_string_or("tokenizer.ggml.pre", "default"), data.source);
    data.pretokenizer = pre.pretokenizer;
    data.ignore_merges = pre.ignore_merges;
    read_tokens(file, data);
    if (!file.has("tokenizer.ggml.merges"))
        throw Error(data.source + ": the tokenizer has no merges (tokenizer.ggml.merges); convert the model again");
    read_merges(file, data);
    read_special(file, data);
    if (file.get_bool_or("tokenizer.ggml.add_bos_token", pre.add_bos) && data.special.bos >= 0)
        data.prefix = {data.special.bos};
    if (file.get_bool_or("tokenizer.ggml.add_eos_token", false) && data.special.eos >= 0)
        data.suffix = {data.special.eos};
    data.chat_template = file.get_string_or("tokenizer.chat_template", "");
    return Tokenizer(data);
}

}  // namespace foresay::core
