// Matrices as MLX quantises them, in its mode "affine".
//
// Layout:   weight u32 [out, in B / 32]: along each row a stream of bits, the lowest first; B of 2, 3, 4, 5, 6, 8.
//           scales and biases [out, in / G] in float16, bfloat16 or float32. The configuration gives B and G, also for
//           single modules.
//               value = code * scale + bias
// Precision: one rounding to float32.
// Source:   ml-explore/mlx, documentation of mlx.core.quantize.

#include "base/error.h"
#include "core/weights/formats/integer_matrix.h"
#include "core/weights/formats/readers.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"mlx"};
constexpr std::string_view kMark = ".weight";

class MlxMatrix final : public IntegerMatrix {
public:
    MlxMatrix(const Folder& folder, const TensorInfo& mark) {
        ModuleTensors tensors(folder, "MLX", mark, kMark);
        weight_ = &tensors.need(kMark, {"U32"});
        JsonConfig settings = folder.settings;
        std::int64_t group = settings.get_int_or("group_size", 64);
        std::int64_t bits = settings.get_int_or("bits", 4);
        std::string mode = settings.get_string_or("mode", "affine");
        if (const JsonConfig own = settings.member_object(tensors.module()); !own.members("").empty()) {
            group = own.get_int_or("group_size", group);
            bits = own.get_int_or("bits", bits);
            mode = own.get_string_or("mode", mode);
        }
        if (mode != "affine") {
            throw Error(folder.path + ": tensor " + quote(weight_->name) + " is in MLX's mode " + quote(mode) +
                        ", which is not read; use a folder in the mode affine");
        }
        if (bits < 2 || bits > 8 || bits == 7 || group <= 0) {
            tensors.fail(*weight_, "is in " + std::to_string(bits) + " bits and groups of " + std::to_string(group) +
                                       ", which are not possible");
        }
        bits_ = static_cast<int>(bits);
        if (weight_->shape.size() != 2 || weight_->shape[1] > (std::int64_t{1} << 32) ||
            weight_->shape[1] * 32 % bits != 0) {
            tensors.fail(*weight_, "has a number of words that no number of inputs has");
        }
        rows_ = weight_->shape[0];
        cols_ = weight_->shape[1] * 32 / bits;
        if (cols_ % group != 0) tensors.fail(*weight_, "has inputs that the groups do not divide");
        set_groups(group);
        has_minimum_ = true;
        scales_ = &tensors.need(".scales", {"F16", "BF16", "F32"});
        biases_ = &tensors.need(".biases", {"F16", "BF16", "F32"});
        tensors.need_shape(*scales_, {rows_, groups_});
        tensors.need_shape(*biases_, {rows_, groups_});
        encoding_ = "MLX, " + std::to_string(bits) + " bits, groups of " + std::to_string(group);
        parts_ = tensors.parts();
    }

private:
    void codes(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
        const std::int64_t words = weight_->shape[1];
        for (std::int64_t r = 0; r < count; ++r) {
            const auto at = [&](std::int64_t word) { return (first + r) * words + word; };
            for (std::int64_t i = 0; i < cols_; ++i, ++out) {
                *out = static_cast<std::uint8_t>(bits_at(*weight_, i * bits_, bits_, at));
            }
        }
    }
    float scale(std::int64_t row, std::int64_t group) const override {
        return number_at(*scales_, row * groups_ + group);
    }
    float minimum(std::int64_t row, std::int64_t group) const override {
        return number_at(*biases_, row * groups_ + group);
    }
    int zero(std::int64_t, std::int64_t) const override { return 0; }

    const TensorInfo* weight_ = nullptr;
    const TensorInfo* scales_ = nullptr;
    const TensorInfo* biases_ = nullptr;
};

}  // namespace

const MatrixFormat& mlx_format() {
    static constexpr MatrixFormat format{
        .name = "MLX",
        .methods = kMethods,
        .written_by = "mlx-lm, mlx-community",
        .bits = "2, 3, 4, 5, 6, 8",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kMark) && tensor.type == "U32"; },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<MlxMatrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
