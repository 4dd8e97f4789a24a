// app/model_report.h: what `foresay inspect` says of one model: how its weights are stored, what they become in memory,
// how fast it can run here, and why it cannot if it cannot.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/models/encodings.h"
#include "core/weights/tensor_table.h"
#include "engine/engine.h"

namespace foresay::app {

struct ModelReport {
    std::string path;
    std::optional<core::ModelConfig> config;  // empty: the file is no model that is understood
    std::vector<core::Encoding> encodings;
    std::int64_t weight_bytes = 0;      // in memory
    std::int64_t narrowed = 0;          // bytes that the CPU's panels take less
    bool narrows = true;                // whether the CPU runs it, or nothing does
    std::int64_t more_on_a_device = 0;  // bytes that weights take there in addition
    double active = 1.0;                // the share of the parameters that a token reads
    // Matrices that are float32 on a device, and on what would run it.
    std::vector<core::UnpackedMatrices> unpacked_on_a_device, unpacked;
    std::optional<std::int64_t>
        on_device;                   // bytes of the weights on the device that would run it; empty: the host does
    double read_bandwidth = 0.0;     // at which what would run it reads weights, bytes per second; 0: not measured
    double tokens_per_second = 0.0;  // by that; 0: not known
    bool by_kernels = false;         // the processor's part was measured with its kernels: an estimate, no bound

    // Bytes.
    std::int64_t read_per_token() const {
        const std::int64_t on_host = weight_bytes - (narrows ? narrowed : 0);
        return static_cast<std::int64_t>(static_cast<double>(on_device.value_or(on_host)) * active);
    }
    // Formats of the KV cache that keep keys and values alike, and the bytes that each takes for a page of positions.
    std::vector<std::pair<std::string, std::int64_t>> cache_page;
    std::string quantised_by;                     // as the file tells it; empty if it does not
    std::string backend;                          // that would run it
    std::vector<engine::PlacedLayers> placement;  // on a list of devices
    std::string problem;                          // why it cannot run here; empty: it can
};

// Reads headers, and of quantised safetensors scales. Throws Error when the model is not understood.
void describe_weights(core::ModelSource& source, ModelReport& report);
// The same of a file whose tensors can be listed and no more: by type, with their bytes in the file.
void describe_tensors(const core::TensorTable& table, ModelReport& report);
// Measures what the processor takes for a token with its kernels, and how fast a device reads memory: a token cannot be
// faster than its weights are read. A quarter of a second for a device; for the processor see
// engine/measured_times.h. Once in a process. Needs report.placement of a list of devices.
void expect_speed(kernels::Ops& ops, core::ModelSource& source, ModelReport& report);

// That a token takes of layers, or shares of them, that are placed so; 0: not known.
double predicted_seconds(std::span<const engine::PlacedLayers> placement);

// One line of name and value, as all of inspect's.
std::string field(const std::string& name, const std::string& value);

// Which layers are on which device; empty where there is one device.
std::string placement_text(const ModelReport& report);
std::string weights_text(const ModelReport& report);
// One object.
std::string to_json(const ModelReport& report);

}  // namespace foresay::app
