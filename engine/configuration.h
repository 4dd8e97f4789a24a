// engine/configuration.h: loads configurations, checked against the samplers and drafters that this library has, and
// builds the chain that a configuration asks for.
//
// Errors:   core::ConfigError with file, line and column.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "engine/plugins.h"
#include "samplers/chain.h"

namespace foresay::engine {

// The built-in stages of a chain, as the configuration's schema lists them.
const std::vector<core::StageSchema>& stage_schemas();

// The drafters that speculation.sources may name, likewise.
const std::vector<core::SourceSchema>& source_schemas();

// The entry of the dotted `key` in the schema, with the names that this library adds: "sampling.top_k.k". nullptr when
// there is none.
const core::KeySpec* find_key(const std::string& key);

// Loads the configuration at `file` with what it extends. Each of `settings` ("sampling.seed=7") replaces a key.
core::Config load_config(const std::filesystem::path& file, std::span<const std::string> settings = {});

// Loads and checks `layers`, lowest first. `need_target`: some layer must name a target model. `find_model`: for models
// that are named as on the hub; without it they are refused.
core::Config load_config(std::vector<core::ConfigLayer> layers, bool need_target = true,
                         core::FindModel find_model = {});

// The stage of that name as `config` describes it, whether or not its chain names it: one of `plugins`, or a built-in
// one.
samplers::StageSpec stage_spec(const core::Config& config, const PluginFactories& plugins, const std::string& name);
// The chain of `config`.
samplers::ChainSpec chain_spec(const core::Config& config, const PluginFactories& plugins);
// The same, made. Throws ConfigError with the place of the setting that a stage refuses.
samplers::Chain make_chain(const core::Config& config, const PluginFactories& plugins,
                           const samplers::Vocabulary& vocabulary);

}  // namespace foresay::engine
