// AWQ as AutoAWQ writes it in its version "gemm".
//
// Layout:   qweight i32 [in, out / 8], qzeros i32 [G, out / 8], scales f16 [G, out]. Nibble p of a word, from the
//           lowest, is of the output 0, 2, 4, 6, 1, 3, 5, 7 of the word's eight.
//               value = (code - zero) * scale
// Source:   casper-hansen/AutoAWQ, awq/utils/packing_utils.py, awq/modules/linear/gemm.py.

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
        if (const std::int64_t bits = folder.settings.get_int_or("bits", kBits); bits != kBits) {
            throw Error(folder.path + ": AWQ in " + std::to_string(bits) + " bits (tensor " + quote(weight_->name) +
                        ") is not read; use a file in 4 bits");
        }
        zeros_ = &tensors.need(".qzeros", {"I32"});
        scales_ = &tensors.need(".scales", {"F16", "BF16", "F32"});
        if (weight_->shape.size() != 2) tensors.fail(*weight_, "should have two dimensions");
        cols_ = weight_->shape[0];
        rows_ = weight_->shape[1] * kPerWord;
        const std::int64_t stated = folder.settings.get_int_or("group_size", 128);
        const std::int64_t size = stated == -1 ? cols_ : stated;
        if (size <= 0 || cols_ % size != 0) {
            tensors.fail(*weight_, "has " + std::to_string(cols_) + " inputs, which groups of " +
                                       std::to_string(stated) + " do not divide");
        }
        bits_ = kBits;
        set_groups(size);
        tensors.need_shape(*zeros_, {groups_, weight_->shape[1]});
        tensors.need_shape(*scales_, {groups_, rows_});
        encoding_ = "AWQ, 4 bits, groups of " + std::to_string(size);
        parts_ = tensors.parts();
    }

private:
    static int nibble(std::uint32_t word, std::int64_t output) {
        return static_cast<int>(word >> (4 * kNibbleOf[output % kPerWord]) & 15u);
    }
    void codes(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
        const std::int64_t words = rows_ / kPerWord;
        for (std::int64_t i = 0; i < cols_; ++i) {
            for (std::int64_t r = 0; r < count; ++r) {
                const std::int64_t row = first + r;
                const std::uint32_t word = word_at(*weight_, i * words + row / kPerWord);
                out[r * cols_ + i] = static_cast<std::uint8_t>(nibble(word, row));
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
