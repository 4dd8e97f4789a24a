// tests/models/family_models.h: models with random weights of every family, in tiny shapes: their config.json files are
// in tests/golden/families.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/models/architecture.h"
#include "core/models/read_config.h"
#include "tests/models/backends.h"

namespace foresay::test {

// A source without tensors: the configuration alone decides what a random model has.
class NoTensors final : public core::ModelSource {
public:
    kernels::TensorView tensor(const core::TensorName&, core::TensorShape) override { return {}; }
    bool has(const core::TensorName&) const override { return false; }
    std::int64_t weight_bytes() override { return 0; }
};

// The configuration that the text of a config.json describes. Throws Error naming "config.json".
inline core::ModelConfig config_of(const std::string& text) {
    const core::JsonConfig json = core::JsonConfig::parse(text, "config.json");
    const NoTensors none;
    core::Keys keys(json, none);
    core::ModelConfig config =
        core::read_config(keys, core::architecture_for_hf(json.get_strings("architectures").front(), json.path()));
    config.shape.vocab = keys.count({}, "vocab_size");
    core::check_config(config, json.path());
    return config;
}

inline std::filesystem::path family_folder() {
    return std::filesystem::path(FORESAY_SOURCE_DIR) / "tests/golden/families";
}

inline std::string family_json(const std::string& family) {
    std::ifstream file(family_folder() / (family + ".json"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

inline std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
        names.push_back(entry.path().stem().string());
    }
    std::ranges::sort(names);
    return names;
}

}  // namespace foresay::test
