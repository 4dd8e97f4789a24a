// The reference backend's memory: KV pages, the workspace, and the host's access to both.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/kv_names.h"
#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

namespace {

// Values of the keys of one layer of a page, and as many of the values.
int64_t page_values(const KvLayer& layer) {
    return static_cast<int64_t>(kPagePositions) * layer.heads * layer.head_dim;
}

}  // namespace

int64_t ReferenceOps::kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const {
    check_kv(shape, format);
    int64_t values = 0;
    for (const KvLayer& layer : shape.layers) values += 2 * page_values(layer);
    return values * pages * static_cast<int64_t>(sizeof(float));
}

std::unique_ptr<KvPages> ReferenceOps::allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) {
    auto kv = std::make_unique<ReferenceKv>();
    kv->shape = shape;
    kv->pages = pages;
    kv->format = format;
    kv->bytes = kv_bytes(shape, pages, format);
    for (const KvLayer& layer : shape.layers) {
        kv->k.emplace_back(static_cast<std::size_t>(page_values(layer) * pages));
        kv->v.emplace_back(kv->k.back().size());
    }
    return kv;
}

std::unique_ptr<Workspace> ReferenceOps::allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                            int32_t max_logit_rows) {
    auto workspace = std::make_unique<ReferenceWorkspace>();
    workspace->shape = shape;
    workspace->max_rows = max_rows;
    workspace->max_logit_rows = max_logit_rows;
    const auto rows = static_cast<std::size_t>(max_rows);
    const auto attention = static_cast<std::size_t>(shape.heads) * shape.head_dim;
    workspace->x.resize(rows * shape.d_model);
    workspace->q.resize(rows * attention);
    workspace->attended.resize(rows * attention);
    workspace->ff.resize(rows * shape.d_ff);
    if (shape.experts > 0) workspace->branch.resize(rows * shape.d_model);
    workspace->per_layer.resize(rows * static_cast<std::size_t>(shape.layers) * shape.per_layer);
    workspace->scratch.resize(2 * std::max<std::size_t>({static_cast<std::size_t>(shape.d_model), attention,
                                                         static_cast<std::size_t>(shape.d_ff)}));
    workspace->logits.resize(static_cast<std::size_t>(max_logit_rows) * shape.vocab);
    workspace->slots.reserve(shape.vocab);
    workspace->bytes =
        static_cast<int64_t>(sizeof(float) * (workspace->x.size() + workspace->q.size() * 2 + workspace->ff.size() +
                                              workspace->scratch.size() + workspace->logits.size() +
                                              workspace->branch.size() + workspace->per_layer.size()));
    return workspace;
}

void ReferenceOps::copy_page(KvPages& pages, int32_t from, int32_t to) {
    auto& kv = static_cast<ReferenceKv&>(pages);
    for (std::size_t layer = 0; layer < kv.shape.layers.size(); ++layer) {
        const int64_t n = page_values(kv.shape.layers[layer]);
        for (Floats* values : {&kv.k[layer], &kv.v[layer]}) {
            std::copy_n(values->data() + from * n, n, values->data() + to * n);
        }
    }
}

void ReferenceOps::read_page(KvPages& pages, int32_t page, std::span<std::byte> to) {
    auto& kv = static_cast<ReferenceKv&>(pages);
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < kv.shape.layers.size(); ++layer) {
        const auto n = static_cast<std::size_t>(page_values(kv.shape.layers[layer]));
        for (Floats* values : {&kv.k[layer], &kv.v[layer]}) {
            check(at + n * sizeof(float) <= to.size(), "memory smaller than a page");
            std::memcpy(to.data() + at, values->data() + page * n, n * sizeof(float));
            at += n * sizeof(float);
        }
    }
}

void ReferenceOps::write_page(KvPages& pages, int32_t page, std::span<const std::byte> from) {
    auto& kv = static_cast<ReferenceKv&>(pages);
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < kv.shape.layers.size(); ++layer) {
        const auto n = static_cast<std::size_t>(page_values(kv.shape.layers[layer]));
        for (Floats* values : {&kv.k[layer], &kv.v[layer]}) {
            check(at + n * sizeof(float) <= from.size(), "memory smaller than a page");
            std::memcpy(values->data() + page * n, from.data() + at, n * sizeof(float));
            at += n * sizeof(float);
        }
    }
}

void ReferenceOps::begin(Workspace& workspace, const Batch& batch) {
    check_batch(workspace, batch);
    self(workspace).batch = batch;
}

std::span<float> ReferenceOps::logits(Workspace& workspace, int32_t i) {
    return {row(self(workspace).logits, static_cast<std::size_t>(i), workspace.shape.vocab),
            static_cast<std::size_t>(workspace.shape.vocab)};
}

std::span<const float> ReferenceOps::residual(Workspace& workspace, int32_t t) {
    return {row(self(workspace).x, static_cast<std::size_t>(t), workspace.shape.d_model),
            static_cast<std::size_t>(workspace.shape.d_model)};
}

void ReferenceOps::read_rows(Workspace& workspace, std::span<float> to) {
    const ReferenceWorkspace& a = self(workspace);
    check(to.size() == a.batch.rows.size() * static_cast<std::size_t>(a.shape.d_model), "memory of other rows");
    std::copy_n(a.x.data(), to.size(), to.data());
}

void ReferenceOps::write_rows(Workspace& workspace, std::span<const float> from) {
    ReferenceWorkspace& a = self(workspace);
    check(from.size() == a.batch.rows.size() * static_cast<std::size_t>(a.shape.d_model), "memory of other rows");
    std::copy_n(from.data(), from.size(), a.x.data());
}

}  // namespace foresay::kernels::reference

namespace foresay::kernels {

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<reference::ReferenceOps>(); }

}  // namespace foresay::kernels
