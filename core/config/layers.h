// core/config/layers.h: where the layers of a configuration come from: files with what they extend, the files that hold
// for every session, the environment.
//
// Errors:   Error for a file that cannot be read; ConfigError with file, line and column for an `extends` that is no
//           path, comes back to its own file, goes too deep or names too many files; UsageError for a variable of the
//           environment that means a key and misspells it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace foresay::core {

inline constexpr int kMaxExtendsDepth = 8;
inline constexpr int kMaxExtendedFiles = 32;

// The layers of the file at `path`, lowest first: what it extends (a path or a list of them, relative to the file that
// says so), then itself. A file that is reached on several ways counts once, where it is reached first.
std::vector<ConfigLayer> read_config_layers(const std::filesystem::path& path);

// Looks up a variable of the environment; nullopt when it is not set.
using Variables = std::function<std::optional<std::string>(const std::string&)>;

// The files that hold for every session, lowest first, whether they exist or not: foresay/config.toml in the folders of
// XDG_CONFIG_DIRS (/etc/xdg; the first one named is the most important), then in XDG_CONFIG_HOME (~/.config).
std::vector<std::filesystem::path> standard_config_files(const Variables& variables);

// Layers of those variables of `environment` ("NAME=VALUE" each) that are keys: FORESAY_TABLE__KEY, with two
// underscores for each dot of the key, in upper case: FORESAY_SAMPLING__TOP_K__K=20 is --set sampling.top_k.k=20.
// Variables without two underscores are none of the configuration's, unless they spell one of its keys with single
// ones.
std::vector<ConfigLayer> environment_layers(std::span<const std::string> environment);

// The name of the variable that sets `key`.
std::string variable_of(std::string_view key);

// Whether `layer` states `key` (dotted). False for a layer that is not TOML.
bool states(const ConfigLayer& layer, std::string_view key);

// `path` as a file in `directory` states it: ~/ is the home folder, relative paths start at `directory`. Empty stays
// so.
std::filesystem::path resolve_path(const std::string& path, const std::filesystem::path& directory);

}  // namespace foresay::core
