// Whatever a configuration file holds, loading it yields a configuration or one ConfigError, and never more than that.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/config/config.h"
#include "core/config/diagnostic.h"

namespace {

using foresay::core::ValueType;

const std::vector<foresay::core::StageSchema>& stages() {
    static const std::vector<foresay::core::StageSchema> all = {
        {"penalties", "", {{"repeat", ValueType::real, 1.0, 0, 10, {}, ""}}},
        {"top_k", "", {{"k", ValueType::integer, std::int64_t{40}, 0, 512, {}, ""}}},
        {"top_p", "", {{"p", ValueType::real, 0.95, 0, 1, {}, ""}}},
        {"temperature", "", {{"value", ValueType::real, 0.6, 0, 100, {}, ""}}},
    };
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    foresay::core::ConfigRequest request;
    request.layers = {{"fuzz.toml", text, "/"}};
    request.stages = stages();
    request.need_files = false;
    request.need_target = false;
    try {
        const auto config = foresay::core::load_config(request);
        // What is shown must load again.
        request.layers = {{"shown.toml", foresay::core::to_toml(config, stages(), true), "/"}};
        foresay::core::load_config(request);
    } catch (const foresay::core::ConfigError& problem) {
        if (request.layers[0].place == "shown.toml") __builtin_trap();
        if (problem.diagnostics().empty()) __builtin_trap();
    }
    try {
        request.layers = {foresay::core::override_layer(text, "--set #1")};
        foresay::core::load_config(request);
    } catch (const foresay::Error&) {
    }
    return 0;
}
