// Integers as compressed-tensors packs them (llm-compressor): "pack-quantized" and "int-quantized".
//
// Layout:   packed:  weight_packed i32 [out, in B / 32 rounded up]: along each row a stream of bits, the lowest first
//                    weight_zero_point i32 [out B / 32 rounded up, G]: the same stream along the outputs; without it
//                    the zero is the middle, 2^(B - 1)
//                    weight_scale [out, G], or [out, 1]; weight_shape [2]; weight_g_idx i32 [in], as in GPTQ
//           int8:    weight i8 [out, in], weight_scale [out, G]; weight_zero_point i8 of the same shape
//               value = (code - zero) * scale
// Source:   vllm-project/compressed-tensors, src/compressed_tensors/compressors.

#include <cstring>

#include "core/weights/formats/integer_matrix.h"
#include "core/weights/formats/readers.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"compressed-tensors"};
constexpr std::string_view kPackedMark = ".weight_packed", kIntMark = ".weight";

std::int64_t words_for(std::int64_t values, int bits) { return (values * bits + 31) / 32; }

class GroupedMatrix : public IntegerMatrix {
protected:
    GroupedMatrix(const Folder& folder, const TensorInfo& mark, std::string_view suffix)
        : tensors_(folder, "compressed-tensors", mark, suffix) {}

    void read_groups() {
        scales_ = &tensors_.need(".weight_scale", {"F16", "BF16", "F32"});
        const std::vector<std::int64_t>& shape = scales_->shape;
        const bool one = shape.empty() || (shape.size() == 1 && shape[0] == 1);  // for the whole matrix
        if (!one && (shape.size() != 2 || shape[0] != rows_ || shape[1] < 1 || cols_ % shape[1] != 0)) {
            tensors_.fail(*scales_, "should have a scale for each of " + std::to_string(rows_) +
                                        " outputs, and groups that divide " + std::to_string(cols_) + " inputs");
        }
        tensors_.need_sane_scales(*scales_);
        per_tensor_ = one;
        halves_ = scales_->type == "F16";
        const std::int64_t groups = one ? 1 : shape[1];
        set_groups(cols_ / groups);
        const TensorInfo* const order = tensors_.find(".weight_g_idx", {"I32"});
        if (order != nullptr) read_order(*order);
    }
    std::string described() const {
        return std::to_string(bits_) + " bits, " +
               (groups_ == 1 ? (per_tensor_ ? std::string("one scale") : std::string("a scale per output"))
                             : "groups of " + std::to_string(cols_ / groups_));
    }
    float scale(std::int64_t row, std::int64_t group) const final {
        return number_at(*scales_, per_tensor_ ? 0 : row * groups_ + group);
    }

    ModuleTensors tensors_;
    const TensorInfo* scales_ = nullptr;
    bool per_tensor_ = false;

private:
    void read_order(const TensorInfo& order) {
        tensors_.need_shape(order, {cols_});
        const std::int64_t size = cols_ / groups_;
        std::vector<std::int32_t> group_of(static_cast<std::size_t>(cols_));
        std::vector<std::int64_t> members(static_cast<std::size_t>(groups_));
        for (std::int64_t i = 0; i < cols_; ++i) {
            const auto group = static_cast<std::int32_t>(word_at(order, i));
            if (group < 0 || group >= groups_ || ++members[static_cast<std::size_t>(group)] > size) {
                tensors_.fail(
                    order, "does not put each input into one of " + std::to_string(groups_) + " groups of equal size");
            }
            group_of[static_cast<std::size_t>(i)] = group;
        }
        set_groups(std::move(group_of), groups_);
    }
};

