// Tokenizers from `tokenizer.ggml.*` of a GGUF file.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "core/text/special_names.h"
#include "core/text/tokenizer.h"
#include "core/text/utf8.h"
#include "core/weights/gguf.h"

namespace foresay::core {
namespace {

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::size_t kMaxPieceBytes = 256;  // of a SentencePiece token; every place to cut it is tried
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

// Reads the tokens put around a text, and the chat template.
void read_text_rules(const GgufFile& file, bool add_bos, TokenizerData& data) {
    if (file.get_bool_or("tokenizer.ggml.add_bos_token", add_bos) && data.special.bos >= 0)
        data.prefix = {data.special.bos};
    if (file.get_bool_or("tokenizer.ggml.add_eos_token", false) && data.special.eos >= 0)
        data.suffix = {data.special.eos};
    data.chat_template = file.get_string_or("tokenizer.chat_template", "");
}

// SentencePiece files have no list of merges: any two neighbours whose texts together are a token merge, best score
// first.
void make_merges(const std::vector<float>& scores, TokenizerData& data) {
    std::unordered_set<std::string_view> normal;
    std::vector<std::uint32_t> by_score;
    for (std::uint32_t id = 0; id < data.tokens.size(); ++id) {
        if (data.types[id] != TokenType::normal) continue;
        if (data.tokens[id].size() > kMaxPieceBytes)
            throw Error(data.source + ": token " + std::to_string(id) + " is " +
                        std::to_string(data.tokens[id].size()) + " bytes long; get or convert the model again");
        normal.insert(data.tokens[id]);
        by_score.push_back(id);
    }
    // NaN ranks last.
    const auto score = [&](std::uint32_t id) {
        return std::isnan(scores[id]) ? -std::numeric_limits<float>::infinity() : scores[id];
    };
    std::stable_sort(by_score.begin(), by_score.end(), [&](auto a, auto b) { return score(a) > score(b); });
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < by_score.size(); ++i) {
        if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
        const std::string_view token = data.tokens[by_score[i]];
        for (std::size_t cut = 1; cut < token.size(); ++cut) {
            if ((static_cast<unsigned char>(token[cut]) & 0xc0) == 0x80) continue;  // inside a character
            if (!normal.contains(token.substr(0, cut)) || !normal.contains(token.substr(cut))) continue;
            data.merges.push_back({token.substr(0, cut), token.substr(cut)});
            data.ranks.push_back(rank);
        }
    }
}

Tokenizer from_sentencepiece(const GgufFile& file, TokenizerData data) {
    data.spelling = Spelling::sentencepiece;
    data.pretokenizer.name = "sentencepiece";
    read_tokens(file, data);
    const std::vector<float> scores = file.get_floats("tokenizer.ggml.scores");
    if (scores.size() != data.tokens.size())
        throw Error(data.source + ": tokenizer.ggml.scores has " + std::to_string(scores.size()) + " entries for " +
                    std::to_string(data.tokens.size()) + " tokens; convert the model again");
    make_merges(scores, data);
    read_special(file, data);
    data.prefix_space = file.get_bool_or("tokenizer.ggml.add_space_prefix", true);
    read_text_rules(file, true, data);
    return Tokenizer(data);
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
    if (model == "llama") return from_sentencepiece(file, std::move(data));
    if (model != "gpt2")
        throw Error(
            data.source + ": tokenizer.ggml.model is '" + to_valid_utf8(model.substr(0, 64)) +
            "'; only byte-level BPE ('gpt2') and SentencePiece BPE ('llama') are read: use a model with such a " +
            "tokenizer");
    const NamedPretokenizer pre = named_pretokenizer(file.get_string_or("tokenizer.ggml.pre", "default"), data.source);
    data.pretokenizer = pre.pretokenizer;
    data.ignore_merges = pre.ignore_merges;
    read_tokens(file, data);
    if (!file.has("tokenizer.ggml.merges"))
        throw Error(data.source + ": the tokenizer has no merges (tokenizer.ggml.merges); convert the model again");
    read_merges(file, data);
    read_special(file, data);
    read_text_rules(file, pre.add_bos, data);
    return Tokenizer(data);
}

}  // namespace foresay::core
