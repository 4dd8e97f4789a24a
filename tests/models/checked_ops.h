// tests/models/checked_ops.h: runs two backends side by side, and notes the first op at which they differ.
//
// Results are those of the first backend; the second one repeats every call. Ops show the residual stream and the
// logits, so an op is named by the first of these that differs: embed, attention_out (with attention_in and attend
// before it), mlp_out (with mlp_in), moe, per_layer and lm_head.
//
// Tolerance: of what an op adds to a row, or of a row of logits: values may differ by this share of the row's largest
//           magnitude. It has to leave room for differences that earlier ops hand on.
// Threads:  one caller at a time.
// Cost:     both backends, and copies of every row after every op: for tests and diagnoses.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops_decorator.h"

namespace foresay::test {

// Where two backends part.
struct OpDifference {
    std::string op;
    std::int32_t layer = -1;  // -1: embed and lm_head belong to none
    std::int32_t row = 0;     // of the batch; of the logit rows for lm_head
    std::int32_t index = 0;
    float expected = 0.0f, found = 0.0f;

    std::string text() const {
        return op + (layer >= 0 ? " of layer " + std::to_string(layer) : std::string()) + ", row " +
               std::to_string(row) + ", index " + std::to_string(index) + ": " + std::to_string(found) +
               " where the first backend has " + std::to_string(expected);
    }
};

class CheckedOps final : public kernels::Ops {
public:
    CheckedOps(kernels::Ops& expected, kernels::Ops& checked, double tolerance)
        : ops_{&expected, &checked}, tolerance_(tolerance) {}

    const std::optional<OpDifference>& difference() const { return difference_; }

    kernels::BackendInfo describe() const override {
        return {"checked", ops_[0]->describe().name + " and " + ops_[1]->describe().name, 1};
    }
    std::int32_t prefill_rows() const override { return std::min(ops_[0]->prefill_rows(), ops_[1]->prefill_rows()); }

    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::EmbedSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttentionInSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttendSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttentionOutSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MlpInSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MlpOutSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MoeSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::PerLayerEmbedSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::PerLayerSpec& s) override { return both(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::LmHeadSpec& s) override { return both(s); }

    std::int64_t kv_bytes(const kernels::KvShape& shape, std::int32_t pages, kernels::KvFormat format) const override {
        return ops_[0]->kv_bytes(shape, pages, format) + ops_[1]->kv_bytes(shape, pages, format);
    }
    std::unique_ptr<kernels::KvPages> allocate_kv(const kernels::KvShape& shape, std::int32_t pages,
                                                  kernels::KvFormat format) override {
        return std::make_unique<Both<kernels::KvPages>>(ops_[0]->allocate_kv(shape, pages, format),
                                                        ops_[1]->allocate_kv(shape, pages, format));
    }
    std::unique_ptr<kernels::Workspace> allocate_workspace(const kernels::ModelShape& shape, std::int32_t rows,
                                                           std::int32_t logit_rows) override {
        return std::make_unique<BothWorkspaces>(ops_[0]->allocate_workspace(shape, rows, logit_rows),
                                                ops_[1]->allocate_workspace(shape, rows, logit_rows));
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        each([&](int i) { ops_[i]->copy_page(of(kv, i), from, to); });
    }
    // The two pages, one after the other.
    void read_page(kernels::KvPages& kv, std::int32_t page, std::span<std::byte> to) override {
        const std::size_t first = bytes_of_first(kv);
        ops_[0]->read_page(of(kv, 0), page, to.first(first));
        ops_[1]->read_page(of(kv, 1), page, to.subspan(first));
    }
    void write_page(kernels::KvPages& kv, std::int32_t page, std::span<const std::byte> from) override {
        const std::size_t first = bytes_of_first(kv);
        ops_[0]->write_page(of(kv, 0), page, from.first(first));
        ops_[1]->write_page(of(kv, 1), page, from.subspan(first));
    }

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        self(workspace).rows = static_cast<std::int32_t>(batch.rows.size());
        self(workspace).logit_rows = static_cast<std::int32_t>(batch.logit_rows.size());
        each([&](int i) {
            kernels::Batch own = batch;
            if (batch.token_source != nullptr) own.token_source = &of(*batch.token_source, i);
            ops_[i]->begin(of(workspace, i), own);
        });
    }
    void embed(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->embed(of(op, i), of(workspace, i)); });
        self(workspace).layer = -1;
        for (auto& rows : self(workspace).before) rows.clear();
        compare_rows(workspace, "embed");
    }
    void attention_in(const kernels::PreparedOp& op, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override {
        self(workspace).layer = layer;
        each([&](int i) { ops_[i]->attention_in(of(op, i), of(workspace, i), of(kv, i), layer); });
    }
    void attend(const kernels::PreparedOp& op, kernels::Workspace& workspace, const kernels::KvPages& kv,
                std::int32_t layer) override {
        each([&](int i) { ops_[i]->attend(of(op, i), of(workspace, i), of(kv, i), layer); });
    }
    void attention_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->attention_out(of(op, i), of(workspace, i)); });
        compare_rows(workspace, "attention_out");
    }
    void mlp_in(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->mlp_in(of(op, i), of(workspace, i)); });
    }
    void mlp_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->mlp_out(of(op, i), of(workspace, i)); });
        compare_rows(workspace, "mlp_out");
    }
    void moe(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->moe(of(op, i), of(workspace, i)); });
        compare_rows(workspace, "moe");
    }
    void per_layer_embed(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->per_layer_embed(of(op, i), of(workspace, i)); });
    }
    void per_layer(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->per_layer(of(op, i), of(workspace, i)); });
        compare_rows(workspace, "per_layer");
    }
    void lm_head(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        each([&](int i) { ops_[i]->lm_head(of(op, i), of(workspace, i)); });
        for (std::int32_t row = 0; row < self(workspace).logit_rows && !difference_; ++row)
            compare("lm_head", -1, row, ops_[0]->logits(of(workspace, 0), row), ops_[1]->logits(of(workspace, 1), row));
    }

    void sample(kernels::Workspace& workspace, std::span<const kernels::SamplingPlan> plans,
                std::span<const std::int32_t> slots) override {
        each([&](int i) { ops_[i]->sample(of(workspace, i), plans, slots); });
    }
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        return ops_[0]->sampled(of(workspace, 0), slot);
    }
    kernels::Candidates candidates(kernels::Workspace& workspace, std::int32_t slot) override {
        return ops_[0]->candidates(of(workspace, 0), slot);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        return ops_[0]->logits(of(workspace, 0), i);
    }
    std::span<const float> residual(kernels::Workspace& workspace, std::int32_t t) override {
        return ops_[0]->residual(of(workspace, 0), t);
    }
    void read_rows(kernels::Workspace& workspace, std::span<float> to) override {
        ops_[0]->read_rows(of(workspace, 0), to);
    }
    void write_rows(kernels::Workspace& workspace, std::span<const float> from) override {
        each([&](int i) { ops_[i]->write_rows(of(workspace, i), from); });
        self(workspace).before[0].clear();
        self(workspace).before[1].clear();
    }

