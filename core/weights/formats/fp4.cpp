// Four-bit floats: NVFP4 and MXFP4 as compressed-tensors writes them, NVFP4 as ModelOpt does.
//
// Layout:   codes u8 [out, in / 2], the first of two neighbours in the low half: a sign, two bits of exponent and one
//           of mantissa: 0, 1/2, 1, 3/2, 2, 3, 4, 6 and their negatives. NVFP4: weight_scale F8_E4M3 [out, in / 16],
//           and one number: weight_global_scale of compressed-tensors divides, weight_scale_2 of ModelOpt multiplies
//           MXFP4: weight_scale u8 [out, in / 32], a power of two with a bias of 127
//               value = number * scale
// Precision: NVFP4 two roundings to float32; MXFP4 exact.
// Source:   vllm-project/compressed-tensors; NVIDIA ModelOpt.

#include <algorithm>
#include <array>

#include "core/weights/formats/readers.h"
#include "core/weights/mxfp4.h"
#include "kernels/quant/nvfp4.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"compressed-tensors", "modelopt"};
constexpr std::string_view kPackedMark = ".weight_packed", kPlainMark = ".weight";

class Fp4Matrix : public StoredMatrix {
protected:
    Fp4Matrix(const Folder& folder, const TensorInfo& mark, std::int64_t group)
        : suffix_(mark.name.ends_with(kPackedMark) ? kPackedMark : kPlainMark),
          tensors_(folder, group == 16 ? "NVFP4" : "MXFP4", mark, suffix_),
          group_(group) {
        weight_ = &tensors_.need(suffix_, {"U8"});
        if (weight_->shape.size() != 2 || weight_->shape[1] * 2 % group != 0) {
            tensors_.fail(*weight_, "should have two dimensions, and groups of " + std::to_string(group) + " inputs");
        }
        rows_ = weight_->shape[0];
        cols_ = weight_->shape[1] * 2;
        for (const char* unused : {".input_scale", ".input_global_scale", ".k_scale", ".v_scale"}) {
            tensors_.take(unused);
        }
    }
    unsigned code(std::int64_t row, std::int64_t i) const {
        const auto byte = std::to_integer<unsigned>(weight_->data[row * (cols_ / 2) + i / 2]);
        return byte >> (4 * (i % 2)) & 15u;
    }
    // Twice the number.
    int twice(std::int64_t row, std::int64_t i) const { return kernels::NVFP4::kTwice[code(row, i)]; }

    std::string_view suffix_;
    ModuleTensors tensors_;
    std::int64_t group_;
    const TensorInfo* weight_ = nullptr;
    const TensorInfo* scales_ = nullptr;
};

class Nvfp4Matrix final : public Fp4Matrix {
public:
    Nvfp4Matrix(const Folder& folder, const TensorInfo& mark) : Fp4Matrix(folder, mark, 16) {
        scales_ = &tensors_.need(".weight_scale", {"F8_E4M3"});
        tensors_.need_shape(*scales_, {rows_, cols_ / group_});
        divides_ = suffix_ == kPackedMark;
        factor_ = &tensors_.need(divides_ ? ".weight_global_scale" : ".weight_scale_2", {"F32"});
        if (factor_->elements() != 1) tensors_.fail(*factor_, "should be a single number");
        const float factor = number_at(*factor_, 0);
        tensors_.need_sane_scale(*factor_, divides_ ? 1.0f / factor : factor);
        for (std::size_t byte = 0; byte < scale_of_.size(); ++byte) {
            scale_of_[byte] = scale(e4m3(static_cast<std::uint8_t>(byte)));
        }
        encoding_ = "NVFP4, groups of 16";
        parts_ = tensors_.parts();
    }

private:
    // Of half the number that twice() gives.
    float scale(float own) const {
        const float factor = number_at(*factor_, 0);
        return 0.5f * (divides_ ? own / factor : own * factor);
    }
    float scale(std::int64_t row, std::int64_t group) const {
        return scale(number_at(*scales_, row * (cols_ / group_) + group));
    }
    Choice choose() const override {
        if (cols_ % kernels::kPackedGroup != 0) return {};
        Choice choice{kernels::QuantType::packed, kernels::NVFP4::packing(), {}};
        choice.packing.plain = kernels::QuantType::f32;
        return choice;
    }
    void read(std::int64_t first, std::int64_t count, float* out) const override {
        for (std::int64_t row = first; row < first + count; ++row) {
            for (std::int64_t i = 0; i < cols_; ++i, ++out) {
                *out = static_cast<float>(twice(row, i)) * scale(row, i / group_);
            }
        }
    }
    // Neighbours share a byte here as in packed rows, so codes are copied.
    void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const override {
        constexpr std::int64_t kGroup = kernels::kPackedGroup, kBytes = kGroup / 2;
        const std::byte* own = scales_->data + first * (cols_ / group_);
        const std::byte* codes = weight_->data + first * (cols_ / 2);
        for (std::int64_t g = 0; g < count * (cols_ / kGroup); ++g, codes += kBytes) {
            for (std::int64_t h = 0; h < kGroup / group_; ++h, ++own) {
                out = kernels::put_bytes(out, scale_of_[std::to_integer<std::size_t>(*own)]);
            }
            out = std::copy_n(codes, kBytes, out);
        }
    }

    const TensorInfo* factor_ = nullptr;
    bool divides_ = false;
    std::array<float, 256> scale_of_;  // of each byte of scales_
};

class Mxfp4Matrix final : public Fp4Matrix {
public:
    Mxfp4Matrix(const Folder& folder, const TensorInfo& mark) : Fp4Matrix(folder, mark, kMxfp4Values) {
        scales_ = &tensors_.need(".weight_scale", {"U8", "F8_E8M0"});
        tensors_.need_shape(*scales_, {rows_, cols_ / group_});
        encoding_ = "MXFP4, groups of 32";
        parts_ = tensors_.parts();
    }

private:
    Choice choose() const override { return {kernels::QuantType::mxfp4, {}, {}}; }
    void read(std::int64_t first, std::int64_t count, float* out) const override {
        std::vector<std::byte> blocks;
        const kernels::TensorView view = join_mxfp4(weight_->data, scales_->data, first, 1, count, cols_, blocks);
        for (std::int64_t r = 0; r < count; ++r) {
            kernels::dequantize_row(view, r, std::span(out + r * cols_, static_cast<std::size_t>(cols_)));
        }
    }
    void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const override {
        std::vector<std::byte> blocks;
        join_mxfp4(weight_->data, scales_->data, first, 1, count, cols_, blocks);
        std::ranges::copy(blocks, out);
    }
};

}  // namespace

const MatrixFormat& fp4_format() {
    static constexpr MatrixFormat format{
        .name = "NVFP4 and MXFP4",
        .methods = kMethods,
        .written_by = "llm-compressor, NVIDIA ModelOpt",
        .bits = "4",
        .marks =
            [](const TensorInfo& tensor) {
                return tensor.type == "U8" && (tensor.name.ends_with(kPackedMark) || tensor.name.ends_with(kPlainMark));
            },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            const std::string module = mark.name.substr(0, mark.name.rfind('.'));
            const TensorInfo* const scale = folder.table.find(module + ".weight_scale");
            if (scale != nullptr && scale->type != "F8_E4M3") return std::make_unique<Mxfp4Matrix>(folder, mark);
            return std::make_unique<Nvfp4Matrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
