#include "app/sampler_import.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/split.h"
#include "samplers/stage.h"

namespace foresay::app {
namespace {

using Json = nlohmann::json;
using Settings = std::map<std::string, Json>;

// A name that others have for a parameter.
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
    {"xtc_probability", "xtc", "probability"},
    {"xtc_threshold", "xtc", "threshold"},
    {"repeat_penalty", "penalties", "repeat"},
    {"repetition_penalty", "penalties", "repeat"},
    {"token_repetition_penalty", "penalties", "repeat"},
    {"rep_pen", "penalties", "repeat"},
    {"rep_p", "penalties", "repeat"},
    {"frequency_penalty", "penalties", "frequency"},
    {"token_frequency_penalty", "penalties", "frequency"},
    {"freq_p", "penalties", "frequency"},
    {"presence_penalty", "penalties", "presence"},
    {"token_presence_penalty", "penalties", "presence"},
    {"pres_p", "penalties", "presence"},
    {"repeat_last_n", "penalties", "window"},
    {"penalty_range", "penalties", "window"},
    {"repetition_range", "penalties", "window"},
    {"repetition_penalty_range", "penalties", "window"},
    {"rep_pen_range", "penalties", "window"},
    {"token_repetition_range", "penalties", "window"},
    {"rep_sustain_range", "penalties", "window"},
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
    {"dynatemp_low", "dynatemp", "min"},
    {"max_temp", "dynatemp", "max"},
    {"dynatemp_high", "dynatemp", "max"},
    {"smoothing_factor", "smoothing", "factor"},
    {"skew", "skew", "skew"},
    {"adaptive_target", "adaptive_p", "target"},
    {"adaptive_decay", "adaptive_p", "decay"},
    {"min_tokens", "min_length", "tokens"},
    {"min_length", "min_length", "tokens"},
};

// What a stage's own parameter says when it does nothing.
struct Neutral {
    std::string_view stage, parameter;
    double value;
};
constexpr Neutral kNeutral[] = {{"typical", "p", 1.0},         {"tfs", "z", 1.0},
                                {"top_a", "a", 0.0},           {"top_n_sigma", "n", 0.0},
                                {"min_p", "p", 0.0},           {"top_p", "p", 1.0},
                                {"top_k", "k", 0.0},           {"xtc", "probability", 0.0},
                                {"dry", "multiplier", 0.0},    {"skew", "skew", 0.0},
                                {"smoothing", "factor", 0.0},  {"min_length", "tokens", 0.0},
                                {"temperature", "value", 1.0}, {"adaptive_p", "target", -1.0}};

// Read by name below.
constexpr std::string_view kOthers[] = {"samplers", "sampler_seq",    "sampling_seq",     "mirostat",  "mirostat_mode",
                                        "seed",     "dynatemp_range", "temperature_last", "temp_last", "logit_bias"};
// Others shape what is sampled, too, and have no stage here, or another way in.
struct Foreign {
    std::string_view name, why;
    double off;  // the value that does nothing
};
constexpr Foreign kForeign[] = {
    {"token_repetition_decay", "penalties here end with their window, without a decay", 0.0},
    {"repetition_decay", "penalties here end with their window, without a decay", 0.0},
    {"rep_decay_range", "penalties here end with their window, without a decay", 0.0},
    {"min_keep", "stages here keep one token at least", 0.0},
    {"cfg_scale", "there is no guidance by a second prompt", 1.0},
    {"guidance_scale", "there is no guidance by a second prompt", 1.0},
    {"dry_max_ngram", "repetitions of any length count", 20.0},
    {"ignore_eos", "an answer ends with the model's end token", 0.0},
    {"ban_eos_token", "an answer ends with the model's end token", 0.0},
    {"grammar", "use --grammar FILE or [sampling.grammar]", 0.0},
    {"grammar_string", "use --grammar FILE or [sampling.grammar]", 0.0},
    {"json_schema", "use --json-schema FILE or [sampling.grammar]", 0.0},
    {"regex_pattern", "use [sampling.grammar]", 0.0},
    {"banned_strings", "use the plugin wordlist", 0.0},
    {"banned_tokens", "use [sampling.logit_bias] with -inf", 0.0},
    {"allowed_tokens", "use [sampling.grammar]", 0.0},
    {"backend_sampling", "where samplers run is the program's choice here", 0.0},
};
constexpr std::string_view kWhole[] = {"k", "window", "allowed_length", "tokens"};

constexpr std::string_view kLlamaOrder[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typical",
                                            "top_p",     "min_p", "xtc",         "temperature"};
constexpr std::string_view kExllama2Order[] = {"min_length", "penalties", "dry",      "smoothing", "temperature",
                                               "top_k",      "top_p",     "top_a",    "min_p",     "tfs",
                                               "typical",    "xtc",       "mirostat", "dynatemp",  "skew"};
constexpr std::string_view kExllama3Order[] = {"penalties", "temperature", "min_p", "top_k", "top_p", "adaptive_p"};
struct Letter {
    char letter;
    std::string_view stage;
};
constexpr Letter kLetters[] = {{'e', "penalties"},   {'d', "dry"},        {'s', "top_n_sigma"}, {'k', "top_k"},
                               {'y', "typical"},     {'p', "top_p"},      {'m', "min_p"},       {'x', "xtc"},
                               {'t', "temperature"}, {'a', "adaptive_p"}, {'i', "infill"}};

constexpr std::int64_t kWholeText = 1048576;  // of a window

std::string normal(std::string_view name) {
    while (name.starts_with('-')) name.remove_prefix(1);
    std::string out;
    for (const char c : name) out += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

Json value_of(std::string_view text) {
    if (text == "~" || text.empty()) return nullptr;
    if (text == "True" || text == "on") return true;
    if (text == "False" || text == "off") return false;
    if (text.size() > 1 && text.front() == '\'' && text.back() == '\'')
        return std::string(text.substr(1, text.size() - 2));
    Json value = Json::parse(text, nullptr, false);
    return value.is_discarded() ? Json(std::string(text)) : value;
}

// ------------------------------------------------------------------------------------------------------------- readers

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    char quote = 0;
    bool open = false;
    for (const char c : text) {
        if (quote != 0 ? c == quote : c == '"' || c == '\'') {
            quote = quote != 0 ? 0 : c;
            if (!open) words.emplace_back();
            open = true;
        } else if (quote == 0 && (is_blank(c) || c == '\\')) {
            open = false;
        } else {
            if (!open) words.emplace_back();
            open = true;
            words.back() += c;
        }
    }
    if (quote != 0) throw Error("the command line has a quote that does not end");
    return words;
}

bool is_number(std::string_view word) {
    return word.size() > 1 && word[0] == '-' && (std::isdigit(static_cast<unsigned char>(word[1])) || word[1] == '.');
}

// As llama.cpp reads its own options.
std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto known = text[i] == '\\' && i + 1 < text.size() ? std::string_view("ntr\"'\\").find(text[i + 1])
                                                                  : std::string_view::npos;
        out += known != std::string_view::npos ? "\n\t\r\"'\\"[known] : text[i];
        i += known != std::string_view::npos ? 1 : 0;
    }
    return out;
}

