// A forward of divided layers: the ranks' ops, and the hand-overs between them.
#include <algorithm>
#include <thread>
#include <utility>

#include "kernels/divided_ops.h"
#include "kernels/divided_space.h"
#include "kernels/op_checks.h"

namespace foresay::kernels {

using std::int32_t;
using std::int64_t;

namespace {

constexpr std::size_t kMostLinkedRows = 16;  // those that one reading of the weights serves

}  // namespace

// ------------------------------------------------------------------------------------------------------- hand-overs

void DividedOps::await(std::size_t r) const {
    const auto idle = [&](std::size_t of) { return on(of, [&](Ops&) { return share(of).idle(); }); };
    if (idle(r)) return;
    // What is waited for may be all layers of a long prompt.
    constexpr std::size_t kRows = 64;
    const auto limit = options_.limit * (1 + std::max(rows_, rows_before_) / kRows);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!idle(r)) {
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() < end) continue;
        // Ranks wait for each other: each that has not run yet may be the cause.
        std::string names;
        std::size_t late = 0;
        for (std::size_t of = 0; of < backends_.size(); ++of) {
            if (of != r && idle(of)) continue;
            names += (names.empty() ? "" : ", ") + names_[of];
            ++late;
        }
        throw Error(names + (late == 1 ? " has" : " have") + " not answered for " + std::to_string(limit.count()) +
                    " ms, so the answer ends here");
    }
}

void DividedOps::hand_over(Space& a, const Handover& what) {
    const auto each = [&](const std::vector<std::unique_ptr<Workspace>>& of, const auto& call) {
        for (std::size_t r = 0; r < of.size(); ++r) {
            if (of[r]) call(r, *of[r]);
        }
    };
    const auto has = [&](std::size_t r) { return what.parts[r].count > 0; };
    // All begin before any is waited for.
    each(what.from, [&](std::size_t r, Workspace& from) {
        if (has(r)) on(r, [&](Ops&) { share(r).start(from); });
    });
    bool direct = !options_.through_host;
    each(what.to, [&](std::size_t t, Workspace& to) {
        each(what.from, [&](std::size_t r, Workspace& from) {
            if (!direct || !has(r)) return;
            direct = on(t, [&](Ops&) {
                return share(t).copy_values({to, what.read, what.width, what.parts[r].first}, share(r),
                                            {from, what.made, what.parts[r].count, 0}, what.parts[r].count);
            });
        });
    });
    if (direct) return;
    const std::span<float> whole = a.whole(what.width);
    each(what.from, [&](std::size_t r, Workspace& from) {
        if (!has(r)) return;
        const auto first = static_cast<std::size_t>(what.parts[r].first);
        const auto count = static_cast<std::size_t>(what.parts[r].count);
        const std::span<float> part = a.part(what.parts[r].count);
        await(r);
        on(r, [&](Ops&) { share(r).read_values(from, what.made, what.parts[r].count, part); });
        for (std::size_t t = 0; t < a.count(); ++t) {
            std::ranges::copy(
                part.subspan(t * count, count),
                whole.begin() + static_cast<std::ptrdiff_t>(t * static_cast<std::size_t>(what.width) + first));
        }
    });
    each(what.to, [&](std::size_t t, Workspace& to) {
        await(t);
        on(t, [&](Ops&) { share(t).write_values(to, what.read, what.width, whole); });
    });
}

void DividedOps::spread(Space& a, std::uint32_t ranks) {
    const std::uint32_t stale = ranks & a.ranks & ~a.fresh;
    if (stale == 0) return;
    const auto source = only(a.fresh);
    const int64_t width = a.shape.d_model;
    on(source, [&](Ops&) { share(source).start(*a.in[source]); });
    std::span<float> rows;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if ((stale >> r & 1u) == 0) continue;
        const bool direct = !options_.through_host && on(r, [&](Ops&) {
            return share(r).copy_values({*a.in[r], Values::residual, width, 0}, share(source),
                                        {*a.in[source], Values::residual, width, 0}, width);
        });
        if (direct) continue;
        if (rows.empty()) {
            rows = a.whole(width);
            await(source);
            on(source, [&](Ops& rank) { rank.read_rows(*a.in[source], rows); });
        }
        await(r);
        on(r, [&](Ops& rank) { rank.write_rows(*a.in[r], rows); });
    }
    a.fresh |= stale;
}

