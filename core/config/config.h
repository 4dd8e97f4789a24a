// core/config/config.h: the configuration: which models to run, how to sample, how to speculate.
//
// Layers, low to high: the schema's defaults, files (each above the files that it extends), environment variables,
// `--set`, command-line flags. Tables merge key by key; scalars and lists replace; a layer with [[plugin]] replaces the
// plugins of the layers below. core/config/layers.h finds the layers.
// A plugin that the chain does not name is not used, and not loaded.
// Errors:   ConfigError with all complaints at once, before any weight is loaded: unknown keys and stages, wrong types,
//           values out of range, missing files.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/schema.h"
#include "core/config/value.h"
#include "kernels/ops.h"

namespace foresay::core {

enum class SpeculationMode : std::uint8_t { automatic, off, fixed };

struct PluginSpec {
    std::string name;            // of the stage, as the chain names it
    std::string sampler;         // of the sampler that it is made of; empty: `name`
    std::filesystem::path path;  // empty: found on the plugin path by the sampler's name
    Origin origin;               // of the [[plugin]] entry
    Origin path_origin;          // of `path`, which another layer may set
    const std::string& sampler_name() const { return sampler.empty() ? name : sampler; }
    Setting on_error{plugin_keys()[0].fallback, Origin{}};
    Setting isolated{plugin_keys()[1].fallback, Origin{}};
    Setting deadline_ms{plugin_keys()[2].fallback, Origin{}};
    // Those of plugin_keys(), in their order.
    std::array<Setting*, 3> settings() { return {&on_error, &isolated, &deadline_ms}; }
    std::array<const Setting*, 3> settings() const { return {&on_error, &isolated, &deadline_ms}; }
    struct Option : Setting {
        std::filesystem::path directory;  // where a relative path starts, if the value is one
        std::string line;                 // of the configuration's text, for messages
    };
    std::vector<std::pair<std::string, Option>> options;  // in file order; the plugin's host checks names and types
};

// One layer above the defaults.
struct ConfigLayer {
    std::string place;                // its name in messages: the file as the user wrote it, "--set #1", a variable
    std::string text;                 // TOML
    std::filesystem::path directory;  // where relative paths start
    bool flag = false;                // an argument rather than a file
    // Stages that a chain of this layer begins with unless it has them anyway; see core/config/presets.h.
    std::vector<std::string> first_stages = {};
};

class Config {
public:
    std::filesystem::path target_model;
    int target_context = 0;                            // 0: as long as the model allows
    std::filesystem::path draft_model;                 // empty: no draft model, or draft_auto
    bool draft_auto = false;                           // one is to be found
    std::vector<std::filesystem::path> draft_folders;  // in which it is looked for
    bool draft_head_as_stored = false;

    SpeculationMode speculation_mode = SpeculationMode::automatic;
    int max_draft = 16;
    int draft_length = 4;  // of SpeculationMode::fixed
    std::vector<std::string> sources;

    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::vector<std::string> chain;
    std::vector<PluginSpec> plugins;

    std::string chat_style;
    std::filesystem::path chat_template;  // empty: the model's own
    std::string chat_reasoning;
    std::string chat_date;
    std::string chat_system;
    bool chat_newline = true;
    std::string chat_fim_order;  // "psm" or "spm"
    std::string chat_language;   // "auto", "none" or a name, which the program checks
    std::string chat_about;
    bool chat_save = true;
    std::int64_t chat_keep_sessions = 0;  // 0: all
    bool chat_read_ahead = true;
    int chat_max_tokens = 0;  // 0: up to the end of the context

    int threads = 0;  // 0: one per core
    std::string device;
    std::vector<std::string> devices;         // a list, in place of `device`; empty: there is none
    std::vector<std::int32_t> device_layers;  // of each of the list; empty: as many as fit. Without a list not used
    kernels::KvFormat kv_format = kernels::KvFormat::f16;
    std::string isa;          // empty: the best one that the processor has
    bool check_files = true;  // compare models with the checksums beside them

    // Where pages go that leave the KV cache of many texts.
    std::int64_t cache_host_mib = 0;     // of host memory; 0: nowhere
    std::filesystem::path cache_folder;  // empty: to no disk
    std::int64_t cache_disk_mib = 0;

    // Every key of the schema with its value and origin, by dotted name: "sampling.seed", "sampling.top_k.k".
    // Parameters of sampler stages, and variables of a chat template, are present only when a layer sets them.
    const std::map<std::string, Setting>& settings() const { return settings_; }
    const Setting& setting(const std::string& key) const;
    // The parameters that layers set for `stage`, by name.
    std::map<std::string, Setting> stage(std::string_view stage) const;
    // [chat.template_args], by name.
    std::map<std::string, Setting> template_args() const;

private:
    friend class ConfigLoader;
    std::map<std::string, Setting> table(const std::string& prefix) const;
    std::map<std::string, Setting> settings_;
};

// Whether a model is named as on the hub, "hf:ORG/NAME:QUANT", and not by its path. Such a name is no relative path.
bool names_hub_model(std::string_view text);

// Finds the file or folder of such a model, and may fetch it. What it throws (Error) is thrown on, after its place.
using FindModel = std::function<std::filesystem::path(const std::string& name)>;

struct ConfigRequest {
    std::vector<ConfigLayer> layers;        // lowest first
    std::span<const StageSchema> stages;    // the built-in sampler stages
    std::span<const SourceSchema> sources;  // the drafters; empty: any name is accepted
    bool need_target = true;                // some layer must set target.model
    bool need_files = true;                 // model and plugin files must exist
    FindModel find_model = {};              // for models of the hub, once all else is right; empty: they are refused
};

// Checks and merges the layers.
Config load_config(const ConfigRequest& request);

// Where the relative paths in the configuration at `path` start: the folder of the file. A link counts as the file that
// it leads to, so that a configuration that is kept elsewhere and linked finds what lies beside it. The current folder
// for a pipe.
std::filesystem::path directory_of(const std::filesystem::path& path);

// A layer from a file. Throws Error when it cannot be read, would block (core/config/input_file.h), or is larger than
// kMaxConfigBytes.
ConfigLayer read_config_file(const std::filesystem::path& path);
inline constexpr std::int64_t kMaxConfigBytes = 1 << 20;

// A layer from the text of `--set`: key.path=value. Text values need no quotes. `place` names it in messages. Throws
// UsageError when there is no '=' or no key.
ConfigLayer override_layer(std::string_view assignment, const std::string& place);

// The whole configuration as TOML, in the schema's order, then the parameters of the chain's stages with their
// defaults, then the plugins. With `origins`, each line ends in a comment with the origin of its value.
std::string to_toml(const Config& config, std::span<const StageSchema> stages, bool origins);

}  // namespace foresay::core
