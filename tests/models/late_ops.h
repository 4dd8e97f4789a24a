// tests/models/late_ops.h: a backend that runs apart from the host, as late as kernels/ops.h allows. Every forward,
// sample and page copy is queued, and runs on another backend only when a result is read. What a test would never see
// on a backend that computes at once shows here:
//
//   - a batch, or a list that a plan borrows, that changes or dies before the backend is done with it: reported;
//   - a slot that no sample fills, candidates that no plan kept, logits that no lm_head() computed: reported;
//   - logits and candidates that are kept past the call that ends their life: NaN, and ids that do not exist.
//
// Copies:   what the contract lets a caller take back when a call returns, and no more: plans and slots at sample(),
//           the batch at begin(). Lists inside a plan are read when the sample runs; copies of them serve for
//           comparison only.
// Order:    one queue, first in, first out, for all workspaces, like one stream of a device. Reading runs the queue up
//           to what is read. Freeing pages, workspaces or prepared ops runs all of it, as freeing memory of a device
//           does.
// Threads:  one caller at a time.
// Cost:     allocates nothing once its pool has grown.
// Errors:   a broken contract fails the current test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/forward_op.h"
#include "kernels/ops_decorator.h"

namespace foresay::test {

class LateOps : public kernels::OpsDecorator {
public:
    explicit LateOps(kernels::Ops& inner) : OpsDecorator(inner), queue_(std::make_shared<Queue>(inner)) {}
    ~LateOps() override {
        queue_->run_all();
        queue_->ops = nullptr;
    }

    bool asynchronous() const override { return true; }
    void wait(kernels::Workspace& workspace) override { queue_->run_until(self(workspace).last); }

    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::EmbedSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttentionInSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttendSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::AttentionOutSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MlpInSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MlpOutSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::MoeSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::PerLayerEmbedSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::PerLayerSpec& s) override { return late(s); }
    std::unique_ptr<kernels::PreparedOp> prepare(const kernels::LmHeadSpec& s) override { return late(s); }

    std::unique_ptr<kernels::KvPages> allocate_kv(const kernels::KvShape& shape, std::int32_t pages,
                                                  kernels::KvFormat format) override {
        return std::make_unique<LateKv>(inner().allocate_kv(shape, pages, format), queue_);
    }
    std::unique_ptr<kernels::Workspace> allocate_workspace(const kernels::ModelShape& shape, std::int32_t max_rows,
                                                           std::int32_t max_logit_rows) override {
        return std::make_unique<LateWorkspace>(inner().allocate_workspace(shape, max_rows, max_logit_rows), queue_);
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        Work& work = queue_->add(Kind::copy, nullptr);
        work.kv = static_cast<LateKv&>(kv).inner.get();
        work.from = from;
        work.to = to;
    }

