// app/configuration.h: builds a checked configuration from a command line.
//
// Errors:   core::ConfigError with file, line and column.
#pragma once

#include <string>
#include <vector>

#include "app/options.h"
#include "core/config/config.h"
#include "engine/configuration.h"

namespace foresay::app {

// Prefix of the places (in messages) of a saved session's settings.
inline constexpr std::string_view kSessionPlace = "session ";

using engine::stage_schemas;

// The configuration of a command line. Its layers, lowest first: the bundled pair if no layer names a model, the files
// of the system and of the user, the saved session, CONFIG, the environment, --set, the other options, and what set()
// adds; one that names a model takes the bundled pair away. With Options::config_alone (`config check`), only CONFIG
// and the command line count.
class Configuration {
public:
    explicit Configuration(const Options& options);

    const core::Config& config() const { return config_; }
    // Lowest first, without the schema's defaults.
    const std::vector<core::ConfigLayer>& layers() const { return layers_; }
    // Adds a top layer that sets one key ("key.path=value"); messages call it `place`. On error nothing changes.
    void set(const std::string& assignment, const std::string& place);
    // The same for any number of keys, as TOML.
    void set_text(const std::string& toml, const std::string& place);

private:
    void add(core::ConfigLayer layer);
    core::Config load(const std::vector<core::ConfigLayer>& layers) const;

    bool need_target_ = true;
    bool fetch_models_ = true;
    std::size_t bundled_ = 0;  // how many of the lowest layers are the bundled pair
    std::vector<core::ConfigLayer> layers_;
    core::Config config_;
};

// A sentence for each plugin that is configured, and for each stage whose parameters are set, although the chain does
// not contain it. Leaves out those from layers below the one that sets the chain: a chain that replaces another one may
// drop its stages.
std::vector<std::string> unused_stages(const Configuration& configuration);

}  // namespace foresay::app
