// EXL2 as ExLlamaV2 writes it: bits may change along the inputs, which are in an order of their own.
//
// Layout:   q_groups  i16 [2 G], read as unsigned: for each group its bits (2, 3, 4, 5, 6, 8) and its first row of
//           words q_weight i32 [words, out]: down each column the codes of a group as a stream of bits, the lowest
//           first,
//                     from its first row of words on; a group has as many inputs as fill its words, the last one what
//                     is left
//           q_scale   i32 [G, out / 8]: nibbles, the lowest first; q_scale_max f16 [G]
//           q_invperm i32 [in]: where in this order each input is; or q_perm, its inverse
//           Outputs are filled up to a multiple of 32.
//               scale = f16((nibble + 1)^2 * f16(q_scale_max / 256)), as the quantiser used it
//               value = (code - 2^(bits - 1)) * scale
// Precision: exact in float32.
// Source:   turboderp/exllamav2, conversion/adaptivegptq.py, exllamav2_ext/cuda/q_matrix.cu.

#include <cstring>

#include "base/error.h"
#include "core/weights/formats/integer_matrix.h"
#include "core/weights/formats/readers.h"
#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/square.h"

namespace foresay::core {
namespace {

constexpr std::string_view kMethods[] = {"exl2"};
constexpr std::string_view kMark = ".q_weight";

float rounded(float value) { return kernels::f16_to_f32(kernels::f32_to_f16(value)); }

class Exl2Matrix final : public IntegerMatrix {
public:
    Exl2Matrix(const Folder& folder, const TensorInfo& mark) : tensors_(folder, "EXL2", mark, kMark) {
        weight_ = &tensors_.need(kMark, {"I32"});
        groups_info_ = &tensors_.need(".q_groups", {"I16"});
        scales_ = &tensors_.need(".q_scale", {"I32"});
        largest_ = &tensors_.need(".q_scale_max", {"F16"});
        if (weight_->shape.size() != 2) tensors_.fail(*weight_, "should have two dimensions");
        rows_ = weight_->shape[1];
        padded_ = true;
        if (rows_ % 8 != 0) tensors_.fail(*weight_, "should have a number of outputs that 8 divides");
        if (groups_info_->shape.size() != 1 || groups_info_->shape[0] % 2 != 0) {
            tensors_.fail(*groups_info_, "should hold pairs");
        }
        groups_ = groups_info_->shape[0] / 2;
        tensors_.need_shape(*scales_, {groups_, rows_ / 8});
        tensors_.need_shape(*largest_, {groups_});
        tensors_.need_sane_scales(*largest_);
        read_order();
        read_groups();
        place_of_.resize(input_of_.size());
        for (std::size_t at = 0; at < input_of_.size(); ++at) {
            place_of_[static_cast<std::size_t>(input_of_[at])] = static_cast<std::int32_t>(at);
        }
        halves_ = true;  // scale() rounds
        encoding_ = "EXL2";
        parts_ = tensors_.parts();
    }

private:
    struct Group {
        int bits;
        std::int64_t first_word, first_row, rows;
    };

    unsigned half_at(std::int64_t at) const {
        std::uint16_t value;
        std::memcpy(&value, groups_info_->data + at * 2, sizeof value);
        return value;
    }

    // input_of_[i] is the input that stands in place i.
    void read_order() {
        const TensorInfo* place = tensors_.find(".q_invperm", {"I32"});
        const TensorInfo* const order = tensors_.find(".q_perm", {"I32"});
        const TensorInfo& given = place != nullptr   ? *place
                                  : order != nullptr ? *order
                                                     : tensors_.need(".q_invperm", {"I32"});
        if (given.shape.size() != 1 || given.shape[0] > 1 << 20) tensors_.fail(given, "should be a list");
        cols_ = given.shape[0];
        if (place != nullptr && order != nullptr) tensors_.need_shape(*order, {cols_});
        const auto size = static_cast<std::size_t>(cols_);
        input_of_.assign(size, -1);
        for (std::int64_t k = 0; k < cols_; ++k) {
            const std::int64_t at = word_at(given, k);
            if (at >= cols_) tensors_.fail(given, "is no order of " + std::to_string(cols_) + " inputs");
            const std::int64_t from = &given == place ? at : k, to = &given == place ? k : at;
            std::int32_t& entry = input_of_[static_cast<std::size_t>(from)];
            // q_perm is complete when every place is reached; so is its inverse.
            if (&given == place && entry != -1) {
                tensors_.fail(given, "names the place " + std::to_string(at) + " twice");
            }
            entry = static_cast<std::int32_t>(to);
        }
        if (place != nullptr && order != nullptr) check_inverse(*order);
        if (&given != place) {
            std::vector<bool> seen(size);
            for (const std::int32_t input : input_of_) {
                if (seen[static_cast<std::size_t>(input)]) {
                    tensors_.fail(given, "names the input " + std::to_string(input) + " twice");
                }
                seen[static_cast<std::size_t>(input)] = true;
            }
        }
    }

    // Where both orders are there, q_perm names the input of each place.
    void check_inverse(const TensorInfo& order) const {
        for (std::int64_t i = 0; i < cols_; ++i) {
            const auto input = static_cast<std::int32_t>(word_at(order, i));
            if (input == input_of_[static_cast<std::size_t>(i)]) continue;
            tensors_.fail(order, "has input " + std::to_string(input) + " in place " + std::to_string(i) +
                                     ", where q_invperm has input " +
                                     std::to_string(input_of_[static_cast<std::size_t>(i)]));
        }
    }

