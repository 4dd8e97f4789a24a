// core/weights/formats/integer_matrix.h: matrices of small integers under scales: code minus zero, times the scale of
// its group.
//
// A reader says where codes, zeros and scales lie; the choice of a type of the kernels and the packing are here. Inputs
// whose groups do not lie together (act-order, EXL2) are put in the order of their groups, which the packing names.
// Float32 remains where groups are no multiples of 32 inputs.
#pragma once

#include <cstring>

#include "core/weights/formats/stored_matrix.h"
#include "kernels/quant/code_stream.h"

namespace foresay::core {

class IntegerMatrix : public StoredMatrix {
protected:
    // Codes of a width that is the same everywhere, as one stream of bits for each row, the lowest first: word w of row
    // r is at data + r * row_step + w * word_step.
    struct CodeStream {
        const std::byte* data = nullptr;  // null: the file has codes in another way
        std::int64_t row_step = 0, word_step = 0;

        std::uint32_t word(std::int64_t row, std::int64_t w) const {
            std::uint32_t word;
            std::memcpy(&word, data + row * row_step + w * word_step, sizeof word);
            return word;
        }
    };
    // Inputs [begin, end) of some rows. `begin` is a multiple of 32, and so is `end` where it is not cols().
    struct Part {
        std::int64_t first, count;
        std::int64_t begin, end;
        std::int64_t inputs() const { return end - begin; }
    };
    // A byte for each code: out[part.count][part.inputs()]. Only those without a stream need to have it.
    virtual void codes(const Part& part, std::uint8_t* out) const;
    // The codes of up to 16 rows, by inputs in the file's order: out[cols()][16].
    virtual void columns(std::int64_t first, std::int64_t count, std::uint8_t* out) const;
    // Whole rows from columns(), their inputs in an order; empty: in their own. out[count][cols()].
    void ordered_codes(std::int64_t first, std::int64_t count, const std::vector<std::int32_t>& order,
                       std::uint8_t* out) const;
    virtual float scale(std::int64_t row, std::int64_t group) const = 0;
    // What is taken from the codes of a group: 0 to 256.
    virtual int zero(std::int64_t row, std::int64_t group) const = 0;
    // What is added to all numbers of a group, for formats that have it; then zero() is 0.
    virtual float minimum(std::int64_t /*row*/, std::int64_t /*group*/) const { return 0.0f; }
    // Bits of the codes of a group.
    virtual int bits(std::int64_t /*group*/) const { return bits_; }

    // Groups of `size` neighbours, or all inputs if it is the whole width. Needs cols_.
    void set_groups(std::int64_t size);
    // The group of each input.
    void set_groups(std::vector<std::int32_t> group_of, std::int64_t groups);

    int bits_ = 0;
    CodeStream stream_;
    std::vector<std::int32_t> place_of_;  // where each input is in the file's order; empty: in its own place
    bool halves_ = false;                 // all scales and minima are known to be numbers of float16
    bool has_minimum_ = false;
    std::int64_t groups_ = 0;
    std::vector<std::int32_t> group_of_;  // cols()

private:
    Choice choose() const final;
    // The type that has blocks of its own for these numbers, which `codes` then says; float32: none.
    kernels::QuantType plain_type(kernels::CodeRange& codes) const;
    // Inputs by group, in their own order within it. Empty: they lie together already.
    std::vector<std::int32_t> order_by_group() const;
    // The group of the input at a place of an order.
    std::int32_t group_at(const std::vector<std::int32_t>& order, std::int64_t place) const {
        const std::int64_t input = order.empty() ? place : order[static_cast<std::size_t>(place)];
        return group_of_[static_cast<std::size_t>(input)];
    }
    template <int kBits>
    kernels::GroupBytes split_stream(std::int64_t row, std::int64_t group) const;
    std::byte* put_head(std::int64_t row, std::int64_t group, std::byte* out) const;
    void put_part(const Part& part, const std::uint8_t* codes, std::byte* out, std::int64_t row_bytes) const;
    void put_blocks(const Part& part, const std::uint8_t* codes, std::byte* out, std::int64_t row_bytes) const;
    void read(std::int64_t first, std::int64_t count, float* out) const final;
    void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const final;
};

}  // namespace foresay::core