Settings read_command_line(std::string_view text) {
    Settings settings;
    const std::vector<std::string> words = words_of(text);
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i].size() < 2 || words[i][0] != '-' || is_number(words[i])) continue;  // the program and its files
        const auto equals = words[i].find('=');
        std::string name = normal(std::string_view(words[i]).substr(0, equals));
        if (name == "s") name = "seed";
        Json value = true;
        if (equals != std::string::npos) {
            value = value_of(std::string_view(words[i]).substr(equals + 1));
        } else if (i + 1 < words.size() &&
                   (words[i + 1].empty() || words[i + 1][0] != '-' || is_number(words[i + 1]))) {
            value = name == "sampler_seq" || name == "sampling_seq" || name == "samplers" || name == "logit_bias" ||
                            name == "dry_sequence_breaker"
                        ? Json(words[i + 1])
                        : value_of(words[i + 1]);
            ++i;
        }
        if (name == "dry_sequence_breaker" || name == "logit_bias") {  // may come again
            Json& list = settings[name];
            if (!list.is_array()) list = Json::array();
            if (name == "dry_sequence_breaker" && value.is_string()) value = unescaped(value.get<std::string>());
            if (value != "none") list.push_back(value);
        } else {
            settings[name] = value;
        }
    }
    return settings;
}

