// core/models/layer_split.h: which layers of a model are on which backend of a list (kernels/split_ops.h). Consecutive
// layers, in the order of the list. Pure functions.
//
// Errors:   choose_split() throws Error when no split fits, the check functions when one is not possible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/models/model_config.h"

namespace foresay::core {

class ModelSource;

// Numbers of layers, by backend.
using LayerSplit = std::vector<std::int32_t>;

// Whether the layers from `layer` on may be on another backend than those before it: none of them attends to keys and
// values that those have.
bool can_cut(const ModelConfig& config, std::int32_t layer);
// Throws Error when the numbers do not add up to the model's layers, or cut where it cannot be cut. `devices`: how many
// backends there are.
void check_split(const LayerSplit& split, const ModelConfig& config, std::size_t devices);
// Of each layer, the number of its backend: what ModelSource::place_layers() takes.
std::vector<std::int32_t> devices_of(const LayerSplit& split);

// What the weights of a model take, in bytes.
struct ModelBytes {
    std::vector<std::int64_t> layers;  // of each layer
    std::vector<std::int64_t> read;    // of these, what a row reads: of E experts K. Empty: all of it
    std::vector<std::int32_t> kinds;   // of each layer: equal numbers have the same tensors in the same encodings
    std::int64_t embedding = 0;        // the table
    std::int64_t head = 0;             // the LM head, on the backend of the last layer
    std::int64_t everywhere = 0;       // on every backend that has layers: per-layer embeddings
    std::int64_t expanded = 0;         // what they take in addition on a device, all together
};
// Tensor by tensor, as they are in memory; reads none of them.
ModelBytes model_bytes(ModelSource& source);

// What the layers and the LM head of a model take for one row, in seconds.
struct RowTimes {
    std::vector<double> layers;  // empty: not measured
    double head = 0.0;
};
// From the seconds of a layer of each kind and of the head. What was not measured (0) is read as fast as what was;
// nothing: empty.
RowTimes row_times(const ModelBytes& model, std::span<const double> of_kinds, double head);

// A backend of the list.
struct DeviceRoom {
    std::string name;               // for messages: "cuda:0"
    std::int64_t memory = 0;        // free bytes
    std::int64_t workspace = 0;     // bytes of a workspace, taken once it has a layer
    std::vector<std::int64_t> kv;   // bytes of the keys and values of each layer of the model, were it here
    double bytes_per_second = 1.0;  // at which it reads weights, unless:
    RowTimes times;                 // measured with its kernels
    bool maps_tables = false;       // tables stay in the mapped file
    std::int32_t end = -1;          // its layers end before this one, whatever it has; -1: anywhere
};
// What a row reads of layers [begin, end), with the LM head after the last.
std::int64_t read_bytes(const ModelBytes& model, std::int32_t begin, std::int32_t end);
// Seconds of a backend with layers [begin, end) for a row.
double row_seconds(const ModelBytes& model, const DeviceRoom& room, std::int32_t begin, std::int32_t end);
// Bytes of a backend with layers [begin, end).
std::int64_t device_bytes(const ModelBytes& model, const DeviceRoom& room, std::int32_t begin, std::int32_t end);
// Throws Error when a backend has no room for its layers. `what`: names the model in messages.
void check_room(const ModelBytes& model, std::span<const DeviceRoom> rooms, const LayerSplit& split,
                const std::string& what);

// The split with the shortest time for a row, which is the sum of row_seconds() of each backend, among those that fit
// into each memory; of equal ones the one with more layers on earlier backends.
LayerSplit choose_split(const ModelConfig& config, const ModelBytes& model, std::span<const DeviceRoom> rooms,
                        const std::string& what);
// Seconds for a row, as choose_split() predicts them.
double predicted_seconds(const ModelBytes& model, std::span<const DeviceRoom> rooms, const LayerSplit& split);

// "layers 0-19 on cuda:0, 20-31 on cpu"
std::string split_text(const LayerSplit& split, std::span<const std::string> names);

}  // namespace foresay::core
