#include "kernels/list_ops.h"

#include <algorithm>
#include <utility>

#include "kernels/op_checks.h"

namespace foresay::kernels {

using std::int32_t;
using std::int64_t;

ListOps::ListOps(std::vector<std::shared_ptr<Ops>> backends, std::vector<std::string> names,
                 std::chrono::milliseconds limit)
    : backends_(std::move(backends)), names_(std::move(names)), limit_(limit) {
    if (names_.empty()) {
        for (const auto& backend : backends_) names_.push_back(backend->describe().name);
    }
    check(names_.size() == backends_.size(), "a name for each backend");
    for (const auto& backend : backends_) progress_.push_back(dynamic_cast<Progress*>(backend.get()));
}

// ---------------------------------------------------------------------------------------------------------- waits

bool ListOps::idle(std::size_t i) const {
    return progress_[i] == nullptr || on(i, [&](Ops&) { return progress_[i]->idle(); });
}

int64_t ListOps::unreached(std::size_t i) const {
    return progress_[i] == nullptr ? 0 : on(i, [&](Ops&) { return progress_[i]->unreached(); });
}

int64_t ListOps::unreached_of(std::uint32_t together) const {
    int64_t marks = 0;
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if ((together >> i & 1u) != 0) marks += unreached(i);
    }
    return marks;
}

void ListOps::give_up(std::uint32_t backends) const {
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if ((backends >> i & 1u) != 0 && progress_[i] != nullptr) progress_[i]->give_up();
    }
}

void ListOps::end_wait(std::size_t i, std::uint32_t together) const {
    // Each that has not run yet may be the cause.
    std::uint32_t late = 1u << i;
    for (std::size_t of = 0; of < backends_.size(); ++of) {
        if ((together >> of & 1u) != 0 && !idle(of)) late |= 1u << of;
    }
    give_up(late);
    giving_up();
    throw Error(all_names(late) + ((late & (late - 1)) != 0 ? " have" : " has") + " not answered for " +
                std::to_string(limit_.count()) + " ms, so the answer ends here");
}

std::string ListOps::all_names(std::uint32_t backends) const {
    std::string all;
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if ((backends >> i & 1u) != 0) all += (all.empty() ? "" : ", ") + names_[i];
    }
    return all;
}

// ----------------------------------------------------------------------------------------------------- properties

BackendInfo ListOps::describe_all(const std::string& between) const {
    BackendInfo all{"", "", 1};
    for (const auto& backend : backends_) {
        const BackendInfo info = backend->describe();
        all.name += (all.name.empty() ? "" : between) + info.name;
        all.detail += (all.detail.empty() ? "" : " " + between + " ") + info.detail;
        all.threads = std::max(all.threads, info.threads);
    }
    return all;
}

int64_t ListOps::free_memory() const {
    int64_t least = -1;
    for (const auto& backend : backends_) {
        const int64_t own = backend->free_memory();
        if (own >= 0) least = least < 0 ? own : std::min(least, own);
    }
    return least;
}

int32_t ListOps::prefill_rows() const {
    int32_t rows = 1;
    for (const auto& backend : backends_) rows = std::max(rows, backend->prefill_rows());
    return rows;
}

bool ListOps::reads_weights_once() const {
    bool any = false;
    for (const auto& backend : backends_) {
        if (backend->free_memory() < 0) continue;
        if (!backend->reads_weights_once()) return false;
        any = true;
    }
    return any;
}

bool ListOps::makes_random_weights() const {
    return std::ranges::all_of(backends_, [](const auto& backend) { return backend->makes_random_weights(); });
}

int64_t ListOps::kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    int64_t bytes = 0;
    for (std::size_t i = 0; i < backends_.size(); ++i) bytes += kv_bytes_on(i, shape, pages, format);
    return bytes;
}

int64_t ListOps::expanded_kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    int64_t bytes = 0;
    for (std::size_t i = 0; i < backends_.size(); ++i) bytes += expanded_kv_bytes_on(i, shape, pages, format);
    return bytes;
}

void ListOps::copy_page(KvPages& kv, int32_t from, int32_t to) {
    auto& all = static_cast<Pages&>(kv);
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if (!all.parts[i]) continue;
        before_pages(i);
        on(i, [&](Ops& backend) { backend.copy_page(*all.parts[i], from, to); });
    }
}

void ListOps::read_page(KvPages& kv, int32_t page, std::span<std::byte> to) {
    auto& all = static_cast<Pages&>(kv);
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if (!all.parts[i]) continue;
        before_pages(i);
        on(i, [&](Ops& backend) { backend.read_page(*all.parts[i], page, to.first(all.page_bytes[i])); });
        to = to.subspan(all.page_bytes[i]);
    }
    check(to.empty(), "memory of another size than a page");
}

void ListOps::write_page(KvPages& kv, int32_t page, std::span<const std::byte> from) {
    auto& all = static_cast<Pages&>(kv);
    for (std::size_t i = 0; i < backends_.size(); ++i) {
        if (!all.parts[i]) continue;
        before_pages(i);
        on(i, [&](Ops& backend) { backend.write_page(*all.parts[i], page, from.first(all.page_bytes[i])); });
        from = from.subspan(all.page_bytes[i]);
    }
    check(from.empty(), "memory of another size than a page");
}

std::unique_ptr<HostMemory> ListOps::allocate_host(std::size_t bytes) {
    for (const auto& backend : backends_) {
        if (backend->free_memory() >= 0) return backend->allocate_host(bytes);
    }
    return backends_.front()->allocate_host(bytes);
}

Batch ListOps::with_ids(const Batch& batch, Workspace& workspace, std::vector<Row>& rows) {
    rows.assign(batch.rows.begin(), batch.rows.end());
    Workspace& slots = batch.token_source != nullptr ? *batch.token_source : workspace;
    for (Row& row : rows) {
        if (row.token.is_slot()) row.token = TokenRef::id(sampled(slots, row.token.slot_index()).token);
    }
    Batch own = batch;
    own.rows = rows;
    own.token_source = nullptr;
    return own;
}

}  // namespace foresay::kernels