private:
    // What the two backends made of one request.
    template <class Base>
    struct Both : Base {
        Both(std::unique_ptr<Base> first, std::unique_ptr<Base> second)
            : Base(*first), inner{std::move(first), std::move(second)} {}
        std::unique_ptr<Base> inner[2];
    };
    struct BothWorkspaces final : Both<kernels::Workspace> {
        using Both::Both;
        std::int32_t rows = 0, logit_rows = 0, layer = -1;
        std::vector<std::vector<float>> before[2];  // residual stream before the op; empty: zeros
    };

    template <class Base>
    static Base& of(Base& both, int i) {
        return *static_cast<const Both<std::remove_const_t<Base>>&>(both).inner[i];
    }
    static BothWorkspaces& self(kernels::Workspace& workspace) { return static_cast<BothWorkspaces&>(workspace); }
    std::size_t bytes_of_first(const kernels::KvPages& kv) const {
        return static_cast<std::size_t>(ops_[0]->kv_bytes(kv.shape, 1, kv.format));
    }
    template <class Call>
    static void each(const Call& call) {
        call(0);
        call(1);
    }
    template <class Spec>
    std::unique_ptr<kernels::PreparedOp> both(const Spec& spec) {
        return std::make_unique<Both<kernels::PreparedOp>>(ops_[0]->prepare(spec), ops_[1]->prepare(spec));
    }

    void compare_rows(kernels::Workspace& workspace, const char* op) {
        if (difference_) return;
        BothWorkspaces& a = self(workspace);
        std::vector<std::vector<float>> now[2];
        for (std::int32_t row = 0; row < a.rows; ++row) {
            std::vector<float> added[2];
            each([&](int i) {
                const std::span<const float> x = ops_[i]->residual(of(workspace, i), row);
                now[i].emplace_back(x.begin(), x.end());
                added[i] = now[i].back();
                if (a.before[i].empty()) return;
                const std::vector<float>& old = a.before[i][static_cast<std::size_t>(row)];
                for (std::size_t d = 0; d < old.size(); ++d) added[i][d] -= old[d];
            });
            if (!difference_) compare(op, a.layer, row, added[0], added[1]);
        }
        each([&](int i) { a.before[i] = std::move(now[i]); });
    }

    void compare(const char* op, std::int32_t layer, std::int32_t row, std::span<const float> expected,
                 std::span<const float> found) {
        float peak = 0.0f;
        for (const float value : expected) peak = std::max(peak, std::fabs(value));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            // Written so that NaN counts as a difference.
            if (std::fabs(static_cast<double>(found[i]) - expected[i]) <= tolerance_ * peak) continue;
            difference_ = {op, layer, row, static_cast<std::int32_t>(i), expected[i], found[i]};
            return;
        }
    }

    kernels::Ops* ops_[2];
    double tolerance_;
    std::optional<OpDifference> difference_;
};

}  // namespace foresay::test
