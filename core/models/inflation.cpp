#include "core/models/inflation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/models/shapes.h"

namespace foresay::core {
namespace {

using Kind = InflatedRow::Kind;

constexpr std::int64_t kUsedUnits = 3;  // copies of a feed-forward unit: the most parts of a weight (RowWriter::parts)

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

std::string number(std::int64_t value) { return std::to_string(value); }

void check_fit(const ModelConfig& small, const ModelConfig& shape, const std::string& path) {
    const kernels::ModelShape &s = small.shape, &l = shape.shape;
    const auto require = [&](bool condition, const std::string& reason) {
        if (!condition) throw Error(path + " cannot be inflated to " + shape.name + ": " + reason);
    };
    const bool plain = small.architecture == "llama" && !small.qkv_bias && !small.attention_out_bias &&
                       !small.mlp_bias && small.experts.count == 0 && small.window == 0 && small.layers.empty();
    require(plain,
            plain || small.architecture != "llama"
                ? "it is a model of the family " + small.architecture + "; only Llama models can be inflated"
                : "it has biases, experts or a window, which only some models of its family have; use one without");
    require(is_inflatable(shape), "that is a shape of the family " + shape.architecture +
                                      ", whose layers compute what a Llama's cannot; use one of " +
                                      joined(inflatable_shape_names()));
    require(!shape.tied_head,
            "that shape's head is its embedding table, which cannot be both; use a shape with a head of its own");
    require(l.d_model % s.d_model == 0 && l.d_model >= 2 * s.d_model,
            "its width of " + number(s.d_model) + " does not go into " + number(l.d_model) + " twice or more");
    require(l.head_dim % s.head_dim == 0,
            "its heads of " + number(s.head_dim) + " dimensions do not go into those of " + number(l.head_dim));
    require(l.kv_heads >= s.kv_heads,
            "it has " + number(s.kv_heads) + " key-value heads and the shape only " + number(l.kv_heads));
    const std::int32_t group = s.heads / s.kv_heads, slots = l.heads / l.kv_heads;
    const std::int32_t serving = slots / group * (l.kv_heads / s.kv_heads) * (l.head_dim / s.head_dim);
    require(serving >= 1,
            "a key-value head serves " + number(group) + " query heads and those of the shape only " + number(slots));
    require(serving >= 2, "its attention heads have to be there twice, and the shape has room for them once");
    require(l.d_ff >= 2 * s.d_ff,
            "its feed-forward width of " + number(s.d_ff) + " does not go twice into " + number(l.d_ff));
    require(l.layers >= s.layers, "it has " + number(s.layers) + " layers and the shape only " + number(l.layers));
    require(l.vocab >= s.vocab,
            "its vocabulary of " + number(s.vocab) + " tokens does not fit into " + number(l.vocab));
}

// Pairs up the columns of [first, end), which are equal in stretches of `width`.
void pair_stretches(InflatedColumns& columns, std::int64_t first, std::int64_t end, std::int64_t width) {
    for (std::int64_t at = first; at + 2 * width <= end; at += 2 * width) {
        for (std::int64_t i = at; i < at + width; ++i) {
            columns.equal.emplace_back(static_cast<std::int32_t>(i), static_cast<std::int32_t>(i + width));
        }
    }
}

// First columns of copies of `count` columns, side by side up to `end`.
std::vector<std::int64_t> side_by_side(std::int64_t count, std::int64_t end) {
    std::vector<std::int64_t> copies;
    for (std::int64_t at = 0; at + count <= end; at += count) copies.push_back(at);
    return copies;
}

// The first of the pair that `index` belongs to, where pairs begin at `first`.
std::int64_t first_of_pair(std::int64_t index, std::int64_t first) { return index - (index - first) % 2; }

}  // namespace

Inflation::Inflation(const ModelConfig& small, const ModelConfig& shape, const std::string& path) : small_(small) {
    check_fit(small, shape, path);
    large_ = shape;
    large_.architecture = small.architecture;
    large_.context_length = small.context_length;
    large_.norm_eps = small.norm_eps;
    large_.rope = small.rope;
    copies_ = large_.shape.d_model / small.shape.d_model;
    stretch_ = large_.shape.head_dim / small.shape.head_dim;
    group_ = small.shape.heads / small.shape.kv_heads;
    slots_ = large_.shape.heads / large_.shape.kv_heads;
    used_slots_ = slots_ / group_ * group_;
    used_kv_heads_ = large_.shape.kv_heads / small.shape.kv_heads * small.shape.kv_heads;
    used_units_ = std::min<std::int64_t>(kUsedUnits, large_.shape.d_ff / small.shape.d_ff) * small.shape.d_ff;
    const bool adjacent = small.rope.pairs == kernels::RopePairs::adjacent;
    const std::int32_t pairs = large_.shape.head_dim / 2, small_pairs = small.shape.head_dim / 2;
    for (std::int32_t dim = 0; dim < large_.shape.head_dim; ++dim) {
        const std::int32_t pair = adjacent ? dim / 2 : dim % pairs, second = adjacent ? dim % 2 : dim / pairs;
        const std::int32_t from = pair / stretch_;
        key_dims_.push_back(adjacent ? 2 * from + second : from + small_pairs * second);
        same_frequency_.push_back(pair % stretch_ == 0);
    }
    large_.rope.factors.clear();
    for (std::size_t i = 0; !small.rope.factors.empty() && i < static_cast<std::size_t>(large_.shape.head_dim / 2);
         ++i) {
        large_.rope.factors.push_back(small.rope.factors[i / static_cast<std::size_t>(stretch_)]);
    }
    plan_columns();
}

void Inflation::plan_columns() {
    const kernels::ModelShape &s = small_.shape, &l = large_.shape;
    reader_.segments = {{0, s.d_model, side_by_side(s.d_model, l.d_model)}};

    const std::int64_t width = l.head_dim, group_width = slots_ * width;
    for (std::int64_t head = 0; head < s.heads; ++head) {
        InflatedColumns::Segment& segment = out_.segments.emplace_back();
        segment.source = head * s.head_dim;
        segment.count = s.head_dim;
        for (std::int64_t dim = 0; dim < width; dim += s.head_dim) {
            for (std::int64_t j = head / group_; j < used_kv_heads_; j += s.kv_heads) {
                for (std::int64_t slot = head % group_; slot < used_slots_; slot += group_) {
                    segment.copies.push_back(j * group_width + slot * width + dim);
                }
            }
        }
    }
    for (std::int64_t j = 0; j < l.kv_heads; ++j) {
        const std::int64_t begin = j * group_width, end = begin + group_width;
        pair_stretches(extra_out_, begin, end, width);
        pair_stretches(out_, j < used_kv_heads_ ? begin + used_slots_ * width : begin, end, width);
    }

    down_.segments = {{0, s.d_ff, side_by_side(s.d_ff, used_units_)}};
    pair_stretches(down_, used_units_, l.d_ff, 1);
    pair_stretches(extra_down_, 0, l.d_ff, 1);
}

InflatedRow Inflation::query_row(std::int32_t layer, std::int64_t row) const {
    const std::int64_t head = row / large_.shape.head_dim, dim = row % large_.shape.head_dim;
    const std::int64_t j = head / slots_, slot = head % slots_;
    const std::int64_t taken = in_small(layer) && j < used_kv_heads_ ? used_slots_ : 0;
    if (slot >= taken) {
        const std::int64_t same = j * slots_ + first_of_pair(slot, taken);
        return {Kind::random, same * large_.shape.head_dim + dim, 1.0f};
    }
    if (!same_frequency_[static_cast<std::size_t>(dim)]) return {Kind::zero, 0, 1.0f};
    const std::int64_t small_head = j % small_.shape.kv_heads * group_ + slot % group_;
    return {Kind::small, small_head * small_.shape.head_dim + key_dims_[static_cast<std::size_t>(dim)],
            std::sqrt(static_cast<float>(stretch_))};
}

InflatedRow Inflation::key_value_row(bool key, std::int32_t layer, std::int64_t row) const {
    const std::int64_t head = row / large_.shape.head_dim, dim = row % large_.shape.head_dim;
    if (!in_small(layer) || head >= used_kv_heads_) return {Kind::random, row, 1.0f};
    const std::int64_t from = key ? key_dims_[static_cast<std::size_t>(dim)] : dim % small_.shape.head_dim;
    return {Kind::small, head % small_.shape.kv_heads * small_.shape.head_dim + from, 1.0f};
}

InflatedRow Inflation::row(const TensorName& name, std::int64_t row) const {
    if (name.part == "attn_q") return query_row(name.layer, row);
    if (name.part == "attn_k" || name.part == "attn_v") return key_value_row(name.part == "attn_k", name.layer, row);
    if (name.part == "ffn_gate" || name.part == "ffn_up") {
        const std::int64_t taken = in_small(name.layer) ? used_units_ : 0;
        if (row < taken) return {Kind::small, row % small_.shape.d_ff, 1.0f};
        return {Kind::random, first_of_pair(row, taken), 1.0f};
    }
    return {row < small_.shape.vocab ? Kind::small : Kind::random, row, 1.0f};
}

const InflatedColumns& Inflation::writer(const TensorName& name) const {
    if (name.part == "ffn_down") return in_small(name.layer) ? down_ : extra_down_;
    return in_small(name.layer) ? out_ : extra_out_;
}

}  // namespace foresay::core
