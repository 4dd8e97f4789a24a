// core/weights/tensor_table.h: the tensors of a model file by name, the same for every file format.
//
// Layout:   `shape` is outermost dimension first, whatever the order in the file; the last one is contiguous. As a
//           TensorView the last dimension becomes `cols` and all others fold into `rows`; a vector has one row.
// Life:     views and data pointers live as long as the file object that owns the table.
// Threads:  immutable once a reader hands it out; any thread may read.
// Errors:   get() throws Error when the tensor is missing, has no values, or has a type that no kernel multiplies;
//           list() and find() still show such tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/stored_type.h"
#include "kernels/quant_type.h"

namespace foresay::core {

struct TensorInfo {
    std::string name;
    std::string type;                              // as the format spells it: "Q4_K", "BF16", "IQ2_XXS", "type 97"
    std::optional<kernels::QuantType> quant_type;  // that the kernels multiply as it is
    const kernels::StoredType* stored = nullptr;   // else what it is packed into; null: foresay cannot compute with it
    std::vector<std::int64_t> shape;               // outermost first
    std::int64_t offset = 0;                       // bytes from the start of its file
    std::int64_t bytes = 0;                        // in the file; 0 when the type's size is unknown
    std::string file;                              // name of the file that holds it, without the directory
    const std::byte* data = nullptr;               // `bytes` bytes, any alignment

    std::int64_t elements() const;  // product of the shape; readers have checked that it does not overflow
};

class TensorTable {
public:
    // `path` is named in errors.
    explicit TensorTable(std::string path) : path_(std::move(path)) {}
    TensorTable() = default;

    // All tensors, in the order of the file.
    std::span<const TensorInfo> list() const { return tensors_; }
    // Null when there is no such tensor.
    const TensorInfo* find(std::string_view name) const;
    bool has(std::string_view name) const { return find(name) != nullptr; }

    // The tensor `name`; throws when it is missing or unusable.
    kernels::TensorView get(std::string_view name) const;
    // The same, but an empty view when it is missing.
    kernels::TensorView get_optional(std::string_view name) const;

    // Throws the Error of a tensor whose type foresay cannot compute with, packed or not, or that has no values.
    void check_usable(const TensorInfo& tensor) const;

    // For readers: add() every tensor, then seal() once, which sorts the index and rejects duplicate names.
    void add(TensorInfo tensor) { tensors_.push_back(std::move(tensor)); }
    void seal();

private:
    kernels::TensorView view(const TensorInfo& tensor) const;

    std::string path_;
    std::vector<TensorInfo> tensors_;
    std::vector<std::uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace foresay::core