    // Both wait for what was issued before them.
    void read_page(kernels::KvPages& kv, std::int32_t page, std::span<std::byte> to) override {
        queue_->run_all();
        inner().read_page(*static_cast<LateKv&>(kv).inner, page, to);
    }
    void write_page(kernels::KvPages& kv, std::int32_t page, std::span<const std::byte> from) override {
        queue_->run_all();
        inner().write_page(*static_cast<LateKv&>(kv).inner, page, from);
    }

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        LateWorkspace& a = self(workspace);
        a.poison_all();
        a.logit_rows = 0;
        queue_->close(a);
        Work& work = queue_->add(Kind::forward, &a);
        a.open = &work;
        work.keep(batch);
        work.batch.token_source = batch.token_source != nullptr ? self(*batch.token_source).inner.get() : nullptr;
        const LateWorkspace& token_source = batch.token_source != nullptr ? self(*batch.token_source) : a;
        for (const kernels::Row& row : batch.rows) {
            if (row.token.is_slot() && !token_source.slots[at(row.token.slot_index())].filled) {
                ADD_FAILURE() << "a row takes its token from slot " << row.token.slot_index()
                              << ", which no sample fills";
            }
        }
    }
    void embed(const kernels::PreparedOp& s, kernels::Workspace& workspace) override { call(Op::embed, s, workspace); }
    void attention_in(const kernels::PreparedOp& s, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override {
        call(Op::attention_in, s, workspace, &kv, layer);
    }
    void attend(const kernels::PreparedOp& s, kernels::Workspace& workspace, const kernels::KvPages& kv,
                std::int32_t layer) override {
        call(Op::attend, s, workspace, &kv, layer);
    }
    void attention_out(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::attention_out, s, workspace);
    }
    void mlp_in(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::mlp_in, s, workspace);
    }
    void mlp_out(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::mlp_out, s, workspace);
    }
    void moe(const kernels::PreparedOp& s, kernels::Workspace& workspace) override { call(Op::moe, s, workspace); }
    void per_layer_embed(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::per_layer_embed, s, workspace);
    }
    void per_layer(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::per_layer, s, workspace);
    }
    void lm_head(const kernels::PreparedOp& s, kernels::Workspace& workspace) override {
        call(Op::lm_head, s, workspace);
        LateWorkspace& a = self(workspace);
        a.logit_rows = static_cast<std::int32_t>(a.open->batch.logit_rows.size());
    }

    void sample(kernels::Workspace& workspace, std::span<const kernels::SamplingPlan> plans,
                std::span<const std::int32_t> slots) override {
        LateWorkspace& a = self(workspace);
        if (plans.size() != slots.size() || std::ssize(plans) > a.logit_rows) {
            ADD_FAILURE() << plans.size() << " plans for " << slots.size() << " slots and " << a.logit_rows
                          << " rows of logits";
            return;
        }
        Work& work = queue_->add(Kind::sample, &a);
        work.plans.assign(plans.begin(), plans.end());
        work.slots.assign(slots.begin(), slots.end());
        for (const kernels::SamplingPlan& plan : plans) work.keep_lists(plan);
        // Rows that the host has read, and may have written to, are copied back.
        for (std::int32_t row = 0; row < std::ssize(plans); ++row) {
            if (!a.fetched[at(row)]) continue;
            const std::span<const float> host = a.host_row(row);
            work.written_rows.push_back(row);
            work.written.insert(work.written.end(), host.begin(), host.end());
            a.poison(row);
        }
        for (std::size_t i = 0; i < slots.size(); ++i) {
            Slot& slot = a.slots[at(slots[i])];
            slot = {.filled = true, .kept = plans[i].keep, .sample = &work};
            a.poison_candidates(slots[i]);
        }
    }
    kernels::SampledToken sampled(kernels::Workspace& workspace, std::int32_t slot) override {
        LateWorkspace& a = self(workspace);
        if (!a.slots[at(slot)].filled) ADD_FAILURE() << "slot " << slot << " is read, and no sample fills it";
        queue_->run_until(a.slots[at(slot)].sample);
        return inner().sampled(*a.inner, slot);
    }
    kernels::Candidates candidates(kernels::Workspace& workspace, std::int32_t slot) override {
        LateWorkspace& a = self(workspace);
        Slot& s = a.slots[at(slot)];
        if (!s.kept) ADD_FAILURE() << "candidates of slot " << slot << " are read, and no plan kept them";
        queue_->run_until(s.sample);
        if (!s.fetched) {
            const kernels::Candidates found = inner().candidates(*a.inner, slot);
            s.count = found.count;
            std::copy_n(found.ids, found.count, a.candidate_ids(slot));
            std::copy_n(found.logits, found.count, a.candidate_logits(slot));
            s.fetched = true;
        }
        return {a.candidate_ids(slot), a.candidate_logits(slot), s.count};
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        LateWorkspace& a = self(workspace);
        if (i < 0 || i >= a.logit_rows) {
            ADD_FAILURE() << "row " << i << " of the logits is read, and the last forward has " << a.logit_rows;
            i = 0;
        }
        queue_->run_until(a.last);
        const std::span<float> host = a.host_row(i);
        if (!a.fetched[at(i)]) {
            std::ranges::copy(inner().logits(*a.inner, i), host.begin());
            a.fetched[at(i)] = true;
        }
        return host;
    }
    std::span<const float> residual(kernels::Workspace& workspace, std::int32_t t) override {
        LateWorkspace& a = self(workspace);
        queue_->run_until(a.last);
        return inner().residual(*a.inner, t);
    }
    void read_rows(kernels::Workspace& workspace, std::span<float> to) override {
        LateWorkspace& a = self(workspace);
        queue_->run_until(a.last);
        inner().read_rows(*a.inner, to);
    }
    void write_rows(kernels::Workspace& workspace, std::span<const float> from) override {
        LateWorkspace& a = self(workspace);
        queue_->run_until(a.last);
        inner().write_rows(*a.inner, from);
    }

