#include "core/weights/json_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "core/weights/quote.h"

namespace foresay::core {

using nlohmann::json;

namespace {

// The JSON library's message without its prefix "[json.exception.parse_error.101] ".
std::string plain(const json::exception& error) {
    const std::string text = error.what();
    const std::size_t bracket = text.find("] ");
    return bracket == std::string::npos ? text : text.substr(bracket + 2);
}

std::string type_of(const json& value) {
    if (value.is_null()) return "null";
    if (value.is_number_float()) return "a float";
    const std::string name = value.type_name();
    return (name == "array" || name == "object" ? "an " : "a ") + name;
}

bool to_int(const json& value, std::int64_t& out) {
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        out = static_cast<std::int64_t>(number);
        return out >= 0;
    }
    if (value.is_number_integer()) {
        out = value.get<std::int64_t>();
        return true;
    }
    if (!value.is_number_float()) return false;
    const double number = value.get<double>();
    const bool whole = std::fabs(number) <= 0x1p53 && number == std::floor(number);
    if (whole) out = static_cast<std::int64_t>(number);
    return whole;
}

}  // namespace

void check_json_depth(std::string_view text, const std::string& path, int max_depth) {
    int depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > max_depth) {
                throw Error(path + ": nests deeper than " + std::to_string(max_depth) +
                            " levels; the file is damaged, get it again");
            }
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
}

struct JsonConfig::Document {
    json root = json::object();

    // Null when the member, or an object above it, is absent or null.
    const json* find(std::string_view member) const {
        const json* at = &root;
        while (true) {
            const std::size_t dot = member.find('.');
            if (!at->is_object()) return nullptr;
            const auto found = at->find(member.substr(0, dot));
            if (found == at->end() || found->is_null()) return nullptr;
            at = &*found;
            if (dot == std::string_view::npos) return at;
            member.remove_prefix(dot + 1);
        }
    }

    const json& require(std::string_view member, const std::string& path) const {
        const json* value = find(member);
        if (value == nullptr) {
            throw Error(path + ": " + quote(member) + " is missing; the file is incomplete or of another architecture");
        }
        return *value;
    }
};

namespace {

[[noreturn]] void wrong_type(const std::string& path, std::string_view member, const json& value, const char* wanted) {
    throw Error(path + ": " + quote(member) + " is " + type_of(value) + ", not " + wanted + "; correct the file");
}

// Converts the elements of an array, or a single value. `convert` returns whether the type fits.
template <class T, class Convert>
std::vector<T> elements(const json& value, const std::string& path, std::string_view member, const char* wanted,
                        Convert convert) {
    std::vector<T> out;
    const auto add = [&](const json& element) {
        T converted{};
        if (!convert(element, converted)) wrong_type(path, member, element, wanted);
        out.push_back(std::move(converted));
    };
    if (value.is_array()) {
        for (const json& element : value) add(element);
    } else {
        add(value);
    }
    return out;
}

}  // namespace

JsonConfig::JsonConfig() : document_(std::make_shared<const Document>()) {}

JsonConfig JsonConfig::parse(std::string_view text, std::string path) {
    if (text.size() > kMaxJsonConfigBytes) {
        throw Error(path + ": " + std::to_string(text.size()) + " bytes are too many for a configuration (at most " +
                    std::to_string(kMaxJsonConfigBytes) + "); give the model's own config.json");
    }
    check_json_depth(text, path);
    auto document = std::make_shared<Document>();
    try {
        // Where a member is there twice, the library keeps the last.
        std::vector<std::set<std::string>> open;
        std::string twice;
        document->root = json::parse(text, [&](int, json::parse_event_t event, const json& parsed) {
            if (event == json::parse_event_t::object_start) open.emplace_back();
            if (event == json::parse_event_t::object_end) open.pop_back();
            if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
                twice = parsed.get<std::string>();
            }
            return true;
        });
        if (!twice.empty()) throw Error(path + ": " + quote(twice) + " is there twice; correct the file");
    } catch (const json::exception& error) {
        throw Error(path + ": not valid JSON: " + plain(error) + "; get the file again");
    }
    if (!document->root.is_object()) throw Error(path + ": holds no JSON object; get the file again");
    JsonConfig config;
    config.path_ = std::move(path);
    config.document_ = std::move(document);
    return config;
}

