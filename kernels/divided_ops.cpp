// Which rank has what: ops, pages and workspaces of each. divided_forward.cpp runs them.
#include "kernels/divided_ops.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/divided_space.h"
#include "kernels/op_checks.h"

namespace foresay::kernels {

using std::int32_t;
using std::int64_t;

namespace {

// Of one rank alone.
std::vector<Part> all_on(std::size_t rank, std::size_t ranks, int32_t count) {
    std::vector<Part> parts(ranks);
    parts[rank] = {0, count};
    return parts;
}

std::vector<Part> values_of_heads(const ModelShape& shape, const std::vector<Part>& kv_heads) {
    std::vector<Part> values;
    for (const Part kv : kv_heads) values.push_back(head_values(shape, query_heads(shape, kv)));
    return values;
}

std::uint32_t all_ranks(std::size_t count) { return (1u << count) - 1; }

}  // namespace

DividedOps::DividedOps(std::vector<std::shared_ptr<Ops>> ranks, DividedOptions options)
    : ListOps(std::move(ranks), std::move(options.names), options.limit), options_(std::move(options)) {
    check(backends_.size() >= 2 && backends_.size() <= kMostRanks, "a list of two to eight backends");
    if (options_.shares.empty()) options_.shares.assign(backends_.size(), 1);
    set_shares(std::move(options_.shares));
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        shares_.push_back(dynamic_cast<LayerShare*>(backends_[r].get()));
        if (shares_.back() == nullptr) {
            throw Error(names_[r] + " cannot share layers with other devices; use split_mode \"layer\"");
        }
    }
    if (!options_.through_host) {
        if (const std::string problem = shares_.front()->try_copies(shares_); !problem.empty()) tell(problem);
        if (options_.link) link_way_ = shares_.front()->link(shares_);
    }
    if (options_.group_rows < 0) {
        const bool pays = !options_.through_host && shares_.front()->copies_beside_ops(shares_);
        options_.group_rows = pays ? kGroupRows : 0;
    }
}

void DividedOps::set_shares(std::vector<int32_t> shares) {
    check(shares.size() == backends_.size(), "a share for each backend");
    options_.shares = std::move(shares);
}

std::size_t DividedOps::only(std::uint32_t devices) const {
    const auto r = static_cast<std::size_t>(std::countr_zero(devices));
    check(devices != 0 && r < backends_.size(), "a model is on a device of the list");
    return r;
}

// ------------------------------------------------------------------------------------------------------ properties

BackendInfo DividedOps::describe() const { return describe_all("|"); }

std::string DividedOps::why_copies(const LinkFacts& facts, KvFormat cache) const {
    if (!why_unlinked_.empty()) return why_unlinked_;
    if (!linked()) return {};
    if (facts.experts) return "mixtures of experts are not linked";
    if (const std::string why = shares_.front()->why_not_linked(facts, cache); !why.empty()) return why;
    return refused_ ? "the layers of this model cannot be linked" : "";
}

void DividedOps::tell(const std::string& sentence) const {
    if (options_.notice) options_.notice(sentence);
}

void DividedOps::wait(Workspace& workspace) {
    run_noted(self(workspace));
    each_group(self(workspace), [&](Space& a) {
        for (const auto* of : {&a.in, &a.out}) {
            for (std::size_t r = 0; r < backends_.size(); ++r) {
                if ((*of)[r]) on(r, [&](Ops&) { share(r).start(*(*of)[r]); });
            }
        }
    });
    for (std::size_t r = 0; r < backends_.size(); ++r) await(r);
    for (std::size_t r = 0; r < backends_.size(); ++r) check_linked(self(workspace), r);
}

// --------------------------------------------------------------------------------------------------------- loading

template <class Spec>
std::unique_ptr<PreparedOp> DividedOps::prepare_whole(const Spec& spec, std::size_t r) {
    auto op = std::make_unique<Op>();
    op->alone = true;
    op->rank = r;
    op->ops.resize(backends_.size());
    op->ops[r] = on(r, [&](Ops& rank) { return rank.prepare(spec); });
    op->weight_bytes = op->ops[r]->weight_bytes;
    op->macs_per_row = op->ops[r]->macs_per_row;
    op->expert_bytes = op->ops[r]->expert_bytes;
    op->experts = op->ops[r]->experts;
    op->experts_used = op->ops[r]->experts_used;
    return op;
}

