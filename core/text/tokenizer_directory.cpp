// Tokenizers from files, and from a Hugging Face model's directory with the settings beside them.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/text/special_names.h"
#include "core/text/tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "core/text/tokenizer_ranks.h"
#include "core/text/tokenizer_sentencepiece.h"
#include "core/text/utf8.h"
#include "core/weights/json_config.h"
#include "core/weights/mapped_file.h"

namespace foresay::core {
namespace {

namespace fs = std::filesystem;

bool is_rank_file_name(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.ends_with(".tiktoken") || name == "tiktoken.model";
}

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::optional<JsonConfig> settings(const fs::path& path) {
    if (!fs::exists(path)) return std::nullopt;
    const MappedFile file(path);
    return JsonConfig::parse(text_of(file), path.string());
}

// The id of the token that member `name` of tokenizer_config.json spells, as a string or an object with `content`.
std::int32_t named_token(const JsonConfig& config, const TokenizerData& data, const std::string& name) {
    if (!config.has(name)) return -1;
    const std::string text = config.get_string(config.has(name + ".content") ? name + ".content" : name);
    const auto at = std::find(data.tokens.begin(), data.tokens.end(), text);
    return text.empty() || at == data.tokens.end() ? -1 : static_cast<std::int32_t>(at - data.tokens.begin());
}

// Configurations may keep ids of tokens that the tokenizer lacks, in the padding of the model's vocabulary; ignore
// those. Ids beyond the model's `vocabulary` are refused (0: it is not known). -1 is how some say that there is none.
std::vector<std::int32_t> ids_in(const JsonConfig& config, const std::string& name, std::int64_t vocabulary,
                                 const TokenizerData& data) {
    std::vector<std::int32_t> ids;
    if (!config.has(name)) return ids;
    for (const std::int64_t id : config.get_ints(name)) {
        if (id != -1 && vocabulary > 0) check_token_id(id, vocabulary, config.path(), name);
        if (id >= 0 && id < static_cast<std::int64_t>(data.tokens.size())) ids.push_back(static_cast<std::int32_t>(id));
    }
    return ids;
}

// The size of the model's vocabulary: what config.json states, or the tokenizer's if that is larger; 0: not known.
std::int64_t stated_vocabulary(const std::optional<JsonConfig>& config, const TokenizerData& data) {
    if (!config || !config->has("vocab_size")) return 0;
    return std::max(config->get_int("vocab_size"), static_cast<std::int64_t>(data.tokens.size()));
}

void read_tokenizer_config(const JsonConfig& config, TokenizerData& data) {
    const auto take = [&](const char* name, std::int32_t& id) {
        const std::int32_t named = named_token(config, data, name);
        if (named >= 0) id = named;
    };
    take("bos_token", data.special.bos);
    take("eos_token", data.special.eos);
    take("pad_token", data.special.pad);
    const auto adjust = [](std::vector<std::int32_t>& added, std::int32_t id, bool wanted) {
        if (wanted && added.empty() && id >= 0) added = {id};
        if (!wanted && added.size() == 1 && added.front() == id) added.clear();
    };
    if (config.has("add_bos_token")) adjust(data.prefix, data.special.bos, config.get_bool("add_bos_token"));
    if (config.has("add_eos_token")) adjust(data.suffix, data.special.eos, config.get_bool("add_eos_token"));
}

// Reads the member 'chat_template' of a file: the text of a template, or a list of named ones.
void read_chat_templates(const fs::path& path, TokenizerData& data) {
    if (!settings(path)) return;  // which also checks that it is an object and not too deep
    const MappedFile file(path);
    const nlohmann::json document = nlohmann::json::parse(text_of(file), nullptr, false);
    const auto found = document.find("chat_template");
    if (found == document.end() || found->is_null()) return;
    const auto refuse = [&](const std::string& what) {
        throw Error(path.string() + ": chat_template " + what + "; get the model's " + path.filename().string() +
                    " again, or name a template with chat.template");
    };
    if (found->is_string()) return data.set_chat_template("default", found->get<std::string>());
    if (!found->is_array()) refuse("must be a text or a list of named templates");
    for (const nlohmann::json& one : *found) {
        const auto text = [&](const char* member) {
            const auto at = one.is_object() ? one.find(member) : one.end();
            if (!one.is_object() || at == one.end() || !at->is_string())
                refuse("holds something without the texts 'name' and 'template'");
            return at->get<std::string>();
        };
        data.set_chat_template(text("name"), text("template"));
    }
}

// The templates of a directory. What a later file says replaces what an earlier one does, as transformers has it.
void read_chat_templates_of(const fs::path& directory, TokenizerData& data) {
    for (const char* name : {"chat_template.json", "tokenizer_config.json"})
        read_chat_templates(directory / name, data);
    const auto take = [&](const std::string& name, const fs::path& path) {
        const MappedFile file(path);
        data.set_chat_template(name, std::string(text_of(file)));
    };
    std::error_code ignored;
    if (fs::exists(directory / "chat_template.jinja", ignored)) take("default", directory / "chat_template.jinja");
    for (const auto& entry : fs::directory_iterator(directory / "additional_chat_templates", ignored)) {
        if (entry.path().extension() == ".jinja") take(entry.path().stem().string(), entry.path());
    }
}

// The file of a directory that holds its tokenizer; empty when there is none.
fs::path tokenizer_file(const fs::path& directory) {
    std::error_code ignored;
    for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"})
        if (fs::exists(directory / name, ignored)) return directory / name;
    std::vector<fs::path> others;
    for (const auto& entry : fs::directory_iterator(directory, ignored))
        if (is_rank_file_name(entry.path())) others.push_back(entry.path());
    return others.empty() ? fs::path() : *std::min_element(others.begin(), others.end());
}

// A token that the tokenizer_config.json beside a tokenizer adds to it.
struct AddedToken {
    AddedTokenRule rule;
    std::string text;
    bool special = false;
};

// Reads 'added_tokens_decoder' of the tokenizer_config.json beside `tokenizer`.
std::vector<AddedToken> added_tokens(const fs::path& tokenizer) {
    std::vector<AddedToken> out;
    const fs::path path = tokenizer.parent_path() / "tokenizer_config.json";
    if (!settings(path)) return out;  // which also checks that it is an object and not too deep
    const MappedFile file(path);
    const nlohmann::json document = nlohmann::json::parse(text_of(file), nullptr, false);
    const auto refuse = [&](const std::string& what) {
        throw Error(path.string() + ": " + what +
                    " in added_tokens_decoder; get the model's tokenizer_config.json again");
    };
    const auto added = document.find("added_tokens_decoder");
    if (added == document.end() || added->is_null()) return out;
    if (!added->is_object()) refuse("there is no object");
    for (const auto& [name, token] : added->items()) {
        AddedToken one;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), one.rule.id);
        if (error != std::errc() || end != name.data() + name.size())
            refuse("'" + name.substr(0, 64) + "' is no token id");
        if (!token.is_object() || !token.contains("content") || !token["content"].is_string())
            refuse("token " + name + " has no content");
        one.text = token["content"].get<std::string>();
        const auto flag = [&token = token](const char* member) {
            const auto at = token.find(member);
            return at != token.end() && at->is_boolean() && at->get<bool>();
        };
        one.special = flag("special");
        one.rule.left_strip = flag("lstrip");
        one.rule.right_strip = flag("rstrip");
        one.rule.single_word = flag("single_word");
        out.push_back(std::move(one));
    }
    return out;
}

