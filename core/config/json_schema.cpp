#include "core/config/json_schema.h"

#include <nlohmann/json.hpp>

#include "core/config/parts.h"

namespace foresay::core {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ConfigValue& value) {
    return std::visit([](const auto& held) { return Json(held); }, value);
}

// A bound; whole numbers without a fraction.
Json bound(double value) {
    const auto whole = static_cast<std::int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

Json scalar(const char* type, const KeySpec& spec) {
    Json out = {{"type", type}};
    if (spec.min) out["minimum"] = bound(*spec.min);
    if (spec.max) out["maximum"] = bound(*spec.max);
    if (!spec.choices.empty()) out["enum"] = spec.choices;
    for (const auto& [alias, choice] : spec.aliases) out["enum"].push_back(alias);
    return out;
}

Json of_type(const KeySpec& spec) {
    switch (spec.type) {
        case ValueType::boolean:
            return {{"type", "boolean"}};
        case ValueType::integer:
            return scalar("integer", spec);
        case ValueType::real:
            return scalar("number", spec);
        case ValueType::text:
        case ValueType::choice:
        case ValueType::path:
            return scalar("string", spec);
        case ValueType::text_list:
            return {{"type", "array"}, {"items", scalar("string", spec)}};
        case ValueType::integer_list:
            return {{"type", "array"}, {"items", scalar("integer", spec)}};
        case ValueType::real_list:
            return {{"type", "array"}, {"items", scalar("number", spec)}};
        case ValueType::any:
            break;
    }
    return Json::object();
}

Json property(const KeySpec& spec) {
    Json out = {{"description", spec.doc}};
    const auto table_parts = parts_of(spec.key);
    if (table_parts.empty()) {
        out.update(of_type(spec));
    } else {
        Json parts = {{"type", "object"}, {"additionalProperties", false}};
        for (const auto& [name, choices] : table_parts) {
            parts["required"].push_back(name);
            parts["properties"][name] = {{"type", "string"}, {"enum", choices}};
        }
        out["anyOf"] = {of_type(spec), std::move(parts)};
    }
    out["default"] = to_json(spec.fallback);
    return out;
}

Json table(const std::string& doc) {
    Json out = Json::object();
    if (!doc.empty()) out["description"] = doc;
    out["type"] = "object";
    out["additionalProperties"] = false;
    out["properties"] = Json::object();
    return out;
}

// The properties object that holds `key` (for "target.context", that of [target]). Creates missing ones.
Json& properties_of(Json& root, std::string_view key) {
    Json* at = &root["properties"];
    for (auto dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
        Json& child = (*at)[std::string(key.substr(0, dot))];
        if (child.is_null()) child = table("");
        at = &child["properties"];
        key.remove_prefix(dot + 1);
    }
    return *at;
}

Json plugin_schema() {
    Json plugin = table("a sampler plugin that the chain can name");
    plugin["required"] = {"name"};
    plugin["properties"]["name"] = {
        {"description", "the stage's name in sampling.chain"}, {"type", "string"}, {"minLength", 1}};
    plugin["properties"]["sampler"] = {
        {"description", "the sampler that it is, where that is not its name: found on the plugin path, or built in"},
        {"type", "string"},
        {"minLength", 1}};
    plugin["properties"]["path"] = {
        {"description", "its file; relative to the file that states it"}, {"type", "string"}, {"minLength", 1}};
    for (const KeySpec& key : plugin_keys()) plugin["properties"][key.key] = property(key);
    plugin["properties"]["options"] = {{"description", "what the plugin declares: foresay plugin show NAME"},
                                       {"type", "object"}};
    return {{"type", "array"}, {"items", std::move(plugin)}};
}

}  // namespace

std::string to_json_schema(std::span<const StageSchema> stages, std::span<const SourceSchema> sources) {
    Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "A configuration of foresay"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"patternProperties", {{"^x-", {{"description", "your own notes; never read"}}}}},
                 {"properties", Json::object()}};
    Json& properties = root["properties"];
    properties["extends"] = {{"description", "configuration files that this one builds on, relative to it"},
                             {"oneOf",
                              {{{"type", "string"}, {"minLength", 1}},
                               {{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}}}}};
    const KeySpec known_sources = sources_key(sources);
    Json names = Json::array();
    for (const StageSchema& stage : stages) names.push_back(stage.name);
    for (const KeySpec& spec : core_schema()) {
        Json& place = properties_of(root, spec.key)[spec.key.substr(spec.key.rfind('.') + 1)];
        place = property(spec.key == known_sources.key ? known_sources : spec);
        // Editors offer the built-in stages, and accept any other name as a plugin's.
        if (spec.key == "sampling.chain") place["items"] = {{"anyOf", {{{"enum", names}}, {{"type", "string"}}}}};
    }
    for (const StageSchema& stage : stages) {
        Json parameters = table(stage.doc);
        for (const KeySpec& spec : stage.parameters) parameters["properties"][spec.key] = property(spec);
        properties_of(root, "sampling." + stage.name)[stage.name] = std::move(parameters);
    }
    properties_of(root, kTemplateArgs)["template_args"] = {
        {"description", "further variables for the model's chat template, with values of any type"},
        {"type", "object"}};
    properties["plugin"] = plugin_schema();
    return root.dump(2) + "\n";
}

}  // namespace foresay::core