template <class Spec, class Make>
std::unique_ptr<PreparedOp> DividedOps::prepare_parts(const Spec& spec, std::vector<Part> parts, const Make& make) {
    check_op(spec);
    auto op = std::make_unique<Op>();
    op->ops.resize(backends_.size());
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (parts[r].count == 0) continue;
        op->ops[r] = on(r, [&](Ops&) { return make(r, parts[r]); });
    }
    op->parts = std::move(parts);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const EmbedSpec& spec) {
    return prepare_whole(spec, only(spec.devices));
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const AttentionInSpec& spec) {
    const ModelShape& s = spec.shape;
    if (!divided(s.devices)) return prepare_whole(spec, only(s.devices));
    check_divides(spec);
    const KvLayer kind{s.kv_heads, s.head_dim, s.heads};
    if (std::ranges::find(heads_, kind) == heads_.end()) heads_.push_back(kind);
    const Whole all{spec.q.rows + spec.k.rows + spec.v.rows, 0};
    auto op = prepare_parts(spec, divide(s.kv_heads, 1, shares()),
                            [&](std::size_t r, Part part) { return share(r).prepare_part(part_of(spec, part), all); });
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const AttendSpec& spec) {
    const ModelShape& s = spec.shape;
    if (!divided(s.devices)) return prepare_whole(spec, only(s.devices));
    auto op = prepare_parts(spec, divide(s.kv_heads, 1, shares()),
                            [&](std::size_t r, Part part) { return backends_[r]->prepare(part_of(spec, part)); });
    auto& attend = static_cast<Op&>(*op);
    attend.heads = s.heads;
    attend.parts = values_of_heads(s, attend.parts);
    return op;
}

// A part of O or down, which reads all values: as mlp_out on the rank's workspace `out`.
std::unique_ptr<PreparedOp> DividedOps::prepare_out(const MlpOutSpec& spec, std::vector<Part> inputs) {
    auto op = std::make_unique<Op>();
    op->parts = divide(spec.shape.d_model, kRowUnit, shares());
    op->inputs = std::move(inputs);
    op->ops.resize(backends_.size());
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if (op->parts[r].count == 0) continue;
        const Part part = op->parts[r];
        op->ops[r] = on(r, [&](Ops&) {
            return share(r).prepare_part(part_of(spec, part), {spec.down.rows, part.first});
        });
    }
    if (!finished_apart(spec)) return op;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        op->finish.push_back(on(r, [&](Ops&) { return share(r).prepare_finish(finish_of(spec)); }));
    }
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const AttentionOutSpec& spec) {
    const ModelShape& s = spec.shape;
    if (!divided(s.devices)) return prepare_whole(spec, only(s.devices));
    check_op(spec);
    auto op = prepare_out(as_down(spec), values_of_heads(s, divide(s.kv_heads, 1, shares())));
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const MlpInSpec& spec) {
    if (!divided(spec.shape.devices)) return prepare_whole(spec, only(spec.shape.devices));
    auto op = prepare_parts(spec, divide(spec.shape.d_ff, kRowUnit, shares()), [&](std::size_t r, Part part) {
        return share(r).prepare_part(part_of(spec, part), {spec.up.rows, part.first});
    });
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const MlpOutSpec& spec) {
    if (!divided(spec.shape.devices)) return prepare_whole(spec, only(spec.shape.devices));
    check_op(spec);
    auto op = prepare_out(spec, divide(spec.shape.d_ff, kRowUnit, shares()));
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const MoeSpec& spec) {
    if (!divided(spec.shape.devices)) return prepare_whole(spec, only(spec.shape.devices));
    check_op(spec);
    auto op = std::make_unique<Op>();
    op->parts = divide(spec.shape.experts, 1, shares());
    op->keeps_branch = spec.keep_branch;
    MoeSpec sum = spec;
    sum.gate = sum.up = sum.down = {};
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        // Every rank chooses experts, also one that has none: all add up what the chosen ones make.
        op->ops.push_back(on(r, [&](Ops&) { return share(r).prepare_experts(spec, op->parts[r]); }));
        op->finish.push_back(on(r, [&](Ops&) { return share(r).prepare_expert_sum(sum); }));
    }
    std::vector<PreparedOp*> experts;
    for (const auto& one : op->ops) experts.push_back(one.get());
    share(0).agree(experts);
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const PerLayerEmbedSpec& spec) {
    return prepare_whole(spec, only(spec.shape.devices));
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const PerLayerSpec& spec) {
    return prepare_whole(spec, only(spec.shape.devices));
}

