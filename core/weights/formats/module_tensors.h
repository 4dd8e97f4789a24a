// core/weights/formats/module_tensors.h: looks up and checks the tensors of one module of a folder, for the readers of
// formats.
//
// Errors:   everything throws Error, which names the format, the tensor and what it should be.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/json_config.h"
#include "core/weights/tensor_table.h"

namespace foresay::core {

// What readers get: the folder's tensors, and what its configuration says about them.
struct Folder {
    std::string path;
    const TensorTable& table;
    std::string method;   // quant_method of the configuration, or what stands for it: "gptq", "mlx"
    JsonConfig settings;  // the members of quantization_config, or of the file that stands for it
};

class ModuleTensors {
public:
    // `mark` is the tensor that the reader recognised, `suffix` the end of its name: the rest names the module.
    ModuleTensors(const Folder& folder, std::string_view format, const TensorInfo& mark, std::string_view suffix);

    const std::string& module() const { return module_; }
    // The tensor of the module with this end of its name, of one of these types.
    const TensorInfo& need(std::string_view suffix, std::initializer_list<std::string_view> types);
    // The same, or null.
    const TensorInfo* find(std::string_view suffix, std::initializer_list<std::string_view> types);
    // Counts among the module's tensors what no number depends on, if it is there.
    void take(std::string_view suffix);
    void need_shape(const TensorInfo& tensor, const std::vector<std::int64_t>& shape) const;
    // That a scale is a number, and no larger than any float16 number: what it multiplies reaches 1 and more.
    void need_sane_scale(const TensorInfo& tensor, float scale) const;
    // The same of all numbers of a tensor of F16, BF16 or F32, in one pass; the message says where. `what`: "scale".
    void need_sane_scales(const TensorInfo& tensor, std::string_view what = "scale") const;
    [[noreturn]] void fail(const TensorInfo& tensor, const std::string& what) const;
    std::vector<const TensorInfo*> parts() const { return parts_; }

private:
    void check_type(const TensorInfo& tensor, std::initializer_list<std::string_view> types) const;

    const TensorTable* table_;
    std::string path_, format_, module_, mark_;
    std::vector<const TensorInfo*> parts_;
};

// Number `at` of a tensor of F16, BF16, F32 or F8_E4M3.
float number_at(const TensorInfo& tensor, std::int64_t at);
// Number `at` of a tensor of 32-bit words.
inline std::uint32_t word_at(const TensorInfo& tensor, std::int64_t at) {
    std::uint32_t word;
    std::memcpy(&word, tensor.data + at * 4, sizeof word);
    return word;
}
// An eight-bit float with four bits of exponent; 0x7f and 0xff are NaN.
float e4m3(std::uint8_t byte);
// `count` up to 8 bits from bit `bit` of a stream of little-endian words, of which word w is word_at(tensor, at(w)).
template <class At>
std::uint32_t bits_at(const TensorInfo& tensor, std::int64_t bit, int count, const At& at) {
    const std::int64_t word = bit / 32;
    const int shift = static_cast<int>(bit % 32);
    std::uint32_t bits = word_at(tensor, at(word)) >> shift;
    if (shift + count > 32) bits |= word_at(tensor, at(word + 1)) << (32 - shift);
    return bits & ((1u << count) - 1u);
}

}  // namespace foresay::core
