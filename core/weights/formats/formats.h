// core/weights/formats/formats.h: the formats of quantised safetensors, one reader each.
//
// To add a format: a file like gptq.cpp, and its line in formats.cpp.
//
// Errors:   open_matrices() throws Error for a method or a layout that is not read, for tensors that contradict each
//           other, and for quantised tensors whose settings are missing.
// Cost:     reads headers, orders of inputs and, once, all scales.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/weights/formats/module_tensors.h"
#include "core/weights/formats/stored_matrix.h"

namespace foresay::core {

class SafetensorsDir;

struct MatrixFormat {
    std::string_view name;                      // "GPTQ"
    std::span<const std::string_view> methods;  // values of quant_method
    std::string_view written_by;                // for docs/formats.md
    std::string_view bits;                      // the same
    bool (*marks)(const TensorInfo& tensor);    // whether the tensor is the one by which a module is recognised
    std::unique_ptr<StoredMatrix> (*read)(const Folder& folder, const TensorInfo& mark);
    // Of marks of three dimensions, which hold the matrices of all experts, one of them. Null: the format has none.
    std::unique_ptr<StoredMatrix> (*read_expert)(const Folder& folder, const TensorInfo& mark,
                                                 std::int64_t expert) = nullptr;
};

std::span<const MatrixFormat> matrix_formats();

// A method that foresay does not read, and what to use instead.
struct RefusedMethod {
    std::string_view method;  // of quant_method, in lower case
    std::string_view name;    // for people
    std::string_view instead;
};
std::span<const RefusedMethod> refused_methods();

using Matrices = std::map<std::string, std::unique_ptr<StoredMatrix>, std::less<>>;  // by the module's name

// What a folder says about how its weights are quantised; empty when it says nothing.
JsonConfig quantisation_settings(const SafetensorsDir& folder);

// All matrices of a folder that are stored as several tensors. Those of a stack of experts, "a.switch_mlp.up_proj", are
// called as folders call experts that are stored one by one: "a.experts.0.up_proj".
Matrices open_matrices(const SafetensorsDir& folder);
// The same from its parts; `folder.method` is empty for a folder that says nothing: then EXL2 and AWQ are recognised
// by their tensors.
Matrices open_matrices(const Folder& folder);

}  // namespace foresay::core
