#include "core/weights/formats/module_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "core/weights/quote.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace foresay::core {
namespace {

std::string text(const std::vector<std::int64_t>& shape) {
    std::string all;
    for (const std::int64_t size : shape) all += (all.empty() ? "" : " x ") + std::to_string(size);
    return all.empty() ? "a single number" : all;
}

}  // namespace

ModuleTensors::ModuleTensors(const Folder& folder, std::string_view format, const TensorInfo& mark,
                             std::string_view suffix)
    : table_(&folder.table),
      path_(folder.path),
      format_(format),
      module_(mark.name.substr(0, mark.name.size() - suffix.size())),
      mark_(mark.name) {}

const TensorInfo& ModuleTensors::need(std::string_view suffix, std::initializer_list<std::string_view> types) {
    const TensorInfo* const found = find(suffix, types);
    if (found != nullptr) return *found;
    throw Error(path_ + ": tensor " + quote(mark_) + " of " + format_ + " needs " +
                quote(module_ + std::string(suffix)) + ", which is missing; get the files again, all of one version");
}

const TensorInfo* ModuleTensors::find(std::string_view suffix, std::initializer_list<std::string_view> types) {
    const TensorInfo* const found = table_->find(module_ + std::string(suffix));
    if (found == nullptr) return nullptr;
    check_type(*found, types);
    parts_.push_back(found);
    return found;
}

void ModuleTensors::take(std::string_view suffix) {
    const TensorInfo* const found = table_->find(module_ + std::string(suffix));
    if (found != nullptr) parts_.push_back(found);
}

void ModuleTensors::check_type(const TensorInfo& tensor, std::initializer_list<std::string_view> types) const {
    if (std::ranges::find(types, tensor.type) != types.end()) {
        if (tensor.elements() > 0) return;
        fail(tensor, "has no values");
    }
    std::string wanted;
    for (const std::string_view type : types) wanted += (wanted.empty() ? "" : " or ") + std::string(type);
    fail(tensor, "should be " + wanted + " but is " + tensor.type);
}

void ModuleTensors::need_shape(const TensorInfo& tensor, const std::vector<std::int64_t>& shape) const {
    if (tensor.shape != shape) fail(tensor, "should be " + text(shape) + " but is " + text(tensor.shape));
}

void ModuleTensors::need_sane_scale(const TensorInfo& tensor, float scale) const {
    constexpr float kLargestF16 = 65504.0f;
    if (!(std::fabs(scale) > kLargestF16)) return;
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(scale));
    fail(tensor, std::string("has the scale ") + text + ", which makes weights that no model has");
}

void ModuleTensors::fail(const TensorInfo& tensor, const std::string& what) const {
    throw Error(path_ + ": tensor " + quote(tensor.name) + " of " + format_ + " " + what +
                "; the file is damaged or was converted badly, get it again");
}

float number_at(const TensorInfo& tensor, std::int64_t at) {
    if (tensor.type == "F32") {
        float value;
        std::memcpy(&value, tensor.data + at * 4, sizeof value);
        return value;
    }
    if (tensor.type == "F8_E4M3") return e4m3(std::to_integer<std::uint8_t>(tensor.data[at]));
    std::uint16_t bits;
    std::memcpy(&bits, tensor.data + at * 2, sizeof bits);
    return tensor.type == "F16" ? kernels::f16_to_f32(bits) : kernels::bf16_to_f32(bits);
}

std::uint32_t word_at(const TensorInfo& tensor, std::int64_t at) {
    std::uint32_t word;
    std::memcpy(&word, tensor.data + at * 4, sizeof word);
    return word;
}

float e4m3(std::uint8_t byte) {
    const unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
    if ((byte & 0x7fu) == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
    const float size = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                     : kernels::f32_from_bits((exponent + 120) << 23 | mantissa << 20);
    return (byte & 0x80u) != 0 ? -size : size;
}

}  // namespace foresay::core
