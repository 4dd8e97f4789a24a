// app/configuration.h: from a command line to a checked configuration, and from a configuration to the stages of a chain.
//
// Errors:   core::ConfigError with file, line and column.
#pragma once

#include <string>
#include <vector>

#include "app/options.h"
#include "app/plugins.h"
#include "core/config/config.h"
#include "samplers/chain.h"

namespace foresay::app {

// How the places of a saved session's settings begin.
inline constexpr std::string_view kSessionPlace = "session ";

// The built-in stages as the configuration's schema.
const std::vector<core::StageSchema>& stage_schemas();

// The configuration that a command line asks for. Its layers, lowest first: the bundled pair when nobody names a model,
// the files of the system and of the user, CONFIG, the environment, --set, the flags, and what set() sets.
// `config check` looks at the file and the command line alone.
class Configuration {
public:
    explicit Configuration(const Options& options);

    const core::Config& config() const { return config_; }
    // Lowest first, the schema's defaults left out.
    const std::vector<core::ConfigLayer>& layers() const { return layers_; }
    // Sets one key for this session ("key.path=value", named `place` in messages). On error nothing changes.
    void set(const std::string& assignment, const std::string& place);
    // The same for any number of keys, as TOML.
    void set_text(const std::string& toml, const std::string& place);

private:
    void add(core::ConfigLayer layer);
    core::Config load(const std::vector<core::ConfigLayer>& layers) const;

    bool need_target_ = true;
    std::vector<core::ConfigLayer> layers_;
    core::Config config_;
};

// A sentence for each stage whose parameters are stated though the chain does not name it, so that they do nothing. Not
// for those that a layer below the chain's states: who names another chain has no use for them, and knows it.
std::vector<std::string> unused_stages(const Configuration& configuration);

// The chain of `config`.
samplers::ChainSpec chain_spec(const core::Config& config, const PluginFactories& plugins);

}  // namespace foresay::app
