// core/config/schema.h: every key that a configuration may state, as one table: dotted name, type, default, range or
// choices, one line of documentation. The loader, `config show`, `/set` and the error messages are driven by it.
//
// To add a key: one row in schema.cpp, and its field in config.h if the program reads it by name.
// The keys of [sampling.STAGE] and the names of drafters are not here: who loads a configuration hands them over, as
// StageSchema and SourceSchema.
// The key that all stages share is on_error_key().
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/value.h"

namespace foresay::core {

struct KeySpec {
    std::string key;  // dotted: "target.context"; in a StageSchema the last part alone: "value"
    ValueType type = ValueType::text;
    ConfigValue fallback;  // the value when nobody states one
    std::optional<double> min;
    std::optional<double> max;
    std::vector<std::string> choices;  // for ValueType::choice, and for the entries of a text_list if not empty
    std::string doc;                   // one line
    // Older spellings of choices, {spelling, choice}: accepted and replaced.
    std::vector<std::pair<std::string, std::string>> aliases = {};
};

// The key that every stage has besides its own parameters: in [sampling.STAGE] of a built-in one, in [[plugin]] of
// another.
const KeySpec& on_error_key();

// A stage that a chain may name, and its parameters.
struct StageSchema {
    std::string name;
    std::string doc;
    std::vector<KeySpec> parameters;
};

// A drafter that `speculation.sources` may name.
struct SourceSchema {
    std::string name;
    std::string doc;  // one clause
    std::vector<std::string> aliases;
};

// The row of `speculation.sources` with `sources` as its choices. Without sources: any name may be stated.
KeySpec sources_key(std::span<const SourceSchema> sources);

// The table.
std::span<const KeySpec> core_schema();

// The entry of `key` in the table; nullptr when there is none.
const KeySpec* find_key(std::string_view key);

// The longest run a speculation may draft, whatever the configuration says.
inline constexpr int kMaxDraft = 32;

}  // namespace foresay::core
