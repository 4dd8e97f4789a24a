#include "kernels/cpu/cpu_ops.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/op_checks.h"

namespace foresay::kernels {
namespace cpu {
namespace {

// Pages of one sequence for which each thread's list has room from the start: 131,072 positions. Longer sequences make
// the lists grow during a forward.
constexpr std::size_t kPagesReserved = 2048;

}  // namespace

BackendInfo CpuOps::describe() const {
    return {"cpu",
            std::string(isa_.name) + ", " + std::to_string(pool_.threads()) +
                (pool_.threads() == 1 ? " thread" : " threads"),
            pool_.threads()};
}

int64_t CpuOps::kv_bytes(const ModelShape& shape, int32_t pages, KvFormat format) const {
    return CpuKv::page_bytes(shape, format) * shape.layers * pages;
}

std::unique_ptr<KvPages> CpuOps::allocate_kv(const ModelShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<CpuKv>();
    kv->shape = shape;
    kv->pages = pages;
    kv->format = format;
    kv->bytes = kv_bytes(shape, pages, format);
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
    const int64_t per_row =
        2 * workspace->d_stride + workspace->qkv_stride() + workspace->q_stride + workspace->ff_stride;
    workspace->memory = Arena::allocate_alone(static_cast<int64_t>(sizeof(float)) *
                                              (per_row * max_rows + workspace->vocab_stride * max_logit_rows));
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
    const int64_t widest = std::max({workspace->d_stride, workspace->q_stride, workspace->ff_stride});
    workspace->tiles.reserve(std::max(max_rows, max_logit_rows), widest);
    workspace->ff_tiles.reserve(max_rows, workspace->ff_stride);
    const int parts = std::max(shape.heads + 2 * shape.kv_heads, shape.d_ff / kScaleInputs + 1);
    workspace->finished = std::vector<std::atomic<int>>(static_cast<std::size_t>(parts));
    workspace->slots.resize(kTokenSlots);
    workspace->groups.reserve(static_cast<std::size_t>(max_rows) + 1);
    workspace->scratch.resize(static_cast<std::size_t>(pool_.threads()));
    for (ThreadScratch& scratch : workspace->scratch) {
        scratch.row.resize(static_cast<std::size_t>(widest));
        scratch.attend.resize(static_cast<std::size_t>(attend_scratch_floats(shape.head_dim)));
        scratch.k_tiles.reserve(kPagesReserved);
        scratch.v_tiles.reserve(kPagesReserved);
        scratch.sampling.reserve(shape.vocab);
    }
    workspace->bytes = workspace->memory.bytes + workspace->tiles.bytes() + workspace->ff_tiles.bytes();
    return workspace;
}

void CpuOps::copy_page(KvPages& pages, int32_t from, int32_t to) {
    auto& kv = static_cast<CpuKv&>(pages);
    std::memcpy(kv.page(0, to), kv.page(0, from),
                static_cast<std::size_t>(CpuKv::page_bytes(kv.shape, kv.format) * kv.shape.layers));
}

void CpuOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    auto& a = self(workspace);
    a.batch = batch;
    a.angles.resize(ropes_.size());
    for (RowAngles& angles : a.angles) angles.valid = false;
    a.tiles.set_rows(rows(a), isa_);
    a.ff_tiles.set_rows(rows(a), isa_);
    a.attended_coded = a.ff_coded = false;
}

void CpuOps::fill_tiles(CpuWorkspace& a, ActivationTiles& tiles, const float* source, int64_t stride, int inputs,
                        const Norm* norm, bool codes, bool floats) {
    const int count = rows(a);
    pool_.run(count, serial_grain(count, inputs), [&](int begin, int end, int thread) {
        float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int t = begin; t < end; ++t) {
            const float* x = source + t * stride;
            if (norm) {
                isa_.rms_norm(x, norm->weight.data(), norm->eps, inputs, normed);
                x = normed;
            }
            tiles.fill(isa_, t, x, inputs, codes, floats);
        }
    });
}

