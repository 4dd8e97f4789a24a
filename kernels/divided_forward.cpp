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
constexpr std::size_t kRowTile = 64;         // products of a GPU have whole tiles of rows
constexpr std::size_t kManyRows = 64;        // a prompt of more may take a while on one rank

}  // namespace

// ------------------------------------------------------------------------------------------------------- hand-overs

void DividedOps::await(std::size_t r) const {
    await(r, [&] { return idle(r); });
}

void DividedOps::pace() {
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        on(r, [&](Ops&) { share(r).mark(); });
    }
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        await(r, [&] { return unreached(r) <= kMostMarks; });
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
        // Each begins with the rank after it, so that not all take from the same one at once. Its own comes last.
        for (std::size_t i = 1; i <= backends_.size(); ++i) {
            const std::size_t r = (t + i) % backends_.size();
            if (!direct || !what.from[r] || !has(r)) continue;
            direct = on(t, [&](Ops&) {
                return share(t).copy_values({to, what.read, what.width, what.parts[r].first}, share(r),
                                            {*what.from[r], what.made, what.parts[r].count, 0}, what.parts[r].count);
            });
        }
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
    Space& whole = self(workspace);
    settle_link();
    whole.linked = false;
    whole.unheard.clear();
    whole.batch = with_ids(batch, workspace, whole.rows);
    cut(whole, options_.group_rows);
    whole.head = nullptr;
    std::ranges::fill(whole.known, 0);
    whole.noted.clear();
    whole.notes = linked() && divided(whole.ranks) && batch.row_class == RowClass::decode && !batch.tree &&
                  batch.rows.size() <= kMostLinkedRows && whole.shape.experts == 0 &&
                  !batch.logit_rows.empty();  // the LM head ends the forward
    each_group(whole, [&](Space& a) {
        a.fresh = 0;
        a.slices = false;
        a.logit_rows = a.batch.logit_rows.size();
        begin_in(a, a.in);
        a.batch.logit_rows = {};
        if (!a.notes) begin_in(a, a.out);
    });
}

// Prefill rows only: what a backend does for decode rows may rest on no other rows being written meanwhile. Sequences
// stay as they are: a row attends to all positions before its own, and its group does not matter.
void DividedOps::cut(Space& whole, int32_t group_rows) {
    const Batch& batch = whole.batch;
    const std::size_t rows = batch.rows.size();
    whole.cut = whole.late && batch.row_class == RowClass::prefill && !batch.tree &&
                rows >= 2 * static_cast<std::size_t>(group_rows);
    if (!whole.cut) return;
    const std::size_t half = rows / 2, late_rows = half < kRowTile ? half : half / kRowTile * kRowTile;
    const std::size_t first = rows - late_rows;
    Space& late = *whole.late;
    const auto later = std::ranges::lower_bound(batch.logit_rows, static_cast<int32_t>(first));
    late.own_logit_rows.assign(later, batch.logit_rows.end());
    for (int32_t& row : late.own_logit_rows) row -= static_cast<int32_t>(first);
    late.batch = batch;
    late.batch.rows = batch.rows.subspan(first);
    late.batch.logit_rows = late.own_logit_rows;
    whole.batch.rows = batch.rows.first(first);
    whole.batch.logit_rows = batch.logit_rows.first(batch.logit_rows.size() - late.own_logit_rows.size());
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
    refused_ = !run_linked(a);
    if (!refused_) return;
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
    a.linked = unsettled_ = half_begun_ = true;
    told_ = false;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        on(r, [&](Ops&) { share(r).run_linked(*a.in[r], a.calls[r]); });
    }
    half_begun_ = false;
    ++linked_forwards_;
    a.fresh = a.ranks;
    a.slices = false;
    return true;
}

void DividedOps::check_linked(Space& a, std::size_t r) {
    if (!a.linked) return;
    if (a.unheard.empty() && on(r, [&](Ops&) { return share(r).gave_up_on(); })) a.unheard = late_ranks();
    if (a.unheard.empty()) return;
    told_ = true;
    throw Error(a.unheard);
}

