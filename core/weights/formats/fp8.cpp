// Eight-bit floats, as models are published in FP8 and as compressed-tensors and ModelOpt write them.
//
// Layout:   weight F8_E4M3 [out, in]: a sign, four bits of exponent (bias 7), three of mantissa; no infinities. Scales
//           are weight_scale or weight_scale_inv, which both multiply: one number, one per output, or one per block of
//           weight_block_size (128 x 128), of which the last may be smaller.
//               value = number * scale
// Precision: one rounding to float32.
// Source:   deepseek-ai/DeepSeek-V3, inference/kernel.py; vllm-project/compressed-tensors; NVIDIA ModelOpt.

#include <algorithm>

#include "core/weights/formats/readers.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"fp8", "compressed-tensors", "modelopt"};
constexpr std::string_view kMark = ".weight";

class Fp8Matrix final : public StoredMatrix {
public:
    Fp8Matrix(const Folder& folder, const TensorInfo& mark) {
        ModuleTensors tensors(folder, "FP8", mark, kMark);
        weight_ = &tensors.need(kMark, {"F8_E4M3"});
        if (weight_->shape.size() != 2) tensors.fail(*weight_, "should have two dimensions");
        rows_ = weight_->shape[0];
        cols_ = weight_->shape[1];
        scales_ = tensors.find(".weight_scale_inv", {"F32", "BF16", "F16"});
        if (scales_ == nullptr) scales_ = &tensors.need(".weight_scale", {"F32", "BF16", "F16"});
        read_blocks(folder, tensors);
        tensors.need_sane_scales(*scales_);
        for (const char* unused : {".input_scale", ".k_scale", ".v_scale"}) tensors.take(unused);
        parts_ = tensors.parts();
    }

private:
    void read_blocks(const Folder& folder, const ModuleTensors& tensors) {
        const std::vector<std::int64_t>& shape = scales_->shape;
        block_rows_ = block_cols_ = 0;
        if (scales_->elements() == 1) {
            block_rows_ = rows_, block_cols_ = cols_;
            encoding_ = "FP8, one scale";
        } else if (shape == std::vector<std::int64_t>{rows_, 1} || shape == std::vector<std::int64_t>{rows_}) {
            block_rows_ = 1, block_cols_ = cols_;
            encoding_ = "FP8, a scale per output";
        } else {
            std::vector<std::int64_t> block = {128, 128};
            if (folder.settings.has("weight_block_size")) block = folder.settings.get_ints("weight_block_size");
            if (block.size() != 2 || block[0] <= 0 || block[1] <= 0) {
                tensors.fail(*weight_, "has blocks of an impossible size (weight_block_size)");
            }
            block_rows_ = block[0], block_cols_ = block[1];
            tensors.need_shape(*scales_, {(rows_ - 1) / block_rows_ + 1, (cols_ - 1) / block_cols_ + 1});
            encoding_ = "FP8, blocks of " + std::to_string(block_rows_) + " x " + std::to_string(block_cols_);
        }
        blocks_ = (cols_ - 1) / block_cols_ + 1;
    }

    Choice choose() const override {
        constexpr std::int64_t kGroup = kernels::kPackedGroup;
        if (cols_ % kGroup != 0 || (blocks_ > 1 && block_cols_ % kGroup != 0)) return {};
        Choice choice;
        choice.type = kernels::QuantType::packed;
        choice.packing.form = kernels::ScaleForm::e4m3;
        for (std::int64_t begin = 0; begin < cols_; begin += kGroup) {
            const bool head = begin % block_cols_ == 0;
            choice.packing.kinds.push_back(static_cast<std::uint8_t>(8 | (head ? kernels::kHead : 0)));
        }
        return choice;
    }
    void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const override {
        for (std::int64_t row = first; row < first + count; ++row) {
            const std::byte* const codes = weight_->data + row * cols_;
            for (std::int64_t b = 0; b < blocks_; ++b) {
                out = kernels::put_bytes(out, number_at(*scales_, row / block_rows_ * blocks_ + b));
                const std::int64_t begin = b * block_cols_, end = std::min(cols_, begin + block_cols_);
                out = std::copy(codes + begin, codes + end, out);
            }
        }
    }
    void read(std::int64_t first, std::int64_t count, float* out) const override {
        for (std::int64_t row = first; row < first + count; ++row) {
            const std::byte* const codes = weight_->data + row * cols_;
            for (std::int64_t b = 0; b < blocks_; ++b) {
                const float scale = number_at(*scales_, row / block_rows_ * blocks_ + b);
                const std::int64_t end = std::min(cols_, (b + 1) * block_cols_);
                for (std::int64_t i = b * block_cols_; i < end; ++i, ++out) {
                    *out = e4m3(std::to_integer<std::uint8_t>(codes[i])) * scale;
                }
            }
        }
    }

    const TensorInfo* weight_ = nullptr;
    const TensorInfo* scales_ = nullptr;
    std::int64_t block_rows_ = 0, block_cols_ = 0, blocks_ = 0;
};

}  // namespace

const MatrixFormat& fp8_format() {
    static constexpr MatrixFormat format{
        .name = "FP8",
        .methods = kMethods,
        .written_by = "model publishers (DeepSeek, Qwen), llm-compressor, NVIDIA ModelOpt",
        .bits = "8",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kMark) && tensor.type == "F8_E4M3"; },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<Fp8Matrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
