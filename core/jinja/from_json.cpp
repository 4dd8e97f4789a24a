#include "core/jinja/from_json.h"

#include <nlohmann/json.hpp>

#include "core/jinja/template.h"

namespace foresay::jinja {

namespace {

constexpr int kMostLevels = 90;

Value convert(const nlohmann::ordered_json& json, int level) {
    if (level > kMostLevels) throw TemplateError("the JSON is nested too deeply");
    switch (json.type()) {
        case nlohmann::json::value_t::boolean:
            return json.get<bool>();
        case nlohmann::json::value_t::number_integer:
            return json.get<std::int64_t>();
        case nlohmann::json::value_t::number_unsigned:
            if (json.get<std::uint64_t>() > INT64_MAX) throw TemplateError("a number of the JSON does not fit 64 bits");
            return json.get<std::int64_t>();
        case nlohmann::json::value_t::number_float:
            return json.get<double>();
        case nlohmann::json::value_t::string:
            return Text(json.get<std::string>(), true);
        case nlohmann::json::value_t::array: {
            List out;
            for (const auto& item : json) out.items.push_back(convert(item, level + 1));
            return out;
        }
        case nlohmann::json::value_t::object: {
            Dict out;
            for (const auto& [key, item] : json.items()) out.set(Text(key, true), convert(item, level + 1));
            return out;
        }
        default:
            return {};
    }
}

}  // namespace

Value from_json(std::string_view json) {
    try {
        return convert(nlohmann::ordered_json::parse(json), 0);
    } catch (const nlohmann::json::exception& problem) {
        throw TemplateError(std::string("the text is no JSON: ") + problem.what());
    }
}

}  // namespace foresay::jinja
