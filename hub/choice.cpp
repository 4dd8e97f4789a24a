#include "hub/choice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "hub/name.h"

namespace foresay::hub {

namespace {

// The first of these that a repository has is taken: about four bits a weight, then what is nearest to that.
constexpr std::array kPreferred = {"Q4_K_M", "Q4_0", "Q8_0",   "UD-Q4_K_XL", "Q4_K_S", "MXFP4",  "MXFP4_MOE",
                                   "Q4_K_L", "Q4_K", "IQ4_XS", "IQ4_NL",     "Q4_1",   "Q5_K_M", "Q5_0",
                                   "Q5_K_S", "Q6_K", "Q3_K_M", "BF16",       "F16",    "F32"};
constexpr std::string_view kSafetensors = "safetensors";
constexpr std::size_t kMostListed = 12;
constexpr int kMostJsonDepth = 64;

std::string upper(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
    return out;
}
std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the quantisation that begins at `at`; 0 if none does.
std::size_t quant_length(std::string_view text, std::size_t at) {
    const std::string_view rest = text.substr(at);
    const auto word = [&] {
        std::size_t end = 0;
        while (end < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[end])) != 0 || rest[end] == '_'))
            ++end;
        return end;
    };
    for (const std::string_view whole : {"BF16", "FP16", "F16", "FP32", "F32", "MXFP4_MOE", "MXFP4", "NVFP4"}) {
        if (rest.starts_with(whole) && word() == whole.size()) return whole.size();
    }
    for (const std::string_view kind : {"IQ", "TQ", "Q"}) {
        if (!rest.starts_with(kind) || rest.size() == kind.size() || !is_digit(rest[kind.size()])) continue;
        const std::size_t end = word();
        // Q8_0, Q4_K_M and Q2_0C, but not the Q4 of a name such as q4-2024, nor q3abc.
        if (end == kind.size() + 1 || rest[kind.size() + 1] == '_') return end;
    }
    return 0;
}

// "NAME-00002-of-00003.gguf" is part 2 of 3 of "NAME.gguf".
struct Part {
    std::string whole;
    int number = 1, of = 1;
};
Part part_of(const std::string& path) {
    constexpr std::size_t kTail = std::string_view("-00001-of-00003.gguf").size();
    if (path.size() <= kTail) return {path};
    const std::string tail = path.substr(path.size() - kTail);
    const auto number = [&](std::size_t begin) {
        int value = 0;
        for (std::size_t i = begin; i < begin + 5; ++i) {
            if (!is_digit(tail[i])) return -1;
            value = 10 * value + (tail[i] - '0');
        }
        return value;
    };
    const int this_one = number(1), all = number(10);
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || this_one < 1 || all < this_one) return {path};
    return {path.substr(0, path.size() - kTail) + ".gguf", this_one, all};
}

bool is_gguf_model(const std::string& path) {
    const std::string name = upper(base_name(path));
    return name.ends_with(".GGUF") && name.find("MMPROJ") == name.npos && name.find("IMATRIX") == name.npos;
}

// Configuration, tokenizer and templates: whatever the program may read of a folder, and nothing that is large.
bool is_setting(const std::string& path) {
    static const std::set<std::string> names = {"config.json",
                                                "generation_config.json",
                                                "tokenizer.json",
                                                "tokenizer_config.json",
                                                "tokenizer.model",
                                                "special_tokens_map.json",
                                                "added_tokens.json",
                                                "vocab.json",
                                                "vocab.txt",
                                                "merges.txt",
                                                "tekken.json",
                                                "chat_template.jinja",
                                                "chat_template.json",
                                                "params.json",
                                                "quantize_config.json",
                                                "quant_config.json",
                                                "hf_quant_config.json",
                                                std::string(kIndexName)};
    return names.contains(path) || (path.ends_with(".tiktoken") && path.find('/') == path.npos);
}

