#include "core/weights/formats/integer_matrix.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q8_0.h"
#include "kernels/quant/square.h"

namespace foresay::core {

using kernels::QuantType;
using Form = kernels::ScaleForm;

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

QuantType IntegerMatrix::plain_type(kernels::CodeRange& codes) const {
    if (has_minimum_ || cols_ % kBlock != 0) return QuantType::f32;
    for (std::int64_t i = 0; i < cols_; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (group_of_[at] != group_of_[at / kBlock * kBlock]) return QuantType::f32;
    }
    int low = 0, high = 0;
    for (std::int64_t row = 0; row < rows_; ++row) {
        for (std::int64_t group = 0; group < groups_; ++group) {
            if (!halves_ && !is_f16(scale(row, group))) return QuantType::f32;
            const int middle = zero(row, group);
            low = std::min(low, -middle);
            high = std::max(high, (1 << bits(group)) - 1 - middle);
        }
    }
    codes = {.least = low, .greatest = high};
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
    Choice choice;
    choice.type = plain_type(choice.codes);
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
    for (std::int64_t row = 0; row < rows_ && halves && !halves_; ++row) {
        for (std::int64_t group = 0; group < groups_ && halves; ++group) {
            for (const float value : {scale(row, group), minimum(row, group)}) {
                if (!is_f16(value)) halves = false;
            }
        }
    }
    packing.form =
        has_minimum_ ? (halves ? Form::f16_minimum : Form::f32_minimum) : (halves ? Form::f16_zero : Form::f32_zero);
    return {QuantType::packed, std::move(packing), {}};
}

void IntegerMatrix::read(std::int64_t first, std::int64_t count, float* out) const {
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(count * cols_));
    codes({first, count, 0, cols_}, tile.data());
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
    static const std::vector<std::int32_t> kOwn;
    const std::vector<std::int32_t>& order = packing() != nullptr ? packing()->order : kOwn;
    const std::int64_t row_bytes = packed_row_bytes();
    if (!place_of_.empty() || !order.empty()) {
        std::vector<std::uint8_t> rows(static_cast<std::size_t>(count * cols_));
        ordered_codes(first, count, order, rows.data());
        return put_part({first, count, 0, cols_}, rows.data(), out, row_bytes);
    }
    if (stream_.data != nullptr && kernels::packed_bits(bits_) == bits_ && packing() != nullptr) {
        return put_part({first, count, 0, cols_}, nullptr, out, row_bytes);
    }
    constexpr std::int64_t kInputs = 128;  // of many rows, so that they stay in the first-level cache
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(count * std::min(kInputs, cols_)));
    for (std::int64_t begin = 0; begin < cols_; begin += kInputs) {
        const Part part{first, count, begin, std::min(cols_, begin + kInputs)};
        codes(part, tile.data());
        const kernels::TensorView before{packed(), 1, begin, nullptr, packing()};
        put_part(part, tile.data(), out + before.row_bytes(), row_bytes);
    }
}

void IntegerMatrix::codes(const Part& part, std::uint8_t* out) const {
    const std::int64_t inputs = part.inputs();
    const std::int64_t whole = kernels::packed_bits(bits_) == bits_ ? inputs / kBlock * kBlock : 0;
    kernels::with_bits(kernels::packed_bits(bits_), [&]<int kBits>(std::integral_constant<int, kBits>) {
        for (std::int64_t i = 0; i < whole; i += kBlock) {
            for (std::int64_t r = 0; r < part.count; ++r) {
                const kernels::GroupBytes group = split_stream<kBits>(part.first + r, (part.begin + i) / kBlock);
                std::memcpy(out + r * inputs + i, &group, sizeof group);
            }
        }
    });
    const std::uint32_t mask = (1u << bits_) - 1u;
    for (std::int64_t i = whole; i < inputs; ++i) {
        const std::int64_t bit = (part.begin + i) * bits_, word = bit / 32;
        const int shift = static_cast<int>(bit % 32);
        for (std::int64_t r = 0; r < part.count; ++r) {
            std::uint32_t code = stream_.word(part.first + r, word) >> shift;
            if (shift + bits_ > 32) code |= stream_.word(part.first + r, word + 1) << (32 - shift);
            out[r * inputs + i] = static_cast<std::uint8_t>(code & mask);
        }
    }
}

