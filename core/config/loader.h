// core/config/loader.h: the implementation of load_config(). apply() takes the layers, lowest first, and collects
// complaints instead of throwing; finish() checks what needs all layers and throws if there is any complaint.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/diagnostic.h"
#include "core/config/toml_tree.h"

namespace foresay::core {

class ConfigLoader {
public:
    explicit ConfigLoader(const ConfigRequest& request);

    void apply(const ConfigLayer& layer);
    // Returns the configuration, or throws ConfigError with every complaint.
    Config finish();

private:
    void read_table(const TomlNode& table, const std::string& prefix);
    void set(const KeySpec& spec, const std::string& key, const TomlNode::Member& member);
    void unknown(const TomlNode::Member& member, const std::string& prefix);
    void stage(const StageSchema& schema, const TomlNode& table);
    void set_parts(const KeySpec& spec, const TomlNode::Member& member);
    void template_args(const TomlNode::Member& table);
    void plugins(const TomlNode::Member& member);
    void plugin_entry(const TomlNode& entry);
    void plugin_overrides(const TomlNode& table);
    void plugin_member(PluginSpec& plugin, const TomlNode::Member& member);
    void plugin_options(PluginSpec& plugin, const TomlNode& options);

    void check_files();
    void find_models();
    void check_chain();
    void check_device();
    void check_ranks(const std::vector<std::string>& devices);
    void fill();

    std::filesystem::path resolve(const std::string& path) const;
    const StageSchema* find_stage(const std::string& name) const;
    Origin here(int line, int column) const;
    Origin here(const TomlNode::Member& member) const;  // of its key, and its value
    bool in_chain(const std::string& name) const;
    void complain(const Origin& where, std::string message);
    void complain(int line, int column, std::string message);

    const ConfigRequest& request_;
    const KeySpec sources_key_;
    const ConfigLayer* layer_ = nullptr;
    Config config_;
    std::map<std::string, std::string> found_;  // paths of models that are named as on the hub, by key
    std::map<std::string, Origin> replaced_;    // plugins that a higher layer's list leaves out, and its place
    std::vector<Diagnostic> diagnostics_;
    int dropped_ = 0;
};

}  // namespace foresay::core