void add_gguf(const std::vector<HubFile>& files, std::vector<ModelFiles>& models,
              std::vector<std::string>* incomplete) {
    std::map<std::string, std::map<int, HubFile>> parts;
    std::map<std::string, int> counts;
    for (const HubFile& file : files) {
        if (!is_gguf_model(file.path)) continue;
        const Part part = part_of(file.path);
        const std::string whole = part.of == 1 ? part.whole : part.whole + "/" + std::to_string(part.of);
        parts[whole][part.number] = file;
        counts[whole] = part.of;
    }
    for (auto& [whole, numbered] : parts) {
        const std::string& first = numbered.begin()->second.path;
        if (static_cast<int>(numbered.size()) != counts[whole]) {
            if (incomplete != nullptr) {
                incomplete->push_back(first + " (" + std::to_string(numbered.size()) + " of " +
                                      std::to_string(counts[whole]) + " parts)");
            }
            continue;
        }
        ModelFiles& model = models.emplace_back();
        model.gguf = true;
        model.path = first;
        model.quant = quant_of(first);
        for (auto& [number, file] : numbered) model.files.push_back(std::move(file));
    }
    // A quantisation that two models have names neither of them.
    for (ModelFiles& model : models) {
        const auto same = std::count_if(models.begin(), models.end(),
                                        [&](const ModelFiles& other) { return other.quant == model.quant; });
        model.choice = model.quant.empty() || same > 1 ? part_of(model.path).whole : model.quant;
    }
}

void add_safetensors(const std::vector<HubFile>& files, std::vector<ModelFiles>& models) {
    ModelFiles model;
    bool config = false, weights = false;
    for (const HubFile& file : files) {
        const bool single = file.path == "model.safetensors";
        config = config || file.path == "config.json";
        weights = weights || single || file.path == kIndexName;
        if (is_setting(file.path) || single) model.files.push_back(file);
    }
    if (!config || !weights) return;
    // As core/weights reads a folder: one file counts before an index.
    const bool single = std::any_of(model.files.begin(), model.files.end(),
                                    [](const HubFile& file) { return file.path == "model.safetensors"; });
    if (single) std::erase_if(model.files, [](const HubFile& file) { return file.path == kIndexName; });
    model.choice = kSafetensors;
    models.push_back(std::move(model));
}

std::string listed(const std::vector<ModelFiles>& models) {
    std::string text;
    for (std::size_t i = 0; i < models.size(); ++i) {
        if (i == kMostListed) return text + " and " + std::to_string(models.size() - i) + " more";
        text += (i == 0 ? "" : ", ") + models[i].choice;
    }
    return text;
}

bool is_named(const ModelFiles& model, const std::string& choice) {
    const std::string wanted = upper(choice);
    const std::string file = upper(part_of(model.path).whole);
    return wanted == upper(model.choice) || (!model.quant.empty() && wanted == model.quant) ||
           (model.gguf && (wanted == file || wanted == base_name(file) || wanted == upper(model.path) ||
                           wanted == base_name(upper(model.path))));
}

// Less exact names: without the maker's mark, or with the beginning of a quantisation.
bool is_nearly_named(const ModelFiles& model, const std::string& choice) {
    const std::string wanted = upper(choice);
    if (model.quant.empty()) return false;
    return model.quant == "UD-" + wanted || model.quant.starts_with(wanted + "_") ||
           model.quant.starts_with("UD-" + wanted + "_") || model.quant == "FP" + wanted.substr(1) ||
           wanted == "FP" + model.quant.substr(1);
}

std::vector<ModelFiles> filtered(const std::vector<ModelFiles>& models, const std::string& choice,
                                 bool (*fits)(const ModelFiles&, const std::string&)) {
    std::vector<ModelFiles> out;
    std::copy_if(models.begin(), models.end(), std::back_inserter(out),
                 [&](const ModelFiles& model) { return fits(model, choice); });
    return out;
}

[[noreturn]] void refuse_several(const std::vector<ModelFiles>& models, const std::string& where,
                                 const std::string& problem) {
    throw Error(where + problem + "; name one of them after a colon: " + listed(models));
}

}  // namespace

std::int64_t ModelFiles::bytes() const {
    std::int64_t sum = 0;
    for (const HubFile& file : files) sum += file.size;
    return sum;
}

