// attention_in and attend of the CPU backend.
//
// attention_in: the panels of Q, K and V are one loop; the thread that finishes the last panel of an attention head
// runs finish_head() for every row (bias, norm, rope, and for K and V the store into the KV cache).
// attend: a task is a group of rows (group_rows) x one key-value head. It lists the K and V tiles of its positions, one
// per page, and calls the kernel of isa/attend.cpp. Cells of tree rows may lie anywhere, so tiles that hold some are
// first gathered into scratch.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/op_checks.h"

namespace foresay::kernels::cpu {

const RowAngles& CpuOps::angles(CpuWorkspace& a, int table) {
    // Here, not in begin(): an op that was prepared since may have added its table.
    if (a.angles.size() < ropes_.size()) a.angles.resize(ropes_.size());
    RowAngles& out = a.angles[static_cast<std::size_t>(table)];
    if (out.valid) return out;
    const RopeTable& rope = ropes_[static_cast<std::size_t>(table)];
    const std::size_t pairs = rope.inverse_frequency.size();
    const auto most = static_cast<std::size_t>(a.max_rows) * pairs;
    if (out.cos.size() < most) {
        out.cos.resize(most);
        out.sin.resize(most);
    }
    for (int t = 0; t < rows(a); ++t) {
        for (std::size_t i = 0; i < pairs; ++i) {
            const double angle = static_cast<double>(a.batch.rows[t].position) * rope.inverse_frequency[i];
            out.cos[static_cast<std::size_t>(t) * pairs + i] =
                static_cast<float>(std::cos(angle) * rope.attention_factor);
            out.sin[static_cast<std::size_t>(t) * pairs + i] =
                static_cast<float>(std::sin(angle) * rope.attention_factor);
        }
    }
    out.valid = true;
    return out;
}

void CpuOps::rotate(const CpuWorkspace& a, int table, int t, float* head) const {
    const RopeTable& rope = ropes_[static_cast<std::size_t>(table)];
    const RowAngles& angles = a.angles[static_cast<std::size_t>(table)];
    const std::size_t pairs = rope.inverse_frequency.size(), at = static_cast<std::size_t>(t) * pairs;
    isa_.rotate(head, angles.cos.data() + at, angles.sin.data() + at, static_cast<int>(pairs),
                rope.pairs == RopePairs::adjacent);
}

// The epilogue of the projections for one attention head of one row: bias, norm, rope; stores keys and values in the KV
// cache. `head` counts query heads, then key heads, then value heads.
void CpuOps::finish_head(const AttentionInOp& s, CpuWorkspace& a, const CpuKvLayer& kv, int head, int t) {
    const int32_t dh = s.shape.head_dim, heads = s.shape.heads, kv_heads = s.shape.kv_heads;
    const Row& row = a.batch.rows[t];
    const auto finish = [&](float* x, int h, const std::vector<float>& bias, const Norm& norm) {
        float* y = x + h * dh;
        if (!bias.empty() && !(s.whole_norms && &norm != &s.v_norm)) {
            for (int32_t i = 0; i < dh; ++i) y[i] += bias[static_cast<std::size_t>(h * dh + i)];
        }
        if (!norm.empty() && !(s.whole_norms && &norm != &s.v_norm)) {
            apply_norm(norm, y, dh, y, norm.weight.size() > static_cast<std::size_t>(dh) ? h * dh : 0);
        }
        if (&norm != &s.v_norm && s.rope >= 0) rotate(a, s.rope, t, y);
        return y;
    };
    float* q = a.qkv + t * a.qkv_stride();
    if (head < heads) {
        float* y = finish(q, head, s.q_bias, s.q_norm);
        if (is_rotated(key_type(kv.format))) isa_.rotate_for_cache(y, dh);
        if (s.temperature.beta == 0.0f) return;
        const float factor = query_factor(s.temperature, row.position);
        for (int32_t i = 0; i < dh; ++i) y[i] *= factor;
        return;
    }
    const int32_t cell = row.cell < 0 ? row.position : row.cell;
    const int32_t page = a.batch.sequences[row.sequence].pages[cell / kPagePositions];
    const int32_t place = cell % kPagePositions;
    float* k = q + a.q_stride;
    if (const int h = head - heads; h < kv_heads) {
        store_key(kv, kv.k(page, h), place, finish(k, h, s.k_bias, s.k_norm));
        return;
    }
    const int h = head - heads - kv_heads;
    store_value(kv, kv.v(page, h), place, finish(k + a.kv_stride, h, s.v_bias, s.v_norm));
}

// Writes a head's key at `place` of the page's keys.
void CpuOps::store_key(const CpuKvLayer& kv, std::uint8_t* keys, int32_t place, float* x) const {
    const int32_t dh = kv.shape.head_dim;
    const auto scatter = [&](const auto* values, auto* out) {
        for (int32_t d = 0; d < dh; ++d) out[kv.k_index(place) + 16 * d] = values[d];
    };
    const int bits = kv.k_bits();
    if (bits < 8) {
        std::uint8_t codes[kMaxHeadDim];
        isa_.rotate_for_cache(x, dh);
        kv.k_steps(keys)[place] = isa_.to_low_kv_codes(x, dh, bits, codes);
        std::uint8_t* to = keys + kv.k_index(place);
        for (int32_t d = 0; d < dh; d += 2, to += 16) {
            *to = static_cast<std::uint8_t>((codes[d] & 15) | (codes[d + 1] & 15) << 4);
        }
        for (int32_t d = 0; d < dh && bits > 4; d += 4, to += 16) {
            *to = static_cast<std::uint8_t>(codes[d] >> 4 | codes[d + 1] >> 4 << 2 | codes[d + 2] >> 4 << 4 |
                                            codes[d + 3] >> 4 << 6);
        }
    } else if (bits == 8) {
        std::int8_t codes[kMaxHeadDim];
        kv.k_steps(keys)[place] = isa_.to_kv_codes(x, dh, codes);
        scatter(codes, reinterpret_cast<std::int8_t*>(keys));
    } else {
        std::uint16_t halves[kMaxHeadDim];
        isa_.to_half(x, dh, halves);
        scatter(halves, reinterpret_cast<std::uint16_t*>(keys));
    }
}

// Writes a head's value vector at `place` of the page's values.
void CpuOps::store_value(const CpuKvLayer& kv, std::uint8_t* values, int32_t place, float* x) const {
    const int32_t dh = kv.shape.head_dim;
    const int64_t at = place * kv.v_stride();
    const int bits = kv.v_bits();
    if (bits < 8) {
        std::uint8_t codes[kMaxHeadDim] = {};
        isa_.rotate_for_cache(x, dh);
        kv.v_steps(values)[place] = isa_.to_low_kv_codes(x, dh, bits, codes);
        std::uint8_t* to = values + at;
        for (int32_t from = 0; from < dh; from += 32, to += 16) {
            for (int32_t i = 0; i < 16; ++i) {
                to[i] = static_cast<std::uint8_t>((codes[from + i] & 15) | (codes[from + 16 + i] & 15) << 4);
            }
        }
        for (int32_t from = 0; from < dh && bits > 4; from += 64, to += 16) {
            for (int32_t i = 0; i < 16; ++i) {
                const std::uint8_t* four = codes + from + i;
                to[i] = static_cast<std::uint8_t>(four[0] >> 4 | four[16] >> 4 << 2 | four[32] >> 4 << 4 |
                                                  four[48] >> 4 << 6);
            }
        }
    } else if (bits == 8) {
        kv.v_steps(values)[place] = isa_.to_kv_codes(x, dh, reinterpret_cast<std::int8_t*>(values) + at);
    } else {
        isa_.to_half(x, dh, reinterpret_cast<std::uint16_t*>(values) + at);
    }
}

// Biases and norms over all heads of Q, and of K, together. finish_head() leaves both out then.
void CpuOps::norm_projections(const AttentionInOp& s, CpuWorkspace& a) {
    const auto whole = [&](float* x, const PanelMatrix& m, const std::vector<float>& bias, const Norm& norm) {
        for (std::size_t i = 0; i < bias.size(); ++i) x[i] += bias[i];
        if (!norm.empty() && m.panels > 0) apply_norm(norm, x, static_cast<int>(m.outputs), x);
    };
    pool_.run(rows(a), 4, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* q = a.qkv + t * a.qkv_stride();
            whole(q, s.q, s.q_bias, s.q_norm);
            whole(q + a.q_stride, s.k, s.k_bias, s.k_norm);
        }
    });
}

