#include "kernels/cpu/cpu_ops.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/host_threads.h"
#include "kernels/kv_names.h"
#include "kernels/op_checks.h"

namespace foresay::kernels {
namespace cpu {
namespace {

// Pages of one sequence for which each thread's list has room from the start: 131,072 positions. Longer sequences make
// the lists grow during a forward.
constexpr std::size_t kPagesReserved = 2048;

// Memory for experts; `take` cuts it from the workspace's.
template <class Take>
void reserve_experts(CpuWorkspace& w, const Take& take, int slots) {
    const auto groups = std::min(slots, w.shape.experts);
    w.branch = take(w.d_stride, w.max_rows);
    w.expert_ff = take(w.expert_stride, slots);
    w.expert_up = take(w.expert_stride, slots);
    w.expert_out = take(w.d_stride, slots);
    w.expert_tiles.reserve(slots, w.d_stride, groups);
    w.expert_ff_tiles.reserve(slots, w.expert_stride, groups);
    w.choices.resize(static_cast<std::size_t>(slots));
    for (std::vector<std::int32_t>* list : {&w.slot_of, &w.row_of, &w.expert_of}) {
        list->resize(static_cast<std::size_t>(slots));
    }
    w.next_slot.resize(static_cast<std::size_t>(w.shape.experts));
    w.used.reserve(static_cast<std::size_t>(w.shape.experts));
    w.first_slot.reserve(static_cast<std::size_t>(w.shape.experts) + 1);
    w.group_sizes.reserve(static_cast<std::size_t>(w.shape.experts));
}

}  // namespace

BackendInfo CpuOps::describe() const {
    return {"cpu",
            std::string(isa_.name) + ", " + std::to_string(pool_.threads()) +
                (pool_.threads() == 1 ? " thread" : " threads"),
            pool_.threads()};
}

int64_t CpuOps::kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    check_kv(shape, format);
    return CpuKv::offsets(shape, format).back() * pages;
}

std::unique_ptr<KvPages> CpuOps::allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<CpuKv>();
    kv->shape = shape;
    kv->pages = pages;
    kv->format = format;
    kv->bytes = kv_bytes(shape, pages, format);
    kv->layer_offsets = CpuKv::offsets(shape, format);
    kv->memory = Arena::allocate_alone(kv->bytes);
    return kv;
}

