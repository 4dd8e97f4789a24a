// core/config/layers.h: finds the layers of a configuration: files and the files that they extend, the system's and the
// user's files, environment variables.
//
// Errors:   Error for a file that cannot be read; ConfigError with file, line and column for an `extends` that is not a
//           path, forms a cycle, nests too deeply or names too many files; UsageError for an environment variable that
//           misspells a key.
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

// The layers of the file at `path`, lowest first: the files that it extends (a path or a list of paths, relative to
// it), then itself. A file that is reached several times counts once, at the first place.
std::vector<ConfigLayer> read_config_layers(const std::filesystem::path& path);

// Looks up a variable of the environment; nullopt when it is not set.
using Variables = std::function<std::optional<std::string>(const std::string&)>;
// Of this process.
std::optional<std::string> read_variable(const std::string& name);

// The files that always apply, lowest first, whether they exist or not: foresay/config.toml in the folders of
// XDG_CONFIG_DIRS (/etc/xdg; the first folder has the highest priority), then in XDG_CONFIG_HOME (~/.config).
std::vector<std::filesystem::path> standard_config_files(const Variables& variables);

// Layers from those variables of `environment` ("NAME=VALUE" each) that are keys: FORESAY_TABLE__KEY, in upper case and
// with two underscores for each dot. FORESAY_SAMPLING__TOP_K__K=20 means --set sampling.top_k.k=20. Variables without
// two underscores are ignored, unless they are a key written with single ones, which is an error.
std::vector<ConfigLayer> environment_layers(std::span<const std::string> environment);

// The name of the variable that sets `key`.
std::string variable_of(std::string_view key);

// Whether `layer` sets `key` (dotted). False for a layer that is not TOML.
bool states(const ConfigLayer& layer, std::string_view key);

// Resolves `path` as written in a file of `directory`: ~/ is the home folder, relative paths start at `directory`.
// Empty stays empty.
std::filesystem::path resolve_path(const std::string& path, const std::filesystem::path& directory);

}  // namespace foresay::core
