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

// The built-in stages as the configuration's schema.
const std::vector<core::StageSchema>& stage_schemas();

// The configuration that a command line asks for: CONFIG, or the bundled pair when no model is named, then the flags.
class Configuration {
public:
    explicit Configuration(const Options& options);

    const core::Config& config() const { return config_; }
    // Sets one key for this session ("key.path=value", named `place` in messages). On error nothing changes.
    void set(const std::string& assignment, const std::string& place);

private:
    core::Config load(const std::vector<core::ConfigLayer>& layers) const;

    bool need_target_ = true;
    std::vector<core::ConfigLayer> layers_;
    core::Config config_;
};

// The chain of `config`.
samplers::ChainSpec chain_spec(const core::Config& config, const PluginFactories& plugins);

}  // namespace foresay::app
