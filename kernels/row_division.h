// kernels/row_division.h: a layer divided by its outputs over several backends: which attention heads, which rows of
// each matrix and which experts each of them has, as specs of its own. Every sum stays whole: inputs are never divided,
// so a backend makes its numbers in the order in which one alone would make them.
//
// Parts:    attention by key-value heads, with the query heads that read them; O, down and the LM head by rows; gate
//           and up by rows; a mixture by whole experts. The parts of a matrix are whole units of kRowUnit rows, but for
//           the last one, so that no panel of any backend is cut. Blocks of a quantisation type lie along the inputs
//           and are whole in any case.
// Shares:   a number for each backend, relative to the others: {1, 2} gives the second twice as much. What does not
//           divide evenly goes to the nearest unit; a part may be empty. A model with fewer key-value heads than
//           backends has its attention on as many as it has heads, and all else on all of them.
// Threads:  pure functions.
// Errors:   check_divides() throws Error for what cannot be divided. Bad shares are bugs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels {

// Rows that stay together: two panels of the CPU, one of a GPU.
inline constexpr std::int32_t kRowUnit = 32;

// [first, first + count) of what is divided.
struct Part {
    std::int32_t first = 0, count = 0;
    bool operator==(const Part&) const = default;
};

// `total` in parts of whole units, by shares. They follow one another and cover all.
std::vector<Part> divide(std::int32_t total, std::int32_t unit, std::span<const std::int32_t> shares);

// The parts of a layer, or of a model whose layers are alike, of each backend.
struct RowDivision {
    std::vector<Part> kv_heads, width, inner, vocab, experts;
    RowDivision() = default;
    RowDivision(const ModelShape& shape, std::span<const std::int32_t> shares);
};

// The query heads that read key-value heads `kv`.
inline Part query_heads(const ModelShape& shape, Part kv) {
    const std::int32_t group = shape.heads / shape.kv_heads;
    return {kv.first * group, kv.count * group};
}
// The values of `heads` in a row of all of them.
inline Part head_values(const ModelShape& shape, Part heads) {
    return {heads.first * shape.head_dim, heads.count * shape.head_dim};
}

// Rows of a matrix, values of a vector. Empty stays empty.
TensorView rows_of(const TensorView& matrix, Part rows);
TensorView values_of(const TensorView& vector, Part values);

// The op of one part, which is not empty. attention_out and mlp_out: the rows `width`, which are all that the op adds
// to a residual stream of that width; without the norms and the branch that need the whole row, where `finished_apart`.
AttentionInSpec part_of(const AttentionInSpec& spec, Part kv_heads);
AttendSpec part_of(const AttendSpec& spec, Part kv_heads);
MlpOutSpec part_of(const AttentionOutSpec& spec, Part width);
MlpOutSpec part_of(const MlpOutSpec& spec, Part width);
MlpInSpec part_of(const MlpInSpec& spec, Part inner);
MoeSpec part_of(const MoeSpec& spec, Part experts);  // the other experts' matrices are empty
LmHeadSpec part_of(const LmHeadSpec& spec, Part vocab);

// attention_out as the same sum of another kind, whose inputs are the attended values.
MlpOutSpec as_down(const AttentionOutSpec& spec);
// Whether the sums of a row are needed together before they join the residual stream.
bool finished_apart(const MlpOutSpec& spec);
// What remains of the op then: all but the product and the bias.
MlpOutSpec finish_of(const MlpOutSpec& spec);

// Throws Error when the op cannot be divided by outputs.
void check_divides(const AttentionInSpec& spec);

}  // namespace foresay::kernels