void CpuOps::attention_in(const PreparedOp& prepared, Workspace& workspace, KvPages& pages, int32_t layer) {
    const auto& s = static_cast<const AttentionInOp&>(prepared);
    auto& a = self(workspace);
    const CpuKvLayer kv = static_cast<CpuKv&>(pages).layer(layer);
    fill_tiles(a, a.tiles, a.x, a.d_stride, s.shape.d_model, s.norm, s.codes, s.floats, order_of({&s.q, &s.k, &s.v}));
    if (s.rope >= 0) angles(a, s.rope);
    const int total = s.q.panels + s.k.panels + s.v.panels;
    const auto project = [&](int begin, int end) {
        int first = 0;
        int64_t column = 0;
        for (const PanelMatrix* m : {&s.q, &s.k, &s.v}) {
            const int from = std::max(begin - first, 0), to = std::min(end - first, m->panels);
            for (int i = 0; i < a.tiles.tiles() && from < to; ++i) {
                isa_.linear(range(*m, from, to), a.tiles.tile(i),
                            a.qkv + a.tiles.first_row(i) * a.qkv_stride() + column, a.qkv_stride(), Store::set);
            }
            first += m->panels;
            column += m == &s.q ? a.q_stride : a.kv_stride;
        }
    };
    const auto finish = [&](int head) {
        for (int t = 0; t < rows(a); ++t) finish_head(s, a, kv, head, t);
    };
    const int heads = s.shape.heads + (s.k.panels > 0 ? 2 * s.shape.kv_heads : 0);
    if (s.shape.head_dim % kPanelOutputs == 0 && !s.whole_norms) {
        run_parts(a, total, s.q.inputs, s.shape.head_dim / kPanelOutputs, project, finish);
        return;
    }
    run_panels(a, total, s.q.inputs, project);
    if (s.whole_norms) norm_projections(s, a);
    pool_.run(heads, 1, [&](int begin, int end, int) {
        for (int head = begin; head < end; ++head) finish(head);
    });
}

