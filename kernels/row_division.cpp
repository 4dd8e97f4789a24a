#include "kernels/row_division.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace foresay::kernels {

using std::int32_t;
using std::int64_t;

std::vector<Part> divide(int32_t total, int32_t unit, std::span<const int32_t> shares) {
    const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
    check(all > 0 && std::ranges::min(shares) >= 0 && unit > 0, "shares are not negative, and one is positive");
    const int64_t units = (int64_t{total} + unit - 1) / unit;
    std::vector<Part> parts;
    int64_t before = 0;
    int32_t first = 0;
    for (const int32_t share : shares) {
        before += share;
        const int64_t end = (2 * units * before + all) / (2 * all);  // rounded; a half up
        const auto last = static_cast<int32_t>(std::min(end * unit, int64_t{total}));
        parts.push_back({first, last - first});
        first = last;
    }
    return parts;
}

RowDivision::RowDivision(const ModelShape& shape, std::span<const int32_t> shares)
    : kv_heads(divide(shape.kv_heads, 1, shares)),
      width(divide(shape.d_model, kRowUnit, shares)),
      inner(divide(shape.d_ff, kRowUnit, shares)),
      vocab(divide(shape.vocab, kRowUnit, shares)),
      experts(divide(shape.experts, 1, shares)) {}

TensorView rows_of(const TensorView& matrix, Part rows) {
    if (matrix.empty()) return {};
    TensorView part = matrix;
    part.rows = rows.count;
    if (part.data != nullptr) part.data += rows.first * matrix.row_bytes();
    return part;
}

TensorView values_of(const TensorView& vector, Part values) {
    if (vector.empty()) return {};
    check(values.first % info(vector.quant_type).block_elements == 0, "a vector is cut between blocks");
    TensorView part = vector;
    part.cols = values.count;
    if (part.data != nullptr) part.data += row_bytes(vector.quant_type, values.first);
    return part;
}

AttentionInSpec part_of(const AttentionInSpec& spec, Part kv_heads) {
    const ModelShape& s = spec.shape;
    const Part heads = query_heads(s, kv_heads);
    const Part q = head_values(s, heads), kv = head_values(s, kv_heads);
    AttentionInSpec part = spec;
    part.shape.heads = heads.count;
    part.shape.kv_heads = kv_heads.count;
    part.q = rows_of(spec.q, q);
    part.k = rows_of(spec.k, kv);
    part.v = rows_of(spec.v, kv);
    part.q_bias = values_of(spec.q_bias, q);
    part.k_bias = values_of(spec.k_bias, kv);
    part.v_bias = values_of(spec.v_bias, kv);
    // The weights of a norm of heads are those of one head for all, or of each.
    const auto own = [&](NormSpec& norm, Part values) {
        if (norm.weight.cols > s.head_dim) norm.weight = values_of(norm.weight, values);
        if (norm.bias.cols > s.head_dim) norm.bias = values_of(norm.bias, values);
    };
    own(part.q_norm, q);
    own(part.k_norm, kv);
    return part;
}

AttendSpec part_of(const AttendSpec& spec, Part kv_heads) {
    AttendSpec part = spec;
    const Part heads = query_heads(spec.shape, kv_heads);
    part.shape.heads = heads.count;
    part.shape.kv_heads = kv_heads.count;
    part.sinks = values_of(spec.sinks, heads);
    return part;
}

MlpOutSpec as_down(const AttentionOutSpec& spec) {
    MlpOutSpec same;
    same.shape = spec.shape;
    same.down = spec.o;
    same.bias = spec.bias;
    same.post_norm = spec.post_norm;
    same.scale = spec.scale;
    return same;
}

bool finished_apart(const MlpOutSpec& spec) {
    return !spec.post_norm.empty() || !spec.inner_norm.empty() || spec.add_branch;
}

MlpOutSpec finish_of(const MlpOutSpec& spec) {
    MlpOutSpec finish = spec;
    finish.down = finish.bias = {};
    return finish;
}

MlpOutSpec part_of(const AttentionOutSpec& spec, Part width) { return part_of(as_down(spec), width); }

MlpOutSpec part_of(const MlpOutSpec& spec, Part width) {
    MlpOutSpec part;
    part.shape = spec.shape;
    part.shape.d_model = width.count;
    part.shape.d_ff = static_cast<int32_t>(spec.down.cols);
    part.down = rows_of(spec.down, width);
    part.bias = values_of(spec.bias, width);
    if (finished_apart(spec)) return part;  // the sums alone, added to zeros
    part.scale = spec.scale;
    part.stream_scale = spec.stream_scale;
    return part;
}

MlpInSpec part_of(const MlpInSpec& spec, Part inner) {
    MlpInSpec part = spec;
    part.shape.d_ff = inner.count;
    part.gate = rows_of(spec.gate, inner);
    part.up = rows_of(spec.up, inner);
    part.gate_bias = values_of(spec.gate_bias, inner);
    part.up_bias = values_of(spec.up_bias, inner);
    return part;
}

MoeSpec part_of(const MoeSpec& spec, Part experts) {
    MoeSpec part = spec;
    for (std::vector<TensorView>* matrices : {&part.gate, &part.up, &part.down}) {
        for (int32_t e = 0; e < std::ssize(*matrices); ++e) {
            if (e < experts.first || e >= experts.first + experts.count) (*matrices)[static_cast<std::size_t>(e)] = {};
        }
    }
    return part;
}

LmHeadSpec part_of(const LmHeadSpec& spec, Part vocab) {
    LmHeadSpec part = spec;
    part.shape.vocab = vocab.count;
    part.weight = rows_of(spec.weight, vocab);
    return part;
}

void check_divides(const AttentionInSpec& spec) {
    if (spec.whole_norms && (!spec.q_norm.empty() || !spec.k_norm.empty())) {
        throw Error(
            "this model norms the queries of all heads together, so its heads cannot be divided; use "
            "runtime.split_mode = \"layer\"");
    }
}

}  // namespace foresay::kernels