std::unique_ptr<PreparedOp> DividedOps::prepare(const LmHeadSpec& spec) {
    const ModelShape& s = spec.shape;
    if (!divided(s.devices)) {
        auto op = prepare_whole(spec, only(s.devices));
        static_cast<Op&>(*op).parts = all_on(only(s.devices), backends_.size(), s.vocab);
        return op;
    }
    auto op = prepare_parts(spec, divide(s.vocab, kRowUnit, shares()),
                            [&](std::size_t r, Part part) { return backends_[r]->prepare(part_of(spec, part)); });
    count_work(spec, *op);
    return op;
}

// ---------------------------------------------------------------------------------------------------------- memory

KvShape DividedOps::kv_of(std::size_t r, const KvShape& shape) const {
    KvShape own;
    for (const KvLayer& layer : shape.layers) {
        int32_t heads = layer.device == static_cast<int32_t>(r) ? layer.heads : 0;
        if (layer.device < 0) heads = divide(layer.heads, 1, shares())[r].count;
        if (heads > 0) own.layers.push_back({heads, layer.head_dim, 0});
    }
    return own;
}

int64_t DividedOps::kv_bytes_on(std::size_t r, const KvShape& shape, int32_t pages, KvFormat format) const {
    const KvShape own = kv_of(r, shape);
    return own.layers.empty() ? 0 : backends_[r]->kv_bytes(own, pages, format);
}

int64_t DividedOps::expanded_kv_bytes_on(std::size_t r, const KvShape& shape, int32_t pages, KvFormat format) const {
    const KvShape own = kv_of(r, shape);
    return own.layers.empty() ? 0 : backends_[r]->expanded_kv_bytes(own, pages, format);
}

std::unique_ptr<KvPages> DividedOps::allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<Kv>();
    kv->shape = shape;
    kv->format = format;
    kv->pages = pages;
    kv->parts.resize(backends_.size());
    kv->page_bytes.resize(backends_.size());
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        int32_t next = 0;
        kv->places.emplace_back();
        for (const KvLayer& layer : shape.layers) {
            kv->places[r].push_back(kv_of(r, KvShape({layer})).layers.empty() ? -1 : next++);
        }
        const KvShape own = kv_of(r, shape);
        if (own.layers.empty()) continue;
        kv->parts[r] = on(r, [&](Ops& rank) { return rank.allocate_kv(own, pages, format); });
        kv->page_bytes[r] = static_cast<std::size_t>(backends_[r]->kv_bytes(own, 1, format));
        kv->bytes += kv->parts[r]->bytes;
    }
    return kv;
}

// Where heads, inner values and logits are made, from all of x. Layers may differ in their heads: then there is room
// for all, because a rank's part of one kind may be larger than that of the largest.
ModelShape DividedOps::in_shape(std::size_t r, const ModelShape& shape) const {
    if (!divided(shape.devices)) return shape;
    ModelShape own = shape;
    if (heads_.size() <= 1) {
        const Part kv = divide(shape.kv_heads, 1, shares())[r];
        own.kv_heads = std::max(kv.count, 1);
        own.heads = own.kv_heads * (shape.heads / shape.kv_heads);
    }
    own.d_ff = std::min(shape.d_ff, divide(shape.d_ff, kRowUnit, shares())[r].count + kRowUnit);
    own.vocab = std::max(divide(shape.vocab, kRowUnit, shares())[r].count, 1);
    if (r != only(shape.devices)) own.per_layer = 0;
    own.devices = 1;
    return own;
}

// Where its part of x is made, from all values of the heads or the inner ones.
ModelShape DividedOps::out_shape(std::size_t r, const ModelShape& shape) const {
    ModelShape own = shape;
    own.d_model = divide(shape.d_model, kRowUnit, shares())[r].count;
    own.d_ff = std::max(shape.d_ff, shape.heads * shape.head_dim);
    own.heads = own.kv_heads = own.vocab = 1;
    own.experts = own.experts_used = own.expert_ff = own.per_layer = 0;
    own.devices = 1;
    return own;
}