std::unique_ptr<Workspace> CpuOps::allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                      int32_t max_logit_rows) {
    auto workspace = std::make_unique<CpuWorkspace>();
    workspace->shape = shape;
    workspace->max_rows = max_rows;
    workspace->max_logit_rows = max_logit_rows;
    const int64_t attention = static_cast<int64_t>(shape.heads) * shape.head_dim;
    workspace->d_stride = round_up(shape.d_model, 16);
    workspace->q_stride = round_up(attention, 16);
    workspace->kv_stride = round_up(static_cast<int64_t>(shape.kv_heads) * shape.head_dim, 16);
    workspace->ff_stride = round_up(shape.d_ff, 16);
    workspace->vocab_stride = round_up(shape.vocab, 16);
    const bool experts = shape.experts > 0;
    const int slots = experts ? max_rows * shape.experts_used : 0;
    workspace->score_stride = round_up(shape.experts, 16);
    workspace->expert_stride = round_up(shape.expert_ff, 16);
    workspace->per_layer_part = round_up(shape.per_layer, 16);
    workspace->per_layer_stride = round_up(static_cast<int64_t>(shape.layers) * shape.per_layer, 16);
    const int64_t per_row = (experts ? 3 : 2) * workspace->d_stride + workspace->qkv_stride() + workspace->q_stride +
                            2 * workspace->ff_stride + workspace->score_stride + workspace->per_layer_stride +
                            workspace->per_layer_part;
    const int64_t per_slot = experts ? workspace->d_stride + 2 * workspace->expert_stride : 0;
    workspace->memory =
        Arena::allocate_alone(static_cast<int64_t>(sizeof(float)) *
                              (per_row * max_rows + per_slot * slots + workspace->vocab_stride * max_logit_rows));
    auto* at = reinterpret_cast<float*>(workspace->memory.data);
    const auto take = [&](int64_t stride, int64_t count) {
        float* p = at;
        at += stride * count;
        return p;
    };
    workspace->x = take(workspace->d_stride, max_rows);
    workspace->projected = take(workspace->d_stride, max_rows);
    workspace->qkv = take(workspace->qkv_stride(), max_rows);
    workspace->attended = take(workspace->q_stride, max_rows);
    workspace->ff = take(workspace->ff_stride, max_rows);
    workspace->logits = take(workspace->vocab_stride, max_logit_rows);
    workspace->up = take(workspace->ff_stride, max_rows);
    workspace->scores = take(workspace->score_stride, max_rows);
    workspace->per_layer = take(workspace->per_layer_stride, max_rows);
    workspace->per_layer_gate = take(workspace->per_layer_part, max_rows);
    if (experts) reserve_experts(*workspace, take, slots);
    const int64_t widest = std::max({workspace->d_stride, workspace->q_stride, workspace->ff_stride,
                                     workspace->per_layer_stride, workspace->per_layer_part});
    workspace->tiles.reserve(std::max(max_rows, max_logit_rows), widest);
    workspace->ff_tiles.reserve(max_rows, workspace->ff_stride);
    const int parts = std::max(shape.heads + 2 * shape.kv_heads, shape.d_ff / kScaleInputs + 1);
    workspace->finished = std::vector<std::atomic<int>>(static_cast<std::size_t>(parts));
    workspace->slots.resize(kTokenSlots);
    workspace->groups.reserve(static_cast<std::size_t>(max_rows) + 1);
    workspace->scratch.resize(static_cast<std::size_t>(pool_.threads()));
    for (ThreadScratch& scratch : workspace->scratch) {
        scratch.row.resize(static_cast<std::size_t>(widest));
        scratch.routing.resize(static_cast<std::size_t>(4) * shape.experts);
        scratch.attend.resize(static_cast<std::size_t>(attend_scratch_floats(shape.head_dim)));
        scratch.k_tiles.reserve(kPagesReserved);
        scratch.v_tiles.reserve(kPagesReserved);
        scratch.sampling.reserve(shape.vocab);
    }
    workspace->bytes = workspace->memory.bytes + workspace->tiles.bytes() + workspace->ff_tiles.bytes() +
                       workspace->expert_tiles.bytes() + workspace->expert_ff_tiles.bytes();
    return workspace;
}

void CpuOps::copy_page(KvPages& pages, int32_t from, int32_t to) {
    auto& kv = static_cast<CpuKv&>(pages);
    const int64_t page = kv.layer_offsets.back();
    std::memcpy(kv.memory.data + to * page, kv.memory.data + from * page, static_cast<std::size_t>(page));
}

void CpuOps::read_page(KvPages& pages, int32_t page, std::span<std::byte> to) {
    const auto& kv = static_cast<CpuKv&>(pages);
    check(static_cast<int64_t>(to.size()) == kv.layer_offsets.back(), "memory of another size than a page");
    std::memcpy(to.data(), kv.memory.data + page * kv.layer_offsets.back(), to.size());
}

void CpuOps::write_page(KvPages& pages, int32_t page, std::span<const std::byte> from) {
    const auto& kv = static_cast<CpuKv&>(pages);
    check(static_cast<int64_t>(from.size()) == kv.layer_offsets.back(), "memory of another size than a page");
    std::memcpy(kv.memory.data + page * kv.layer_offsets.back(), from.data(), from.size());
}

void CpuOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    auto& a = self(workspace);
    a.batch = batch;
    for (RowAngles& angles : a.angles) angles.valid = false;
    a.tiles.set_rows(rows(a), isa_);
    a.ff_tiles.set_rows(rows(a), isa_);
    a.attended_coded = a.ff_coded = false;
}

