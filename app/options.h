// app/options.h: the options that several commands share, declared once, and what they come to.
//
// To add one that is a key of the configuration under another name: a line in options.cpp. One that is not needs a
// member here as well.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace foresay::app {

class OptionParser;

struct Options {
    std::string config;  // CONFIG; empty: the bundled pair, unless a model or a shape is named
    // --set, and the options that are keys of the configuration under another name. Lowest first.
    std::vector<core::ConfigLayer> overrides;
    bool append_temperature = false;  // --temperature: a chain without a temperature stage gets one
    bool config_alone = false;        // leaves out the files of the system and the user, and the environment
    std::optional<core::ConfigLayer> session_layer;  // the settings of a session that goes on, above the user's files

    std::string model;                         // --model, which is also among the overrides
    std::optional<std::int64_t> context;       // --context, which is also among the overrides
    std::string shape;                         // random weights in a published shape; empty: a model
    std::string inflate, inflate_draft;        // shapes; empty: the models as they are
    std::string quant_type, draft_quant_type;  // --quant, --draft-quant
};

// Model, device, context and --set: the options that almost every command has. Checks on its own what contradicts.
void add_common_options(OptionParser& parser, Options& options);
// For the commands that measure or compare.
void add_inflation_options(OptionParser& parser, Options& options);
// The optional argument CONFIG.
void add_config_argument(OptionParser& parser, Options& options);
// --seed, --branch and --speculation.
void add_sampling_options(OptionParser& parser, Options& options);
// --temperature, once.
void add_temperature_option(OptionParser& parser, Options& options);
// -n as a number, for the commands that do not read it from the configuration.
void add_max_tokens_option(OptionParser& parser, std::optional<std::int64_t>& value, const std::string& doc);
// --json
void add_json_flag(OptionParser& parser, bool& json);

// Sets `key` as the option `name` of the command line does. `value` is TOML.
void override_key(Options& options, const std::string& name, const std::string& key, const std::string& value);

}  // namespace foresay::app
