#include "core/weights/tensor_table.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "core/weights/ggml_types.h"
#include "core/weights/quote.h"

namespace foresay::core {

std::int64_t TensorInfo::elements() const {
    std::int64_t product = 1;
    for (std::int64_t dimension : shape) product *= dimension;
    return product;
}

void TensorTable::seal() {
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0u);
    const auto name = [this](std::uint32_t i) -> const std::string& { return tensors_[i].name; };
    std::sort(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
    const auto twin = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                         [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
    if (twin != by_name_.end()) {
        throw Error(path_ + ": tensor " + quote(name(*twin)) + " occurs twice; the file is damaged, get it again");
    }
}

const TensorInfo* TensorTable::find(std::string_view name) const {
    const auto found =
        std::lower_bound(by_name_.begin(), by_name_.end(), name,
                         [this](std::uint32_t i, std::string_view key) { return tensors_[i].name < key; });
    return found != by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

kernels::TensorView TensorTable::get(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    if (tensor == nullptr) {
        throw Error(path_ + ": tensor " + quote(name) +
                    " is missing; the file is incomplete or of another architecture");
    }
    return view(*tensor);
}

kernels::TensorView TensorTable::get_optional(std::string_view name) const {
    const TensorInfo* tensor = find(name);
    return tensor != nullptr ? view(*tensor) : kernels::TensorView{};
}

void TensorTable::check_usable(const TensorInfo& tensor) const {
    if (!tensor.quant_type && tensor.stored == nullptr) {
        throw Error(path_ + ": tensor " + quote(tensor.name) + " is stored as " + tensor.type +
                    ", which foresay cannot compute with; use a file in one of " + usable_ggml_types());
    }
    if (tensor.elements() == 0) {
        throw Error(path_ + ": tensor " + quote(tensor.name) + " has no values; the file is damaged");
    }
}

kernels::TensorView TensorTable::view(const TensorInfo& tensor) const {
    check_usable(tensor);
    if (!tensor.quant_type) {
        throw Error(path_ + ": tensor " + quote(tensor.name) + " is stored as " + tensor.type +
                    ", which is for matrices; the file is damaged or was converted badly, get it again");
    }
    const std::int64_t elements = tensor.elements();
    const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    return {*tensor.quant_type, elements / cols, cols, tensor.data};
}

}  // namespace foresay::core