void CpuOps::apply_norm(const Norm& norm, const float* x, int n, float* y, int first) const {
    if (norm.kind == NormKind::rms) return isa_.rms_norm(x, norm.weight.data() + first, norm.eps, n, y);
    isa_.layer_norm(x, norm.weight.data() + first, norm.bias.empty() ? nullptr : norm.bias.data() + first, norm.eps, n,
                    y);
}

int64_t CpuOps::token_of(const CpuWorkspace& a, int t, int64_t rows) {
    const CpuWorkspace& token_source = a.batch.token_source != nullptr ? self(*a.batch.token_source) : a;
    const TokenRef token = a.batch.rows[t].token;
    const int64_t id = token.is_slot() ? token_source.slots[token.slot_index()].token : token.value;
    return std::clamp<int64_t>(id, 0, rows - 1);
}

void CpuOps::add_row(CpuWorkspace& a, int t, const float* y, float scale, float stream_scale) {
    float* x = a.x + t * a.d_stride;
    for (int64_t i = 0; i < a.shape.d_model; ++i) x[i] = stream_scale * (x[i] + scale * y[i]);
}

void CpuOps::fill_tiles(CpuWorkspace& a, ActivationTiles& tiles, const float* source, int64_t stride, int inputs,
                        const Norm& norm, bool codes, bool floats, std::span<const int32_t> order) {
    const int count = rows(a);
    pool_.run(count, serial_grain(count, inputs), [&](int begin, int end, int thread) {
        float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int t = begin; t < end; ++t) {
            const float* x = source + t * stride;
            if (!norm.empty()) {
                apply_norm(norm, x, inputs, normed);
                x = normed;
            }
            tiles.fill(isa_, t, x, inputs, codes, floats, order);
        }
    });
}

void CpuOps::embed(const PreparedOp& prepared, Workspace& workspace) {
    const EmbedSpec& spec = static_cast<const EmbedOp&>(prepared).spec;
    auto& a = self(workspace);
    check(spec.table.cols == a.shape.d_model, "the embedding must be as wide as the model");
    pool_.run(rows(a), 8, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* x = a.x + t * a.d_stride;
            dequantize_row(spec.table, token_of(a, t, spec.table.rows), {x, static_cast<std::size_t>(spec.table.cols)});
            if (spec.scale != 1.0f) {
                for (int64_t i = 0; i < spec.table.cols; ++i) x[i] *= spec.scale;
            }
        }
    });
}

void CpuOps::fill_projection_tiles(const ProjectionOp& s, CpuWorkspace& a, ActivationTiles& tiles, const float* input,
                                   int64_t stride) {
    const bool floats = s.matrix.reads_floats();
    fill_tiles(a, tiles, input, stride, static_cast<int>(s.matrix.inputs), Norm{}, !floats, floats, s.matrix.order);
}

void CpuOps::add_projection(const ProjectionOp& s, CpuWorkspace& a, const ActivationTiles& tiles) {
    const bool direct = s.direct();
    float* out = direct ? a.x : a.projected;
    run_panels(a, s.matrix.panels, s.matrix.inputs, [&](int begin, int end) {
        for (int i = 0; i < tiles.tiles(); ++i) {
            isa_.linear(range(s.matrix, begin, end), tiles.tile(i), out + tiles.first_row(i) * a.d_stride, a.d_stride,
                        direct ? Store::add : Store::set);
        }
    });
    if (!direct) finish_projection(s, a);
}

void CpuOps::finish_projection(const ProjectionOp& s, CpuWorkspace& a) {
    const int outputs = a.shape.d_model;
    pool_.run(rows(a), 4, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* y = a.projected + t * a.d_stride;
            for (std::size_t i = 0; i < s.bias.size(); ++i) y[i] += s.bias[i];
            if (!s.inner_norm.empty()) apply_norm(s.inner_norm, y, outputs, y);
            for (int i = 0; s.add_branch && i < outputs; ++i) y[i] += a.branch[t * a.d_stride + i];
            if (!s.post_norm.empty()) apply_norm(s.post_norm, y, outputs, y);
            add_row(a, t, y, s.scale, s.stream_scale);
        }
    });
}