// A mixture of experts takes its rows together: each expert is read once for all that chose it.
int32_t DividedOps::late_rows(const ModelShape& shape, int32_t max_rows) const {
    const bool cuts = options_.group_rows > 0 && divided(shape.devices) && shape.experts == 0;
    return cuts && max_rows / 2 >= options_.group_rows ? max_rows / 2 : 0;
}

int64_t DividedOps::workspace_bytes_on(std::size_t r, const ModelShape& shape, int32_t max_rows,
                                       int32_t max_logit_rows) const {
    if (!divided(shape.devices)) {
        return r == only(shape.devices) ? backends_[r]->workspace_bytes(shape, max_rows, max_logit_rows) : 0;
    }
    const ModelShape in = in_shape(r, shape), out = out_shape(r, shape);
    const auto of_group = [&](int32_t rows) {
        return backends_[r]->workspace_bytes(in, rows, max_logit_rows) +
               (out.d_model > 0 ? backends_[r]->workspace_bytes(out, rows, 1) : 0);
    };
    const int32_t late = late_rows(shape, max_rows);
    if (late == 0) return of_group(max_rows);
    // What workspaces share is counted with the first group.
    return of_group(max_rows) + of_group(late) - share(r).shared_workspace_bytes(in, late) -
           (out.d_model > 0 ? share(r).shared_workspace_bytes(out, late) : 0);
}

int64_t DividedOps::workspace_bytes(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) const {
    int64_t bytes = 0;
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        bytes += workspace_bytes_on(r, shape, max_rows, max_logit_rows);
    }
    return bytes;
}

std::unique_ptr<DividedOps::Space> DividedOps::allocate_space(const ModelShape& shape, int32_t max_rows,
                                                              int32_t max_logit_rows) {
    auto space = std::make_unique<Space>();
    space->shape = shape;
    space->max_rows = max_rows;
    space->max_logit_rows = max_logit_rows;
    space->ranks = divided(shape.devices) ? all_ranks(backends_.size()) : shape.devices;
    space->in.resize(backends_.size());
    space->out.resize(backends_.size());
    for (std::size_t r = 0; r < backends_.size(); ++r) {
        if ((space->ranks >> r & 1u) == 0) continue;
        space->in[r] =
            on(r, [&](Ops& rank) { return rank.allocate_workspace(in_shape(r, shape), max_rows, max_logit_rows); });
        const ModelShape out = out_shape(r, shape);
        if (!divided(shape.devices) || out.d_model == 0) continue;
        space->out[r] = on(r, [&](Ops& rank) { return rank.allocate_workspace(out, max_rows, 1); });
    }
    if (divided(shape.devices)) {
        for (const auto& workspace : space->in) space->mixtures.push_back(workspace.get());
    }
    return space;
}

std::unique_ptr<Workspace> DividedOps::allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                          int32_t max_logit_rows) {
    auto space = allocate_space(shape, max_rows, max_logit_rows);
    space->bytes = workspace_bytes(shape, max_rows, max_logit_rows);
    space->calls.resize(backends_.size());
    const int64_t widest = std::max<int64_t>({shape.d_model, int64_t{shape.heads} * shape.head_dim, shape.d_ff,
                                              int64_t{shape.experts_used} * shape.d_model});
    for (auto* memory : {&space->whole_memory, &space->part_memory}) {
        *memory = allocate_host(static_cast<std::size_t>(max_rows * widest) * sizeof(float));
        space->bytes += static_cast<int64_t>((*memory)->bytes.size());
    }
    space->rows.reserve(static_cast<std::size_t>(max_rows));
    space->logits.resize(static_cast<std::size_t>(max_logit_rows) * static_cast<std::size_t>(shape.vocab));
    space->known.resize(static_cast<std::size_t>(max_logit_rows));
    space->slots.reserve(shape.vocab);
    if (const int32_t late = late_rows(shape, max_rows); late > 0) {
        space->late = allocate_space(shape, late, max_logit_rows);
        space->late->whole_memory = space->whole_memory;
        space->late->part_memory = space->part_memory;
        space->late->own_logit_rows.reserve(static_cast<std::size_t>(max_logit_rows));
    }
    return space;
}

}  // namespace foresay::kernels
