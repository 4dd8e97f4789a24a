#include "core/weights/formats/integer_matrix.h"

#include <algorithm>
#include <numeric>

#include "kernels/quant/f16.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q8_0.h"

namespace foresay::core {

using kernels::QuantType;

namespace {

constexpr std::int64_t kBlock = 32;

bool is_f16(float value) { return kernels::f16_to_f32(kernels::f32_to_f16(value)) == value; }

kernels::StoredF16 stored(float value) { return kernels::StoredF16::from_bits(kernels::f32_to_f16(value)); }

// The numbers of a block are between low and high, and a type holds these.
struct Holder {
    QuantType type;
    int low, high;
};
constexpr Holder kHolders[] = {{QuantType::q4_0, -8, 7}, {QuantType::q8_0, -128, 127}};

}  // namespace

void IntegerMatrix::set_groups(std::int64_t size) {
    groups_ = (cols_ + size - 1) / size;
    group_of_.resize(static_cast<std::size_t>(cols_));
    for (std::int64_t i = 0; i < cols_; ++i) {
        group_of_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / size);
    }
}

void IntegerMatrix::set_groups(std::vector<std::int32_t> group_of, std::int64_t groups) {
    group_of_ = std::move(group_of);
    groups_ = groups;
}

QuantType IntegerMatrix::plain_type() const {
    if (has_minimum_ || cols_ % kBlock != 0) return QuantType::f32;
    for (std::int64_t i = 0; i < cols_; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (group_of_[at] != group_of_[at / kBlock * kBlock]) return QuantType::f32;
    }
    int low = 0, high = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
        for (std::int64_t group = 0; group < groups_; ++group) {
            // A scale that is not finite stays, and is found where weights are checked.
            const float factor = scale(row, group);
            if (factor == factor && !is_f16(factor)) return QuantType::f32;
            const int middle = zero(row, group);
            low = std::min(low, -middle);
            high = std::max(high, (1 << bits(group)) - 1 - middle);
        }
    }
    for (const Holder& holder : kHolders) {
        if (low >= holder.low && high <= holder.high) return holder.type;
    }
    return QuantType::f32;
}

std::vector<std::int32_t> IntegerMatrix::order_by_group() const {
    if (std::ranges::is_sorted(group_of_)) return {};
    std::vector<std::int32_t> order(static_cast<std::size_t>(cols_));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return group_of_[static_cast<std::size_t>(i)]; });
    return order;
}

StoredMatrix::Choice IntegerMatrix::choose() const {
    Choice choice{.type = plain_type(), .packing = {}};
    // Four bits with a zero take less than Q8_0.
    const bool narrower = choice.type == QuantType::q8_0 && bits_ > 0 && bits_ < 8;
    if ((choice.type != QuantType::f32 && !narrower) || cols_ % kBlock != 0) return choice;
    kernels::Packing packing;
    packing.plain = choice.type;
    packing.order = order_by_group();
    if (!packing.order.empty()) packing.plain = QuantType::f32;  // no other type keeps an order
    std::int32_t last = -1;
    for (std::int64_t begin = 0; begin < cols_; begin += kBlock) {
        const std::int32_t group = group_at(packing.order, begin);
        if (group_at(packing.order, begin + kBlock - 1) != group) return choice;
        const int width = kernels::packed_bits(bits(group));
        packing.kinds.push_back(static_cast<std::uint8_t>(width | (group != last ? kernels::kHead : 0)));
        last = group;
    }
    bool halves = true;  // float16 holds all scales and minima
    for (std::int64_t row = 0; row < rows_ && halves; ++row) {
        for (std::int64_t group = 0; group < groups_ && halves; ++group) {
            for (const float value : {scale(row, group), minimum(row, group)}) {
                if (value == value && !is_f16(value)) halves = false;
            }
        }
    }
    using Form = kernels::ScaleForm;
    packing.form =
        has_minimum_ ? (halves ? Form::f16_minimum : Form::f32_minimum) : (halves ? Form::f16_zero : Form::f32_zero);
    return {QuantType::packed, std::move(packing)};
}

