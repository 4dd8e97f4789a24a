#include "core/config/value.h"

#include <array>
#include <charconv>
#include <cmath>

#include "core/text/quoted.h"

namespace foresay::core {

std::string describe(ValueType type) {
    switch (type) {
        case ValueType::boolean:
            return "true or false";
        case ValueType::integer:
            return "an integer";
        case ValueType::real:
            return "a number";
        case ValueType::text:
        case ValueType::choice:
            return "a string";
        case ValueType::path:
            return "a string that names a file";
        case ValueType::text_list:
            return "a list of strings";
        case ValueType::integer_list:
            return "a list of integers";
        case ValueType::real_list:
            return "a list of numbers";
        case ValueType::any:
            return "a value";
    }
    return "a value";
}

namespace {

std::string number(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::array<char, 64> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    std::string out(digits.data(), error == std::errc() ? end : digits.data());
    // In TOML, a float needs a point or an exponent.
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

std::string one(bool value) { return value ? "true" : "false"; }
std::string one(std::int64_t value) { return std::to_string(value); }
std::string one(double value) { return number(value); }
std::string one(const std::string& value) {
    std::string out;
    append_quoted(value, out);
    return out;
}

template <typename T>
std::string one(const std::vector<T>& values) {
    std::string out = "[";
    for (const T& value : values) out += (out.size() > 1 ? ", " : "") + one(value);
    return out + "]";
}

}  // namespace

std::string to_toml(const ConfigValue& value) {
    return std::visit([](const auto& held) { return one(held); }, value);
}

std::string Origin::text() const {
    if (line == 0 || flag) return place;
    return place + ":" + std::to_string(line) + ":" + std::to_string(column);
}

Origin Origin::of_value() const {
    Origin at = *this;
    if (value_line > 0) at.line = value_line, at.column = value_column;
    return at;
}

}  // namespace foresay::core