void CpuOps::embed(const PreparedOp& prepared, Workspace& workspace) {
    const EmbedSpec& spec = static_cast<const EmbedOp&>(prepared).spec;
    auto& a = self(workspace);
    check(spec.table.cols == a.shape.d_model, "the embedding must be as wide as the model");
    const CpuWorkspace& token_source = a.batch.token_source != nullptr ? self(*a.batch.token_source) : a;
    pool_.run(rows(a), 8, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            const TokenRef token = a.batch.rows[t].token;
            const int64_t id = token.is_slot() ? token_source.slots[token.slot_index()].token : token.value;
            float* x = a.x + t * a.d_stride;
            dequantize_row(spec.table, std::clamp<int64_t>(id, 0, spec.table.rows - 1),
                           {x, static_cast<std::size_t>(spec.table.cols)});
            if (spec.scale != 1.0f) {
                for (int64_t i = 0; i < spec.table.cols; ++i) x[i] *= spec.scale;
            }
        }
    });
}

void CpuOps::fill_projection_tiles(const ProjectionOp& s, CpuWorkspace& a, ActivationTiles& tiles, const float* input,
                                   int64_t stride) {
    const bool floats = is_float(s.matrix.quant_type);
    fill_tiles(a, tiles, input, stride, static_cast<int>(s.matrix.inputs), nullptr, !floats, floats);
}

void CpuOps::add_projection(const ProjectionOp& s, CpuWorkspace& a, const ActivationTiles& tiles) {
    const bool direct = s.bias.empty() && s.post_norm.empty();
    float* out = direct ? a.x : a.projected;
    run_panels(a, s.matrix.panels, s.matrix.inputs, [&](int begin, int end) {
        for (int i = 0; i < tiles.tiles(); ++i) {
            isa_.linear(range(s.matrix, begin, end), tiles.tile(i), out + tiles.first_row(i) * a.d_stride, a.d_stride,
                        direct ? Store::add : Store::set);
        }
    });
    if (direct) return;
    pool_.run(rows(a), 4, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* y = a.projected + t * a.d_stride;
            for (std::size_t i = 0; i < s.bias.size(); ++i) y[i] += s.bias[i];
            if (!s.post_norm.empty())
                isa_.rms_norm(y, s.post_norm.weight.data(), s.post_norm.eps, static_cast<int>(s.matrix.outputs), y);
            float* x = a.x + t * a.d_stride;
            for (int64_t i = 0; i < s.matrix.outputs; ++i) x[i] += y[i];
        }
    });
}

void CpuOps::attention_out(const PreparedOp& prepared, Workspace& workspace) {
    auto& a = self(workspace);
    const auto& s = static_cast<const ProjectionOp&>(prepared);
    if (!a.attended_coded || is_float(s.matrix.quant_type))
        fill_projection_tiles(s, a, a.tiles, a.attended, a.q_stride);
    add_projection(s, a, a.tiles);
}

void CpuOps::mlp_in(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const MlpInOp&>(prepared);
    auto& a = self(workspace);
    const auto ff = static_cast<int>(s.gate.outputs);
    fill_tiles(a, a.tiles, a.x, a.d_stride, static_cast<int>(s.gate.inputs), &s.norm, s.codes, s.floats);
    a.ff_coded = s.codes;
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

void CpuOps::mlp_out(const PreparedOp& prepared, Workspace& workspace) {
    auto& a = self(workspace);
    const auto& s = static_cast<const ProjectionOp&>(prepared);
    if (!a.ff_coded || is_float(s.matrix.quant_type)) fill_projection_tiles(s, a, a.ff_tiles, a.ff, a.ff_stride);
    add_projection(s, a, a.ff_tiles);
}

void CpuOps::lm_head(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const LmHeadOp&>(prepared);
    auto& a = self(workspace);
    const auto count = static_cast<int>(a.batch.logit_rows.size());
    if (count == 0) return;
    const bool floats = is_float(s.matrix.quant_type);
    a.tiles.set_rows(count, isa_);
    pool_.run(count, serial_grain(count, a.shape.d_model), [&](int begin, int end, int thread) {
        float* normed = a.scratch[static_cast<std::size_t>(thread)].row.data();
        for (int i = begin; i < end; ++i) {
            isa_.rms_norm(a.x + a.batch.logit_rows[i] * a.d_stride, s.norm.weight.data(), s.norm.eps, a.shape.d_model,
                          normed);
            a.tiles.fill(isa_, i, normed, a.shape.d_model, !floats, floats);
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

}  // namespace cpu

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
    std::string isa = options.isa;
    if (isa.empty()) {
        if (const char* forced = std::getenv("FORESAY_CPU_ISA")) isa = forced;
    }
    const int threads = options.threads > 0 ? options.threads : cpu::usable_cores();
    return std::make_unique<cpu::CpuOps>(threads, cpu::select_isa(isa));
}

}  // namespace foresay::kernels
