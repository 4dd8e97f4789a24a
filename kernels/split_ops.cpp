#include "kernels/split_ops.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "kernels/op_checks.h"
#include "kernels/sampling.h"

namespace foresay::kernels {
namespace {

using std::int32_t;
using std::int64_t;

constexpr std::size_t kManyRows = 64;  // wider forwards take a while, and are no graph of the device

struct SplitOp final : PreparedOp {
    std::size_t device = 0;
    std::vector<std::unique_ptr<PreparedOp>> ops;  // by device; those without are null

    void add(std::size_t of, std::unique_ptr<PreparedOp> op) {
        if (ops.size() <= of) ops.resize(of + 1);
        weight_bytes += op->weight_bytes;
        macs_per_row += op->macs_per_row;
        expert_bytes = op->expert_bytes;
        experts = op->experts;
        experts_used = op->experts_used;
        device = of;
        ops[of] = std::move(op);
    }
};

struct SplitWorkspace final : Workspace {
    std::vector<std::unique_ptr<Workspace>> parts;  // by device; null: it has no layer
    std::size_t first = 0, last = 0, current = 0;   // devices: of the embedding, of the LM head, of the rows
    std::unique_ptr<HostMemory> crossing;           // [T, D]
    std::vector<Row> rows;                          // of the forward
    Batch batch, without_logits;                    // for the last device, for the others
    std::uint32_t begun = 0;                        // devices, bit by bit, on which it has begun

