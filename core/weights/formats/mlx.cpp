// Matrices as MLX quantises them, in its mode "affine".
//
// Layout:   weight u32 [out, in B / 32]: along each row a stream of bits, the lowest first; B of 2, 3, 4, 5, 6, 8.
//           scales and biases [out, in / G] in float16, bfloat16 or float32. The configuration gives B and G, also for
//           single modules.
//               value = code * scale + bias
//           The experts of a mixture are stacked: all three have one dimension more, the first.
// Precision: one rounding to float32.
// Source:   ml-explore/mlx, documentation of mlx.core.quantize.

#include <algorithm>

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
    // `expert`: which matrix of a stack; -1: it is none.
    MlxMatrix(const Folder& folder, const TensorInfo& mark, std::int64_t expert)
        : expert_(std::max<std::int64_t>(expert, 0)) {
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
        const std::vector<std::int64_t>& shape = weight_->shape;
        const std::size_t dimensions = expert < 0 ? 2 : 3;
        if (shape.size() != dimensions) {
            tensors.fail(*weight_, "should have two dimensions, or three of experts");
        }
        words_ = shape.back();
        if (words_ > (std::int64_t{1} << 32) || words_ * 32 % bits != 0) {
            tensors.fail(*weight_, "has a number of words that no number of inputs has");
        }
        rows_ = shape[dimensions - 2];
        cols_ = words_ * 32 / bits;
        if (cols_ % group != 0) tensors.fail(*weight_, "has inputs that the groups do not divide");
        set_groups(group);
        has_minimum_ = true;
        scales_ = &tensors.need(".scales", {"F16", "BF16", "F32"});
        biases_ = &tensors.need(".biases", {"F16", "BF16", "F32"});
        std::vector<std::int64_t> wanted = {rows_, groups_};
        if (expert >= 0) wanted.insert(wanted.begin(), shape[0]);
        tensors.need_shape(*scales_, wanted);
        tensors.need_shape(*biases_, wanted);
        if (expert <= 0) {  // once for a stack
            tensors.need_sane_scales(*scales_);
            tensors.need_sane_scales(*biases_, "bias");
        }
        if (expert >= 0) sharing_ = shape[0];
        encoding_ = "MLX, " + std::to_string(bits) + " bits, groups of " + std::to_string(group);
        parts_ = tensors.parts();
        constexpr std::int64_t kWord = 4;  // bytes
        stream_ = {
            .data = weight_->data + expert_ * rows_ * words_ * kWord, .row_step = words_ * kWord, .word_step = kWord};
        halves_ = scales_->type == "F16" && biases_->type == "F16";
    }

private:
    float scale(std::int64_t row, std::int64_t group) const override {
        return number_at(*scales_, (expert_ * rows_ + row) * groups_ + group);
    }
    float minimum(std::int64_t row, std::int64_t group) const override {
        return number_at(*biases_, (expert_ * rows_ + row) * groups_ + group);
    }
    int zero(std::int64_t, std::int64_t) const override { return 0; }

    std::int64_t expert_, words_ = 0;
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
            return std::make_unique<MlxMatrix>(folder, mark, -1);
        },
        .read_expert = [](const Folder& folder, const TensorInfo& mark, std::int64_t expert)
            -> std::unique_ptr<StoredMatrix> { return std::make_unique<MlxMatrix>(folder, mark, expert); }};
    return format;
}

}  // namespace foresay::core