// Copies K and V of one tile of positions of tree row t, whose cells may lie anywhere, to tile `gathered` of the
// scratch.
void CpuOps::gather_tree_tile(const CpuWorkspace& a, const CpuKvLayer& kv, int head, int t, int tile, int gathered,
                              ThreadScratch& scratch) {
    const auto& pages = a.batch.sequences[a.batch.rows[t].sequence].pages;
    const int64_t v_stride = kv.v_stride();
    std::uint8_t* tile_k = scratch.tree_k.data() + gathered * kv.k_bytes();
    std::uint8_t* tile_v = scratch.tree_v.data() + gathered * kv.v_bytes();
    const auto gather = [&]<class Value>(Value, const std::uint8_t* k, const std::uint8_t* v, int32_t place,
                                         int32_t i) {
        const Value* from_k = reinterpret_cast<const Value*>(k) + kv.k_index(place);
        Value* to_k = reinterpret_cast<Value*>(tile_k) + kv.k_index(i);
        for (int64_t d = 0; d < kv.k_columns(); ++d) to_k[16 * d] = from_k[16 * d];
        std::copy_n(reinterpret_cast<const Value*>(v) + place * v_stride, v_stride,
                    reinterpret_cast<Value*>(tile_v) + i * v_stride);
    };
    for (int32_t i = 0; i < kPagePositions; ++i) {
        const int32_t position = tile * kPagePositions + i;
        if (position > a.batch.rows[t].position) break;
        const int32_t cell = scratch.cells[static_cast<std::size_t>(position)];
        const int32_t page = pages[cell / kPagePositions], place = cell % kPagePositions;
        std::uint8_t *k = kv.k(page, head), *v = kv.v(page, head);
        if (kv.format != KvFormat::f16) {
            gather(std::uint8_t{}, k, v, place, i);
            kv.k_steps(tile_k)[i] = kv.k_steps(k)[place];
            kv.v_steps(tile_v)[i] = kv.v_steps(v)[place];
        } else {
            gather(std::uint16_t{}, k, v, place, i);
        }
    }
}

// Cuts the batch's rows into groups that attend together and so read K and V once: consecutive positions of one
// sequence in one page, but no larger than leaves work for every thread.
void CpuOps::group_rows(CpuWorkspace& a, int heads_per_kv, const AttendSpec& spec) const {
    const int count = rows(a);
    const int spread = std::max(1, count * spec.shape.kv_heads / pool_.threads());
    const int most = a.batch.tree ? 1 : std::min(std::max(1, 2 * kAttendQueries / heads_per_kv), spread);
    a.groups.clear();
    for (int t = 0; t < count; ++t) {
        const Row& row = a.batch.rows[t];
        const bool from_start = spec.window <= 0 || row.position < spec.window;  // rows of a group begin at position 0
        if (t > 0 && from_start && t - a.groups.back() < most) {
            const Row& before = a.batch.rows[t - 1];
            if (row.sequence == before.sequence && row.position == before.position + 1 &&
                row.position % kPagePositions != 0) {
                continue;
            }
        }
        a.groups.push_back(t);
    }
    a.groups.push_back(count);
}