bool JsonConfig::has(std::string_view member) const { return document_->find(member) != nullptr; }

bool JsonConfig::is_array(std::string_view member) const {
    const json* value = document_->find(member);
    return value != nullptr && value->is_array();
}

bool JsonConfig::is_object(std::string_view member) const {
    const json* value = document_->find(member);
    return value != nullptr && value->is_object();
}

std::vector<std::string> JsonConfig::members(std::string_view object) const {
    const json* value = object.empty() ? &document_->root : document_->find(object);
    std::vector<std::string> names;
    if (value == nullptr || !value->is_object()) return names;
    for (const auto& [name, content] : value->items()) names.push_back(name);
    return names;
}

JsonConfig JsonConfig::part_of(const Document& part) const {
    JsonConfig config;
    config.path_ = path_;
    config.document_ = std::make_shared<const Document>(part);
    return config;
}

JsonConfig JsonConfig::object(std::string_view object) const {
    const json* value = document_->find(object);
    return value != nullptr && value->is_object() ? part_of({*value}) : JsonConfig();
}

JsonConfig JsonConfig::member_object(const std::string& name) const {
    const auto found = document_->root.find(name);
    return found != document_->root.end() && found->is_object() ? part_of({*found}) : JsonConfig();
}

std::vector<JsonConfig> JsonConfig::objects(std::string_view array) const {
    const json* value = document_->find(array);
    std::vector<JsonConfig> all;
    if (value == nullptr || !value->is_array()) return all;
    for (const json& element : *value) {
        if (element.is_object()) all.push_back(part_of({element}));
    }
    return all;
}

bool JsonConfig::is_off(std::string_view member) const {
    const json* value = document_->find(member);
    if (value == nullptr) return true;
    if (value->is_boolean()) return !value->get<bool>();
    if (value->is_string()) return value->get_ref<const std::string&>().empty();
    return (value->is_array() || value->is_object()) && value->empty();
}

std::int64_t JsonConfig::get_int(std::string_view member) const {
    const json& value = document_->require(member, path_);
    std::int64_t number = 0;
    if (!to_int(value, number)) wrong_type(path_, member, value, "an integer");
    return number;
}

double JsonConfig::get_float(std::string_view member) const {
    const json& value = document_->require(member, path_);
    if (!value.is_number()) wrong_type(path_, member, value, "a number");
    return value.get<double>();
}

bool JsonConfig::get_bool(std::string_view member) const {
    const json& value = document_->require(member, path_);
    if (!value.is_boolean()) wrong_type(path_, member, value, "true or false");
    return value.get<bool>();
}

std::string JsonConfig::get_string(std::string_view member) const {
    const json& value = document_->require(member, path_);
    if (!value.is_string()) wrong_type(path_, member, value, "a string");
    return value.get<std::string>();
}

std::int64_t JsonConfig::get_int_or(std::string_view member, std::int64_t fallback) const {
    return has(member) ? get_int(member) : fallback;
}

double JsonConfig::get_float_or(std::string_view member, double fallback) const {
    return has(member) ? get_float(member) : fallback;
}

bool JsonConfig::get_bool_or(std::string_view member, bool fallback) const {
    return has(member) ? get_bool(member) : fallback;
}

std::string JsonConfig::get_string_or(std::string_view member, std::string_view fallback) const {
    return has(member) ? get_string(member) : std::string(fallback);
}

std::vector<std::int64_t> JsonConfig::get_ints(std::string_view member) const {
    return elements<std::int64_t>(document_->require(member, path_), path_, member, "an integer", to_int);
}

std::vector<double> JsonConfig::get_floats(std::string_view member) const {
    return elements<double>(document_->require(member, path_), path_, member, "a number",
                            [](const json& v, double& out) {
                                if (v.is_number()) out = v.get<double>();
                                return v.is_number();
                            });
}

std::vector<std::string> JsonConfig::get_strings(std::string_view member) const {
    return elements<std::string>(document_->require(member, path_), path_, member, "a string",
                                 [](const json& v, std::string& out) {
                                     if (v.is_string()) out = v.get<std::string>();
                                     return v.is_string();
                                 });
}

std::string JsonConfig::text() const { return document_->root.dump(2); }

}  // namespace foresay::core