// To each `out` its part of the residual stream, from the rank's own `in`.
void DividedOps::give_slices(Space& a, const Op& op) {
    if (a.slices) return;
    spread(a, a.ranks);
    const int64_t width = a.shape.d_model;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!op.ops[r]) continue;
        const Part part = op.parts[r];
        const auto count = static_cast<std::size_t>(part.count);
        const bool direct = !options_.through_host && on(r, [&](Ops&) {
            return share(r).copy_values({*a.out[r], Values::residual, part.count, 0}, share(r),
                                        {*a.in[r], Values::residual, width, part.first}, part.count);
        });
        if (direct) continue;
        on(r, [&](Ops&) { share(r).start(*a.in[r]); });
        await(r);
        const std::span<float> rows = a.whole(width), own = a.part(part.count);
        on(r, [&](Ops& rank) { rank.read_rows(*a.in[r], rows); });
        for (std::size_t t = 0; t < a.count(); ++t) {
            std::ranges::copy(
                rows.subspan(t * static_cast<std::size_t>(width) + static_cast<std::size_t>(part.first), count),
                own.begin() + static_cast<std::ptrdiff_t>(t * count));
        }
        on(r, [&](Ops& rank) { rank.write_rows(*a.out[r], own); });
    }
    a.slices = true;
}

// --------------------------------------------------------------------------------------------------------- forward

void DividedOps::run_alone(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a) {
    if (of != &Ops::embed) spread(a, 1u << op.rank);
    on(op.rank, [&](Ops& rank) { (rank.*of)(*op.ops[op.rank], *a.in[op.rank]); });
}

void DividedOps::run_all(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a) {
    if (op.alone) return run_alone(of, op, a);
    spread(a, a.ranks);
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (op.ops[r]) on(r, [&](Ops& rank) { (rank.*of)(*op.ops[r], *a.in[r]); });
    }
}

void DividedOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    Space& a = self(workspace);
    rows_before_ = std::exchange(rows_, batch.rows.size());
    a.batch = with_ids(batch, workspace, a.rows);
    a.fresh = 0;
    a.slices = false;
    a.head = nullptr;
    std::ranges::fill(a.known, 0);
    a.noted.clear();
    a.notes = linked() && divided(a.ranks) && batch.row_class == RowClass::decode && !batch.tree &&
              batch.rows.size() <= kMostLinkedRows && !batch.logit_rows.empty();  // the LM head ends the forward
    begin_in(a, a.in);
    a.batch.logit_rows = {};
    if (!a.notes) begin_in(a, a.out);
}

void DividedOps::begin_in(Space& a, const std::vector<std::unique_ptr<Workspace>>& workspaces) {
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!workspaces[r]) continue;
        await(r);
        on(r, [&](Ops& rank) { rank.begin(*workspaces[r], a.batch); });
    }
}

bool DividedOps::note(Space& a, const Noted& call) const {
    if (a.notes) a.noted.push_back(call);
    return a.notes;
}

void DividedOps::run_noted(Space& a) {
    if (!std::exchange(a.notes, false)) return;
    if (run_linked(a)) return;
    begin_in(a, a.out);
    for (const Noted& call : a.noted) run_op(call.op, *this, *call.prepared, a, call.kv, call.layer);
}

