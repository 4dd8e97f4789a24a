// app/options.h: the options that several commands share, and their values.
//
// To add an option that stands for a configuration key, add a line to options.cpp. Any other option also needs a member
// here.
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
    // --set, and the options that stand for configuration keys. Lowest first.
    std::vector<core::ConfigLayer> overrides;
    bool append_temperature = false;                 // --temperature: add a temperature stage to a chain without one
    bool prepend_grammar = false;                    // --json-schema, --grammar: the same for a grammar stage
    bool config_alone = false;                       // ignore the files of the system and the user, and the environment
    std::optional<core::ConfigLayer> session_layer;  // the settings of the session to continue, above the user's files

    std::string model;                         // --model, also among the overrides
    bool fetch_models = true;                  // models of the hub that are not here
    std::optional<std::int64_t> context;       // --context, also among the overrides
    std::string shape;                         // --shape; empty: run a model
    std::string inflate, inflate_draft;        // shapes; empty: not inflated
    std::string quant_type, draft_quant_type;  // --quant, --draft-quant
};

// The common options: models, device, context and --set. Also adds the check for contradictions among them.
void add_common_options(OptionParser& parser, Options& options);
// For commands that work with text: --shape is refused, since there is no tokenizer.
void refuse_shape(OptionParser& parser, const Options& options);
// For the commands that measure or compare.
void add_inflation_options(OptionParser& parser, Options& options);
// The optional argument CONFIG, which may be a model of the hub (hf:ORG/NAME) instead.
void add_config_argument(OptionParser& parser, Options& options);
// --seed, --branch and --speculation.
void add_sampling_options(OptionParser& parser, Options& options);
// --temperature with a single value.
void add_temperature_option(OptionParser& parser, Options& options);
// --json-schema and --grammar.
void add_grammar_options(OptionParser& parser, Options& options);
// -n, for the commands that do not take it from the configuration.
void add_max_tokens_option(OptionParser& parser, std::optional<std::int64_t>& value, const std::string& doc);
// -f: a file that holds a text; - is standard input. `what` is what the text is: "the prompt".
void add_text_file_option(OptionParser& parser, std::string& file, const std::string& what);
// --json
void add_json_flag(OptionParser& parser, bool& json);

// Overrides a configuration key on behalf of the option `name`. `value` is TOML.
void override_key(Options& options, const std::string& name, const std::string& key, const std::string& value);
// The same for --device: one device, or several with commas between them.
void override_device(Options& options, const std::string& devices);

}  // namespace foresay::app