void CpuOps::attend(const PreparedOp& prepared, Workspace& workspace, const KvPages& pages, int32_t layer) {
    const auto& op = static_cast<const AttendOp&>(prepared);
    const AttendSpec& spec = op.spec;
    auto& a = self(workspace);
    const CpuKvLayer kv = static_cast<const CpuKv&>(pages).layer(layer);
    const int32_t dh = spec.shape.head_dim, group = spec.shape.heads / spec.shape.kv_heads;
    group_rows(a, group, spec);
    const int groups = static_cast<int>(a.groups.size()) - 1;
    // If the outputs of a task are whole groups of kScaleInputs, the task quantises them for attention_out.
    a.attended_coded = group * dh % kScaleInputs == 0;
    // Consecutive tasks share the key-value head, so its pages stay in the processor's cache.
    pool_.run(groups * spec.shape.kv_heads, groups > 8 ? 4 : 1, [&](int begin, int end, int thread) {
        ThreadScratch& scratch = a.scratch[static_cast<std::size_t>(thread)];
        for (int task = begin; task < end; ++task) {
            const int head = task / groups, t = a.groups[static_cast<std::size_t>(task % groups)];
            const Row& row = a.batch.rows[t];
            const SequenceView& sequence = a.batch.sequences[row.sequence];
            AttendTask work;
            work.q = a.qkv + t * a.qkv_stride() + static_cast<int64_t>(head) * group * dh;
            work.out = a.attended + t * a.q_stride + static_cast<int64_t>(head) * group * dh;
            work.q_stride = a.qkv_stride();
            work.out_stride = a.q_stride;
            work.rows = a.groups[static_cast<std::size_t>(task % groups) + 1] - t;
            work.heads = group;
            work.head_dim = dh;
            work.first = spec.window > 0 ? std::max(0, row.position - spec.window + 1) : 0;
            work.last = row.position;
            work.scale = spec.scale;
            work.soft_cap = spec.soft_cap;
            work.k_type = key_type(kv.format);
            work.v_type = value_type(kv.format);
            if (!op.sinks.empty()) work.sinks = op.sinks.data() + head * group;
            scratch.k_tiles.clear();
            scratch.v_tiles.clear();
            // Committed positions are in their own cells, for tree rows too.
            const int tiles = work.last / kPagePositions + 1;
            const int in_place = a.batch.tree ? std::min(sequence.length / kPagePositions, tiles) : tiles;
            if (in_place < tiles) {
                attended_cells(a.batch, t, 0, scratch.cells);
                const auto more = static_cast<std::size_t>(tiles - in_place);
                scratch.tree_k.resize(more * static_cast<std::size_t>(kv.k_bytes()));
                scratch.tree_v.resize(more * static_cast<std::size_t>(kv.v_bytes()));
            }
            for (int tile = work.first / kPagePositions; tile < tiles; ++tile) {
                if (tile < in_place) {
                    const int32_t page = sequence.pages[tile];
                    scratch.k_tiles.push_back(kv.k(page, head));
                    scratch.v_tiles.push_back(kv.v(page, head));
                    continue;
                }
                const int gathered = tile - in_place;
                gather_tree_tile(a, kv, head, t, tile, gathered, scratch);
                scratch.k_tiles.push_back(scratch.tree_k.data() + gathered * kv.k_bytes());
                scratch.v_tiles.push_back(scratch.tree_v.data() + gathered * kv.v_bytes());
            }
            work.k_tiles = scratch.k_tiles.data();
            work.v_tiles = scratch.v_tiles.data();
            work.scratch = scratch.attend.data();
            isa_.attend(work);
            for (int r = 0; r < work.rows && is_rotated(work.v_type); ++r) {
                for (int h = 0; h < group; ++h) isa_.rotate_for_cache(work.out + r * work.out_stride + h * dh, dh);
            }
            for (int r = t; r < t + work.rows && a.attended_coded; ++r) {
                a.tiles.fill_codes(isa_, r, a.attended + r * a.q_stride, spec.shape.heads * dh, head * group * dh,
                                   (head + 1) * group * dh);
            }
        }
    });
}

}  // namespace foresay::kernels::cpu
