// attend: softmax attention of each row and attention head over the row's own prefix, including the row.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct Attend : PreparedOp {
    AttendSpec spec;
    Floats sinks;
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const AttendSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<Attend>();
    op->spec = spec;
    op->sinks = dequantize(spec.sinks);
    return op;
}

void ReferenceOps::attend(const PreparedOp& prepared, Workspace& workspace, const KvPages& pages, int32_t layer) {
    const auto& op = static_cast<const Attend&>(prepared);
    const AttendSpec& spec = op.spec;
    auto& a = self(workspace);
    const auto& kv = static_cast<const ReferenceKv&>(pages);
    const int32_t dh = spec.shape.head_dim, group = spec.shape.heads / spec.shape.kv_heads;
    const Floats &keys = kv.k[static_cast<std::size_t>(layer)], &values = kv.v[static_cast<std::size_t>(layer)];
    std::vector<int32_t> cells;
    std::vector<double> weights;
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        attended_cells(a.batch, static_cast<int32_t>(t), spec.window, cells);
        const auto& table = a.batch.sequences[a.batch.rows[t].sequence].pages;
        for (int32_t h = 0; h < spec.shape.heads; ++h) {
            // Offset of the key and the value of the i-th attended cell.
            const auto offset = [&](std::size_t i) {
                return kv.offset(layer, table[cells[i] / kPagePositions], cells[i] % kPagePositions, h / group);
            };
            const float* q = row(a.q, t, spec.shape.heads * dh) + h * dh;
            weights.assign(cells.size(), 0);
            const double sink = op.sinks.empty() ? -std::numeric_limits<double>::infinity() : op.sinks[h];
            double peak = sink;
            for (std::size_t i = 0; i < cells.size(); ++i) {
                weights[i] = soft_cap(dot(q, keys.data() + offset(i), dh) * spec.scale, spec.soft_cap);
                peak = std::max(peak, weights[i]);
            }
            double total = op.sinks.empty() ? 0.0 : std::exp(sink - peak);
            for (double& w : weights) total += w = std::exp(w - peak);
            std::vector<double> sum(static_cast<std::size_t>(dh));
            for (std::size_t i = 0; i < cells.size(); ++i) {
                const float* v = values.data() + offset(i);
                for (int32_t d = 0; d < dh; ++d) sum[d] += weights[i] * v[d];
            }
            float* out = row(a.attended, t, spec.shape.heads * dh) + h * dh;
            for (int32_t d = 0; d < dh; ++d) out[d] = static_cast<float>(sum[d] / total);
        }
    }
}

}  // namespace foresay::kernels::reference