// Those that still run, if there are any: who waits gives up, and has then run.
std::string DividedOps::late_ranks() const {
    const std::uint32_t all = (1u << backends_.size()) - 1;
    const auto running = [&] {
        std::uint32_t ranks = 0;
        for (std::size_t r = 0; r < backends_.size(); ++r) ranks |= idle(r) ? 0 : 1u << r;
        return ranks;
    };
    // All that wait give up at about the same time.
    const auto end = std::chrono::steady_clock::now() + options_.limit / 10;
    std::uint32_t late = running();
    while (late != 0 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
        late = running();
    }
    give_up(late);
    if (late == 0) {
        std::uint32_t waited = 0;
        for (std::size_t r = 0; r < backends_.size(); ++r) {
            const auto of = on(r, [&](Ops&) { return share(r).gave_up_on(); });
            if (!of) continue;
            waited |= 1u << r;
            late |= *of;
        }
        if (late == 0) late = all & ~waited;  // has heard all others, and so was the last
        if (late == 0) {
            return all_names(all) + " have waited for each other's values in vain, so the answer ends here";
        }
    }
    return all_names(late) + (divided(late) ? " have not passed on their" : " has not passed on its") +
           " values in time, so the answer ends here";
}

void DividedOps::settle_link() {
    if (!unsettled_) return;
    for (std::size_t r = 0; r < backends_.size(); ++r) await(r);
    bool whole = !half_begun_;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        whole &= !on(r, [&](Ops&) { return share(r).gave_up_on(); });
    }
    if (whole) {
        mended_ = unsettled_ = false;
        return;
    }
    // What it has left in the cache must not be taken for good if nothing was asked of it since.
    const std::string untold = half_begun_ || told_ ? "" : late_ranks();
    const std::string names = all_names((1u << backends_.size()) - 1);
    if (mended_) {
        link_way_ = LinkWay::none;
        why_unlinked_ = "the link of " + names + " has failed twice in a row";
        tell(why_unlinked_ + "; decoding goes by copies until the program is started again");
    } else {
        on(0, [&](Ops&) { share(0).mend_link(shares_); });
        mended_ = true;
        tell("the link of " + names + " has failed once and is used again");
    }
    unsettled_ = half_begun_ = false;
    if (!untold.empty()) throw Error(untold);
}

void DividedOps::embed(const PreparedOp& op, Workspace& workspace) {
    Space& whole = self(workspace);
    if (note(whole, {ForwardOp::embed, &self(op)})) return;
    each_group(whole, [&](Space& a) {
        run_alone(&Ops::embed, self(op), a);
        a.fresh = 1u << self(op).rank;
    });
}

void DividedOps::attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, int32_t layer) {
    Space& whole = self(workspace);
    auto& all = static_cast<Kv&>(kv);
    if (note(whole, {ForwardOp::attention_in, &self(op), &all, layer})) return;
    each_group(whole, [&](Space& a) {
        if (self(op).alone && a.batch.row_class == RowClass::prefill && a.count() > kManyRows) {
            on(self(op).rank, [&](Ops&) { share(self(op).rank).start(*a.in[self(op).rank]); });
            pace();
        }
        spread(a, self(op).alone ? 1u << self(op).rank : a.ranks);
        for (std::size_t r = 0; r < backends_.size(); ++r) {
            if (!self(op).ops[r]) continue;
            const int32_t own = all.places[r][static_cast<std::size_t>(layer)];
            on(r, [&](Ops& rank) { rank.attention_in(*self(op).ops[r], *a.in[r], *all.parts[r], own); });
        }
    });
}

void DividedOps::attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, int32_t layer) {
    Space& whole = self(workspace);
    auto& all = const_cast<Kv&>(static_cast<const Kv&>(kv));  // noted beside those of attention_in
    if (note(whole, {ForwardOp::attend, &self(op), &all, layer})) return;
    each_group(whole, [&](Space& a) {
        for (std::size_t r = 0; r < backends_.size(); ++r) {
            if (!self(op).ops[r]) continue;
            const int32_t own = all.places[r][static_cast<std::size_t>(layer)];
            on(r, [&](Ops& rank) { rank.attend(*self(op).ops[r], *a.in[r], *all.parts[r], own); });
        }
    });
}

