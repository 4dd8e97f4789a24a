// embed: x[t] = scale * table[token of row t].

#include <algorithm>

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct Embed : PreparedOp {
    EmbedSpec spec;
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const EmbedSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<Embed>();
    op->spec = spec;
    return op;
}

int64_t ReferenceOps::token_of(ReferenceWorkspace& a, std::size_t t, int64_t rows) {
    const ReferenceWorkspace& token_source = a.batch.token_source != nullptr ? self(*a.batch.token_source) : a;
    const TokenRef token = a.batch.rows[t].token;
    const int32_t id = token.is_slot() ? token_source.slots.sampled(token.slot_index()).token : token.value;
    return std::clamp<int64_t>(id, 0, rows - 1);
}

void ReferenceOps::embed(const PreparedOp& prepared, Workspace& workspace) {
    const EmbedSpec& spec = static_cast<const Embed&>(prepared).spec;
    auto& a = self(workspace);
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        const std::span<float> x(row(a.x, t, a.shape.d_model), static_cast<std::size_t>(a.shape.d_model));
        dequantize_row(spec.table, token_of(a, t, spec.table.rows), x);
        for (float& value : x) value *= spec.scale;
    }
}

}  // namespace foresay::kernels::reference
