// tests/weights/exercise.h: uses everything that an opened model file offers, so that a length which a reader failed to
// check is found by the sanitizers here and not by a user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/weights/gguf.h"
#include "core/weights/json_config.h"
#include "core/weights/safetensors.h"
#include "core/weights/tensor_table.h"

namespace foresay::core::testing {

// Runs `action`; an Error is a fine answer to a hostile file, anything else is not.
template <class Action>
bool succeeds(Action action) {
    try {
        action();
        return true;
    } catch (const Error&) {
        return false;
    }
}

// Reads the ends and up to a thousand bytes of every tensor. Returns a checksum, so that nothing is optimised away.
inline std::uint64_t exercise(const TensorTable& tensors) {
    std::uint64_t sum = 0;
    for (const TensorInfo& tensor : tensors.list()) {
        const std::int64_t step = tensor.bytes / 1000 + 1;
        for (std::int64_t i = 0; i < tensor.bytes; i += step) sum += static_cast<std::uint64_t>(tensor.data[i]);
        if (tensor.bytes > 0) sum += static_cast<std::uint64_t>(tensor.data[tensor.bytes - 1]);
        sum += tensors.find(tensor.name) == &tensor ? 1 : 0;
        succeeds([&] {
            const kernels::TensorView view = tensors.get(tensor.name);
            check(view.bytes() == tensor.bytes, "a view and its description differ in size");
            check(view.elements() == tensor.elements(), "a view and its description differ in shape");
            if (view.cols <= 4096) {
                std::vector<float> row(static_cast<std::size_t>(view.cols));
                kernels::dequantize_row(view, view.rows - 1, row);
            }
        });
    }
    return sum;
}

inline std::uint64_t exercise(const GgufFile& file) {
    std::uint64_t sum = exercise(file.tensors());
    for (const GgufEntry& entry : file.metadata()) {
        sum += file.describe(entry).size();
        check(file.find(entry.key) == &entry, "a key does not find its entry");
        succeeds([&] { sum += static_cast<std::uint64_t>(file.get_int(entry.key)); });
        succeeds([&] { sum += file.get_float(entry.key) > 0.0; });
        succeeds([&] { sum += file.get_bool(entry.key); });
        succeeds([&] { sum += file.get_string(entry.key).size(); });
        succeeds([&] {
            for (std::string_view text : file.get_strings(entry.key)) {
                for (char c : text) sum += static_cast<unsigned char>(c);
            }
        });
        succeeds([&] { sum += file.get_ints(entry.key).size(); });
        succeeds([&] { sum += file.get_floats(entry.key).size(); });
        succeeds([&] { sum += file.get_bools(entry.key).size(); });
    }
    return sum;
}

inline std::uint64_t exercise(const JsonConfig& config) {
    std::uint64_t sum = config.text().size();
    for (const char* member :
         {"a", "num_hidden_layers", "rope_parameters.rope_type", "a.b.c", ".", "", "architectures"}) {
        sum += config.has(member) + config.is_array(member);
        succeeds([&] { sum += static_cast<std::uint64_t>(config.get_int_or(member, 1)); });
        succeeds([&] { sum += config.get_float_or(member, 1.0) > 0.0; });
        succeeds([&] { sum += config.get_bool_or(member, true); });
        succeeds([&] { sum += config.get_string_or(member, "x").size(); });
        succeeds([&] { sum += config.get_ints(member).size(); });
        succeeds([&] { sum += config.get_floats(member).size(); });
        succeeds([&] { sum += config.get_strings(member).size(); });
    }
    return sum;
}

inline std::uint64_t exercise(const SafetensorsDir& model) {
    return exercise(model.tensors()) + exercise(model.config());
}

}  // namespace foresay::core::testing