// attention_out and mlp_out. All groups hand over their inputs before any is multiplied: a rank that notes calls starts
// those of a group there, so what one group has made is copied while the next one's ops run.
void DividedOps::project(const Op& op, Space& whole, Values values) {
    const int64_t inputs = op.inputs.back().first + op.inputs.back().count, width = whole.shape.d_model;
    const bool adds = op.finish.empty();  // products to the residual stream, rather than to what follows
    each_group(whole, [&](Space& a) { hand_over(a, {a.in, values, op.inputs, inputs, a.out, Values::inner}); });
    each_group(whole, [&](Space& a) {
        if (adds) give_slices(a, op);
        for (std::size_t r = 0; r < backends_.size(); ++r) {
            if (!op.ops[r]) continue;
            on(r, [&](Ops& rank) {
                if (!adds) share(r).clear_rows(*a.out[r]);
                rank.mlp_out(*op.ops[r], *a.out[r]);
            });
        }
        if (!adds) spread(a, a.ranks);
        hand_over(a, {a.out, Values::residual, op.parts, width, a.in, adds ? Values::residual : Values::sums});
        for (std::size_t r = 0; r < op.finish.size(); ++r) {
            on(r, [&](Ops& rank) { rank.mlp_out(*op.finish[r], *a.in[r]); });
        }
        a.fresh = a.ranks;
        a.slices = adds;
        if (values == Values::inner) pace();
    });
}

void DividedOps::attention_out(const PreparedOp& op, Workspace& workspace) {
    Space& whole = self(workspace);
    if (note(whole, {ForwardOp::attention_out, &self(op)})) return;
    if (!self(op).alone) return project(self(op), whole, Values::attended);
    each_group(whole, [&](Space& a) { run_alone(&Ops::attention_out, self(op), a); });
}

void DividedOps::mlp_in(const PreparedOp& op, Workspace& workspace) {
    Space& whole = self(workspace);
    if (note(whole, {ForwardOp::mlp_in, &self(op)})) return;
    each_group(whole, [&](Space& a) { run_all(&Ops::mlp_in, self(op), a); });
}

void DividedOps::mlp_out(const PreparedOp& op, Workspace& workspace) {
    Space& whole = self(workspace);
    if (note(whole, {ForwardOp::mlp_out, &self(op)})) return;
    if (!self(op).alone) return project(self(op), whole, Values::inner);
    each_group(whole, [&](Space& a) { run_alone(&Ops::mlp_out, self(op), a); });
}

// From device to device, or through host memory. There the outputs of other ranks' experts are zeros, so adding is
// putting together. It makes +0.0 of -0.0, which changes no bit: the sum of experts begins with +0.0.
void DividedOps::share_experts(const Op& op, Space& a) {
    for (std::size_t r = 0; r < backends_.size(); ++r) on(r, [&](Ops&) { share(r).start(*a.in[r]); });
    if (!options_.through_host && share(0).gather_experts(shares_, a.mixtures, op.parts)) return;
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
        on(r, [&](Ops&) { share(r).write_values(*a.in[r], Values::expert_outputs, width, whole); });
    }
}

// Each rank computes the outputs of its own experts, and adds up those of all.
void DividedOps::moe(const PreparedOp& prepared, Workspace& workspace) {
    run_noted(self(workspace));
    const Op& op = self(prepared);
    each_group(self(workspace), [&](Space& a) {
        run_all(&Ops::moe, op, a);
        if (op.alone) return;
        share_experts(op, a);
        for (std::size_t r = 0; r < backends_.size(); ++r) {
            on(r, [&](Ops& rank) { rank.moe(*op.finish[r], *a.in[r]); });
        }
        if (!op.keeps_branch) a.slices = false;
        pace();
    });
}

void DividedOps::per_layer_embed(const PreparedOp& op, Workspace& workspace) {
    run_noted(self(workspace));
    each_group(self(workspace), [&](Space& a) { run_alone(&Ops::per_layer_embed, self(op), a); });
}