    std::span<float> memory() const {
        const std::size_t values = rows.size() * static_cast<std::size_t>(shape.d_model);
        return {reinterpret_cast<float*>(crossing->bytes.data()), values};
    }
};

SplitWorkspace& self(Workspace& workspace) { return static_cast<SplitWorkspace&>(workspace); }
const SplitOp& self(const PreparedOp& op) { return static_cast<const SplitOp&>(op); }
const PreparedOp& inner(const PreparedOp& op) { return *self(op).ops[self(op).device]; }

}  // namespace

struct SplitOps::Kv final : Pages {
    struct Place {
        std::size_t device = 0;
        int32_t layer = 0;  // of that device's part
    };
    std::vector<Place> places;  // by layer
};

KvPages& SplitOps::part(const KvPages& kv, const PreparedOp& op, int32_t layer) {
    const auto& all = static_cast<const Kv&>(kv);
    check(all.places[static_cast<std::size_t>(layer)].device == self(op).device,
          "a layer reads keys of another device");
    return *all.parts[self(op).device];
}

int32_t SplitOps::layer_of(const KvPages& kv, int32_t layer) {
    return static_cast<const Kv&>(kv).places[static_cast<std::size_t>(layer)].layer;
}

SplitOps::SplitOps(std::vector<std::shared_ptr<Ops>> devices, std::vector<std::string> names,
                   std::chrono::milliseconds limit)
    : ListOps(std::move(devices), std::move(names), limit) {
    check(!backends_.empty() && backends_.size() <= kMostDevices, "a list of one to 32 backends");
}

std::size_t SplitOps::lowest(std::uint32_t devices) const {
    check(devices != 0, "a model is on some device");
    return static_cast<std::size_t>(std::countr_zero(devices));
}

std::size_t SplitOps::highest(std::uint32_t devices) const {
    const auto d = static_cast<std::size_t>(std::bit_width(devices)) - 1;
    check(devices != 0 && d < backends_.size(), "a layer is on a device that is not in the list");
    return d;
}

// ------------------------------------------------------------------------------------------------------ properties

BackendInfo SplitOps::describe() const { return describe_all("+"); }

void SplitOps::wait(Workspace& workspace) {
    const SplitWorkspace& a = self(workspace);
    for (std::size_t d = 0; d < a.parts.size(); ++d) {
        if (!a.parts[d]) continue;
        settle(d);
        on(d, [&](Ops& device) { device.wait(*a.parts[d]); });
    }
}

void SplitOps::settle(std::size_t d) const {
    if (progress(d) == nullptr) return;
    on(d, [&](Ops&) { progress(d)->flush(); });
    await(d, 1u << d, [&] { return idle(d); });
}

// --------------------------------------------------------------------------------------------------------- loading

template <class Spec>
std::unique_ptr<PreparedOp> SplitOps::on_its_device(const Spec& spec) {
    const std::size_t d = highest(spec.shape.devices);
    auto op = std::make_unique<SplitOp>();
    op->add(d, on(d, [&](Ops& device) { return device.prepare(spec); }));
    return op;
}

std::unique_ptr<PreparedOp> SplitOps::prepare(const EmbedSpec& spec) {
    const std::size_t d = lowest(spec.devices);
    auto op = std::make_unique<SplitOp>();
    op->add(d, on(d, [&](Ops& device) { return device.prepare(spec); }));
    return op;
}

// Made by each device from the same x and tokens, because they are wider than x.
std::unique_ptr<PreparedOp> SplitOps::prepare(const PerLayerEmbedSpec& spec) {
    auto op = std::make_unique<SplitOp>();
    highest(spec.shape.devices);
    for (std::size_t d = 0; d < backends_.size(); ++d) {
        if ((spec.shape.devices >> d & 1u) != 0) op->add(d, on(d, [&](Ops& device) { return device.prepare(spec); }));
    }
    return op;
}

std::unique_ptr<PreparedOp> SplitOps::prepare(const LmHeadSpec& spec) { return on_its_device(spec); }

KvShape SplitOps::part_of(const KvShape& shape, std::size_t d) {
    KvShape part;
    for (KvLayer layer : shape.layers) {
        if (static_cast<std::size_t>(layer.device) != d) continue;
        layer.device = 0;
        part.layers.push_back(layer);
    }
    return part;
}

int64_t SplitOps::kv_bytes_on(std::size_t d, const KvShape& shape, int32_t pages, KvFormat format) const {
    const KvShape part = part_of(shape, d);
    return part.layers.empty() ? 0 : backends_[d]->kv_bytes(part, pages, format);
}

int64_t SplitOps::expanded_kv_bytes_on(std::size_t d, const KvShape& shape, int32_t pages, KvFormat format) const {
    const KvShape own = part_of(shape, d);
    return own.layers.empty() ? 0 : backends_[d]->expanded_kv_bytes(own, pages, format);
}

std::unique_ptr<KvPages> SplitOps::allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<Kv>();
    kv->shape = shape;
    kv->format = format;
    kv->pages = pages;
    kv->parts.resize(backends_.size());
    kv->page_bytes.resize(backends_.size());
    std::vector<int32_t> next(backends_.size());
    for (const KvLayer& layer : shape.layers) {
        const auto d = static_cast<std::size_t>(layer.device);
        check(d < backends_.size(), "keys are on a device that is not in the list");
        kv->places.push_back({d, next[d]++});
    }
    for (std::size_t d = 0; d < backends_.size(); ++d) {
        const KvShape part = part_of(shape, d);
        if (part.layers.empty()) continue;
        kv->parts[d] = on(d, [&](Ops& device) { return device.allocate_kv(part, pages, format); });
        kv->page_bytes[d] = static_cast<std::size_t>(backends_[d]->kv_bytes(part, 1, format));
        kv->bytes += kv->parts[d]->bytes;
    }
    return kv;
}

int64_t SplitOps::workspace_bytes(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) const {
    int64_t bytes = int64_t{max_rows} * shape.d_model * static_cast<int64_t>(sizeof(float));
    const std::size_t last = highest(shape.devices);
    for (std::size_t d = 0; d <= last; ++d) {
        if ((shape.devices >> d & 1u) == 0) continue;
        bytes += backends_[d]->workspace_bytes(shape, max_rows, d == last ? max_logit_rows : 1);
    }
    return bytes;
}

