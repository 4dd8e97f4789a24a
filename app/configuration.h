// app/configuration.h: from a command line to a checked configuration.
//
// Errors:   core::ConfigError with file, line and column.
#pragma once

#include <string>
#include <vector>

#include "app/options.h"
#include "core/config/config.h"
#include "engine/configuration.h"

namespace foresay::app {

// How the places of a saved session's settings begin.
inline constexpr std::string_view kSessionPlace = "session ";

using engine::stage_schemas;

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

// A sentence for each stage whose parameters are stated but do nothing, because the chain does not name it. Stages
// stated in a layer below the chain's are left out: a chain that replaces another one is meant to drop them.
std::vector<std::string> unused_stages(const Configuration& configuration);

}  // namespace foresay::app
