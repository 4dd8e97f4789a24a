// moe of the CPU backend.
//
// route        scores of every row (float32), and its experts (kernels/routing.h).
// group_slots  sorts the slots (a row's use of one expert) by expert, so that each expert is read once, whatever the
//              number of rows that chose it.
// multiply     gate and up of all slots, activation, down: as mlp_in and mlp_out, in tiles that hold the rows of one
//              expert. Each loop runs over the panels of all experts in use.
// add_experts  sums a row's slots by ascending expert.
//
// Law 1: a slot's bits do not depend on the rows that share its tile, and a row adds its slots in one order.
#include <algorithm>
#include <span>
#include <utility>

#include "kernels/cpu/cpu_ops.h"

namespace foresay::kernels::cpu {

void CpuOps::route(const MoeOp& s, CpuWorkspace& a) {
    const int count = rows(a), width = a.shape.d_model;
    const Norm& norm = s.router_norm.empty() ? s.norm : s.router_norm;
    fill_tiles(a, a.tiles, a.x, a.d_stride, width, norm, false, true);
    run_panels(a, s.router.panels, s.router.inputs, [&](int begin, int end) {
        for (int i = 0; i < a.tiles.tiles(); ++i) {
            isa_.linear(range(s.router, begin, end), a.tiles.tile(i), a.scores + a.tiles.first_row(i) * a.score_stride,
                        a.score_stride, Store::set);
        }
    });
    const auto used = static_cast<std::size_t>(s.rules.used), experts = static_cast<std::size_t>(s.rules.experts);
    pool_.run(count, serial_grain(count, s.rules.experts * 4), [&](int begin, int end, int thread) {
        for (int t = begin; t < end; ++t) {
            s.rules.route({a.scores + t * a.score_stride, experts}, a.scratch[static_cast<std::size_t>(thread)].routing,
                          std::span(a.choices).subspan(static_cast<std::size_t>(t) * used, used));
            // What the experts read. `projected` is free until the next projection.
            float* input = a.projected + t * a.d_stride;
            const float* x = a.x + t * a.d_stride;
            if (s.norm.empty()) {
                std::copy_n(x, width, input);
            } else {
                apply_norm(s.norm, x, width, input);
            }
        }
    });
}

void CpuOps::group_slots(const MoeOp& s, CpuWorkspace& a) const {
    const auto slots = static_cast<std::size_t>(rows(a) * s.rules.used);
    const std::span<const ExpertChoice> choices = std::span(a.choices).first(slots);
    // next_slot: first how many slots an expert has, then where its next one lies.
    std::ranges::fill(a.next_slot, 0);
    for (const ExpertChoice& choice : choices) ++a.next_slot[static_cast<std::size_t>(choice.expert)];
    a.used.clear();
    a.first_slot.clear();
    a.group_sizes.clear();
    std::int32_t first = 0;
    for (std::size_t expert = 0; expert < a.next_slot.size(); ++expert) {
        const std::int32_t size = std::exchange(a.next_slot[expert], first);
        if (size == 0 || !s.has(expert)) continue;
        a.used.push_back(static_cast<std::int32_t>(expert));
        a.first_slot.push_back(first);
        a.group_sizes.push_back(size);
        first += size;
    }
    a.first_slot.push_back(first);
    for (std::size_t i = 0; i < slots; ++i) {
        a.slot_of[i] = -1;  // of another backend
        if (!s.has(static_cast<std::size_t>(choices[i].expert))) continue;
        const std::int32_t slot = a.next_slot[static_cast<std::size_t>(choices[i].expert)]++;
        a.slot_of[i] = slot;
        a.row_of[static_cast<std::size_t>(slot)] =
            static_cast<std::int32_t>(i / static_cast<std::size_t>(s.rules.used));
        a.expert_of[static_cast<std::size_t>(slot)] = choices[i].expert;
    }
}

// Runs body(expert, first tile, end of tiles, first panel, end of panels) over the panels of all experts in use; each
// has as many as `matrix`.
template <class Body>
void CpuOps::run_experts(const CpuWorkspace& a, const PanelMatrix& matrix, const Body& body) {
    const int panels = matrix.panels, total = panels * static_cast<int>(a.used.size());
    const int share = std::max(1, total / (pool_.threads() * 8));
    const int grain = std::clamp(static_cast<int>(kUnitInputs / matrix.inputs), 1, share);
    pool_.run(total, grain, [&](int begin, int end, int) {
        for (int at = begin; at < end;) {
            const auto group = static_cast<std::size_t>(at / panels);
            const int stop = std::min(end, (at / panels + 1) * panels);
            const int first = a.expert_tiles.tile_of(a.first_slot[group]);
            const int last = a.expert_tiles.tile_of(a.first_slot[group + 1] - 1);
            body(static_cast<std::size_t>(a.used[group]), first, last + 1, at % panels, at % panels + stop - at);
            at = stop;
        }
    });
}

void CpuOps::multiply_experts(const MoeOp& s, CpuWorkspace& a) {
    const int slots = a.first_slot.back();
    if (slots == 0) return;
    const auto some = static_cast<std::size_t>(a.used.front());  // the shapes of all are alike
    a.expert_tiles.set_groups(a.group_sizes, isa_);
    a.expert_ff_tiles.set_groups(a.group_sizes, isa_);
    pool_.run(slots, serial_grain(slots, a.shape.d_model), [&](int begin, int end, int) {
        for (int slot = begin; slot < end; ++slot) {
            const float* input = a.projected + a.row_of[static_cast<std::size_t>(slot)] * a.d_stride;
            const auto e = static_cast<std::size_t>(a.expert_of[static_cast<std::size_t>(slot)]);
            a.expert_tiles.fill(isa_, slot, input, a.shape.d_model, s.codes, s.floats,
                                order_of({&s.gate[e], &s.up[e]}));
        }
    });
    const bool fused = s.fused();
    run_experts(a, s.gate[some], [&](std::size_t e, int first, int last, int begin, int end) {
        for (int i = first; i < last; ++i) {
            const ActivationTile& tile = a.expert_tiles.tile(i);
            const std::int64_t at = a.expert_tiles.first_row(i) * a.expert_stride;
            if (fused) {
                isa_.gated(range(s.gate[e], begin, end), range(s.up[e], begin, end), tile, a.expert_ff + at,
                           a.expert_stride, s.activation == Activation::gelu_tanh);
                continue;
            }
            isa_.linear(range(s.gate[e], begin, end), tile, a.expert_ff + at, a.expert_stride, Store::set);
            isa_.linear(range(s.up[e], begin, end), tile, a.expert_up + at, a.expert_stride, Store::set);
        }
    });
    const auto ff = static_cast<int>(s.gate[some].outputs);
    pool_.run(slots, serial_grain(slots, ff), [&](int begin, int end, int) {
        for (int slot = begin; slot < end; ++slot) {
            float* values = a.expert_ff + slot * a.expert_stride;
            const auto e = static_cast<std::size_t>(a.expert_of[static_cast<std::size_t>(slot)]);
            if (!fused) {
                isa_.activate(values, a.expert_up + slot * a.expert_stride,
                              s.gate_bias.empty() ? nullptr : s.gate_bias[e].data(),
                              s.up_bias.empty() ? nullptr : s.up_bias[e].data(), ff,
                              static_cast<RowActivation>(s.activation), s.limit);
            }
            a.expert_ff_tiles.fill(isa_, slot, values, ff, s.down_codes, s.down_floats, s.down[e].order);
        }
    });
    run_experts(a, s.down[some], [&](std::size_t e, int first, int last, int begin, int end) {
        for (int i = first; i < last; ++i) {
            isa_.linear(range(s.down[e], begin, end), a.expert_ff_tiles.tile(i),
                        a.expert_out + a.expert_ff_tiles.first_row(i) * a.d_stride, a.d_stride, Store::set);
        }
    });
}

void CpuOps::add_experts(const MoeOp& s, CpuWorkspace& a) {
    const int count = rows(a), width = a.shape.d_model;
    pool_.run(count, serial_grain(count, static_cast<int64_t>(width) * s.rules.used), [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) {
            float* y = s.keep_branch ? a.branch + t * a.d_stride : a.projected + t * a.d_stride;
            std::fill_n(y, width, 0.0f);
            for (int k = 0; k < s.rules.used; ++k) {
                const auto i = static_cast<std::size_t>(t * s.rules.used + k);
                const float* out = a.expert_out + a.slot_of[i] * a.d_stride;
                const float weight = a.choices[i].weight;
                if (s.down_bias.empty()) {
                    for (int d = 0; d < width; ++d) y[d] += weight * out[d];
                } else {
                    const float* bias = s.down_bias[static_cast<std::size_t>(a.choices[i].expert)].data();
                    for (int d = 0; d < width; ++d) y[d] += weight * (out[d] + bias[d]);
                }
            }
            if (!s.post_norm.empty()) apply_norm(s.post_norm, y, width, y);
            if (!s.keep_branch) add_row(a, t, y, s.scale, s.stream_scale);
        }
    });
}

void CpuOps::moe(const PreparedOp& prepared, Workspace& workspace) {
    const auto& s = static_cast<const MoeOp&>(prepared);
    auto& a = self(workspace);
    if (s.part != MoePart::sum) {
        route(s, a);
        group_slots(s, a);
        multiply_experts(s, a);
    }
    if (s.part != MoePart::experts) add_experts(s, a);
}

}  // namespace foresay::kernels::cpu
