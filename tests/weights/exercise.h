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
#include "kernels/quant/packing.h"
#include "kernels/quant/stored_type.h"

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

// Packs the first and the last row of a tensor whose type no kernel multiplies, and finds its numbers unchanged.
inline std::uint64_t exercise_stored(const TensorTable& tensors, const TensorInfo& tensor) {
    if (tensor.stored == nullptr || !succeeds([&] { tensors.check_usable(tensor); })) return 0;
    const kernels::StoredType& type = *tensor.stored;
    const std::int64_t cols = tensor.shape.back(), rows = tensor.elements() / cols, blocks = cols / type.block_elements;
    if (cols > 4096) return 0;
    check(blocks * type.block_elements == cols, "a row that is no whole blocks");
    check(rows * blocks * type.block_bytes == tensor.bytes, "a tensor of a stored type of another size");
    std::vector<std::byte> packed(static_cast<std::size_t>(type.packed_bytes(cols)));
    std::vector<float> expected(static_cast<std::size_t>(cols)), found(expected.size());
    for (const std::int64_t row : {std::int64_t{0}, rows - 1}) {
        const std::byte* const from = tensor.data + row * blocks * type.block_bytes;
        for (std::int64_t b = 0; b < blocks; ++b) {
            type.dequantize_block(from + b * type.block_bytes, expected.data() + b * type.block_elements);
        }
        type.pack(from, blocks, packed.data());
        kernels::dequantize_row({type.packed, 1, cols, packed.data(), type.packing}, 0, found);
        for (std::size_t i = 0; i < found.size(); ++i) {
            const bool none = found[i] != found[i] && expected[i] != expected[i];
            check(none || found[i] == expected[i] || !(expected[i] - expected[i] == 0.0f), "packing changed a number");
        }
    }
    return packed.empty() ? 0 : static_cast<std::uint64_t>(packed.back());
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
        sum += exercise_stored(tensors, tensor);
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
