#include "kernels/hosts/remote_ops.h"

#include <algorithm>
#include <utility>

#include "kernels/sampling.h"

namespace foresay::kernels {
namespace {

using std::int32_t;
using std::int64_t;

// As many rows of a prompt as may take the time of one answer.
constexpr double kRowsPerLimit = 64.0;

// Lets a cache or a workspace of the other host go.
struct Remote {
    Remote(std::shared_ptr<HostGroup> of, int to, MessageKind free) : group(std::move(of)), rank(to), kind(free) {}
    ~Remote() {
        if (id < 0) return;
        Message message(kind);
        message.put(id);
        group->tell_quietly(rank, message);
    }
    Remote(const Remote&) = delete;
    Remote& operator=(const Remote&) = delete;

    std::shared_ptr<HostGroup> group;
    int rank;
    MessageKind kind;
    int32_t id = -1;
};

}  // namespace

struct RemoteOps::Kv final : KvPages {
    explicit Kv(std::shared_ptr<HostGroup> group, int rank) : remote(std::move(group), rank, MessageKind::free_kv) {}
    std::unique_ptr<LinkBuffer> page;  // read_page() and write_page() make it
    Remote remote;
};

struct RemoteOps::Space final : Workspace {
    explicit Space(std::shared_ptr<HostGroup> group, int rank)
        : remote(std::move(group), rank, MessageKind::free_workspace) {}

    std::unique_ptr<LinkBuffer> rows_there, logits_there;  // [max_rows, D], [max_logit_rows, V]
    std::vector<float> host_rows, host_logits;
    Message batch;  // its part of a forward message
    ForwardHead head;
    std::vector<RemoteStep> steps;  // noted, not sent
    std::int32_t logit_rows = 0;
    bool wants_logits = false, posted = false;
    HostSlots slots;
    Remote remote;  // goes first, while the buffers of what is under way are there
};

RemoteOps::Space& RemoteOps::self(Workspace& workspace) { return static_cast<Space&>(workspace); }

RemoteOps::RemoteOps(std::shared_ptr<HostGroup> group, RemoteDevice device)
    : group_(std::move(group)), device_(std::move(device)) {}

// ------------------------------------------------------------------------------------------------------ properties

BackendInfo RemoteOps::describe() const {
    BackendInfo info = device_.info;
    info.detail += (info.detail.empty() ? "" : ", ") + group_->name(device_.rank);
    return info;
}

int64_t RemoteOps::free_memory() const {
    Message request(MessageKind::free_memory);
    request.put(device_.device);
    return group_->ask(device_.rank, request).get<int64_t>();
}

double RemoteOps::read_bandwidth() {
    Message request(MessageKind::bandwidth);
    request.put(device_.device);
    return group_->ask(device_.rank, request).get<double>();
}

void RemoteOps::wait(Workspace& workspace) {
    flush(self(workspace));
    finish(self(workspace));
}

// --------------------------------------------------------------------------------------------------------- loading

int64_t RemoteOps::ask_kv(MessageKind kind, const KvShape& shape, int32_t pages, KvFormat format) const {
    Message request(kind);
    request.put(device_.device);
    put_shape(request, shape);
    request.put(pages).put(format);
    return group_->ask(device_.rank, request).get<int64_t>();
}

int64_t RemoteOps::kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    return ask_kv(MessageKind::kv_bytes, shape, pages, format);
}

int64_t RemoteOps::expanded_kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    return ask_kv(MessageKind::expanded_kv_bytes, shape, pages, format);
}

int64_t RemoteOps::workspace_bytes(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) const {
    Message request(MessageKind::workspace_bytes);
    request.put(device_.device).put(shape).put(max_rows).put(max_logit_rows);
    return group_->ask(device_.rank, request).get<int64_t>();
}

std::unique_ptr<KvPages> RemoteOps::allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<Kv>(group_, device_.rank);
    Message request(MessageKind::allocate_kv);
    request.put(device_.device);
    put_shape(request, shape);
    request.put(pages).put(format);
    MessageReader answer = group_->ask(device_.rank, request);
    kv->remote.id = answer.get<int32_t>();
    kv->bytes = answer.get<int64_t>();
    kv->shape = shape;
    kv->pages = pages;
    kv->format = format;
    return kv;
}

std::unique_ptr<Workspace> RemoteOps::allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                         int32_t max_logit_rows) {
    auto space = std::make_unique<Space>(group_, device_.rank);
    Message request(MessageKind::allocate_workspace);
    request.put(device_.device).put(shape).put(max_rows).put(max_logit_rows);
    MessageReader answer = group_->ask(device_.rank, request);
    space->remote.id = answer.get<int32_t>();
    space->bytes = answer.get<int64_t>();
    space->shape = shape;
    space->max_rows = max_rows;
    space->max_logit_rows = max_logit_rows;
    space->rows_there = group_->device().allocate(float_bytes(int64_t{max_rows} * shape.d_model));
    space->logits_there = group_->device().allocate(float_bytes(int64_t{max_logit_rows} * shape.vocab));
    space->slots.reserve(shape.vocab);
    return space;
}

void RemoteOps::copy_page(KvPages& kv, int32_t from, int32_t to) {
    Message request(MessageKind::copy_page);
    request.put(static_cast<Kv&>(kv).remote.id).put(from).put(to);
    group_->ask(device_.rank, request);
}

void RemoteOps::read_page(KvPages& kv, int32_t page, std::span<std::byte> to) {
    Kv& own = static_cast<Kv&>(kv);
    if (!own.page) own.page = group_->device().allocate(to.size());
    Message request(MessageKind::read_page);
    request.put(own.remote.id).put(page).put(static_cast<std::uint64_t>(to.size()));
    group_->ask(device_.rank, request, {}, {own.page.get(), to.size()});
    group_->device().read(*own.page, to);
}