// KEY = VALUE, KEY: VALUE, and below "KEY:" indented lines with "override: VALUE", or a list of "- ENTRY".
Settings read_lines(std::string_view text) {
    Settings settings;
    std::string above;
    int number = 0, sections = 0;
    const auto wrong = [&](const std::string& what) { return Error("line " + std::to_string(number) + " " + what); };
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const std::string_view whole = text.substr(0, end);
        std::string_view line = trimmed(whole);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.empty() || line.front() == '#' || line.front() == ';' || line == "---") continue;
        if (line.front() == '[') {
            if (++sections > 1) throw wrong("begins a second section; give the settings of one");
            continue;
        }
        const bool nested = is_blank(whole.front()) && !above.empty();
        if (line.starts_with("- ")) {
            if (above.empty()) throw wrong("has an entry of no list");
            Json& list = settings[above];
            if (!list.is_array()) list = Json::array();
            list.push_back(value_of(trimmed(line.substr(2))));
            continue;
        }
        const auto at = line.find_first_of(":=");
        if (at == std::string_view::npos) throw wrong("has neither ':' nor '='; give KEY: VALUE");
        std::string_view value = trimmed(line.substr(at + 1));
        if (const auto comment = value.find(" #"); comment != std::string_view::npos)
            value = trimmed(value.substr(0, comment));
        const std::string name = normal(trimmed(line.substr(0, at)));
        if (!nested) {
            above = value.empty() ? name : "";
            settings[name] = value_of(value);
        } else if (name == "override") {
            settings[above] = value_of(value);
        } else if (name != "force" && name != "additive") {
            throw wrong("has '" + name + "' below '" + above + "', where only override, force and additive may stand");
        }
    }
    std::erase_if(settings, [](const auto& entry) { return entry.second.is_null(); });
    return settings;
}

Settings read_json(std::string_view text) {
    Json document = Json::parse(text, nullptr, false);
    if (!document.is_object()) throw Error("the text begins as a JSON object and is none");
    // What llama-server tells under /props.
    for (const char* inner : {"default_generation_settings", "params"}) {
        if (document.contains(inner) && document[inner].is_object()) document = Json(document[inner]);
    }
    Settings settings;
    for (const auto& [name, value] : document.items()) {
        if (!value.is_null()) settings[normal(name)] = value;
    }
    return settings;
}

// ------------------------------------------------------------------------------------------------------------ the
// chain

const Alias* find_alias(std::string_view name) {
    const auto found = std::ranges::find(kAliases, name, &Alias::name);
    return found != std::end(kAliases) ? found : nullptr;
}

double number_of(const std::string& name, const Json& value) {
    if (value.is_number()) return value.get<double>();
    if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
    throw Error("'" + name + "' must be a number");
}

