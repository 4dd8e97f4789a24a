#include "core/weights/tensor_table.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "core/weights/ggml_types.h"
#include "core/weights/quote.h"

namespace foresay::core {

namespace {

// Tools write every byte of data for one tensor. A file where two share some would say that it holds more than it does.
void check_overlap(std::span<const TensorInfo> tensors, const std::string& path) {
    std::vector<const TensorInfo*> by_place;
    for (const TensorInfo& tensor : tensors) {
        if (tensor.bytes > 0) by_place.push_back(&tensor);
    }
    std::ranges::sort(by_place, {}, [](const TensorInfo* tensor) { return std::tie(tensor->file, tensor->offset); });
    for (std::size_t i = 1; i < by_place.size(); ++i) {
        const TensorInfo &before = *by_place[i - 1], &after = *by_place[i];
        if (before.file == after.file && after.offset - before.offset < before.bytes) {
            throw Error(path + ": tensors " + quote(before.name) + " and " + quote(after.name) +
                        " lie on the same bytes; the file is damaged, get it again");
        }
    }
}

}  // namespace

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
    check_overlap(tensors_, path_);
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