void IntegerMatrix::read(std::int64_t first, std::int64_t count, float* out) const {
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(count * cols_));
    codes(first, count, tile.data());
    struct Group {
        float scale, minimum;
        int zero;
    };
    std::vector<Group> groups(static_cast<std::size_t>(groups_));
    for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t row = first + r;
        for (std::int64_t g = 0; g < groups_; ++g) {
            groups[static_cast<std::size_t>(g)] = {scale(row, g), minimum(row, g), zero(row, g)};
        }
        const std::uint8_t* const code = tile.data() + r * cols_;
        float* const to = out + r * cols_;
        for (std::int64_t i = 0; i < cols_; ++i) {
            const Group& group = groups[static_cast<std::size_t>(group_of_[static_cast<std::size_t>(i)])];
            const float product = static_cast<float>(code[i] - group.zero) * group.scale;
            to[i] = has_minimum_ ? product + group.minimum : product;
        }
    }
}

void IntegerMatrix::read_packed(std::int64_t first, std::int64_t count, std::byte* out) const {
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(count * cols_));
    codes(first, count, tile.data());
    const QuantType type = packed();
    if (type == QuantType::packed) return read_rows(first, count, tile, out);
    auto* four = reinterpret_cast<kernels::Q4_0::Block*>(out);
    auto* eight = reinterpret_cast<kernels::Q8_0::Block*>(out);
    for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t row = first + r;
        for (std::int64_t begin = 0; begin < cols_; begin += kBlock) {
            const std::int64_t group = group_of_[static_cast<std::size_t>(begin)];
            const std::uint8_t* const code = tile.data() + r * cols_ + begin;
            const kernels::StoredF16 d = stored(scale(row, group));
            const int middle = zero(row, group);
            if (type == QuantType::q4_0) {
                four->d = d;
                for (int j = 0; j < 16; ++j) {
                    const int low = code[j] - middle + 8, high = code[j + 16] - middle + 8;
                    four->codes[j] = static_cast<std::uint8_t>(low | high << 4);
                }
                ++four;
            } else {
                eight->d = d;
                for (int j = 0; j < 32; ++j) eight->codes[j] = static_cast<std::int8_t>(code[j] - middle);
                ++eight;
            }
        }
    }
}

void IntegerMatrix::read_rows(std::int64_t first, std::int64_t count, const std::vector<std::uint8_t>& tile,
                              std::byte* out) const {
    const kernels::Packing& packing = *this->packing();
    using Form = kernels::ScaleForm;
    for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t row = first + r;
        const std::uint8_t* const code = tile.data() + r * cols_;
        for (std::int64_t begin = 0; begin < cols_; begin += kBlock) {
            const std::uint8_t kind = packing.kind(begin / kBlock);
            const std::int32_t group = group_at(packing.order, begin);
            const float d = scale(row, group);
            if ((kind & kernels::kHead) != 0) {
                if (packing.form == Form::f16_minimum) {
                    out = kernels::put_bytes(kernels::put_bytes(out, stored(d)), stored(minimum(row, group)));
                } else if (packing.form == Form::f32_minimum) {
                    out = kernels::put_bytes(kernels::put_bytes(out, d), minimum(row, group));
                } else if (packing.form == Form::f16_zero) {
                    out = kernels::put_bytes(kernels::put_bytes(out, stored(d)),
                                             static_cast<std::int16_t>(zero(row, group)));
                } else {
                    out = kernels::put_bytes(kernels::put_bytes(out, d), static_cast<float>(zero(row, group)));
                }
            }
            std::uint8_t codes[kBlock];
            for (std::int64_t i = 0; i < kBlock; ++i) {
                const std::int64_t place = begin + i;
                codes[i] = code[packing.order.empty() ? place : packing.order[static_cast<std::size_t>(place)]];
            }
            out = kernels::put_codes(out, kind & ~kernels::kHead, codes);
        }
    }
}

}  // namespace foresay::core