void IntegerMatrix::columns(std::int64_t first, std::int64_t count, std::uint8_t* out) const {
    const bool streamed = stream_.data != nullptr && kernels::packed_bits(bits_) == bits_ && cols_ % kBlock == 0;
    if (!streamed) {
        std::vector<std::uint8_t> rows(static_cast<std::size_t>(count * cols_));
        codes({first, count, 0, cols_}, rows.data());
        for (std::int64_t i = 0; i < cols_; ++i) {
            for (std::int64_t r = 0; r < count; ++r) {
                out[kernels::kSquare * i + r] = rows[static_cast<std::size_t>(r * cols_ + i)];
            }
        }
        return;
    }
    kernels::with_bits(bits_, [&]<int kBits>(std::integral_constant<int, kBits>) {
        std::uint32_t words[kBits][kernels::kSquare] = {};
        for (std::int64_t i = 0; i < cols_; i += kBlock) {
            for (int w = 0; w < kBits; ++w) {
                const std::int64_t word = i / kBlock * kBits + w;
                for (std::int64_t r = 0; r < count; ++r) words[w][r] = stream_.word(first + r, word);
            }
            kernels::split_columns<kBits>(words, out + kernels::kSquare * i);
        }
    });
}

// An input's codes of 16 rows are moved at once, and then 16 inputs of these rows are transposed.
void IntegerMatrix::ordered_codes(std::int64_t first, std::int64_t count, const std::vector<std::int32_t>& order,
                                  std::uint8_t* out) const {
    constexpr std::int64_t kSide = kernels::kSquare;
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(kSide * cols_));
    std::vector<std::int32_t> places(static_cast<std::size_t>(cols_));
    for (std::size_t at = 0; at < places.size(); ++at) {
        const std::int32_t input = order.empty() ? static_cast<std::int32_t>(at) : order[at];
        places[at] = place_of_.empty() ? input : place_of_[static_cast<std::size_t>(input)];
    }
    for (std::int64_t row = 0; row < count; row += kSide) {
        const std::int64_t rows = std::min(kSide, count - row);
        columns(first + row, rows, tile.data());
        for (std::int64_t begin = 0; begin < cols_; begin += kSide) {
            const std::int64_t some = std::min(kSide, cols_ - begin);
            kernels::Square<std::uint8_t> square = {};
            for (std::int64_t i = 0; i < some; ++i) {
                const std::int64_t place = places[static_cast<std::size_t>(begin + i)];
                std::memcpy(square.row(static_cast<int>(i)), tile.data() + kSide * place, kSide);
            }
            square.transpose();
            for (std::int64_t r = 0; r < rows; ++r) {
                const std::uint8_t* const from = square.row(static_cast<int>(r));
                std::uint8_t* const to = out + (row + r) * cols_ + begin;
                if (some == kSide) {  // a constant length
                    std::memcpy(to, from, kSide);
                } else {
                    std::copy_n(from, some, to);
                }
            }
        }
    }
}

// The codes of group `group` of 32 inputs.
template <int kBits>
kernels::GroupBytes IntegerMatrix::split_stream(std::int64_t row, std::int64_t group) const {
    std::uint32_t words[kBits];
    for (int w = 0; w < kBits; ++w) words[w] = stream_.word(row, group * kBits + w);
    return kernels::split_words<kBits>(words);
}