class PackedMatrix final : public GroupedMatrix {
public:
    PackedMatrix(const Folder& folder, const TensorInfo& mark) : GroupedMatrix(folder, mark, kPackedMark) {
        weight_ = &tensors_.need(kPackedMark, {"I32"});
        read_shape();
        read_groups();
        zeros_ = tensors_.find(".weight_zero_point", {"I32"});
        if (zeros_ != nullptr) tensors_.need_shape(*zeros_, {words_for(rows_, bits_), groups_});
        encoding_ = "compressed-tensors, " + described();
        parts_ = tensors_.parts();
        constexpr std::int64_t kWord = 4;  // bytes
        stream_ = {.data = weight_->data, .row_step = weight_->shape[1] * kWord, .word_step = kWord};
    }

private:
    void read_shape() {
        const TensorInfo& shape = tensors_.need(".weight_shape", {"I64", "I32"});
        tensors_.need_shape(shape, {2});
        std::int64_t size[2];
        if (shape.type == "I64") {
            std::memcpy(size, shape.data, sizeof size);
        } else {
            for (int i = 0; i < 2; ++i) size[i] = static_cast<std::int32_t>(word_at(shape, i));
        }
        if (weight_->shape.size() != 2 || size[0] != weight_->shape[0] || size[1] <= 0 || size[1] > 1 << 24) {
            tensors_.fail(shape, "does not agree with the shape of the codes");
        }
        rows_ = size[0];
        cols_ = size[1];
        for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
            if (bits_ == 0 && weight_->shape[1] == words_for(cols_, bits)) bits_ = bits;
        }
        if (bits_ == 0) tensors_.fail(*weight_, "has a number of words that no number of bits explains");
    }
    int zero(std::int64_t row, std::int64_t group) const override {
        if (zeros_ == nullptr) return 1 << (bits_ - 1);
        const auto at = [&](std::int64_t word) { return word * groups_ + group; };
        return static_cast<int>(bits_at(*zeros_, row * bits_, bits_, at));
    }

    const TensorInfo* weight_ = nullptr;
    const TensorInfo* zeros_ = nullptr;
};

class Int8Matrix final : public GroupedMatrix {
public:
    Int8Matrix(const Folder& folder, const TensorInfo& mark) : GroupedMatrix(folder, mark, kIntMark) {
        weight_ = &tensors_.need(kIntMark, {"I8"});
        if (weight_->shape.size() != 2) tensors_.fail(*weight_, "should have two dimensions");
        rows_ = weight_->shape[0];
        cols_ = weight_->shape[1];
        bits_ = 8;
        read_groups();
        zeros_ = tensors_.find(".weight_zero_point", {"I8"});
        if (zeros_ != nullptr) tensors_.need_shape(*zeros_, scales_->shape);
        tensors_.take(".input_scale");
        tensors_.take(".input_zero_point");
        encoding_ = "compressed-tensors, int8, " + described();
        parts_ = tensors_.parts();
    }

private:
    // Numbers of -128 to 127, as codes from 0.
    static int unsigned_of(std::byte byte) { return std::to_integer<int>(byte ^ std::byte{0x80}); }
    void codes(const Part& part, std::uint8_t* out) const override {
        const std::int64_t inputs = part.inputs();
        for (std::int64_t r = 0; r < part.count; ++r) {
            const std::byte* __restrict const from = weight_->data + (part.first + r) * cols_ + part.begin;
            std::uint8_t* __restrict const to = out + r * inputs;
            for (std::int64_t i = 0; i < inputs; ++i) to[i] = static_cast<std::uint8_t>(unsigned_of(from[i]));
        }
    }
    int zero(std::int64_t row, std::int64_t group) const override {
        return zeros_ == nullptr ? 128 : unsigned_of(zeros_->data[per_tensor_ ? 0 : row * groups_ + group]);
    }

    const TensorInfo* weight_ = nullptr;
    const TensorInfo* zeros_ = nullptr;
};

}  // namespace

const MatrixFormat& packed_format() {
    static constexpr MatrixFormat format{
        .name = "compressed-tensors, pack-quantized",
        .methods = kMethods,
        .written_by = "llm-compressor, RedHatAI",
        .bits = "2 to 8",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kPackedMark) && tensor.type != "U8"; },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<PackedMatrix>(folder, mark);
        }};
    return format;
}

const MatrixFormat& int8_format() {
    static constexpr MatrixFormat format{
        .name = "compressed-tensors, int-quantized",
        .methods = kMethods,
        .written_by = "llm-compressor, RedHatAI (w8a8)",
        .bits = "8",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kIntMark) && tensor.type == "I8"; },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<Int8Matrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