void CpuOps::attention_out(const PreparedOp& prepared, Workspace& workspace) {
    auto& a = self(workspace);
    const auto& s = static_cast<const ProjectionOp&>(prepared);
    if (!a.attended_coded || s.matrix.reads_floats() || !s.matrix.order.empty())
        fill_projection_tiles(s, a, a.tiles, a.attended, a.q_stride);
    add_projection(s, a, a.tiles);
}

void CpuOps::mlp_in(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const MlpInOp&>(prepared);
    auto& a = self(workspace);
    const auto ff = static_cast<int>(s.up.outputs);
    fill_tiles(a, a.tiles, a.x, a.d_stride, static_cast<int>(s.up.inputs), s.norm, s.codes, s.floats,
               order_of({&s.gate, &s.up}));
    a.ff_coded = s.codes;
    if (!s.fused()) return mlp_in_apart(s, a);
    const auto project = [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.gated(range(s.gate, begin, end), range(s.up, begin, end), a.tiles.tile(i),
                       a.ff + a.tiles.first_row(i) * a.ff_stride, a.ff_stride, s.activation == Activation::gelu_tanh);
        }
    };
    if (!s.codes) return run_panels(a, s.gate.panels, s.gate.inputs, project);
    run_parts(a, s.gate.panels, s.gate.inputs, kScaleInputs / kPanelOutputs, project, [&](int part) {
        const int begin = part * kScaleInputs, end = std::min(begin + kScaleInputs, ff);
        for (int t = 0; t < rows(a); ++t) a.ff_tiles.fill_codes(isa_, t, a.ff + t * a.ff_stride, ff, begin, end);
    });
}

// Without a gate, with biases, or with an activation that no kernel has: gate and up one after the other, then the
// activation where both are complete.
void CpuOps::mlp_in_apart(const MlpInOp& s, CpuWorkspace& a) {
    const auto ff = static_cast<int>(s.up.outputs);
    const bool gate = s.gate.panels > 0;
    const auto project = [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            const int64_t at = a.tiles.first_row(i) * a.ff_stride;
            if (gate) isa_.linear(range(s.gate, begin, end), a.tiles.tile(i), a.ff + at, a.ff_stride, Store::set);
            isa_.linear(range(s.up, begin, end), a.tiles.tile(i), (gate ? a.up : a.ff) + at, a.ff_stride, Store::set);
        }
    };
    const auto bias = [](const std::vector<float>& values, int begin) {
        return values.empty() ? nullptr : values.data() + begin;
    };
    run_parts(a, s.up.panels, s.up.inputs, kScaleInputs / kPanelOutputs, project, [&](int part) {
        const int begin = part * kScaleInputs, end = std::min(begin + kScaleInputs, ff);
        for (int t = 0; t < rows(a); ++t) {
            float* values = a.ff + t * a.ff_stride;
            isa_.activate(values + begin, gate ? a.up + t * a.ff_stride + begin : nullptr,
                          bias(gate ? s.gate_bias : s.up_bias, begin), gate ? bias(s.up_bias, begin) : nullptr,
                          end - begin, static_cast<RowActivation>(s.activation), s.limit);
            if (s.codes) a.ff_tiles.fill_codes(isa_, t, values, ff, begin, end);
        }
    });
}

void CpuOps::mlp_out(const PreparedOp& prepared, Workspace& workspace) {
    auto& a = self(workspace);
    const auto& s = static_cast<const ProjectionOp&>(prepared);
    if (s.matrix.panels == 0) return finish_projection(s, a);
    if (!a.ff_coded || s.matrix.reads_floats() || !s.matrix.order.empty())
        fill_projection_tiles(s, a, a.ff_tiles, a.ff, a.ff_stride);
    add_projection(s, a, a.ff_tiles);
}