std::byte* IntegerMatrix::put_head(std::int64_t row, std::int64_t group, std::byte* out) const {
    using kernels::put_bytes;
    const float d = scale(row, group);
    switch (packing()->form) {
        case Form::f16_minimum:
            return put_bytes(put_bytes(out, stored(d)), stored(minimum(row, group)));
        case Form::f32_minimum:
            return put_bytes(put_bytes(out, d), minimum(row, group));
        case Form::f16_zero:
            return put_bytes(put_bytes(out, stored(d)), static_cast<std::int16_t>(zero(row, group)));
        default:
            return put_bytes(put_bytes(out, d), static_cast<float>(zero(row, group)));
    }
}

// A part of rows in packed(), from where it begins in the first of them. `codes` are those of codes(), or of
// ordered_codes() where the packing has an order; null: they are taken from the stream. Rows take turns at each group
// of 32, since some formats store them side by side.
void IntegerMatrix::put_part(const Part& part, const std::uint8_t* codes, std::byte* out,
                             std::int64_t row_bytes) const {
    if (packing() == nullptr) return put_blocks(part, codes, out, row_bytes);
    const kernels::Packing& packing = *this->packing();
    for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
        const std::uint8_t kind = packing.kind(begin / kBlock);
        if ((kind & kernels::kHead) != 0) {
            const std::int64_t group = group_at(packing.order, begin);
            for (std::int64_t r = 0; r < part.count; ++r) put_head(part.first + r, group, out + r * row_bytes);
            out += kernels::head_bytes(packing.form);
        }
        kernels::with_bits(kind & ~kernels::kHead, [&]<int kBits>(std::integral_constant<int, kBits>) {
            for (std::int64_t r = 0; r < part.count; ++r) {
                std::byte* const to = out + r * row_bytes;
                if (codes != nullptr) {
                    kernels::GroupBytes group;
                    std::memcpy(&group, codes + r * part.inputs() + begin - part.begin, sizeof group);
                    kernels::put_group<kBits>(to, group);
                    continue;
                }
                for (int w = 0; w < kBits; ++w) {
                    kernels::put_bytes(to + 4 * w, stream_.word(part.first + r, begin / kBlock * kBits + w));
                }
            }
            out += kBits * (kBlock / 8);
        });
    }
}

// The same of blocks of Q4_0 or Q8_0, from codes().
void IntegerMatrix::put_blocks(const Part& part, const std::uint8_t* codes, std::byte* out,
                               std::int64_t row_bytes) const {
    struct Scale {
        kernels::StoredF16 d;
        int middle;
    };
    std::vector<Scale> scales(static_cast<std::size_t>(part.count));
    const bool four = packed() == QuantType::q4_0;
    std::int32_t last = -1;
    for (std::int64_t begin = part.begin; begin < part.end; begin += kBlock) {
        const std::int32_t group = group_of_[static_cast<std::size_t>(begin)];
        for (std::int64_t r = 0; r < part.count && group != last; ++r) {
            const std::int64_t row = part.first + r;
            scales[static_cast<std::size_t>(r)] = {stored(scale(row, group)), zero(row, group)};
        }
        last = group;
        for (std::int64_t r = 0; r < part.count; ++r) {
            const auto [d, middle] = scales[static_cast<std::size_t>(r)];
            const std::uint8_t* const from = codes + r * part.inputs() + begin - part.begin;
            if (four) {
                auto* const block = reinterpret_cast<kernels::Q4_0::Block*>(out + r * row_bytes);
                block->d = d;
                kernels::GroupBytes group;
                std::memcpy(&group, from, sizeof group);
                for (std::uint64_t& eight : group.eights) {
                    eight += kernels::eight_of(static_cast<std::uint8_t>(8 - middle));
                }
                kernels::set_codes(*block, group);
            } else {
                auto* const block = reinterpret_cast<kernels::Q8_0::Block*>(out + r * row_bytes);
                block->d = d;
                for (int j = 0; j < kBlock; ++j) block->codes[j] = static_cast<std::int8_t>(from[j] - middle);
            }
        }
        out += four ? sizeof(kernels::Q4_0::Block) : sizeof(kernels::Q8_0::Block);
    }
}

}  // namespace foresay::core