    void read_groups() {
        std::int64_t rows_before = 0;
        std::vector<std::int32_t> group_of(static_cast<std::size_t>(cols_));
        for (std::int64_t g = 0; g < groups_; ++g) {
            const auto bits = static_cast<int>(half_at(2 * g));
            const std::int64_t first = half_at(2 * g + 1);
            const std::int64_t end = g + 1 < groups_ ? half_at(2 * g + 3) : weight_->shape[0];
            if (bits < 2 || bits > 8 || bits == 7) {
                tensors_.fail(*groups_info_, "gives a group " + std::to_string(bits) + " bits");
            }
            if (first >= end || end > weight_->shape[0] || (g == 0 && first != 0)) {
                tensors_.fail(*groups_info_, "gives group " + std::to_string(g) + " the words from " +
                                                 std::to_string(first) + " to " + std::to_string(end) + " of " +
                                                 std::to_string(weight_->shape[0]));
            }
            std::int64_t rows = (end - first) * 32 / bits;
            if (g + 1 < groups_ && (end - first) * 32 % bits != 0) {
                tensors_.fail(*groups_info_, "gives group " + std::to_string(g) + " words that its codes do not fill");
            }
            if (g + 1 == groups_) {
                const std::int64_t left = cols_ - rows_before;
                if (left <= 0 || left > rows || (left * bits + 31) / 32 != end - first) {
                    tensors_.fail(*groups_info_, "leaves " + std::to_string(left) + " inputs to the last group");
                }
                rows = left;
            }
            if (rows > cols_ - rows_before) tensors_.fail(*groups_info_, "has groups of more than all inputs");
            for (std::int64_t i = 0; i < rows; ++i) {
                const std::int32_t input = input_of_[static_cast<std::size_t>(rows_before + i)];
                group_of[static_cast<std::size_t>(input)] = static_cast<std::int32_t>(g);
            }
            table_.push_back({bits, first, rows_before, rows});
            rows_before += rows;
        }
        set_groups(std::move(group_of), groups_);
    }

    void columns(std::int64_t first, std::int64_t count, std::uint8_t* out) const override {
        constexpr std::int64_t kStream = kernels::kPackedGroup;  // codes that end at the end of a word
        constexpr std::int64_t kRows = kernels::kSquare;
        for (const Group& group : table_) {
            const std::int64_t whole = group.rows / kStream * kStream;
            std::uint8_t* const to = out + kRows * group.first_row;
            kernels::with_bits(group.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
                std::uint32_t words[kBits][kRows] = {};
                for (std::int64_t i = 0; i < whole; i += kStream) {
                    for (int w = 0; w < kBits; ++w) {
                        const std::int64_t word = group.first_word + i / kStream * kBits + w;
                        for (std::int64_t r = 0; r < count; ++r) {
                            words[w][r] = word_at(*weight_, word * rows_ + first + r);
                        }
                    }
                    kernels::split_columns<kBits>(words, to + kRows * i);
                }
            });
            for (std::int64_t i = whole; i < group.rows; ++i) {
                for (std::int64_t r = 0; r < count; ++r) {
                    const auto at = [&](std::int64_t word) { return (group.first_word + word) * rows_ + first + r; };
                    to[kRows * i + r] = static_cast<std::uint8_t>(bits_at(*weight_, i * group.bits, group.bits, at));
                }
            }
        }
    }
    void codes(const Part& part, std::uint8_t* out) const override {
        check(part.inputs() == cols_, "EXL2 has an order of its own, so rows are read whole");
        ordered_codes(part.first, part.count, {}, out);
    }
    float scale(std::int64_t row, std::int64_t group) const override {
        const std::uint32_t word = word_at(*scales_, group * (rows_ / 8) + row / 8);
        const auto root = static_cast<float>((word >> (4 * (row % 8)) & 15u) + 1u);
        return rounded(root * root * rounded(number_at(*largest_, group) / 256.0f));
    }
    int bits(std::int64_t group) const override { return table_[static_cast<std::size_t>(group)].bits; }
    int zero(std::int64_t, std::int64_t group) const override { return 1 << (bits(group) - 1); }

    ModuleTensors tensors_;
    const TensorInfo* weight_ = nullptr;
    const TensorInfo* groups_info_ = nullptr;
    const TensorInfo* scales_ = nullptr;
    const TensorInfo* largest_ = nullptr;
    std::vector<std::int32_t> input_of_;
    std::vector<Group> table_;
};

}  // namespace

const MatrixFormat& exl2_format() {
    static constexpr MatrixFormat format{
        .name = "EXL2",
        .methods = kMethods,
        .written_by = "ExLlamaV2",
        .bits = "2 to 8, mixed",
        .marks = [](const TensorInfo& tensor) { return tensor.name.ends_with(kMark); },
        .read = [](const Folder& folder, const TensorInfo& mark) -> std::unique_ptr<StoredMatrix> {
            return std::make_unique<Exl2Matrix>(folder, mark);
        }};
    return format;
}

}  // namespace foresay::core