std::unique_ptr<Workspace> SplitOps::allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                        int32_t max_logit_rows) {
    auto workspace = std::make_unique<SplitWorkspace>();
    workspace->shape = shape;
    workspace->max_rows = max_rows;
    workspace->max_logit_rows = max_logit_rows;
    workspace->first = workspace->current = lowest(shape.devices);
    workspace->last = highest(shape.devices);
    workspace->parts.resize(backends_.size());
    for (std::size_t d = 0; d < backends_.size(); ++d) {
        if ((shape.devices >> d & 1u) == 0) continue;
        workspace->parts[d] = on(d, [&](Ops& device) {
            return device.allocate_workspace(shape, max_rows, d == workspace->last ? max_logit_rows : 1);
        });
        workspace->bytes += workspace->parts[d]->bytes;
    }
    workspace->crossing =
        allocate_host(static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(shape.d_model) * sizeof(float));
    workspace->bytes += static_cast<int64_t>(workspace->crossing->bytes.size());
    workspace->rows.reserve(static_cast<std::size_t>(max_rows));
    return workspace;
}

// --------------------------------------------------------------------------------------------------------- forward

void SplitOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    SplitWorkspace& a = self(workspace);
    a.batch = a.without_logits = with_ids(batch, workspace, a.rows);
    a.without_logits.logit_rows = {};
    a.current = a.first;
    a.begun = 0;
    for (std::size_t d = 0; d < backends_.size(); ++d) {
        // Another host gets what it has of the forward before when the next one begins there.
        if (a.parts[d] && (d == a.first || progress(d) == nullptr)) begin_on(workspace, d);
    }
}

void SplitOps::begin_on(Workspace& workspace, std::size_t d) {
    SplitWorkspace& a = self(workspace);
    if ((a.begun >> d & 1u) != 0) return;
    settle(d);
    on(d, [&](Ops& device) { device.begin(*a.parts[d], d == a.last ? a.batch : a.without_logits); });
    a.begun |= 1u << d;
}

void SplitOps::pace(Workspace& workspace) {
    SplitWorkspace& a = self(workspace);
    const std::size_t d = a.current;
    if (progress(d) == nullptr || a.rows.size() <= kManyRows) return;
    on(d, [&](Ops&) {
        progress(d)->start(*a.parts[d]);
        progress(d)->mark();
    });
    await(d, 1u << d, [&] { return unreached(d) <= kMostMarksOfLayers; });
}

void SplitOps::enter(Workspace& workspace, std::size_t d) {
    SplitWorkspace& a = self(workspace);
    if (a.current == d) return;
    settle(a.current);
    begin_on(workspace, d);
    const bool taken = on(d, [&](Ops& device) {
        auto* const taker = dynamic_cast<TakesRows*>(&device);
        return taker != nullptr && taker->take_rows(*a.parts[d], *backends_[a.current], *a.parts[a.current]);
    });
    if (!taken) {
        on(a.current, [&](Ops& device) { device.read_rows(*a.parts[a.current], a.memory()); });
        on(d, [&](Ops& device) { device.write_rows(*a.parts[d], a.memory()); });
    }
    a.current = d;
}

void SplitOps::run(void (Ops::*of)(const PreparedOp&, Workspace&), const PreparedOp& op, Workspace& workspace) {
    enter(workspace, self(op).device);
    SplitWorkspace& a = self(workspace);
    on(a.current, [&](Ops& device) { (device.*of)(inner(op), *a.parts[a.current]); });
}

void SplitOps::embed(const PreparedOp& op, Workspace& workspace) {
    SplitWorkspace& a = self(workspace);
    a.current = self(op).device;
    begin_on(workspace, a.current);
    on(a.current, [&](Ops& device) { device.embed(inner(op), *a.parts[a.current]); });
}

