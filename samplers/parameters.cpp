#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "samplers/stage.h"

namespace foresay::samplers {
namespace {

// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row[b.size()];
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.15g", value);
    return text;
}

std::string type_name(ParameterType type) {
    switch (type) {
        case ParameterType::boolean:
            return "true or false";
        case ParameterType::integer:
            return "an integer";
        case ParameterType::real:
            return "a number";
        case ParameterType::text:
            return "a string";
        case ParameterType::choice:
            return "one of its choices";
        case ParameterType::text_list:
            return "a list of strings";
        case ParameterType::integer_list:
            return "a list of integers";
        case ParameterType::real_list:
            return "a list of numbers";
        case ParameterType::file:
            return "the path of a file";
    }
    return "";
}

// The stated value as the parameter's type, where an integer may stand for a number and an empty list for any list.
std::optional<ParameterValue> converted(ParameterType type, const ParameterValue& value) {
    const auto keep = [&](bool fits) { return fits ? std::optional(value) : std::nullopt; };
    const auto* integers = std::get_if<std::vector<std::int64_t>>(&value);
    const auto* reals = std::get_if<std::vector<double>>(&value);
    const auto* texts = std::get_if<std::vector<std::string>>(&value);
    const bool empty_list = (integers && integers->empty()) || (reals && reals->empty()) || (texts && texts->empty());
    switch (type) {
        case ParameterType::boolean:
            return keep(std::holds_alternative<bool>(value));
        case ParameterType::integer:
            return keep(std::holds_alternative<std::int64_t>(value));
        case ParameterType::real:
            if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
            return keep(std::holds_alternative<double>(value));
        case ParameterType::text:
        case ParameterType::choice:
        case ParameterType::file:
            return keep(std::holds_alternative<std::string>(value));
        case ParameterType::text_list:
            return empty_list ? std::optional<ParameterValue>(std::vector<std::string>{}) : keep(texts != nullptr);
        case ParameterType::integer_list:
            return empty_list ? std::optional<ParameterValue>(std::vector<std::int64_t>{}) : keep(integers != nullptr);
        case ParameterType::real_list:
            if (integers) return std::vector<double>(integers->begin(), integers->end());
            return empty_list ? std::optional<ParameterValue>(std::vector<double>{}) : keep(reals != nullptr);
    }
    return std::nullopt;
}

void check_number(const std::string& key, const ParameterSchema& schema, double value) {
    if (std::isnan(value)) throw Error(key + " is not a number");
    if (schema.min && value < *schema.min)
        throw Error(key + " is " + number(value) + "; it must be at least " + number(*schema.min));
    if (schema.max && value > *schema.max)
        throw Error(key + " is " + number(value) + "; it must be at most " + number(*schema.max));
}

[[noreturn]] void unknown_parameter(const StageDescription& description, const std::string& name) {
    std::string message = "sampler '" + description.name + "' has no parameter '" + name + "'";
    const ParameterSchema* nearest = nullptr;
    // As far as a third of what was written, but never another word altogether: 't' is no mistyped 'zz'.
    std::size_t best = std::min(name.size(), std::max<std::size_t>(name.size() / 3, name.size() > 3 ? 2 : 1) + 1);
    for (const ParameterSchema& schema : description.parameters) {
        const std::size_t edits = distance(schema.name, name);
        if (edits < best) {
            best = edits;
            nearest = &schema;
        }
    }
    if (nearest != nullptr) throw Error(message + "; did you mean '" + nearest->name + "'?");
    if (description.parameters.empty()) throw Error(message + "; it has none");
    message += "; it has ";
    for (const ParameterSchema& schema : description.parameters) {
        message += (&schema == description.parameters.data() ? "'" : ", '") + schema.name + "'";
    }
    throw Error(message);
}

}  // namespace

void check_range(const std::string& key, const ParameterSchema& schema, const ParameterValue& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) check_number(key, schema, static_cast<double>(*whole));
    if (const auto* real = std::get_if<double>(&value)) check_number(key, schema, *real);
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
        for (const std::int64_t entry : *list) check_number(key, schema, static_cast<double>(entry));
    }
    if (const auto* list = std::get_if<std::vector<double>>(&value)) {
        for (const double entry : *list) check_number(key, schema, entry);
    }
    const auto* text = std::get_if<std::string>(&value);
    if (schema.type != ParameterType::choice || text == nullptr) return;
    if (std::find(schema.choices.begin(), schema.choices.end(), *text) != schema.choices.end()) return;
    std::string list;
    for (const std::string& choice : schema.choices) list += (list.empty() ? "'" : ", '") + choice + "'";
    throw Error(key + " is '" + *text + "'; it must be one of " + list);
}

void check_needs(const StageDescription& description, const Parameters& stated) {
    const auto is_stated = [&](const std::string& name) {
        return std::ranges::find(stated, name, &Parameters::value_type::first) != stated.end();
    };
    for (const ParameterSchema& schema : description.parameters) {
        const auto found = std::ranges::find(stated, schema.name, &Parameters::value_type::first);
        if (schema.needs.empty() || found == stated.end() || found->second == schema.fallback) continue;
        if (is_stated(schema.needs)) continue;
        throw ParameterError(schema.name, description.name + ": '" + schema.name + "' is stated, but not '" +
                                              schema.needs + "', which says what it is");
    }
}

std::vector<ParameterValue> complete_parameters(const StageDescription& description, const Parameters& stated) {
    std::vector<ParameterValue> values;
    for (const ParameterSchema& schema : description.parameters) values.push_back(schema.fallback);
    for (const auto& [name, value] : stated) {
        std::size_t at = 0;
        while (at < values.size() && description.parameters[at].name != name) ++at;
        if (at == values.size()) unknown_parameter(description, name);
        const ParameterSchema& schema = description.parameters[at];
        const std::string key = description.name + "." + name;
        const std::optional<ParameterValue> fitting = converted(schema.type, value);
        if (!fitting) throw Error(key + " must be " + type_name(schema.type));
        check_range(key, schema, *fitting);
        values[at] = *fitting;
    }
    return values;
}

}  // namespace foresay::samplers
