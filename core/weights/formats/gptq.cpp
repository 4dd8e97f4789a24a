// GPTQ as AutoGPTQ and GPTQModel write it.
//
// Layout:   of a module of `in` inputs and `out` outputs, in B bits of 2, 3, 4, 8 and G groups:
//           qweight i32 [in B / 32, out]: down each column a stream of bits, the lowest first; code i is at bit i B
//           qzeros  i32 [G, out B / 32]: the same stream along the outputs
//           scales  f16 or bf16 [G, out]
//           g_idx   i32 [in]: the group of each input; without it groups are neighbours
//               value = (code - zero) * scale; zero is what is stored plus 1, in files of the second version what is
//               stored. Nothing wraps: a zero of 16 for codes of four bits is one.
// Source:   AutoGPTQ, auto_gptq/nn_modules/qlinear/qlinear_cuda.py; ModelCloud/GPTQModel.

#include "base/error.h"
#include "core/weights/formats/integer_matrix.h"
#include "core/weights/formats/readers.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"gptq"};
constexpr std::string_view kMark = ".qweight";
constexpr std::int64_t kWord = 4;  // bytes

class GptqMatrix final : public IntegerMatrix {
public:
    GptqMatrix(const Folder& folder, const TensorInfo& mark) : tensors_(folder, "GPTQ", mark, kMark) {
        weight_ = &tensors_.need(kMark, {"I32"});
        zeros_ = &tensors_.need(".qzeros", {"I32"});
        scales_ = &tensors_.need(".scales", {"F16", "BF16", "F32"});
        if (weight_->shape.size() != 2) tensors_.fail(*weight_, "should have two dimensions");
        rows_ = weight_->shape[1];
        if (zeros_->shape.size() != 2 || scales_->shape.size() != 2) {
            tensors_.fail(zeros_->shape.size() != 2 ? *zeros_ : *scales_, "should have two dimensions");
        }
        read_bits(folder);
        read_groups(folder);
        check_version(folder);
        encoding_ = "GPTQ, " + std::to_string(bits_) + " bits, " +
                    (groups_ == 1 ? "one group" : "groups of " + std::to_string(cols_ / groups_)) +
                    (ordered_ ? ", act-order" : "");
        parts_ = tensors_.parts();
        stream_ = {.data = weight_->data, .row_step = kWord, .word_step = kWord * rows_};
        halves_ = scales_->type == "F16";
        // Rows lie side by side, so that a line of the cache has words of several; all of an order are read at once.
        if (!ordered_) tile_rows_ = 64;
    }

private:
    void read_bits(const Folder& folder) {
        const std::int64_t words = zeros_->shape[1];
        // Files may have been made with settings for some modules; the tensors say which.
        for (const int bits : {2, 3, 4, 8}) {
            if (words == (rows_ * bits + 31) / 32 && rows_ * bits % 32 == 0) bits_ = bits;
        }
        if (bits_ == 0) {
            tensors_.fail(*zeros_, "has " + std::to_string(words) + " words for " + std::to_string(rows_) +
                                       " outputs, which are none of 2, 3, 4 and 8 bits each");
        }
        const std::int64_t stated = folder.settings.get_int_or("bits", bits_);
        if (stated != bits_ && folder.settings.is_off("dynamic")) {
            tensors_.fail(*zeros_, "holds " + std::to_string(bits_) + " bits and the configuration says " +
                                       std::to_string(stated));
        }
        if (weight_->shape[0] > (std::int64_t{1} << 32) || weight_->shape[0] * 32 % bits_ != 0) {
            tensors_.fail(*weight_, "has a number of words that no number of inputs has");
        }
        cols_ = weight_->shape[0] * 32 / bits_;
    }

    void read_groups(const Folder& folder) {
        const std::int64_t groups = zeros_->shape[0];
        tensors_.need_shape(*scales_, {groups, rows_});
        tensors_.need_sane_scales(*scales_);
        std::int64_t size = folder.settings.get_int_or("group_size", -1);
        const bool whole = size == -1 || size > cols_;
        const bool fits = whole ? groups == 1 : size > 0 && (cols_ - 1) / size + 1 == groups;
        // Settings for some modules (dynamic) may say otherwise; then the tensors count.
        if (!fits && folder.settings.has("group_size") && folder.settings.is_off("dynamic")) {
            tensors_.fail(*scales_, "has " + std::to_string(groups) + (groups == 1 ? " group" : " groups") + " for " +
                                        std::to_string(cols_) + " inputs and the configuration says group_size " +
                                        std::to_string(size));
        }
        if (!fits || whole) size = (cols_ + groups - 1) / groups;
        if ((cols_ + size - 1) / size != groups) {
            tensors_.fail(*scales_, "has " + std::to_string(groups) + " groups, which do not divide " +
                                        std::to_string(cols_) + " inputs");
        }
        set_groups(size);
        const TensorInfo* const order = tensors_.find(".g_idx", {"I32"});
        if (order == nullptr) return;
        tensors_.need_shape(*order, {cols_});
        std::vector<std::int32_t> group_of(static_cast<std::size_t>(cols_));
        std::vector<std::int64_t> members(static_cast<std::size_t>(groups));
        for (std::int64_t i = 0; i < cols_; ++i) {
            const auto group = static_cast<std::int32_t>(word_at(*order, i));
            if (group < 0 || group >= groups) {
                tensors_.fail(*order, "puts input " + std::to_string(i) + " into group " + std::to_string(group) +
                                          " of " + std::to_string(groups));
            }
            group_of[static_cast<std::size_t>(i)] = group;
            if (++members[static_cast<std::size_t>(group)] > size) {
                tensors_.fail(*order,
                              "puts more than " + std::to_string(size) + " inputs into group " + std::to_string(group));
            }
        }
        ordered_ = group_of != group_of_;
        set_groups(std::move(group_of), groups);
    }

    void check_version(const Folder& folder) {
        const std::string version = folder.settings.get_string_or("checkpoint_format", "gptq");
        if (version != "gptq" && version != "gptq_v2") {
            throw Error(folder.path + ": tensor " + quote(weight_->name) + " is laid out for " + quote(version) +
                        " (checkpoint_format), which is not read; use a file in the format gptq or gptq_v2");
        }
        offset_ = version == "gptq" ? 1 : 0;
    }

    float scale(std::int64_t row, std::int64_t group) const override {
        return number_at(*scales_, group * rows_ + row);
    }
    int zero(std::int64_t row, std::int64_t group) const override {
        const std::int64_t words = zeros_->shape[1];
        const auto at = [&](std::int64_t word) { return group * words + word; };
        return static_cast<int>(bits_at(*zeros_, row * bits_, bits_, at)) + offset_;
    }

    ModuleTensors tensors_;
    const TensorInfo* weight_ = nullptr;
    const TensorInfo* zeros_ = nullptr;
    const TensorInfo* scales_ = nullptr;
    int offset_ = 1;
    bool ordered_ = false;
};

}  // namespace

const MatrixFormat& gptq_format() {
    static constexpr MatrixFormat format{
        .name = "GPTQ",
        .methods = kMethods,
        .written_by = "AutoGPTQ, GPTQModel, Qwen's Int4 and Int8 folders",
        .bits = "2, 3, 4, 8",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kMark); },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<GptqMatrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
