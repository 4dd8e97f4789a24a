#include "core/config/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "core/config/nearest.h"

namespace foresay::core {

namespace {

using Kind = TomlNode::Kind;

constexpr double kIntegers = 0x1p63;  // int64 goes up to one less

bool is_integer(double value) { return value == std::floor(value) && value >= -kIntegers && value < kIntegers; }

// A number for people; whole ones without a fraction.
std::string plain(double value) {
    return is_integer(value) ? std::to_string(static_cast<std::int64_t>(value)) : to_toml(ConfigValue(value));
}

std::string range_text(const KeySpec& spec) {
    if (spec.min && spec.max) return "between " + plain(*spec.min) + " and " + plain(*spec.max);
    if (spec.min) return plain(*spec.min) + " or more";
    return plain(*spec.max) + " or less";
}

// errc() when all of `text` is an integer; result_out_of_range when it is one that does not fit.
std::errc parse_integer(std::string_view text, std::int64_t& value) {
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return stop == text.data() + text.size() ? error : std::errc::invalid_argument;
}

// The range of an integer, which always ends somewhere.
std::string integer_range_text(const KeySpec& spec) {
    const auto bound = [](std::optional<double> limit, std::int64_t otherwise) {
        return limit ? plain(*limit) : std::to_string(otherwise);
    };
    using Limits = std::numeric_limits<std::int64_t>;
    return "between " + bound(spec.min, Limits::min()) + " and " + bound(spec.max, Limits::max());
}

bool in_range(const KeySpec& spec, double value, std::string& complaint) {
    // An infinite bound says that its value may stand there.
    const bool bound = spec.min == value || spec.max == value;
    const bool within = std::isfinite(value) && (!spec.min || value >= *spec.min) && (!spec.max || value <= *spec.max);
    if (bound || within) return true;
    const bool bounded = spec.min || spec.max;
    complaint = "must be " + (bounded ? range_text(spec) : std::string("a finite number")) + ", not " + plain(value);
    return false;
}

bool is_choice(const KeySpec& spec, const std::string& value, std::string& complaint) {
    if (spec.choices.empty() || std::find(spec.choices.begin(), spec.choices.end(), value) != spec.choices.end())
        return true;
    if (std::ranges::any_of(spec.aliases, [&](const auto& alias) { return alias.first == value; })) return true;
    std::string list;
    for (const std::string& choice : spec.choices) list += (list.empty() ? "" : ", ") + choice;
    complaint = "must be " + std::string(spec.choices.size() > 1 ? "one of " : "") + list + ", not '" + value + "'";
    const std::string near = nearest(value, spec.choices);
    if (!near.empty()) complaint += "; did you mean '" + near + "'?";
    return false;
}

// A scalar as TOML writes it.
std::string as_written(const TomlNode& node) {
    switch (node.kind) {
        case Kind::boolean:
            return node.boolean ? "true" : "false";
        case Kind::integer:
            return std::to_string(node.integer);
        case Kind::real:
            return to_toml(ConfigValue(node.real));
        case Kind::text:
            return to_toml(ConfigValue(node.text));
        default:
            return "";
    }
}

// The number in `node`, or in its text.
std::optional<double> as_number(const TomlNode& node) {
    if (node.kind == Kind::integer) return static_cast<double>(node.integer);
    if (node.kind == Kind::real) return node.real;
    if (node.kind != Kind::text || node.text.empty()) return std::nullopt;
    double value = 0.0;
    const char* end = node.text.data() + node.text.size();
    const auto [stop, error] = std::from_chars(node.text.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
    return value;
}

// The value that was probably meant, as TOML of type `type`; empty when that is unclear.
std::string meant(ValueType type, const TomlNode& node);

std::string meant_list(ValueType item, const TomlNode& node) {
    const bool fits = (item == ValueType::text && node.kind == Kind::text) ||
                      (item == ValueType::integer && node.kind == Kind::integer) ||
                      (item == ValueType::real && (node.kind == Kind::integer || node.kind == Kind::real));
    const std::string value = fits ? as_written(node) : meant(item, node);
    return value.empty() ? "" : "[" + value + "]";
}

std::string meant_boolean(const TomlNode& node) {
    if (node.kind == Kind::integer && (node.integer == 0 || node.integer == 1))
        return node.integer == 1 ? "true" : "false";
    if (node.kind != Kind::text) return "";
    for (const char* yes : {"true", "yes", "on"}) {
        if (node.text == yes) return "true";
    }
    for (const char* no : {"false", "no", "off"}) {
        if (node.text == no) return "false";
    }
    return "";
}

std::string meant(ValueType type, const TomlNode& node) {
    switch (type) {
        case ValueType::boolean:
            return meant_boolean(node);
        case ValueType::integer:
        case ValueType::real: {
            std::int64_t whole = 0;
            if (node.kind == Kind::text && parse_integer(node.text, whole) == std::errc()) return std::to_string(whole);
            const auto number = as_number(node);
            if (!number || (type == ValueType::integer && !is_integer(*number))) return "";
            return plain(*number);
        }
        case ValueType::text:
        case ValueType::choice:
        case ValueType::path:
            if (node.kind == Kind::list && node.items.size() == 1 && node.items[0].kind == Kind::text)
                return as_written(node.items[0]);
            if (node.kind == Kind::list || node.kind == Kind::table || node.kind == Kind::date) return "";
            return to_toml(ConfigValue(as_written(node)));
        case ValueType::text_list:
            return meant_list(ValueType::text, node);
        case ValueType::integer_list:
            return meant_list(ValueType::integer, node);
        case ValueType::real_list:
            return meant_list(ValueType::real, node);
        case ValueType::any:
            return "";
    }
    return "";
}

// A number that no integer holds, as it was written; empty for anything else. Overrides take digits that TOML refuses
// for text.
std::string too_large(const TomlNode& node) {
    if (node.kind == Kind::real && !is_integer(node.real) && std::abs(node.real) >= kIntegers) return as_written(node);
    std::int64_t ignored = 0;
    return node.kind == Kind::text && parse_integer(node.text, ignored) == std::errc::result_out_of_range ? node.text
                                                                                                          : "";
}

std::string wrong_kind(const KeySpec& spec, const TomlNode& node) {
    if (const std::string number = too_large(node); spec.type == ValueType::integer && !number.empty())
        return "must be " + integer_range_text(spec) + ", not " + number.substr(0, 64);
    std::string out = "must be " + describe(spec.type) + ", not " + std::string(node.kind_name());
    const std::string value = meant(spec.type, node);
    // Suggest only values that are allowed.
    const bool allowed =
        spec.choices.empty() || std::any_of(spec.choices.begin(), spec.choices.end(), [&](const auto& c) {
            return value == to_toml(ConfigValue(c)) || value == "[" + to_toml(ConfigValue(c)) + "]";
        });
    if (!value.empty() && allowed) return out + "; write " + value;
    if (spec.choices.empty()) return out;
    for (const std::string& choice : spec.choices)
        out += (&choice == spec.choices.data() ? "; known are " : ", ") + choice;
    return out;
}

double as_real(const TomlNode& node) {
    return node.kind == Kind::integer ? static_cast<double>(node.integer) : node.real;
}

bool is_number(const TomlNode& node) { return node.kind == Kind::integer || node.kind == Kind::real; }

bool all(const TomlNode& list, Kind kind) {
    return std::all_of(list.items.begin(), list.items.end(), [&](const TomlNode& item) { return item.kind == kind; });
}

std::optional<ConfigValue> text_list(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    std::vector<std::string> out;
    for (const TomlNode& item : node.items) {
        if (!is_choice(spec, item.text, complaint)) return std::nullopt;
        out.push_back(item.text);
    }
    return out;
}

std::optional<ConfigValue> integer_list(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    std::vector<std::int64_t> out;
    for (const TomlNode& item : node.items) {
        if (!in_range(spec, static_cast<double>(item.integer), complaint)) return std::nullopt;
        out.push_back(item.integer);
    }
    return out;
}

std::optional<ConfigValue> real_list(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    std::vector<double> out;
    for (const TomlNode& item : node.items) {
        if (spec.type != ValueType::any && !in_range(spec, as_real(item), complaint)) return std::nullopt;
        out.push_back(as_real(item));
    }
    return out;
}

// A list of the type in `spec`; every item must fit.
std::optional<ConfigValue> list(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    if (node.kind != Kind::list) {
        complaint = wrong_kind(spec, node);
        return std::nullopt;
    }
    const auto fits = [&](const TomlNode& item) {
        if (spec.type == ValueType::text_list) return item.kind == Kind::text;
        return spec.type == ValueType::integer_list ? item.kind == Kind::integer : is_number(item);
    };
    const auto bad = std::find_if_not(node.items.begin(), node.items.end(), fits);
    if (bad != node.items.end()) {
        complaint = "must be " + describe(spec.type) + ", but holds " + std::string(bad->kind_name());
        return std::nullopt;
    }
    if (spec.type == ValueType::text_list) return text_list(spec, node, complaint);
    return spec.type == ValueType::integer_list ? integer_list(spec, node, complaint)
                                                : real_list(spec, node, complaint);
}

// Any value, in the type that fits it.
std::optional<ConfigValue> any(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    switch (node.kind) {
        case Kind::boolean:
            return ConfigValue(node.boolean);
        case Kind::integer:
            return ConfigValue(node.integer);
        case Kind::real:
            return ConfigValue(node.real);
        case Kind::text:
            return ConfigValue(node.text);
        case Kind::list:
            if (all(node, Kind::text)) return text_list(spec, node, complaint);  // an empty list is one of strings
            if (all(node, Kind::integer)) return integer_list(spec, node, complaint);
            if (std::all_of(node.items.begin(), node.items.end(), is_number)) return real_list(spec, node, complaint);
            complaint = "must be a list of strings, of integers or of numbers, not a mixed one";
            return std::nullopt;
        default:
            complaint = "must be a boolean, a number, a string or a list, not " + std::string(node.kind_name());
            return std::nullopt;
    }
}

}  // namespace

std::optional<ConfigValue> convert(const KeySpec& spec, const TomlNode& node, std::string& complaint) {
    switch (spec.type) {
        case ValueType::boolean:
            if (node.kind == Kind::boolean) return ConfigValue(node.boolean);
            break;
        case ValueType::integer:
            if (node.kind != Kind::integer) break;
            if (!in_range(spec, static_cast<double>(node.integer), complaint)) return std::nullopt;
            return ConfigValue(node.integer);
        case ValueType::real:
            if (!is_number(node)) break;
            if (!in_range(spec, as_real(node), complaint)) return std::nullopt;
            return ConfigValue(as_real(node));
        case ValueType::text:
        case ValueType::choice:
        case ValueType::path:
            if (node.kind != Kind::text) break;
            if (!is_choice(spec, node.text, complaint)) return std::nullopt;
            return ConfigValue(node.text);
        case ValueType::text_list:
        case ValueType::integer_list:
        case ValueType::real_list:
            return list(spec, node, complaint);
        case ValueType::any:
            return any(spec, node, complaint);
    }
    complaint = wrong_kind(spec, node);
    return std::nullopt;
}

}  // namespace foresay::core
