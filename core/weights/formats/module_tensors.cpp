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

constexpr float kLargestF16 = 65504.0f;
constexpr const char* kNoModel = ", which makes weights that no model has";

std::string text(float value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
    return text;
}

// The first of `count` numbers whose bits without the sign exceed `most`: NaN, infinities and what is larger than
// `most` as a number; -1: none. Chunks have no branch, so that compilers make vectors of them.
template <class Bits>
std::int64_t first_beyond(const std::byte* data, std::int64_t count, Bits most) {
    constexpr std::int64_t kChunk = 1024;
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(Bits));
    const auto beyond = [&](std::int64_t i) {
        Bits bits;
        std::memcpy(&bits, data + i * kSize, sizeof bits);
        return static_cast<Bits>(static_cast<Bits>(bits << 1) > static_cast<Bits>(most << 1));
    };
    for (std::int64_t begin = 0; begin < count; begin += kChunk) {
        const std::int64_t end = std::min(count, begin + kChunk);
        Bits found = 0;
        for (std::int64_t i = begin; i < end; ++i) found = static_cast<Bits>(found | beyond(i));
        for (std::int64_t i = begin; found != 0 && i < end; ++i) {
            if (beyond(i) != 0) return i;
        }
    }
    return -1;
}

// The first number of a tensor of F16, BF16 or F32 that is none, or larger than all of float16; -1: none.
std::int64_t first_insane(const TensorInfo& tensor) {
    constexpr std::uint16_t kMostF16 = 0x7bff, kMostBf16 = 0x477f;  // the latter is 65,280
    constexpr std::uint32_t kMostF32 = 0x477fe000;
    if (tensor.type == "F32") return first_beyond(tensor.data, tensor.elements(), kMostF32);
    return first_beyond(tensor.data, tensor.elements(), tensor.type == "F16" ? kMostF16 : kMostBf16);
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
    if (std::fabs(scale) <= kLargestF16) return;
    fail(tensor, "has the scale " + text(scale) + kNoModel);
}

void ModuleTensors::need_sane_scales(const TensorInfo& tensor, std::string_view what) const {
    const std::int64_t at = first_insane(tensor);
    if (at < 0) return;
    // The index in each dimension.
    std::string place;
    std::int64_t left = at;
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
        place.insert(0, (size + 1 == tensor.shape.rend() ? "" : ", ") + std::to_string(left % *size));
        left /= *size;
    }
    fail(tensor, "has the " + std::string(what) + " " + text(number_at(tensor, at)) +
                     (place.empty() ? "" : " at [" + place + "]") + kNoModel);
}

void ModuleTensors::fail(const TensorInfo& tensor, const std::string& what) const {
    throw Error(path_ + ": tensor " + quote(tensor.name) + " of " + format_ + " " + what +
                "; the file is damaged or was converted badly, get it again");
}

float number_at(const TensorInfo& tensor, std::int64_t at) {
    // There are many scales, and the four types differ in their first letters or their lengths.
    const std::string& type = tensor.type;
    if (type[1] == '3') {
        float value;
        std::memcpy(&value, tensor.data + at * 4, sizeof value);
        return value;
    }
    if (type[1] == '8') return e4m3(std::to_integer<std::uint8_t>(tensor.data[at]));
    std::uint16_t bits;
    std::memcpy(&bits, tensor.data + at * 2, sizeof bits);
    return type[0] == 'F' ? kernels::f16_to_f32(bits) : kernels::bf16_to_f32(bits);
}

float e4m3(std::uint8_t byte) {
    const unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
    if ((byte & 0x7fu) == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
    const float size = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                     : kernels::f32_from_bits((exponent + 120) << 23 | mantissa << 20);
    return (byte & 0x80u) != 0 ? -size : size;
}

}  // namespace foresay::core