bool DividedOps::run_linked(Space& a) {
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        std::vector<LinkedCall>& calls = a.calls[r];
        calls.clear();
        for (const Noted& noted : a.noted) {
            const Op& op = *noted.prepared;
            const bool everywhere = noted.op != ForwardOp::embed && noted.op != ForwardOp::lm_head;
            if (everywhere && (op.alone || !op.ops[r])) return false;
            if (!op.ops[r]) continue;
            LinkedCall call{.op = noted.op, .prepared = op.ops[r].get()};
            if (noted.kv != nullptr) {
                call.kv = noted.kv->parts[r].get();
                call.layer = noted.kv->places[r][static_cast<std::size_t>(noted.layer)];
            }
            if (everywhere) call.first = op.parts[r].first;
            call.heads = op.heads;
            call.sums = !op.finish.empty();
            calls.push_back(call);
            if (call.sums) calls.push_back({.op = ForwardOp::mlp_out, .prepared = op.finish[r].get()});
        }
    }
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!on(r, [&](Ops&) { return share(r).can_run_linked(*a.in[r], a.calls[r]); })) return false;
    }
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        on(r, [&](Ops&) { share(r).run_linked(*a.in[r], a.calls[r]); });
    }
    ++linked_forwards_;
    a.fresh = a.ranks;
    a.slices = false;
    return true;
}

void DividedOps::embed(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    if (note(a, {ForwardOp::embed, &self(op)})) return;
    run_alone(&Ops::embed, self(op), a);
    a.fresh = 1u << self(op).rank;
}

void DividedOps::attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, int32_t layer) {
    Space& a = self(workspace);
    auto& all = static_cast<Kv&>(kv);
    if (note(a, {ForwardOp::attention_in, &self(op), &all, layer})) return;
    spread(a, self(op).alone ? 1u << self(op).rank : a.ranks);
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!self(op).ops[r]) continue;
        const int32_t own = all.places[r][static_cast<std::size_t>(layer)];
        on(r, [&](Ops& rank) { rank.attention_in(*self(op).ops[r], *a.in[r], *all.parts[r], own); });
    }
}

void DividedOps::attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, int32_t layer) {
    Space& a = self(workspace);
    auto& all = const_cast<Kv&>(static_cast<const Kv&>(kv));  // noted beside those of attention_in
    if (note(a, {ForwardOp::attend, &self(op), &all, layer})) return;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!self(op).ops[r]) continue;
        const int32_t own = all.places[r][static_cast<std::size_t>(layer)];
        on(r, [&](Ops& rank) { rank.attend(*self(op).ops[r], *a.in[r], *all.parts[r], own); });
    }
}

// attention_out and mlp_out.
void DividedOps::project(const Op& op, Space& a, Values values) {
    const int64_t inputs = op.inputs.back().first + op.inputs.back().count, width = a.shape.d_model;
    hand_over(a, {a.in, values, op.inputs, inputs, a.out, Values::inner});
    if (op.finish.empty()) give_slices(a, op);
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!op.ops[r]) continue;
        on(r, [&](Ops& rank) {
            if (!op.finish.empty()) share(r).clear_rows(*a.out[r]);
            rank.mlp_out(*op.ops[r], *a.out[r]);
        });
    }
    if (!op.finish.empty()) spread(a, a.ranks);
    hand_over(a, {a.out, Values::residual, op.parts, width, a.in, op.finish.empty() ? Values::residual : Values::sums});
    for (std::size_t r = 0; r < op.finish.size(); ++r) {
        on(r, [&](Ops& rank) { rank.mlp_out(*op.finish[r], *a.in[r]); });
    }
    a.fresh = a.ranks;
    a.slices = op.finish.empty();
}

void DividedOps::attention_out(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    if (note(a, {ForwardOp::attention_out, &self(op)})) return;
    if (self(op).alone) return run_alone(&Ops::attention_out, self(op), a);
    project(self(op), a, Values::attended);
}

void DividedOps::mlp_in(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    if (note(a, {ForwardOp::mlp_in, &self(op)})) return;
    run_all(&Ops::mlp_in, self(op), a);
}

void DividedOps::mlp_out(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    if (note(a, {ForwardOp::mlp_out, &self(op)})) return;
    if (self(op).alone) return run_alone(&Ops::mlp_out, self(op), a);
    project(self(op), a, Values::inner);
}

