// core/config/value.h: the values of configuration keys, and their origins.
//
// Threads:  plain data.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace foresay::core {

enum class ValueType : std::uint8_t {
    boolean,
    integer,
    real,  // an integer is accepted too
    text,
    choice,  // text, one of KeySpec::choices
    path,    // text; relative to the file that holds it
    text_list,
    integer_list,
    real_list,
    any,  // any of the above; for the options of a plugin, which declares its own types
};

// The name of a type in messages: "an integer", "a list of strings".
std::string describe(ValueType type);

using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                                 std::vector<std::int64_t>, std::vector<double>>;

// The value as TOML writes it.
std::string to_toml(const ConfigValue& value);

// Where a value comes from.
struct Origin {
    std::string place = "default";  // a file name, "--set #2", "--model", or "default"
    int line = 0;                   // from 1; 0: no line
    int column = 0;                 // from 1
    bool flag = false;              // an argument rather than a file: text() leaves line and column out
    int value_line = 0;             // where the value begins, for the caret under it; 0: not known
    int value_column = 0;

    bool is_default() const { return place == "default"; }
    std::string text() const;  // "file:line:column", or the place alone
    Origin of_value() const;   // the same, at the value
};

struct Setting {
    ConfigValue value;
    Origin origin;
};

}  // namespace foresay::core