void SplitOps::per_layer_embed(const PreparedOp& op, Workspace& workspace) {
    SplitWorkspace& a = self(workspace);
    const std::size_t embedded = a.current;
    const SplitOp& all = self(op);
    for (std::size_t d = 0; d < all.ops.size(); ++d) {
        if (!all.ops[d]) continue;
        if (d != embedded) {
            settle(embedded);
            begin_on(workspace, d);
            on(embedded, [&](Ops& device) { device.read_rows(*a.parts[embedded], a.memory()); });
            on(d, [&](Ops& device) { device.write_rows(*a.parts[d], a.memory()); });
        }
        on(d, [&](Ops& device) { device.per_layer_embed(*all.ops[d], *a.parts[d]); });
    }
}

void SplitOps::attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, int32_t layer) {
    enter(workspace, self(op).device);
    SplitWorkspace& a = self(workspace);
    on(a.current, [&](Ops& device) {
        device.attention_in(inner(op), *a.parts[a.current], part(kv, op, layer), layer_of(kv, layer));
    });
}

void SplitOps::attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, int32_t layer) {
    enter(workspace, self(op).device);
    SplitWorkspace& a = self(workspace);
    on(a.current,
       [&](Ops& device) { device.attend(inner(op), *a.parts[a.current], part(kv, op, layer), layer_of(kv, layer)); });
}

void SplitOps::attention_out(const PreparedOp& op, Workspace& workspace) { run(&Ops::attention_out, op, workspace); }

void SplitOps::mlp_in(const PreparedOp& op, Workspace& workspace) { run(&Ops::mlp_in, op, workspace); }

void SplitOps::mlp_out(const PreparedOp& op, Workspace& workspace) {
    run(&Ops::mlp_out, op, workspace);
    pace(workspace);
}

void SplitOps::moe(const PreparedOp& op, Workspace& workspace) {
    run(&Ops::moe, op, workspace);
    pace(workspace);
}

void SplitOps::per_layer(const PreparedOp& op, Workspace& workspace) { run(&Ops::per_layer, op, workspace); }

void SplitOps::lm_head(const PreparedOp& op, Workspace& workspace) { run(&Ops::lm_head, op, workspace); }

// --------------------------------------------------------------------------------------------------------- results

void SplitOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    SplitWorkspace& a = self(workspace);
    settle(a.last);
    on(a.last, [&](Ops& device) { device.sample(*a.parts[a.last], plans, slots); });
}

SampledToken SplitOps::sampled(Workspace& workspace, int32_t slot) {
    SplitWorkspace& a = self(workspace);
    settle(a.last);
    return on(a.last, [&](Ops& device) { return device.sampled(*a.parts[a.last], slot); });
}

Candidates SplitOps::candidates(Workspace& workspace, int32_t slot) {
    SplitWorkspace& a = self(workspace);
    settle(a.last);
    return on(a.last, [&](Ops& device) { return device.candidates(*a.parts[a.last], slot); });
}

std::span<float> SplitOps::logits(Workspace& workspace, int32_t i) {
    SplitWorkspace& a = self(workspace);
    settle(a.last);
    return on(a.last, [&](Ops& device) { return device.logits(*a.parts[a.last], i); });
}

std::span<const float> SplitOps::residual(Workspace& workspace, int32_t t) {
    SplitWorkspace& a = self(workspace);
    settle(a.current);
    return on(a.current, [&](Ops& device) { return device.residual(*a.parts[a.current], t); });
}

void SplitOps::read_rows(Workspace& workspace, std::span<float> to) {
    SplitWorkspace& a = self(workspace);
    settle(a.current);
    on(a.current, [&](Ops& device) { device.read_rows(*a.parts[a.current], to); });
}

void SplitOps::write_rows(Workspace& workspace, std::span<const float> from) {
    SplitWorkspace& a = self(workspace);
    settle(a.current);
    on(a.current, [&](Ops& device) { device.write_rows(*a.parts[a.current], from); });
}

}  // namespace foresay::kernels
