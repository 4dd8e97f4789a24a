#include "app/sampler_import.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"

namespace foresay::app {
namespace {

using Json = nlohmann::json;
using Settings = std::map<std::string, Json>;

// A name that others have for a parameter; several names of one parameter follow one another.
struct Alias {
    std::string_view name, stage, parameter;
};
constexpr Alias kAliases[] = {
    {"temperature", "temperature", "value"},
    {"temp", "temperature", "value"},
    {"top_k", "top_k", "k"},
    {"top_p", "top_p", "p"},
    {"min_p", "min_p", "p"},
    {"top_a", "top_a", "a"},
    {"typical_p", "typical", "p"},
    {"typical", "typical", "p"},
    {"typ_p", "typical", "p"},
    {"tfs_z", "tfs", "z"},
    {"tfs", "tfs", "z"},
    {"top_n_sigma", "top_n_sigma", "n"},
    {"top_nsigma", "top_n_sigma", "n"},
    {"epsilon_cutoff", "epsilon_cutoff", "epsilon"},
    {"eta_cutoff", "eta_cutoff", "eta"},
    {"xtc_probability", "xtc", "probability"},
    {"xtc_threshold", "xtc", "threshold"},
    {"repeat_penalty", "penalties", "repeat"},
    {"repetition_penalty", "penalties", "repeat"},
    {"token_repetition_penalty", "penalties", "repeat"},
    {"frequency_penalty", "penalties", "frequency"},
    {"token_frequency_penalty", "penalties", "frequency"},
    {"presence_penalty", "penalties", "presence"},
    {"token_presence_penalty", "penalties", "presence"},
    {"repeat_last_n", "penalties", "window"},
    {"penalty_last_n", "penalties", "window"},
    {"penalty_range", "penalties", "window"},
    {"token_repetition_range", "penalties", "window"},
    {"dry_multiplier", "dry", "multiplier"},
    {"dry_base", "dry", "base"},
    {"dry_allowed_length", "dry", "allowed_length"},
    {"dry_penalty_last_n", "dry", "window"},
    {"dry_range", "dry", "window"},
    {"dry_sequence_breakers", "dry", "breakers"},
    {"dry_sequence_breaker", "dry", "breakers"},
    {"mirostat_tau", "mirostat", "tau"},
    {"mirostat_ent", "mirostat", "tau"},
    {"mirostat_eta", "mirostat", "eta"},
    {"mirostat_lr", "mirostat", "eta"},
    {"dynatemp_exponent", "dynatemp", "exponent"},
    {"dynatemp_exp", "dynatemp", "exponent"},
    {"temp_exponent", "dynatemp", "exponent"},
    {"min_temp", "dynatemp", "min"},
    {"max_temp", "dynatemp", "max"},
    {"smoothing_factor", "smoothing", "factor"},
    {"smoothing_curve", "smoothing", "curve"},
    {"skew", "skew", "skew"},
    {"adaptive_target", "adaptive_p", "target"},
    {"adaptive_decay", "adaptive_p", "decay"},
    {"no_repeat_ngram_size", "no_repeat_ngram", "size"},
    {"min_tokens", "min_length", "tokens"},
};
constexpr std::string_view kOthers[] = {"samplers", "sampler_seq", "sampling_seq",   "mirostat",        "mirostat_mode",
                                        "seed",     "s",           "dynatemp_range", "temperature_last"};
// Values with which a stage does nothing, by its first parameter that has one.
struct Neutral {
    std::string_view stage, parameter;
    double value;
};
constexpr Neutral kNeutral[] = {{"typical", "p", 1.0},         {"tfs", "z", 1.0},
                                {"top_a", "a", 0.0},           {"top_n_sigma", "n", 0.0},
                                {"min_p", "p", 0.0},           {"top_p", "p", 1.0},
                                {"top_k", "k", 0.0},           {"xtc", "probability", 0.0},
                                {"dry", "multiplier", 0.0},    {"epsilon_cutoff", "epsilon", 0.0},
                                {"eta_cutoff", "eta", 0.0},    {"skew", "skew", 0.0},
                                {"smoothing", "factor", 0.0},  {"no_repeat_ngram", "size", 0.0},
                                {"min_length", "tokens", 0.0}, {"temperature", "value", 1.0},
                                {"adaptive_p", "target", -1.0}};
constexpr std::string_view kWhole[] = {"k", "window", "allowed_length", "size", "tokens"};

constexpr std::string_view kLlamaOrder[] = {
    "min_length",  "no_repeat_ngram", "penalties", "dry",   "top_n_sigma",    "top_k",      "tfs",
    "typical",     "top_p",           "top_a",     "min_p", "epsilon_cutoff", "eta_cutoff", "xtc",
    "temperature", "dynatemp",        "smoothing", "skew",  "adaptive_p"};
// ExLlamaV2 divides by the temperature first, unless it is to come last.
constexpr std::string_view kExllamaOrder[] = {
    "min_length", "no_repeat_ngram", "penalties", "dry",     "smoothing", "temperature", "top_k",    "top_p",
    "top_a",      "min_p",           "tfs",       "typical", "xtc",       "mirostat",    "dynatemp", "skew"};
struct Letter {
    char letter;
    std::string_view stage;
};
constexpr Letter kLetters[] = {{'e', "penalties"},   {'d', "dry"},       {'s', "top_n_sigma"}, {'k', "top_k"},
                               {'y', "typical"},     {'p', "top_p"},     {'m', "min_p"},       {'x', "xtc"},
                               {'t', "temperature"}, {'a', "adaptive_p"}};

std::string normal(std::string_view name) {
    while (name.starts_with('-')) name.remove_prefix(1);
    std::string out;
    for (const char c : name) out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

Json value_of(std::string_view text) {
    Json value = Json::parse(text, nullptr, false);
    return value.is_discarded() ? Json(std::string(text)) : value;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    return text;
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    char quote = 0;
    bool open = false;
    for (const char c : text) {
        if (quote != 0 ? c == quote : c == '"' || c == '\'') {
            quote = quote != 0 ? 0 : c;
            if (!open) words.emplace_back();
            open = true;
        } else if (quote == 0 && (std::isspace(static_cast<unsigned char>(c)) || c == '\\')) {
            open = false;
        } else {
            if (!open) words.emplace_back();
            open = true;
            words.back() += c;
        }
    }
    return words;
}

Settings read_command_line(std::string_view text) {
    Settings settings;
    const std::vector<std::string> words = words_of(text);
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool is_option =
            words[i].size() > 1 && words[i][0] == '-' && !std::isdigit(static_cast<unsigned char>(words[i][1]));
        if (!is_option) continue;  // the program, or the value of an option without a name here
        const auto equals = words[i].find('=');
        const std::string name = normal(std::string_view(words[i]).substr(0, equals));
        std::string value = equals != std::string::npos ? words[i].substr(equals + 1) : "";
        if (equals == std::string::npos && i + 1 < words.size()) {
            const std::string& next = words[i + 1];
            const bool is_value = next.empty() || next[0] != '-' ||
                                  (next.size() > 1 && std::isdigit(static_cast<unsigned char>(next[1])));
            if (is_value) value = words[++i];
        }
        if (name == "dry_sequence_breaker") {  // may come again
            Json& list = settings[name];
            if (!list.is_array()) list = Json::array();
            if (value != "none") list.push_back(value);
        } else {
            settings[name] = value_of(value);
        }
    }
    return settings;
}

Settings read_lines(std::string_view text) {
    Settings settings;
    int number = 0;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        std::string_view line = trimmed(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.empty() || line.front() == '#' || line == "---") continue;
        const auto at = line.find_first_of(":=");
        if (at == std::string_view::npos)
            throw Error("line " + std::to_string(number) + " has neither ':' nor '='; give KEY: VALUE");
        std::string_view value = trimmed(line.substr(at + 1));
        if (const auto comment = value.find(" #"); comment != std::string_view::npos)
            value = trimmed(value.substr(0, comment));
        settings[normal(trimmed(line.substr(0, at)))] = value_of(value);
    }
    return settings;
}

Settings read_json(std::string_view text) {
    Json document = Json::parse(text, nullptr, false);
    if (!document.is_object()) throw Error("the text begins as a JSON object and is none");
    // What llama-server tells under /props, and the requests of clients that nest them.
    for (const char* inner : {"default_generation_settings", "params"}) {
        if (document.contains(inner) && document[inner].is_object()) document = Json(document[inner]);
    }
    Settings settings;
    for (const auto& [name, value] : document.items()) {
        if (!value.is_null()) settings[normal(name)] = value;
    }
    return settings;
}

const Alias* find_alias(std::string_view name) {
    const auto found = std::ranges::find(kAliases, name, &Alias::name);
    return found != std::end(kAliases) ? found : nullptr;
}

double number_of(const std::string& name, const Json& value) {
    if (value.is_number()) return value.get<double>();
    if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
    throw Error("'" + name + "' must be a number");
}

// The stage that an order names.
std::string stage_of(const std::string& name) {
    std::string known = normal(name);
    if (known == "penalty" || known == "repeat") known = "penalties";
    if (const Alias* alias = find_alias(known)) return std::string(alias->stage);
    if (std::ranges::find(kAliases, known, &Alias::stage) != std::end(kAliases)) return known;
    throw Error("the order names the sampler '" + name + "', which is unknown here");
}

std::vector<std::string> order_of(const Settings& settings, SamplerDialect dialect) {
    std::vector<std::string> order;
    const auto add = [&](const std::string& name) {
        const std::string normal_name = normal(name);
        if (normal_name == "infill" || name.empty()) return;
        const std::string stage = stage_of(name);
        if (std::ranges::find(order, stage) == order.end()) order.push_back(stage);
    };
    if (const auto list = settings.find("samplers"); list != settings.end() && list->second.is_array()) {
        for (const Json& name : list->second) add(name.is_string() ? name.get<std::string>() : name.dump());
        return order;
    } else if (list != settings.end()) {
        const std::string text = list->second.is_string() ? list->second.get<std::string>() : list->second.dump();
        for (std::size_t begin = 0; begin <= text.size();) {
            const std::size_t end = std::min(text.find(';', begin), text.size());
            add(text.substr(begin, end - begin));
            begin = end + 1;
        }
        return order;
    }
    for (const char* name : {"sampler_seq", "sampling_seq"}) {
        const auto letters = settings.find(name);
        if (letters == settings.end() || !letters->second.is_string()) continue;
        for (const char letter : letters->second.get<std::string>()) {
            const auto found = std::ranges::find(kLetters, letter, &Letter::letter);
            if (found == std::end(kLetters))
                throw Error(std::string("the order '") + letters->second.get<std::string>() + "' has the letter '" +
                            letter + "', which is unknown here");
            add(std::string(found->stage));
        }
        return order;
    }
    const std::span<const std::string_view> usual =
        dialect == SamplerDialect::llama ? std::span<const std::string_view>(kLlamaOrder) : kExllamaOrder;
    order.assign(usual.begin(), usual.end());
    const auto last = settings.find("temperature_last");
    if (last != settings.end() && number_of("temperature_last", last->second) != 0.0) {
        std::erase(order, "temperature");
        order.emplace_back("temperature");
    }
    return order;
}

}  // namespace