// Each rank computes the outputs of its own experts. The others' are zeros there, so adding is putting together.
void DividedOps::moe(const PreparedOp& prepared, Workspace& workspace) {
    Space& a = self(workspace);
    run_noted(a);
    const Op& op = self(prepared);
    run_all(&Ops::moe, op, a);
    if (op.alone) return;
    for (std::size_t r = 0; r < backends_.size(); ++r) on(r, [&](Ops&) { share(r).start(*a.in[r]); });
    const int64_t width = a.shape.d_model, values = a.shape.experts_used * width;
    const std::span<float> whole = a.whole(values), part = a.part(values);
    std::ranges::fill(whole, 0.0f);
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (op.parts[r].count == 0) continue;
        await(r);
        on(r, [&](Ops&) { share(r).read_values(*a.in[r], Values::expert_outputs, width, part); });
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += part[i];
    }
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        await(r);
        on(r, [&](Ops& rank) {
            share(r).write_values(*a.in[r], Values::expert_outputs, width, whole);
            rank.moe(*op.finish[r], *a.in[r]);
        });
    }
    if (!op.keeps_branch) a.slices = false;
}

void DividedOps::per_layer_embed(const PreparedOp& op, Workspace& workspace) {
    run_noted(self(workspace));
    run_alone(&Ops::per_layer_embed, self(op), self(workspace));
}

void DividedOps::per_layer(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    run_noted(a);
    run_alone(&Ops::per_layer, self(op), a);
    a.fresh = 1u << self(op).rank;
    a.slices = false;
}

void DividedOps::lm_head(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    a.head = &self(op);
    if (note(a, {ForwardOp::lm_head, &self(op)})) return run_noted(a);
    run_all(&Ops::lm_head, self(op), a);
}

// --------------------------------------------------------------------------------------------------------- results

std::span<float> DividedOps::logits(Workspace& workspace, int32_t i) {
    Space& a = self(workspace);
    check(a.head != nullptr, "logits of a forward without an LM head");
    const auto vocab = static_cast<std::size_t>(a.shape.vocab), row = static_cast<std::size_t>(i);
    const std::span<float> all = std::span(a.logits).subspan(row * vocab, vocab);
    if (a.known[row] != 0) return all;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!a.head->ops[r]) continue;
        await(r);
        const auto count = static_cast<std::size_t>(a.head->parts[r].count);
        on(r, [&](Ops& rank) {
            std::ranges::copy(rank.logits(*a.in[r], i).first(count), all.begin() + a.head->parts[r].first);
        });
    }
    a.known[row] = 1;
    return all;
}

void DividedOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    self(workspace).slots.sample(plans, slots, [&](int32_t i) { return logits(workspace, i); });
}

SampledToken DividedOps::sampled(Workspace& workspace, int32_t slot) { return self(workspace).slots.sampled(slot); }

Candidates DividedOps::candidates(Workspace& workspace, int32_t slot) { return self(workspace).slots.candidates(slot); }

std::span<const float> DividedOps::residual(Workspace& workspace, int32_t t) {
    Space& a = self(workspace);
    run_noted(a);
    const std::size_t r = only(a.fresh);
    on(r, [&](Ops&) { share(r).start(*a.in[r]); });
    await(r);
    return on(r, [&](Ops& rank) { return rank.residual(*a.in[r], t); });
}

void DividedOps::read_rows(Workspace& workspace, std::span<float> to) {
    Space& a = self(workspace);
    run_noted(a);
    const std::size_t r = only(a.fresh);
    on(r, [&](Ops&) { share(r).start(*a.in[r]); });
    await(r);
    on(r, [&](Ops& rank) { rank.read_rows(*a.in[r], to); });
}

void DividedOps::write_rows(Workspace& workspace, std::span<const float> from) {
    Space& a = self(workspace);
    run_noted(a);
    a.notes = false;  // a forward that does not begin with tokens
    const std::size_t r = only(a.ranks);
    on(r, [&](Ops& rank) { rank.write_rows(*a.in[r], from); });
    a.fresh = 1u << r;
    a.slices = false;
}

}  // namespace foresay::kernels
