// core/weights/formats/integer_matrix.h: matrices of small integers under scales: code minus zero, times the scale of
// its group.
//
// A reader says where codes, zeros and scales lie; the choice of a type of the kernels and the packing are here. Inputs
// whose groups do not lie together (act-order, EXL2) are put in the order of their groups, which the packing names.
// Float32 remains where groups are no multiples of 32 inputs.
#pragma once

#include "core/weights/formats/stored_matrix.h"

namespace foresay::core {

class IntegerMatrix : public StoredMatrix {
protected:
    // `count` neighbouring rows of codes, each of cols() bytes.
    virtual void codes(std::int64_t first, std::int64_t count, std::uint8_t* out) const = 0;
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
    bool has_minimum_ = false;
    std::int64_t groups_ = 0;
    std::vector<std::int32_t> group_of_;  // cols()

private:
    Choice choose() const final;
    // The type that has blocks of its own for these numbers; float32: none.
    kernels::QuantType plain_type() const;
    // Inputs by group, in their own order within it. Empty: they lie together already.
    std::vector<std::int32_t> order_by_group() const;
    // The group of the input at a place of an order.
    std::int32_t group_at(const std::vector<std::int32_t>& order, std::int64_t place) const {
        const std::int64_t input = order.empty() ? place : order[static_cast<std::size_t>(place)];
        return group_of_[static_cast<std::size_t>(input)];
    }
    void read_rows(std::int64_t first, std::int64_t count, const std::vector<std::uint8_t>& tile, std::byte* out) const;
    void read(std::int64_t first, std::int64_t count, float* out) const final;
    void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const final;
};

}  // namespace foresay::core
