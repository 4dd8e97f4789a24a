// core/config/schema.h: every key of a configuration, as one table: dotted name, type, default, range or choices, one
// line of documentation. The loader, `config show`, `/set` and error messages use it.
//
// To add a key, add a row in schema.cpp and, if the program reads it by name, a field in config.h.
// The keys of [sampling.STAGE] and the names of drafters are not in the table: the caller of load_config() passes them
// as StageSchema and SourceSchema. on_error_key() is the key that all stages share.
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
    std::string key;  // dotted: "target.context"; in a StageSchema only the last part: "value"
    ValueType type = ValueType::text;
    ConfigValue fallback;  // the default
    std::optional<double> min;
    std::optional<double> max;
    std::vector<std::string> choices;  // of ValueType::choice; of the entries of a text_list, if not empty
    std::string doc;                   // one line
    // Older spellings of choices, {spelling, choice}: accepted and replaced.
    std::vector<std::pair<std::string, std::string>> aliases = {};
    std::vector<std::string> words = {};  // of ValueType::path: texts that are no path
    bool paths = false;                   // of a text_list: its entries are paths
    bool yields = false;                  // a name that is also the end of another key means that one: /set device
};

// The table of further variables for a chat template, [chat.template_args]: any names, with values of any type.
inline constexpr std::string_view kTemplateArgs = "chat.template_args";

// The key that every sampler stage has besides its own parameters: in [sampling.STAGE] for built-in stages, in
// [[plugin]] for plugins.
const KeySpec& on_error_key();
// What a [[plugin]] may state besides its names, its path and its options: on_error, isolated and deadline_ms.
std::span<const KeySpec> plugin_keys();

// A sampler stage that a chain may name, and its parameters.
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

// The row of `speculation.sources` with `sources` as its choices. Without sources, any name is accepted.
KeySpec sources_key(std::span<const SourceSchema> sources);

// The table.
std::span<const KeySpec> core_schema();

// The entry of `key` in the table; nullptr when there is none.
const KeySpec* find_key(std::string_view key);

// The most tokens that a speculation may draft, whatever the configuration.
inline constexpr int kMaxDraft = 32;

}  // namespace foresay::core