void CpuOps::lm_head(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const LmHeadOp&>(prepared);
    auto& a = self(workspace);
    const auto count = static_cast<int>(a.batch.logit_rows.size());
    if (count == 0) return;
    const bool floats = s.matrix.reads_floats();
    a.tiles.set_rows(count, isa_);
    pool_.run(count, serial_grain(count, a.shape.d_model), [&](int begin, int end, int thread) {
        float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int i = begin; i < end; ++i) {
            apply_norm(s.norm, a.x + a.batch.logit_rows[i] * a.d_stride, a.shape.d_model, normed);
            a.tiles.fill(isa_, i, normed, a.shape.d_model, !floats, floats, s.matrix.order);
        }
    });
    run_panels(a, s.matrix.panels, s.matrix.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.matrix, begin, end), a.tiles.tile(i), a.logits + a.tiles.first_row(i) * a.vocab_stride,
                        a.vocab_stride, Store::set);
        }
    });
    if (s.scale == 1.0f && s.soft_cap <= 0) return;
    for (int i = 0; i < count; ++i) {
        for (float& logit : logits(a, i)) {
            logit *= s.scale;
            if (s.soft_cap > 0) logit = s.soft_cap * std::tanh(logit / s.soft_cap);
        }
    }
}

void CpuOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    auto& a = self(workspace);
    a.kept.reserve(plans);
    pool_.run(static_cast<int>(plans.size()), 1, [&](int begin, int end, int thread) {
        for (int i = begin; i < end; ++i) {
            a.slots[slots[i]] =
                a.kept.sample(logits(a, i), plans[i], a.scratch[static_cast<std::size_t>(thread)].sampling, slots[i]);
        }
    });
}

Candidates CpuOps::candidates(Workspace& workspace, int32_t slot) { return self(workspace).kept.at(slot); }

std::span<float> CpuOps::logits(Workspace& workspace, int32_t i) {
    return {self(workspace).logits + i * self(workspace).vocab_stride, static_cast<std::size_t>(workspace.shape.vocab)};
}

std::span<const float> CpuOps::residual(Workspace& workspace, int32_t t) {
    return {self(workspace).x + t * self(workspace).d_stride, static_cast<std::size_t>(workspace.shape.d_model)};
}

void CpuOps::read_rows(Workspace& workspace, std::span<float> to) {
    const CpuWorkspace& a = self(workspace);
    const int64_t width = a.shape.d_model;
    check(std::ssize(to) == rows(a) * width, "memory of other rows");
    for (int t = 0; t < rows(a); ++t) std::copy_n(a.x + t * a.d_stride, width, to.data() + t * width);
}

void CpuOps::write_rows(Workspace& workspace, std::span<const float> from) {
    const CpuWorkspace& a = self(workspace);
    const int64_t width = a.shape.d_model;
    check(std::ssize(from) == rows(a) * width, "memory of other rows");
    for (int t = 0; t < rows(a); ++t) std::copy_n(from.data() + t * width, width, a.x + t * a.d_stride);
}

}  // namespace cpu

void for_each_on_host(Ops& ops, int32_t items, const std::function<void(int32_t)>& body) {
    const auto run = [&body](int begin, int end, int) {
        for (int i = begin; i < end; ++i) body(i);
    };
    if (auto* const cpu = dynamic_cast<cpu::CpuOps*>(&ops)) {
        cpu->pool().run(items, 1, run);
    } else {
        run(0, items, 0);
    }
}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
    std::string isa = options.isa;
    if (isa.empty()) {
        if (const char* forced = std::getenv("FORESAY_CPU_ISA")) isa = forced;
    }
    const int threads = options.threads > 0 ? options.threads : cpu::usable_cores();
    return std::make_unique<cpu::CpuOps>(threads, cpu::select_isa(isa));
}

}  // namespace foresay::kernels