ImportedSamplers import_samplers(std::string_view text, SamplerDialect dialect) {
    const std::string_view begin = trimmed(text);
    if (begin.empty()) throw Error("there are no settings: the text is empty");
    const bool options = begin.front() == '-' || begin.find(" -") != std::string_view::npos;
    const Settings settings = begin.front() == '{' ? read_json(begin)
                              : options            ? read_command_line(begin)
                                                   : read_lines(begin);
    const bool llama = dialect == SamplerDialect::llama;
    // By stage: parameters with their values.
    std::map<std::string, std::map<std::string, Json>> stages;
    if (llama) {
        stages["temperature"]["value"] = 0.8;
        stages["top_k"]["k"] = 40;
        stages["top_p"]["p"] = 0.95;
        stages["min_p"]["p"] = 0.05;
    } else {
        stages["temperature"]["value"] = 0.8;
        stages["top_k"]["k"] = 50;
        stages["top_p"]["p"] = 0.8;
        stages["penalties"]["repeat"] = 1.025;
        stages["penalties"]["window"] = -1;
    }
    ImportedSamplers result;
    std::optional<std::int64_t> seed;
    for (const auto& [name, value] : settings) {
        if (name == "seed" || name == "s") {
            if (number_of(name, value) >= 0.0) seed = value.get<std::int64_t>();
            continue;
        }
        const Alias* alias = find_alias(name);
        if (alias == nullptr) {
            if (std::ranges::find(kOthers, name) == std::end(kOthers)) result.left_out.push_back(name);
            continue;
        }
        Json& parameter = stages[std::string(alias->stage)][std::string(alias->parameter)];
        if (alias->parameter == "breakers") {
            if (!value.is_array()) throw Error("'" + name + "' must be a list of texts");
            parameter = value;
            continue;
        }
        double number = number_of(name, value);
        // What ExLlama writes for "off", and both for "all of the text".
        if (!llama && number == 0.0 && (alias->stage == "typical" || alias->stage == "tfs" || name == "top_p"))
            number = 1.0;
        if (alias->stage == "top_n_sigma") number = std::max(number, 0.0);
        const bool whole = std::ranges::find(kWhole, alias->parameter) != std::end(kWhole);
        if (whole) {
            parameter = static_cast<std::int64_t>(number);
        } else {
            parameter = number;
        }
    }
    for (const char* stage : {"penalties", "dry"}) {
        const auto window = stages[stage].find("window");
        if (window == stages[stage].end()) continue;
        const bool all = window->second.get<std::int64_t>() < 0 || (!llama && window->second.get<std::int64_t>() == 0);
        if (all) window->second = std::int64_t{1048576};
    }
    std::vector<std::string> order = order_of(settings, dialect);
    // A range of temperatures.
    const double heat = stages["temperature"]["value"].is_null() ? 1.0 : stages["temperature"]["value"].get<double>();
    double range = 0.0;
    if (const auto found = settings.find("dynatemp_range"); found != settings.end())
        range = number_of("dynatemp_range", found->second);
    auto& dynamic = stages["dynatemp"];
    if (range > 0.0 && heat > 0.0) {
        dynamic["min"] = std::max(heat - range, 0.01);
        dynamic["max"] = heat + range;
        std::ranges::replace(order, "temperature", "dynatemp");
        stages.erase("temperature");
    } else if (const auto most = dynamic.find("max");
               most == dynamic.end() || most->second.get<double>() <= dynamic["min"].get<double>()) {
        std::erase(order, "dynatemp");
    }
    int mirostat = 0;
    for (const char* name : {"mirostat", "mirostat_mode"}) {
        const auto found = settings.find(name);
        if (found == settings.end()) continue;
        mirostat = static_cast<int>(number_of(name, found->second));
        if (!llama && mirostat == 1) mirostat = 2;  // ExLlama's switch
        if (mirostat < 0 || mirostat > 2) throw Error("'" + std::string(name) + "' must be 0, 1 or 2");
    }
    std::erase(order, "mirostat");
    if (mirostat > 0) {
        const std::string stage = mirostat == 1 ? "mirostat_1" : "mirostat";
        if (llama) order = {range > 0.0 ? "dynatemp" : "temperature"};
        if (mirostat == 1) stages[stage] = stages["mirostat"];
        order.push_back(stage);
    }
    std::erase_if(order, [&](const std::string& stage) {
        if (stage.starts_with("mirostat")) return false;
        const auto& parameters = stages[stage];
        if (parameters.empty()) return true;
        const auto neutral = std::ranges::find(kNeutral, stage, &Neutral::stage);
        if (neutral == std::end(kNeutral)) return false;
        const auto value = parameters.find(std::string(neutral->parameter));
        return value == parameters.end() || value->second.get<double>() == neutral->value;
    });
    std::ranges::sort(order, {}, [&](const std::string& stage) { return stage == "adaptive_p" ? 1 : 0; });
    result.toml = "[sampling]\n";
    if (seed) result.toml += "seed = " + std::to_string(*seed) + "\n";
    result.toml += "chain = " + Json(order).dump() + "\n";
    for (const std::string& stage : order) {
        if (stages[stage].empty()) continue;
        result.toml += "\n[sampling." + stage + "]\n";
        for (const auto& [parameter, value] : stages[stage]) result.toml += parameter + " = " + value.dump() + "\n";
    }
    return result;
}

}  // namespace foresay::app