void RemoteOps::write_page(KvPages& kv, int32_t page, std::span<const std::byte> from) {
    Kv& own = static_cast<Kv&>(kv);
    if (!own.page) own.page = group_->device().allocate(from.size());
    group_->device().write(*own.page, from);
    Message request(MessageKind::write_page);
    request.put(own.remote.id).put(page).put(static_cast<std::uint64_t>(from.size()));
    group_->ask(device_.rank, request, {own.page.get(), from.size()});
}

// --------------------------------------------------------------------------------------------------------- forward

void RemoteOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    Space& a = self(workspace);
    flush(a);
    a.head = {.workspace = a.remote.id,
              .rows = static_cast<int32_t>(batch.rows.size()),
              .row_class = batch.row_class,
              .tree = batch.tree,
              .begins = true};
    a.batch.clear(MessageKind::forward);
    a.batch.put_list(batch.rows);
    a.batch.put(static_cast<std::uint32_t>(batch.sequences.size()));
    for (const SequenceView& view : batch.sequences) a.batch.put(view.length).put_list(view.pages);
    a.batch.put_list(batch.logit_rows);
    a.logit_rows = static_cast<int32_t>(batch.logit_rows.size());
    a.wants_logits = false;
}

void RemoteOps::note(ForwardOp call, const PreparedOp& op, Workspace& workspace, const KvPages* kv, int32_t layer) {
    Space& a = self(workspace);
    if (kv != nullptr) a.head.kv = static_cast<const Kv*>(kv)->remote.id;
    a.steps.push_back({.call = call, .layer = layer, .op = static_cast<const Op&>(op).number});
}

void RemoteOps::flush(Space& a) {
    if (a.steps.empty()) return;
    request_.clear(MessageKind::forward);
    request_.put(a.head).put_list(std::span<const RemoteStep>(a.steps));
    if (a.head.begins) request_.put_bytes(a.batch.body());
    a.steps.clear();
    const std::size_t rows = a.head.has_rows ? float_bytes(int64_t{a.head.rows} * a.shape.d_model) : 0;
    const std::size_t logits = a.wants_logits ? float_bytes(int64_t{a.logit_rows} * a.shape.vocab) : 0;
    a.head.begins = a.head.has_rows = false;
    a.posted = true;
    group_->post(device_.rank, request_, {a.rows_there.get(), rows}, {a.logits_there.get(), logits},
                 group_->seconds() * std::max(1.0, a.head.rows / kRowsPerLimit));
}

void RemoteOps::finish(Space& a) {
    if (std::exchange(a.posted, false)) group_->settle(device_.rank);
}

void RemoteOps::lm_head(const PreparedOp& op, Workspace& workspace) {
    Space& a = self(workspace);
    note(ForwardOp::lm_head, op, workspace);
    a.wants_logits = true;
    flush(a);
    finish(a);
    a.host_logits.resize(static_cast<std::size_t>(a.logit_rows) * static_cast<std::size_t>(a.shape.vocab));
    group_->device().read(*a.logits_there, std::as_writable_bytes(std::span(a.host_logits)));
}

// --------------------------------------------------------------------------------------------------------- results

void RemoteOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    self(workspace).slots.sample(plans, slots, [&](int32_t i) { return logits(workspace, i); });
}

SampledToken RemoteOps::sampled(Workspace& workspace, int32_t slot) { return self(workspace).slots.sampled(slot); }

Candidates RemoteOps::candidates(Workspace& workspace, int32_t slot) { return self(workspace).slots.candidates(slot); }

std::span<float> RemoteOps::logits(Workspace& workspace, int32_t i) {
    Space& a = self(workspace);
    const auto vocab = static_cast<std::size_t>(a.shape.vocab);
    return std::span(a.host_logits).subspan(static_cast<std::size_t>(i) * vocab, vocab);
}

std::span<const float> RemoteOps::residual(Workspace& workspace, int32_t t) {
    Space& a = self(workspace);
    const auto width = static_cast<std::size_t>(a.shape.d_model);
    a.host_rows.resize(static_cast<std::size_t>(a.head.rows) * width);
    read_rows(workspace, a.host_rows);
    return std::span(a.host_rows).subspan(static_cast<std::size_t>(t) * width, width);
}

void RemoteOps::fetch_rows(Space& a, LinkBuffer& to) {
    flush(a);
    finish(a);
    Message request(MessageKind::read_rows);
    request.put(a.head.workspace);
    group_->ask(device_.rank, request, {}, {&to, float_bytes(int64_t{a.head.rows} * a.shape.d_model)});
}

void RemoteOps::read_rows(Workspace& workspace, std::span<float> to) {
    Space& a = self(workspace);
    fetch_rows(a, *a.rows_there);
    group_->device().read(*a.rows_there, std::as_writable_bytes(to));
}

void RemoteOps::write_rows(Workspace& workspace, std::span<const float> from) {
    Space& a = self(workspace);
    flush(a);
    group_->device().write(*a.rows_there, std::as_bytes(from));
    a.head.has_rows = true;
}

bool RemoteOps::take_rows(Workspace& workspace, Ops& from, Workspace& source) {
    Space& a = self(workspace);
    flush(a);
    if (auto* const other = dynamic_cast<RemoteOps*>(&from); other != nullptr && other->group_ == group_) {
        other->fetch_rows(self(source), *a.rows_there);
    } else if (!group_->device().take_rows(*a.rows_there, from, source, a.head.rows)) {
        return false;
    }
    a.head.has_rows = true;
    return true;
}

}  // namespace foresay::kernels
