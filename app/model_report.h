// app/model_report.h: what `foresay inspect` says of one model: how its weights are stored, what they become in memory,
// and whether the model can run here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/models/encodings.h"

namespace foresay::app {

struct ModelReport {
    std::string path;
    std::optional<core::ModelConfig> config;  // empty: the file is no model that is understood
    std::vector<core::Encoding> encodings;
    std::int64_t read_per_token = 0;  // bytes
    // Formats of the KV cache that keep keys and values alike, and the bytes that each takes for a page of positions.
    std::vector<std::pair<std::string, std::int64_t>> cache_page;
    std::string quantised_by;  // as the file tells it; empty if it does not
    std::string backend;       // that would run it
    std::string problem;       // why it cannot run here; empty: it can
};

// Reads headers, and of quantised safetensors scales. Throws Error when the model is not understood.
void describe_weights(core::ModelSource& source, ModelReport& report);

// One line of name and value, as all of inspect's.
std::string field(const std::string& name, const std::string& value);

std::string weights_text(const ModelReport& report);
// One object.
std::string to_json(const ModelReport& report);

}  // namespace foresay::app
