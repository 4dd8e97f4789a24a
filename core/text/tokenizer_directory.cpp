// Tokenizers from a Hugging Face model's directory: tokenizer.json and the settings beside it.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "core/text/special_names.h"
#include "core/text/tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "core/weights/json_config.h"
#include "core/weights/mapped_file.h"

namespace foresay::core {
namespace {

namespace fs = std::filesystem;

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
    // Some models have a list of named templates instead. Those are ignored: the user chooses a format by name.
    if (config.has("chat_template") && !config.is_array("chat_template"))
        data.chat_template = config.get_string("chat_template");
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, std::string path) {
    return Tokenizer(parse_tokenizer_json(json, std::move(path)));
}

Tokenizer Tokenizer::from_json(const fs::path& path) {
    const MappedFile file(path);
    return from_json(text_of(file), path.string());
}

Tokenizer Tokenizer::from_directory(const fs::path& directory) {
    const fs::path path = directory / "tokenizer.json";
    if (!fs::exists(path))
        throw Error(directory.string() + ": the model has no tokenizer.json, so text cannot be turned into tokens; " +
                    "put the model's tokenizer.json there");
    const MappedFile file(path);
    TokenizerData data = parse_tokenizer_json(text_of(file), path.string());
    if (const auto config = settings(directory / "tokenizer_config.json")) read_tokenizer_config(*config, data);
    const std::int64_t vocabulary = stated_vocabulary(settings(directory / "config.json"), data);
    for (const char* name : {"generation_config.json", "config.json"}) {
        const auto config = settings(directory / name);
        if (!config) continue;
        const std::vector<std::int32_t> bos = ids_in(*config, "bos_token_id", vocabulary, data);
        const std::vector<std::int32_t> eos = ids_in(*config, "eos_token_id", vocabulary, data);
        if (data.special.bos < 0 && !bos.empty()) data.special.bos = bos.front();
        if (data.special.eos < 0 && !eos.empty()) data.special.eos = eos.front();
        data.end_of_text.insert(data.end_of_text.end(), eos.begin(), eos.end());
    }
    if (data.chat_template.empty() && fs::exists(directory / "chat_template.jinja")) {
        const MappedFile chat(directory / "chat_template.jinja");
        data.chat_template = text_of(chat);
    }
    return Tokenizer(data);
}

}  // namespace foresay::core