void DividedOps::per_layer(const PreparedOp& op, Workspace& workspace) {
    run_noted(self(workspace));
    each_group(self(workspace), [&](Space& a) {
        run_alone(&Ops::per_layer, self(op), a);
        a.fresh = 1u << self(op).rank;
        a.slices = false;
    });
}

void DividedOps::lm_head(const PreparedOp& op, Workspace& workspace) {
    Space& whole = self(workspace);
    whole.head = &self(op);
    if (note(whole, {ForwardOp::lm_head, &self(op)})) return run_noted(whole);
    each_group(whole, [&](Space& a) {
        if (a.logit_rows > 0) run_all(&Ops::lm_head, self(op), a);
    });
}

// --------------------------------------------------------------------------------------------------------- results

std::span<float> DividedOps::logits(Workspace& workspace, int32_t i) {
    Space& whole = self(workspace);
    check(whole.head != nullptr, "logits of a forward without an LM head");
    const auto vocab = static_cast<std::size_t>(whole.shape.vocab), row = static_cast<std::size_t>(i);
    const std::span<float> all = std::span(whole.logits).subspan(row * vocab, vocab);
    if (whole.known[row] != 0) return all;
    const bool late = whole.cut && row >= whole.logit_rows;
    const Space& a = late ? *whole.late : whole;
    const int32_t own = late ? i - static_cast<int32_t>(whole.logit_rows) : i;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (!whole.head->ops[r]) continue;
        await(r);
        check_linked(whole, r);
        const Part part = whole.head->parts[r];
        on(r, [&](Ops& rank) {
            std::ranges::copy(rank.logits(*a.in[r], own).first(static_cast<std::size_t>(part.count)),
                              all.begin() + part.first);
        });
    }
    whole.known[row] = 1;
    return all;
}

void DividedOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    self(workspace).slots.sample(plans, slots, [&](int32_t i) { return logits(workspace, i); });
}

SampledToken DividedOps::sampled(Workspace& workspace, int32_t slot) { return self(workspace).slots.sampled(slot); }

Candidates DividedOps::candidates(Workspace& workspace, int32_t slot) { return self(workspace).slots.candidates(slot); }

std::span<const float> DividedOps::residual(Workspace& workspace, int32_t t) {
    Space& whole = self(workspace);
    run_noted(whole);
    const auto first = static_cast<int32_t>(whole.count());  // of the second group
    const bool late = whole.cut && t >= first;
    const Space& a = late ? *whole.late : whole;
    const std::size_t r = only(a.fresh);
    on(r, [&](Ops&) { share(r).start(*a.in[r]); });
    await(r);
    check_linked(whole, r);
    return on(r, [&](Ops& rank) { return rank.residual(*a.in[r], late ? t - first : t); });
}

void DividedOps::read_rows(Workspace& workspace, std::span<float> to) {
    run_noted(self(workspace));
    each_group(self(workspace), [&](Space& a) {
        const std::size_t r = only(a.fresh), values = a.count() * static_cast<std::size_t>(a.shape.d_model);
        on(r, [&](Ops&) { share(r).start(*a.in[r]); });
        await(r);
        check_linked(a, r);
        on(r, [&](Ops& rank) { rank.read_rows(*a.in[r], to.first(values)); });
        to = to.subspan(values);
    });
    check(to.empty(), "memory of other rows");
}

void DividedOps::write_rows(Workspace& workspace, std::span<const float> from) {
    Space& whole = self(workspace);
    run_noted(whole);
    whole.notes = false;  // a forward that does not begin with tokens
    each_group(whole, [&](Space& a) {
        const std::size_t r = only(a.ranks), values = a.count() * static_cast<std::size_t>(a.shape.d_model);
        on(r, [&](Ops& rank) { rank.write_rows(*a.in[r], from.first(values)); });
        from = from.subspan(values);
        a.fresh = 1u << r;
        a.slices = false;
    });
    check(from.empty(), "memory of other rows");
}

}  // namespace foresay::kernels