private:
    enum class Kind : std::uint8_t { forward, sample, copy };
    using Op = kernels::ForwardOp;

    static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
    static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

    struct LateWorkspace;
    struct Call {
        Op op;
        const kernels::PreparedOp* prepared;
        kernels::KvPages* kv;
        std::int32_t layer;
    };

    // One queued call. Objects are reused, so that their vectors stop growing.
    struct Work {
        Kind kind = Kind::forward;
        LateWorkspace* workspace = nullptr;
        bool queued = false, begun = false;

        // A forward.
        kernels::Batch borrowed, batch;
        std::vector<kernels::Row> rows;
        std::vector<kernels::SequenceView> sequences;
        std::vector<std::int32_t> pages, logit_rows;
        std::vector<Call> calls;
        std::size_t done = 0;  // calls that have run

        // A sample.
        std::vector<kernels::SamplingPlan> plans;
        std::vector<std::int32_t> slots, written_rows;
        std::vector<std::byte> lists;  // what the plans' lists held at sample()
        std::vector<float> written;

        // A copy of a page.
        kernels::KvPages* kv = nullptr;
        std::int32_t from = 0, to = 0;

        Work() {
            rows.reserve(512);
            sequences.reserve(64);
            pages.reserve(4096);
            logit_rows.reserve(512);
            calls.reserve(512);
            plans.reserve(kernels::kTokenSlots);
            slots.reserve(kernels::kTokenSlots);
            written_rows.reserve(kernels::kTokenSlots);
            lists.reserve(1 << 18);
        }
        void reset(Kind of, LateWorkspace* owner) {
            kind = of;
            workspace = owner;
            begun = false;
            done = 0;
            calls.clear();
            written_rows.clear();
            written.clear();
            lists.clear();
        }

        void keep(const kernels::Batch& given) {
            borrowed = batch = given;
            rows.assign(given.rows.begin(), given.rows.end());
            logit_rows.assign(given.logit_rows.begin(), given.logit_rows.end());
            sequences.assign(given.sequences.begin(), given.sequences.end());
            pages.clear();
            for (const kernels::SequenceView& view : sequences)
                pages.insert(pages.end(), view.pages.begin(), view.pages.end());
            std::size_t first = 0;
            for (kernels::SequenceView& view : sequences) {
                view.pages = std::span(pages).subspan(first, view.pages.size());
                first += view.pages.size();
            }
            batch.rows = rows;
            batch.sequences = sequences;
            batch.logit_rows = logit_rows;
        }
        // Whether the caller's batch is still the one of begin().
        bool unchanged() const {
            const auto same_row = [](const kernels::Row& a, const kernels::Row& b) {
                return a.token.value == b.token.value && a.position == b.position && a.sequence == b.sequence &&
                       a.cell == b.cell && a.parent == b.parent;
            };
            return std::ranges::equal(borrowed.rows, rows, same_row) &&
                   std::ranges::equal(borrowed.logit_rows, logit_rows) &&
                   std::ranges::equal(borrowed.sequences, sequences,
                                      [](const kernels::SequenceView& a, const kernels::SequenceView& b) {
                                          return a.length == b.length && std::ranges::equal(a.pages, b.pages);
                                      });
        }

        template <class Visit>
        static void each_list(kernels::SamplingPlan& plan, const Visit& visit) {
            for (std::int32_t i = 0; i < plan.step_count; ++i) {
                visit(plan.steps[i].values);
                visit(plan.steps[i].counts);
                visit(plan.steps[i].bits);
            }
        }
        void keep_lists(kernels::SamplingPlan plan) {
            each_list(plan, [&](const auto& list) {
                const auto bytes = std::as_bytes(list);
                lists.insert(lists.end(), bytes.begin(), bytes.end());
            });
        }
        // Compares the borrowed lists with their copies. A plan whose list has changed continues with the copy.
        void check_lists() {
            const std::byte* kept = lists.data();
            bool changed = false;
            for (kernels::SamplingPlan& plan : plans) {
                each_list(plan, [&](auto& list) {
                    using Value = typename std::remove_cvref_t<decltype(list)>::element_type;
                    if (!list.empty() && std::memcmp(list.data(), kept, list.size_bytes()) != 0) {
                        changed = true;
                        list = {reinterpret_cast<Value*>(kept), list.size()};
                    }
                    kept += list.size_bytes();
                });
            }
            if (changed) ADD_FAILURE() << "a list that a plan borrows has changed before its sample was read";
        }
    };

    struct Queue {
        kernels::Ops* ops;
        std::vector<std::unique_ptr<Work>> pool;
        std::vector<Work*> unused, pending;

        explicit Queue(kernels::Ops& inner) : ops(&inner) {
            constexpr std::size_t kAtFirst = 64;
            pending.reserve(4 * kAtFirst);
            while (pool.size() < kAtFirst) grow();
        }
        void grow() {
            pool.push_back(std::make_unique<Work>());
            unused.reserve(pool.size());
            unused.push_back(pool.back().get());
        }

        Work& add(Kind kind, LateWorkspace* workspace) {
            if (unused.empty()) grow();
            Work& work = *unused.back();
            unused.pop_back();
            work.reset(kind, workspace);
            enqueue(work);
            return work;
        }
        void enqueue(Work& work) {
            if (!work.queued) pending.push_back(&work);
            work.queued = true;
            if (work.workspace != nullptr) work.workspace->last = &work;
        }
        // The last forward of `workspace` gets no more calls.
        void close(LateWorkspace& workspace) {
            Work* const work = std::exchange(workspace.open, nullptr);
            if (work != nullptr && !work->queued) release(*work);
        }
        void release(Work& work) {
            if (work.workspace != nullptr && work.workspace->last == &work) work.workspace->last = nullptr;
            unused.push_back(&work);
        }
        void run_all() { run_until(pending.empty() ? nullptr : pending.back()); }
        // Runs the queue up to `last`; nothing when that has run already.
        void run_until(const Work* last) {
            const auto found = std::find(pending.begin(), pending.end(), last);
            if (found == pending.end() || ops == nullptr) return;
            const auto end = found + 1;
            for (auto next = pending.begin(); next != end; ++next) {
                Work& work = **next;
                work.queued = false;
                run(work);
                // A forward whose last op is still to come keeps its batch.
                if (work.kind != Kind::forward || work.workspace->open != &work) release(work);
            }
            pending.erase(pending.begin(), end);
        }
        void run(Work& work) {
            if (work.kind == Kind::copy) {
                ops->copy_page(*work.kv, work.from, work.to);
                return;
            }
            kernels::Workspace& workspace = *work.workspace->inner;
            if (work.kind == Kind::sample) {
                work.check_lists();
                const float* values = work.written.data();
                for (const std::int32_t row : work.written_rows) {
                    const std::span<float> logits = ops->logits(workspace, row);
                    std::copy_n(values, logits.size(), logits.begin());
                    values += logits.size();
                }
                ops->sample(workspace, work.plans, work.slots);
                for (const std::int32_t slot : work.slots) {
                    Work const*& sample = work.workspace->slots[at(slot)].sample;
                    if (sample == &work) sample = nullptr;
                }
                return;
            }
            if (!std::exchange(work.begun, true)) ops->begin(workspace, work.batch);
            for (; work.done < work.calls.size(); ++work.done) run(work.calls[work.done], workspace);
        }
        void run(const Call& call, kernels::Workspace& workspace) {
            kernels::run_op(call.op, *ops, *call.prepared, workspace, call.kv, call.layer);
        }
    };

    struct LatePrepared final : kernels::PreparedOp {
        LatePrepared(std::unique_ptr<kernels::PreparedOp> op, std::shared_ptr<Queue> q)
            : inner(std::move(op)), queue(std::move(q)) {
            weight_bytes = inner->weight_bytes;
            macs_per_row = inner->macs_per_row;
            expert_bytes = inner->expert_bytes;
            experts = inner->experts;
            experts_used = inner->experts_used;
        }
        ~LatePrepared() override { queue->run_all(); }
        std::unique_ptr<kernels::PreparedOp> inner;
        std::shared_ptr<Queue> queue;
    };
    struct LateKv final : kernels::KvPages {
        LateKv(std::unique_ptr<kernels::KvPages> kv, std::shared_ptr<Queue> q)
            : kernels::KvPages(*kv), inner(std::move(kv)), queue(std::move(q)) {}
        ~LateKv() override { queue->run_all(); }
        std::unique_ptr<kernels::KvPages> inner;
        std::shared_ptr<Queue> queue;
    };

    struct Slot {
        bool filled = false;           // by a sample that has been asked for
        bool kept = false;             // with its candidates
        bool fetched = false;          // and the host has them
        std::int32_t count = 0;        // of them
        const Work* sample = nullptr;  // still to run
    };
    struct LateWorkspace final : kernels::Workspace {
        LateWorkspace(std::unique_ptr<kernels::Workspace> workspace, std::shared_ptr<Queue> q)
            : kernels::Workspace(*workspace),
              inner(std::move(workspace)),
              queue(std::move(q)),
              host_logits(at(max_logit_rows) * at(shape.vocab), kNan),
              fetched(at(max_logit_rows), false),
              ids(at(kernels::kTokenSlots * kernels::kCandidateCut)),
              values(ids.size(), kNan) {}
        ~LateWorkspace() override {
            queue->run_all();
            queue->close(*this);
        }
        std::unique_ptr<kernels::Workspace> inner;
        std::shared_ptr<Queue> queue;
        Work* open = nullptr;        // the last forward, to which calls are added
        const Work* last = nullptr;  // what was asked for last
        std::int32_t logit_rows = 0;
        std::vector<float> host_logits;
        std::vector<bool> fetched;  // rows that the host has
        std::array<Slot, kernels::kTokenSlots> slots;
        std::vector<std::int32_t> ids;  // candidates of all slots
        std::vector<float> values;

        std::span<float> host_row(std::int32_t row) {
            return std::span(host_logits).subspan(at(row) * at(shape.vocab), at(shape.vocab));
        }
        void poison(std::int32_t row) {
            if (fetched[at(row)]) std::ranges::fill(host_row(row), kNan);
            fetched[at(row)] = false;
        }
        void poison_all() {
            for (std::int32_t row = 0; row < max_logit_rows; ++row) poison(row);
        }
        std::int32_t* candidate_ids(std::int32_t slot) { return ids.data() + slot * kernels::kCandidateCut; }
        float* candidate_logits(std::int32_t slot) { return values.data() + slot * kernels::kCandidateCut; }
        void poison_candidates(std::int32_t slot) {
            std::fill_n(candidate_ids(slot), kernels::kCandidateCut, std::numeric_limits<std::int32_t>::max());
            std::fill_n(candidate_logits(slot), kernels::kCandidateCut, kNan);
        }
    };

    static LateWorkspace& self(kernels::Workspace& workspace) { return static_cast<LateWorkspace&>(workspace); }

    template <class Spec>
    std::unique_ptr<kernels::PreparedOp> late(const Spec& spec) {
        return std::make_unique<LatePrepared>(inner().prepare(spec), queue_);
    }
    void call(Op op, const kernels::PreparedOp& prepared, kernels::Workspace& workspace,
              const kernels::KvPages* kv = nullptr, std::int32_t layer = 0) {
        Work& work = *self(workspace).open;
        if (!work.unchanged()) ADD_FAILURE() << "a batch has changed before the last op of its forward returned";
        kernels::KvPages* const pages = kv != nullptr ? static_cast<const LateKv*>(kv)->inner.get() : nullptr;
        work.calls.push_back({op, static_cast<const LatePrepared&>(prepared).inner.get(), pages, layer});
        queue_->enqueue(work);
    }

    std::shared_ptr<Queue> queue_;
};

}  // namespace foresay::test