std::string quant_of(std::string_view path) {
    const std::string whole = upper(part_of(std::string(path)).whole);
    std::string_view name = base_name(whole);
    if (name.ends_with(".GGUF")) name.remove_suffix(5);
    std::string found;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool begins = i == 0 || name[i - 1] == '-' || name[i - 1] == '.' || name[i - 1] == '_';
        const std::size_t length = begins ? quant_length(name, i) : 0;
        if (length == 0) continue;
        const bool dynamic = i >= 3 && name.substr(i - 3, 3) == "UD-";
        found = (dynamic ? "UD-" : "") + std::string(name.substr(i, length));
        i += length;
    }
    if (!found.empty()) return found;
    // Q4_K_M/model-00001-of-00002.gguf
    const std::size_t slash = whole.rfind('/');
    if (slash == whole.npos) return "";
    const std::string folder(base_name(std::string_view(whole).substr(0, slash)));
    const std::size_t begin = folder.starts_with("UD-") ? 3 : 0;
    return begin + quant_length(folder, begin) == folder.size() ? folder : "";
}

std::vector<ModelFiles> models_in(const std::vector<HubFile>& files, std::vector<std::string>* incomplete) {
    std::vector<ModelFiles> models;
    add_gguf(files, models, incomplete);
    add_safetensors(files, models);
    return models;
}

ModelFiles choose(const std::vector<HubFile>& files, const std::string& choice, const std::string& where) {
    std::vector<std::string> incomplete;
    const std::vector<ModelFiles> models = models_in(files, &incomplete);
    if (models.empty()) {
        throw Error(where + " has " +
                    (incomplete.empty() ? "no GGUF file and no folder of safetensors; name another repository"
                                        : "only a part of " + incomplete.front() + "; ask its makers"));
    }
    if (!choice.empty()) {
        for (const auto& fits : {&is_named, &is_nearly_named}) {
            const std::vector<ModelFiles> found = filtered(models, choice, fits);
            if (found.size() == 1) return found.front();
            if (found.size() > 1) refuse_several(found, where, " has several models that '" + choice + "' may mean");
        }
        refuse_several(models, where, " has no '" + choice + "'");
    }
    if (models.size() == 1) return models.front();
    for (const std::string preferred : kPreferred) {
        const std::vector<ModelFiles> found = filtered(
            models, preferred, [](const ModelFiles& model, const std::string& quant) { return model.quant == quant; });
        if (found.size() == 1) return found.front();
        if (found.size() > 1) refuse_several(found, where, " has several models of " + preferred);
    }
    refuse_several(models, where, " has several models");
}

const HubFile* index_of(const ModelFiles& model) {
    const auto found = std::find_if(model.files.begin(), model.files.end(),
                                    [](const HubFile& file) { return file.path == kIndexName; });
    return model.gguf || found == model.files.end() ? nullptr : &*found;
}

void add_shards(ModelFiles& model, const std::vector<HubFile>& files, std::string_view index,
                const std::string& where) {
    const std::string name = where + ": " + std::string(kIndexName);
    using nlohmann::json;
    bool deep = false;
    const auto limit = [&](int depth, json::parse_event_t, json&) {
        deep = deep || depth > kMostJsonDepth;
        return !deep;
    };
    const json document = json::parse(index, limit, false);
    if (deep || !document.is_object() || !document.contains("weight_map") || !document["weight_map"].is_object()) {
        throw Error(name + " is not an index of safetensors; name another repository");
    }
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : document["weight_map"].items()) {
        if (!shard.is_string() || !is_safe_path(shard.get<std::string>())) {
            throw Error(name + " names a file that cannot be one; name another repository");
        }
        shards.insert(shard.get<std::string>());
    }
    for (const std::string& shard : shards) {
        const auto found =
            std::find_if(files.begin(), files.end(), [&](const HubFile& file) { return file.path == shard; });
        if (found == files.end()) throw Error(name + " names " + shard + ", which is not there");
        model.files.push_back(*found);
    }
}

}  // namespace foresay::hub