// What the tokenizer_config.json beside a rank file says about it.
RankFileSettings rank_file_settings(const fs::path& ranks) {
    RankFileSettings out;
    const auto config = settings(ranks.parent_path() / "tokenizer_config.json");
    if (config) out.pattern = config->get_string_or("pattern", "");
    for (AddedToken& token : added_tokens(ranks)) out.special.push_back({token.rule.id, std::move(token.text)});
    return out;
}

// Adds to a SentencePiece model the tokens that a fine-tuned model has after those of the model.
TokenizerData with_added_tokens(TokenizerData data, const fs::path& path) {
    const std::size_t most = data.tokens.size() * 2 + 4096;
    for (AddedToken& token : added_tokens(path)) {
        const std::int32_t id = token.rule.id;
        if (id < 0 || static_cast<std::size_t>(id) >= most || token.text.empty())
            throw Error(path.string() + ": the tokenizer_config.json beside it adds '" +
                        to_valid_utf8(token.text.substr(0, 64)) + "' as token " + std::to_string(id) +
                        ", which cannot be; get the model's tokenizer_config.json again");
        const auto at = static_cast<std::size_t>(id);
        if (at < data.tokens.size() && !data.tokens[at].empty()) continue;  // a piece of the model
        if (at >= data.tokens.size()) {
            data.tokens.resize(at + 1);
            data.types.resize(at + 1, TokenType::unused);
            if (data.model == TokenModel::unigram) data.scores.resize(at + 1, 0.0);
        }
        data.tokens[at] = data.keep(std::move(token.text));
        data.types[at] = token.special ? TokenType::control : TokenType::user_defined;
        data.added_rules.push_back(token.rule);
    }
    return data;
}

