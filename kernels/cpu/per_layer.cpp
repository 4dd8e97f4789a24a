// per_layer_embed and per_layer of the CPU backend.
#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace foresay::kernels::cpu {

void CpuOps::per_layer_embed(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const PerLayerEmbedOp&>(prepared);
    auto& a = self(workspace);
    const bool floats = s.projection.reads_floats();
    fill_tiles(a, a.tiles, a.x, a.d_stride, a.shape.d_model, Norm{}, !floats, floats, s.projection.order);
    run_panels(a, s.projection.panels, s.projection.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.projection, begin, end), a.tiles.tile(i),
                        a.per_layer + a.tiles.first_row(i) * a.per_layer_stride, a.per_layer_stride, Store::set);
        }
    });
    const int part = a.shape.per_layer;
    pool_.run(rows(a), 1, [&](int begin, int end, int thread) {
        float* table = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int t = begin; t < end; ++t) {
            dequantize_row(s.table, token_of(a, t, s.table.rows), {table, static_cast<std::size_t>(s.table.cols)});
            for (int64_t first = 0; first < s.table.cols; first += part) {
                float* out = a.per_layer + t * a.per_layer_stride + first;
                for (int i = 0; i < part; ++i) out[i] *= s.projection_scale;
                apply_norm(s.norm, out, part, out);
                for (int i = 0; i < part; ++i) out[i] = (out[i] + s.table_scale * table[first + i]) * s.scale;
            }
        }
    });
}

void CpuOps::per_layer(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const PerLayerOp&>(prepared);
    auto& a = self(workspace);
    const int part = a.shape.per_layer;
    const bool gate_floats = s.gate.reads_floats(), floats = s.projection.reads_floats();
    fill_tiles(a, a.tiles, a.x, a.d_stride, a.shape.d_model, Norm{}, !gate_floats, gate_floats, s.gate.order);
    run_panels(a, s.gate.panels, s.gate.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.gate, begin, end), a.tiles.tile(i),
                        a.per_layer_gate + a.tiles.first_row(i) * a.per_layer_part, a.per_layer_part, Store::set);
        }
    });
    pool_.run(rows(a), 4, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* gate = a.per_layer_gate + t * a.per_layer_part;
            const float* own = a.per_layer + t * a.per_layer_stride + static_cast<int64_t>(s.layer) * part;
            isa_.activate(gate, nullptr, nullptr, nullptr, part, static_cast<RowActivation>(s.activation), 0.0f);
            for (int i = 0; i < part; ++i) gate[i] *= own[i];
        }
    });
    fill_tiles(a, a.tiles, a.per_layer_gate, a.per_layer_part, part, Norm{}, !floats, floats, s.projection.order);
    run_panels(a, s.projection.panels, s.projection.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.projection, begin, end), a.tiles.tile(i),
                        a.projected + a.tiles.first_row(i) * a.d_stride, a.d_stride, Store::set);
        }
    });
    pool_.run(rows(a), 4, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* y = a.projected + t * a.d_stride;
            apply_norm(s.post_norm, y, a.shape.d_model, y);
            add_row(a, t, y, 1.0f, s.stream_scale);
        }
    });
}

}  // namespace foresay::kernels::cpu