std::string list_of(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

class Import {
public:
    Import(Settings settings, SamplerDialect dialect)
        : settings_(std::move(settings)), dialect_(dialect), llama_(dialect == SamplerDialect::llama_cpp) {}

    ImportedSamplers run() {
        set_defaults();
        read();
        make_order();
        make_temperature();
        make_mirostat();
        drop_idle();
        check_values();
        return write();
    }

private:
    // In one line: it becomes a comment.
    void note(std::string text) {
        for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
        result_.notes.push_back(std::move(text));
    }
    bool is_set(const char* name) const { return settings_.contains(name); }
    double number(const char* name, double fallback) const {
        const auto found = settings_.find(name);
        return found != settings_.end() ? number_of(name, found->second) : fallback;
    }
    double value(const std::string& stage, const char* parameter, double fallback) const {
        const auto found = stages_.find(stage);
        if (found == stages_.end() || !found->second.contains(parameter)) return fallback;
        return found->second.at(parameter).get<double>();
    }

    void set_defaults() {
        if (llama_) {
            stages_ = {{"temperature", {{"value", 0.8}}}, {"top_k", {{"k", 40}}},          {"top_p", {{"p", 0.95}}},
                       {"min_p", {{"p", 0.05}}},          {"penalties", {{"window", 64}}}, {"dry", {{"window", -1}}}};
        } else if (dialect_ == SamplerDialect::exllamav2) {
            stages_ = {{"temperature", {{"value", 0.8}}}, {"top_k", {{"k", 50}}},
                       {"top_p", {{"p", 0.8}}},           {"penalties", {{"repeat", 1.025}, {"window", -1}}},
                       {"dry", {{"window", 0}}},          {"mirostat", {{"tau", 1.5}, {"eta", 0.1}}}};
        } else {
            stages_ = {{"penalties", {{"window", -1}}}, {"dry", {{"window", 0}}}};
            if (dialect_ == SamplerDialect::tabbyapi) stages_["mirostat"] = {{"tau", 1.5}, {"eta", 0.3}};
        }
    }

    void read() {
        std::vector<std::string> others;
        for (const auto& [name, value] : settings_) {
            const Alias* alias = find_alias(name);
            if (alias != nullptr) {
                read_parameter(name, *alias, value);
            } else if (const auto foreign = std::ranges::find(kForeign, name, &Foreign::name);
                       foreign != std::end(kForeign)) {
                const bool off = value.is_string() || value.is_array() || value.is_object()
                                     ? value.empty() || value == ""
                                     : number_of(name, value) == foreign->off;
                if (!off) note("'" + name + "' is not imported: " + std::string(foreign->why));
            } else if (std::ranges::find(kOthers, name) == std::end(kOthers)) {
                others.push_back(name);
            }
        }
        if (!others.empty()) note("not settings of samplers here: " + list_of(others));
        for (const char* stage : {"penalties", "dry"}) {
            const auto window = stages_[stage].find("window");
            if (window == stages_[stage].end()) continue;
            const std::int64_t tokens = window->second.get<std::int64_t>();
            // llama.cpp's 0 is off; ExLlama's is the whole text for DRY.
            const bool all = tokens < 0 || (tokens == 0 && !llama_ && stage == std::string_view("dry"));
            if (all || tokens > kWholeText) window->second = kWholeText;
        }
        read_bias();
    }

    void read_parameter(const std::string& name, const Alias& alias, const Json& value) {
        Json& parameter = stages_[std::string(alias.stage)][std::string(alias.parameter)];
        if (alias.parameter == "breakers") {
            const bool texts =
                value.is_array() && std::ranges::all_of(value, [](const Json& entry) { return entry.is_string(); });
            if (!texts) throw Error("'" + name + "' must be a list of texts");
            parameter = value;
            return;
        }
        double number = number_of(name, value);
        // What ExLlamaV2 has for "off".
        if (!llama_ && number == 0.0 && (alias.stage == "typical" || alias.stage == "tfs")) number = 1.0;
        if (dialect_ != SamplerDialect::exllamav3 && !llama_ && number == 0.0 && alias.stage == "top_p") number = 1.0;
        if (dialect_ == SamplerDialect::exllamav3 && alias.parameter == "target" && number == 1.0) number = -1.0;
        if (alias.stage == "top_n_sigma" || alias.stage == "top_k" || alias.stage == "temperature")
            number = std::max(number, 0.0);
        if (std::ranges::find(kWhole, alias.parameter) != std::end(kWhole)) {
            if (number != static_cast<double>(static_cast<std::int64_t>(number)))
                throw Error("'" + name + "' must be a whole number");
            parameter = static_cast<std::int64_t>(number);
        } else {
            parameter = number;
        }
    }

    // Of JSON: pairs or an object; of options: "15043+1" and "15043-inf".
    void read_bias() {
        const auto found = settings_.find("logit_bias");
        if (found == settings_.end() || found->second.empty()) return;
        Json ids = Json::array(), values = Json::array(), texts = Json::array(), text_values = Json::array();
        const auto add = [&](const Json& token, const Json& given) {
            const bool forbidden = given == false || given == "-inf" || given == "false";
            if (!forbidden && !given.is_number())
                throw Error("'logit_bias' must give a number or false for each token");
            const Json bias = forbidden ? Json("-inf") : given;
            const bool is_id =
                token.is_number_integer() ||
                (token.is_string() && !token.get<std::string>().empty() &&
                 std::ranges::all_of(token.get<std::string>(), [](char c) { return c >= '0' && c <= '9'; }));
            if (is_id) {
                ids.push_back(token.is_string() ? Json::parse(token.get<std::string>()) : token);
                values.push_back(bias);
            } else {
                texts.push_back(token);
                text_values.push_back(bias);
            }
        };
        const Json& bias = found->second;
        if (bias.is_object()) {
            for (const auto& [token, given] : bias.items()) add(token, given);
        } else if (bias.is_array()) {
            for (const Json& entry : bias) {
                if (entry.is_array() && entry.size() == 2) {
                    add(entry[0], entry[1]);
                    continue;
                }
                const std::string text = entry.is_string() ? entry.get<std::string>() : "";
                const auto sign = text.find_first_of("+-");
                if (sign == std::string::npos || sign == 0)
                    throw Error("'logit_bias' must be TOKEN+BIAS or TOKEN-BIAS");
                const std::size_t from = text[sign] == '+' ? sign + 1 : sign;
                add(text.substr(0, sign), value_of(std::string_view(text).substr(from)));
            }
        } else {
            throw Error("'logit_bias' must be an object or a list");
        }
        auto& stage = stages_["logit_bias"];
        if (!ids.empty()) {
            stage["tokens"] = ids;
            stage["values"] = values;
        }
        if (!texts.empty()) {
            stage["texts"] = texts;
            stage["text_values"] = text_values;
        }
    }

    void add_to_order(const std::string& name, const std::string& known) {
        if (known == "infill") {
            note("'infill' is not imported: there is no such sampler here");
        } else if (std::ranges::find(order_, known) == order_.end()) {
            const bool exists = samplers::find_builtin(known) != nullptr;
            if (!exists) throw Error("the order names the sampler '" + name + "', which is unknown here");
            order_.push_back(known);
        } else {
            note("the order names '" + name + "' again, which acts once here");
        }
    }

    void add_name(const std::string& name) {
        std::string known = normal(name);
        if (known == "nucleus") known = "top_p";
        if (known == "typ") known = "typical";
        if (const Alias* alias = find_alias(known)) known = alias->stage;
        add_to_order(name, known);
    }

    bool read_order() {
        if (const auto list = settings_.find("samplers"); list != settings_.end()) {
            if (list->second.is_array()) {
                for (const Json& name : list->second)
                    add_name(name.is_string() ? name.get<std::string>() : name.dump());
                return true;
            }
            const std::string text = list->second.is_string() ? list->second.get<std::string>() : list->second.dump();
            for (const std::string_view name : split(text, ';')) {
                if (!name.empty()) add_name(std::string(name));
            }
            return true;
        }
        for (const char* name : {"sampler_seq", "sampling_seq"}) {
            const auto letters = settings_.find(name);
            if (letters == settings_.end() || !letters->second.is_string()) continue;
            for (const char letter : letters->second.get<std::string>()) {
                const auto found = std::ranges::find(kLetters, letter, &Letter::letter);
                if (found == std::end(kLetters)) {
                    throw Error("the order '" + letters->second.get<std::string>() + "' has the letter '" + letter +
                                "', which is unknown here");
                }
                add_to_order({letter}, std::string(found->stage));
            }
            return true;
        }
        return false;
    }

    void make_order() {
        const bool stated = read_order();
        if (!stated) {
            const std::span<const std::string_view> usual = llama_ ? std::span<const std::string_view>(kLlamaOrder)
                                                            : dialect_ == SamplerDialect::exllamav3
                                                                ? std::span<const std::string_view>(kExllama3Order)
                                                                : std::span<const std::string_view>(kExllama2Order);
            order_.assign(usual.begin(), usual.end());
        }
        if (number("temperature_last", 0.0) != 0.0 || number("temp_last", 0.0) != 0.0) {
            const auto last = std::ranges::find_if(
                order_, [](const std::string& stage) { return stage == "adaptive_p" || stage == "skew"; });
            std::string temperature = "temperature";
            order_.insert(last, temperature);
            order_.erase(std::ranges::find(order_, temperature));
        }
        // Stages that settings name and the order lacks.
        for (const auto& entry : stages_) {
            const std::string& stage = entry.first;
            const auto neutral = std::ranges::find(kNeutral, stage, &Neutral::stage);
            if (neutral == std::end(kNeutral) || std::ranges::find(order_, stage) != order_.end()) continue;
            const double own = value(stage, std::string(neutral->parameter).c_str(), neutral->value);
            const bool asked = std::ranges::any_of(kAliases, [&](const Alias& alias) {
                return alias.stage == stage && settings_.contains(std::string(alias.name));
            });
            if (own != neutral->value && asked)
                note("'" + stage + "' is set and stands in no place of the order, so it does nothing there and here");
        }
        // It ends with a token that it has chosen.
        const auto adaptive = std::ranges::find(order_, "adaptive_p");
        if (adaptive != order_.end()) std::rotate(adaptive, adaptive + 1, order_.end());
        if (stages_.contains("logit_bias")) order_.insert(order_.begin(), "logit_bias");
    }

    // A range of temperatures.
    void make_temperature() {
        const double heat = value("temperature", "value", 1.0);
        auto& dynamic = stages_["dynatemp"];
        const double range = number("dynatemp_range", 0.0);
        if (llama_ && range > 0.0 && heat > 0.0) {
            dynamic["min"] = std::max(heat - range, 0.01);
            dynamic["max"] = heat + range;
            if (heat - range < 0.01)
                note("the least temperature is 0.01 here, not " + Json(std::max(heat - range, 0.0)).dump());
            std::ranges::replace(order_, "temperature", "dynatemp");
        } else if (value("dynatemp", "max", 0.0) <= value("dynatemp", "min", 0.0) || heat == 0.0) {
            std::erase(order_, "dynatemp");
        }
    }

    void make_mirostat() {
        std::erase(order_, "mirostat");
        int mode = 0;
        for (const char* name : {"mirostat", "mirostat_mode"}) {
            if (is_set(name)) mode = std::max(mode, static_cast<int>(number(name, 0.0)));
        }
        if (mode < 0 || mode > 2) throw Error("'mirostat' must be 0, 1 or 2");
        if (dialect_ == SamplerDialect::exllamav2 && mode == 1) mode = 2;  // a switch there
        if (dialect_ == SamplerDialect::tabbyapi && mode == 1) {
            note("mirostat 1 is not imported: tabbyAPI has version 2 only");
            mode = 0;
        }
        if (mode == 0) return;
        if (llama_) {
            std::erase_if(order_,
                          [](const std::string& stage) { return stage != "temperature" && stage != "logit_bias"; });
            if (std::ranges::find(order_, "temperature") == order_.end()) order_.push_back("temperature");
            note("with mirostat, llama.cpp runs no other sampler but the temperature");
        }
        if (mode == 1) stages_["mirostat_1"] = stages_["mirostat"];
        order_.push_back(mode == 1 ? "mirostat_1" : "mirostat");
    }

    void drop_idle() {
        std::erase_if(order_, [&](const std::string& stage) {
            if (stage == "penalties")
                return value(stage, "window", 64.0) == 0.0 ||
                       (value(stage, "repeat", 1.0) == 1.0 && value(stage, "frequency", 0.0) == 0.0 &&
                        value(stage, "presence", 0.0) == 0.0);
            const auto neutral = std::ranges::find(kNeutral, stage, &Neutral::stage);
            if (neutral == std::end(kNeutral)) return false;
            const double own = value(stage, std::string(neutral->parameter).c_str(), neutral->value);
            return own == neutral->value || (stage == "adaptive_p" && own < 0.0);
        });
    }

    // Values that are out of range here are left out, and said.
    void check_values() {
        for (const std::string& stage : order_) {
            const auto factory = samplers::find_builtin(stage);
            for (const samplers::ParameterSchema& schema : factory->description().parameters) {
                const auto found = stages_[stage].find(schema.name);
                if (found == stages_[stage].end() || !found->second.is_number()) continue;
                samplers::ParameterValue given = found->second.get<double>();
                if (schema.type == samplers::ParameterType::integer) given = found->second.get<std::int64_t>();
                try {
                    samplers::check_range(stage + "." + schema.name, schema, given);
                } catch (const Error& error) {
                    note(std::string(error.what()) + "; left at its default");
                    stages_[stage].erase(found);
                }
            }
        }
    }

    ImportedSamplers write() {
        std::string& toml = result_.toml;
        for (const std::string& text : result_.notes) toml += "# " + text + "\n";
        toml += "[sampling]\n";
        if (const double seed = number("seed", -1.0); seed >= 0.0 && seed < 4294967295.0)
            toml += "seed = " + Json(static_cast<std::int64_t>(seed)).dump() + "\n";
        toml += "chain = " + Json(order_).dump() + "\n";
        for (const std::string& stage : order_) {
            if (stages_[stage].empty()) continue;
            toml += "\n[sampling." + stage + "]\n";
            for (const auto& [parameter, value] : stages_[stage]) {
                std::string text = value.dump();
                if (stage == "logit_bias") {
                    for (std::size_t at = text.find("\"-inf\"");
                         parameter.ends_with("values") && at != std::string::npos; at = text.find("\"-inf\""))
                        text.replace(at, 6, "-inf");
                }
                toml += parameter + " = " + text + "\n";
            }
        }
        return std::move(result_);
    }

    Settings settings_;
    SamplerDialect dialect_;
    bool llama_;
    std::map<std::string, std::map<std::string, Json>> stages_;  // parameters with their values
    std::vector<std::string> order_;
    ImportedSamplers result_;
};

}  // namespace

ImportedSamplers import_samplers(std::string_view text, SamplerDialect dialect) {
    const std::string_view begin = trimmed(text);
    if (begin.empty()) throw Error("there are no settings: the text is empty");
    // A command line names an option in its first line; in settings, a dash begins an entry of a list.
    const std::string_view first = begin.substr(0, begin.find('\n'));
    const bool options = first.starts_with('-') ? first.size() > 1 && first[1] != ' ' && first != "---"
                                                : first.find(" -") != std::string_view::npos &&
                                                      first.find_first_of("=:") == std::string_view::npos;
    const bool by_option = options || (first.find(" --") != std::string_view::npos && first.front() != '#');
    return Import(begin.front() == '{' ? read_json(begin)
                  : by_option          ? read_command_line(begin)
                                       : read_lines(begin),
                  dialect)
        .run();
}

}  // namespace foresay::app