TokenizerData parse(const fs::path& path, std::string_view text) {
    if (is_tekken(text)) return parse_tekken(text, path.string());
    if (text.starts_with('{') || path.extension() == ".json") return parse_tokenizer_json(text, path.string());
    if (is_tiktoken(text) || is_rank_file_name(path))
        return parse_tiktoken(text, rank_file_settings(path), path.string());
    return with_added_tokens(parse_sentencepiece(text, path.string()), path);
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, std::string path) {
    return Tokenizer(parse_tokenizer_json(json, std::move(path)));
}

Tokenizer Tokenizer::from_json(const fs::path& path) {
    const MappedFile file(path);
    return from_json(text_of(file), path.string());
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view model, std::string path) {
    return Tokenizer(parse_sentencepiece(model, std::move(path)));
}

Tokenizer Tokenizer::from_tekken(std::string_view json, std::string path) {
    return Tokenizer(parse_tekken(json, std::move(path)));
}

Tokenizer Tokenizer::from_tiktoken(std::string_view ranks, std::string path) {
    return Tokenizer(parse_tiktoken(ranks, {}, std::move(path)));
}

bool Tokenizer::has_tokenizer(const fs::path& directory) { return !tokenizer_file(directory).empty(); }

Tokenizer Tokenizer::from_directory(const fs::path& directory) {
    const fs::path path = tokenizer_file(directory);
    if (path.empty())
        throw Error(directory.string() +
                    ": the model has no tokenizer.json, tekken.json, tokenizer.model or .tiktoken " +
                    "file, so text cannot be turned into tokens; put the model's tokenizer.json there");
    return from_file(path);
}

Tokenizer Tokenizer::from_file(const fs::path& path) {
    const fs::path directory = path.parent_path();
    const auto beside = [&](const char* name) { return settings(directory / name); };
    const auto tokenizer_config = beside("tokenizer_config.json");
    const MappedFile file(path);
    TokenizerData data = parse(path, text_of(file));
    if (tokenizer_config) read_tokenizer_config(*tokenizer_config, data);
    const std::int64_t vocabulary = stated_vocabulary(beside("config.json"), data);
    for (const char* name : {"generation_config.json", "config.json"}) {
        const auto config = beside(name);
        if (!config) continue;
        const std::vector<std::int32_t> bos = ids_in(*config, "bos_token_id", vocabulary, data);
        const std::vector<std::int32_t> eos = ids_in(*config, "eos_token_id", vocabulary, data);
        if (data.special.bos < 0 && !bos.empty()) data.special.bos = bos.front();
        if (data.special.eos < 0 && !eos.empty()) data.special.eos = eos.front();
        data.end_of_text.insert(data.end_of_text.end(), eos.begin(), eos.end());
    }
    read_chat_templates_of(directory, data);
    return Tokenizer(data);
}

}  // namespace foresay::core
