// AWQ as AutoAWQ writes it in its version "gemm". Its own quant_config.json calls bits and group_size w_bit and
// q_group_size.
//
// Layout:   qweight i32 [in, out / 8], qzeros i32 [G, out / 8], scales f16 [G, out]. Nibble p of a word, from the
//           lowest, is of the output 0, 2, 4, 6, 1, 3, 5, 7 of the word's eight.
//               value = (code - zero) * scale
// Source:   casper-hansen/AutoAWQ, awq/utils/packing_utils.py, awq/modules/linear/gemm.py.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "core/weights/formats/integer_matrix.h"
#include "core/weights/formats/readers.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"awq"};
constexpr std::string_view kMark = ".qweight";
constexpr int kBits = 4, kPerWord = 8;
constexpr int kNibbleOf[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};  // of each output

class AwqMatrix final : public IntegerMatrix {
public:
    AwqMatrix(const Folder& folder, const TensorInfo& mark) {
        ModuleTensors tensors(folder, "AWQ", mark, kMark);
        weight_ = &tensors.need(kMark, {"I32"});
        const std::string version = folder.settings.get_string_or("version", "gemm");
        if (version != "gemm" && version != "GEMM") {
            throw Error(folder.path + ": tensor " + quote(weight_->name) + " is laid out for AWQ's version " +
                        quote(version) + ", which is not read; use a file of the version gemm");
        }
        const std::int64_t bits = folder.settings.get_int_or("bits", folder.settings.get_int_or("w_bit", kBits));
        if (bits != kBits) {
            throw Error(folder.path + ": AWQ in " + std::to_string(bits) + " bits (tensor " + quote(weight_->name) +
                        ") is not read; use a file in 4 bits");
        }
        zeros_ = &tensors.need(".qzeros", {"I32"});
        scales_ = &tensors.need(".scales", {"F16", "BF16", "F32"});
        if (weight_->shape.size() != 2) tensors.fail(*weight_, "should have two dimensions");
        cols_ = weight_->shape[0];
        rows_ = weight_->shape[1] * kPerWord;
        if (zeros_->shape.size() != 2) tensors.fail(*zeros_, "should have two dimensions");
        // What nothing states follows from the number of groups.
        const std::int64_t counted = cols_ % zeros_->shape[0] == 0 ? cols_ / zeros_->shape[0] : 0;
        const std::int64_t stated =
            folder.settings.get_int_or("group_size", folder.settings.get_int_or("q_group_size", counted));
        const std::int64_t size = stated == -1 ? cols_ : stated;
        if (size <= 0 || cols_ % size != 0) {
            tensors.fail(*weight_, "has " + std::to_string(cols_) + " inputs, which groups of " +
                                       std::to_string(stated) + " do not divide");
        }
        bits_ = kBits;
        set_groups(size);
        tensors.need_shape(*zeros_, {groups_, weight_->shape[1]});
        tensors.need_shape(*scales_, {groups_, rows_});
        tensors.need_sane_scales(*scales_);
        encoding_ = "AWQ, 4 bits, groups of " + std::to_string(size);
        parts_ = tensors.parts();
        halves_ = scales_->type == "F16";
        tile_rows_ = 128;  // a line of the cache
    }

private:
    static int nibble(std::uint32_t word, std::int64_t output) {
        return static_cast<int>(word >> (4 * kNibbleOf[output % kPerWord]) & 15u);
    }
    // A word has eight outputs of an input, so codes are turned by squares of eight rows and 32 inputs.
    void codes(const Part& part, std::uint8_t* out) const override {
        constexpr std::int64_t kInputs = 32;
        const std::int64_t words = rows_ / kPerWord, end = part.first + part.count, inputs = part.inputs();
        for (std::int64_t i = 0; i < inputs; i += kInputs) {
            const std::int64_t some = std::min(kInputs, inputs - i);
            for (std::int64_t word = part.first / kPerWord; word * kPerWord < end; ++word) {
                std::uint32_t eights[kInputs] = {};
                const std::int64_t first = (part.begin + i) * words + word;
                for (std::int64_t j = 0; j < some; ++j) eights[j] = word_at(*weight_, first + j * words);
                for (int p = 0; p < kPerWord; ++p) {
                    const std::int64_t row = word * kPerWord + p;
                    if (row < part.first || row >= end) continue;
                    std::uint8_t codes[kInputs];
                    const int shift = 4 * kNibbleOf[p];
                    for (int j = 0; j < kInputs; ++j) codes[j] = static_cast<std::uint8_t>(eights[j] >> shift & 15u);
                    std::uint8_t* const to = out + (row - part.first) * inputs + i;
                    if (some == kInputs) {  // a constant length
                        std::memcpy(to, codes, kInputs);
                    } else {
                        std::copy_n(codes, some, to);
                    }
                }
            }
        }
    }
    float scale(std::int64_t row, std::int64_t group) const override {
        return number_at(*scales_, group * rows_ + row);
    }
    int zero(std::int64_t row, std::int64_t group) const override {
        return nibble(word_at(*zeros_, group * (rows_ / kPerWord) + row / kPerWord), row);
    }

    const TensorInfo* weight_ = nullptr;
    const TensorInfo* zeros_ = nullptr;
    const TensorInfo* scales_ = nullptr;
};

}  // namespace

const MatrixFormat& awq_format() {
    static constexpr MatrixFormat format{
        .name = "AWQ",
        .methods = kMethods,
        .written_by = "AutoAWQ (version gemm), Qwen's AWQ folders",
        .bits = "4",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kMark); },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<AwqMatrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
