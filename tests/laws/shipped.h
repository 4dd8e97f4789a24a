// tests/laws/shipped.h: stages of the shipped plugins, in this process or in one of their own.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "plugins/host/isolated.h"
#include "plugins/host/plugin_host.h"
#include "tests/speculative/support.h"

namespace foresay::test {

// Chains with equal parameters share the stage, and so the process.
inline samplers::StageSpec shipped(const std::string& name, samplers::Parameters parameters, bool isolated = false) {
    static plugins::PluginHost host({.folders = {FORESAY_PLUGIN_FOLDER}, .marker = {}});
    static std::map<std::string, std::shared_ptr<const samplers::StageFactory>> apart;
    samplers::StageSpec spec = stage(name, std::move(parameters));
    spec.factory = host.load(name);
    if (!isolated) return spec;
    auto& own = apart[name];
    if (!own) own = plugins::isolate(spec.factory, std::chrono::seconds(30));
    spec.factory = own;
    return spec;
}

}  // namespace foresay::test
