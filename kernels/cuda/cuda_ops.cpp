// The CUDA backend: kernels/ops.h over the folders beside this file.
//
// A forward:
//   begin()           copies the batch to the device (CudaWorkspace::begin). Nothing else runs yet.
//   embed() ...       note a call each (forward/forward_recorder.h). No device access, no lock.
//   lm_head()         notes its call, then run_noted(): all calls are enqueued, or one graph is launched
//                     (forward/forward_runner.h). Does not wait for the device.
//   sample()          enqueues the sampling kernel; logits never leave the device unless the host asks for them.
//   sampled(), logits(), residual(), wait()  wait. They, too, run noted calls first, for forwards without an LM head.
//
// At most one workspace of a backend has noted calls (OpenForward): begin() and copy_page() run those of another
// workspace before they enqueue anything, so the stream has the calls in the order of the caller.
//
// Threads:  a method that touches the device opens a DeviceScope first: the backend's device is current in the calling
//           thread until the method returns, and no other thread uses the device meanwhile.
// Errors:   a failure within a forward is thrown by the call that enqueues it, and kept in CudaWorkspace::failure: each
//           later call on the workspace throws it again, until the next begin(). No result of a failed forward is read.

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/decode/link_repair.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/device/peer_words.h"
#include "kernels/cuda/device/read_bandwidth.h"
#include "kernels/cuda/device/stream_marks.h"
#include "kernels/cuda/forward/forward_runner.h"
#include "kernels/cuda/forward/per_layer.h"
#include "kernels/cuda/forward/prepared_ops.h"
#include "kernels/cuda/hosts/device_rows.h"
#include "kernels/cuda/memory/workspace.h"
#include "kernels/cuda/weights/embed_table.h"
#include "kernels/kv_names.h"
#include "kernels/layer_share.h"
#include "kernels/op_checks.h"
#include "kernels/quant/packed_panels.h"

namespace foresay::kernels {
namespace cuda {
namespace {

using std::int32_t;
using std::int64_t;

// Ids of prepared ops and of KV caches. The recorder compares forwards by them: an address may be used again after its
// owner is gone, and an old graph must not match a new op.
std::uint64_t next_id() {
    static std::atomic<std::uint64_t> id = 0;
    return ++id;
}

std::size_t size(int64_t value) { return static_cast<std::size_t>(value); }

// Rows of a prefill chunk. Each chunk dequantises all weights once, so a chunk must be large enough for the matrix
// products to outweigh that.
constexpr int32_t kPrefillRows = 2048;

// From so many rows on, values are copied from device to device beside the ops. Fewer take less time than the events.
constexpr int32_t kRowsCopiedBeside = 128;

// One backend of one device. Backends of the same device (a target and a draft model, say) share its DeviceContext, and
// so its stream.
class CudaOps final : public Ops, public LayerShare, public DeviceRows {
public:
    // The stream is created at its first use and needs a DeviceScope, hence the lambda.
    explicit CudaOps(const CudaOptions& options)
        : device_(DeviceContext::of(options.device, options.part, options.parts)), stream_([this]() -> const Stream& {
              const ContextScope scope = use();
              return device_.stream();
          }()) {}
    // Prepared ops, caches and workspaces may outlive the backend; work on the stream may still use what goes with it.
    ~CudaOps() override {
        if (any_device_hangs()) return;
        const DeviceScope scope(device_.info().index, std::nothrow);
        cudaStreamSynchronize(stream_);
        if (copies_ != nullptr) cudaStreamSynchronize(*copies_);
    }

    BackendInfo describe() const override {
#ifdef FORESAY_CUDA_QUICK
        return {"cuda", device_.info().name + ", slow code compiled without a GPU: build it again here", 1};
#else
        return {"cuda", device_.info().name, 1};
#endif
    }

    int64_t free_memory() const override {
        const ContextScope scope = use();
        std::size_t free = 0, total = 0;
        cuda_check(cudaMemGetInfo(&free, &total), "cannot ask for free memory");
        return static_cast<int64_t>(free);
    }
    // Allocates and measures: some milliseconds, on the stream, after what is enqueued.
    double read_bandwidth() override {
        const ContextScope scope = use();
        return measure_read_bandwidth(stream_);
    }
    int32_t prefill_rows() const override { return kPrefillRows; }
    // What mixed_gemm runs on.
    bool reads_weights_once() const override { return device_.info().capability == 90; }
    bool makes_random_weights() const override { return true; }
    bool asynchronous() const override { return true; }
    void wait(Workspace& workspace) override {
        run_noted(self(workspace), [&] { stream_.wait(); });
    }

    // prepare() copies and packs weights and waits for that, at load time. Everything about a spec that a backend can
    // refuse is refused here, so that a forward only fails with the device.

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override {
        check_op(spec);
        const ContextScope scope = use();
        auto op = std::make_unique<PreparedEmbed>();
        op->id = next_id();
        op->table = embed_table(spec.table);
        op->quant_type = kept_type(spec.table);
        op->vocab = spec.table.rows;
        op->scale = spec.scale;
        return op;
    }
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override { return prepare_heads(spec, {}); }
    std::unique_ptr<PreparedOp> prepare_heads(const AttentionInSpec& spec, WholeStack whole) {
        check_op(spec);
        if (spec.shape.head_dim > kMaxAttendWidth) {
            throw Error("this model has heads of " + std::to_string(spec.shape.head_dim) +
                        " values, and the cuda backend supports at most " + std::to_string(kMaxAttendWidth) +
                        "; use --device cpu");
        }
        const ContextScope scope = use();
        auto op = counted<PreparedAttentionIn>(spec, whole);
        op->rope = ropes_.table(spec.rope);
        return op;
    }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override {
        check_op(spec);
        const ContextScope scope = use();
        auto op = std::make_unique<PreparedAttend>();
        op->id = next_id();
        op->spec = spec;
        op->sinks = device_vector(spec.sinks);
        return op;
    }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override { return linear<PreparedOut>(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override { return linear<PreparedMlpIn>(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override { return linear<PreparedOut>(spec); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override { return linear<PreparedMoe>(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override {
        return linear<PreparedPerLayerEmbed>(spec);
    }
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override { return linear<PreparedPerLayer>(spec); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override { return linear<PreparedLmHead>(spec); }

    int64_t kv_bytes(const KvShape& of, int32_t pages, KvFormat format) const override {
        check_kv(of, format);
        int64_t bytes = 0;
        for (const KvLayer& layer : of.layers) {
            bytes += KvLayout(layer, pages, format).layer_stride * static_cast<int64_t>(sizeof(__half));
        }
        return bytes;
    }
    int64_t workspace_bytes(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) const override {
        return CudaWorkspace::bytes_of(shape, max_rows, max_logit_rows);
    }
    int64_t expanded_kv_bytes(const KvShape& shape, int32_t pages, KvFormat format) const override {
        return format == KvFormat::f16 ? 0 : CudaKv::expanded_bytes(shape, pages);
    }
    // Memory of a model's forwards. Sizes can be asked for without allocating.

    std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, int32_t pages, KvFormat format) override {
        const ContextScope scope = use();
        auto kv = std::make_unique<CudaKv>();
        kv->shape = shape;
        kv->pages = pages;
        kv->format = format;
        kv->bytes = kv_bytes(shape, pages, format);
        kv->layers = CudaKv::place(shape, pages, format);
        kv->id = next_id();
        kv->memory = DeviceBuffer<__half>(size(kv->bytes) / sizeof(__half));
        // Zeros, because attention multiplies positions that a row does not attend to by 0, which must not meet a NaN,
        // and because the padding of head widths is never written.
        if (kv->bytes > 0) cuda_check(cudaMemset(kv->memory.data(), 0, size(kv->bytes)), "cannot clear memory");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
        return kv;
    }
    std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, int32_t max_rows,
                                                  int32_t max_logit_rows) override {
        const ContextScope scope = use();
        return std::make_unique<CudaWorkspace>(device_, open_, prefill_memory_, shape, max_rows, max_logit_rows);
    }

    // After the calls noted so far, which may write the page.
    void copy_page(KvPages& pages, int32_t from, int32_t to) override {
        const ContextScope scope = use();
        run_open();
        static_cast<CudaKv&>(pages).copy_page(from, to, stream_);
    }

    void read_page(KvPages& pages, int32_t page, std::span<std::byte> to) override {
        const ContextScope scope = use();
        run_open();
        const auto& kv = static_cast<CudaKv&>(pages);
        check(to.size() == kv.page_bytes(), "memory of another size than a page");
        kv.copy_out(page, to.data(), stream_);
        cuda_check(cudaStreamSynchronize(stream_), "cannot read a page");
    }
    void write_page(KvPages& pages, int32_t page, std::span<const std::byte> from) override {
        const ContextScope scope = use();
        run_open();
        const auto& kv = static_cast<CudaKv&>(pages);
        check(from.size() == kv.page_bytes(), "memory of another size than a page");
        kv.copy_in(page, from.data(), stream_);
        cuda_check(cudaStreamSynchronize(stream_), "cannot write a page");
    }
    std::unique_ptr<HostMemory> allocate_host(std::size_t bytes) override {
        struct Pinned final : HostMemory {
            explicit Pinned(std::size_t count) : memory(count) { bytes = {memory.data(), count}; }
            PinnedBuffer<std::byte> memory;
        };
        const DeviceGuard guard(device_.info().index);  // without its lock: it may take long
        return std::make_unique<Pinned>(bytes);
    }

    void begin(Workspace& workspace, const Batch& batch) override {
        const ContextScope scope = use();
        run_open();
        check_batch(workspace, batch);
        CudaWorkspace& w = self(workspace);
        w.failure.clear();
        w.recorder.discard();  // calls noted after a failed begin()
        // Tokens may be slots that another workspace's sample() fills: verification of a draft reads the draft's.
        const TokenSlots& slots = (batch.token_source != nullptr ? self(*batch.token_source) : w).token_slots;
        reporting(w, [&] { w.begin(batch, slots.data(), ropes_); });
    }

    // The ops of a forward. None of them touches the device, but for lm_head(), which ends a forward.

    void embed(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::embed, op, workspace); }
    void attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, int32_t layer) override {
        note(ForwardOp::attention_in, op, workspace, &kv, layer);
    }
    void attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, int32_t layer) override {
        note(ForwardOp::attend, op, workspace, &kv, layer);
    }
    void attention_out(const PreparedOp& op, Workspace& workspace) override {
        note(ForwardOp::attention_out, op, workspace);
    }
    void mlp_in(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::mlp_in, op, workspace); }
    void mlp_out(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::mlp_out, op, workspace); }
    void moe(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::moe, op, workspace); }
    void per_layer_embed(const PreparedOp& op, Workspace& workspace) override {
        note(ForwardOp::per_layer_embed, op, workspace);
    }
    void per_layer(const PreparedOp& op, Workspace& workspace) override { note(ForwardOp::per_layer, op, workspace); }
    void lm_head(const PreparedOp& op, Workspace& workspace) override {
        // Chunks of a prompt before the last have no logit rows; their calls still run now.
        if (self(workspace).forward.layout.logit_rows > 0) note(ForwardOp::lm_head, op, workspace);
        run_noted(self(workspace), [] {});
    }

    // Sampling. Tokens stay on the device for a next forward to embed, and arrive on the host when sampled() asks.

    void sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) override {
        CudaWorkspace& w = self(workspace);
        run_noted(w, [&] { w.token_slots.sample(stream_, w.logits, plans, slots); });
    }
    SampledToken sampled(Workspace& workspace, int32_t slot) override {
        CudaWorkspace& w = self(workspace);
        // Usually nothing is left to enqueue. Then no DeviceScope is opened: this polls, and must not keep other
        // threads from the device meanwhile.
        if (!w.recorder.empty() || !w.failure.empty()) run_noted(w, [] {});
        return w.token_slots.sampled(slot, device_.info().index, stream_);
    }
    Candidates candidates(Workspace& workspace, int32_t slot) override {
        sampled(workspace, slot);  // waits
        return self(workspace).token_slots.candidates(slot);
    }

    // Results on the host. Each copies, then waits for the stream.

    std::span<float> logits(Workspace& workspace, int32_t i) override {
        CudaWorkspace& w = self(workspace);
        return run_noted(w, [&] {
            const std::span<float> row = w.logits.on_host(i, stream_);
            check_link(w);
            return row;
        });
    }
    std::span<const float> residual(Workspace& workspace, int32_t t) override {
        CudaWorkspace& w = self(workspace);
        const int64_t width = w.shape.d_model;
        return run_noted(w, [&] {
            w.host_x.resize(size(w.max_rows * width));
            float* const host = w.host_x.data() + t * width;
            cuda_check(cudaMemcpyAsync(host, w.x.data() + t * width, size(width) * sizeof(float),
                                       cudaMemcpyDeviceToHost, stream_),
                       "cannot copy the residual stream");
            stream_.wait();
            check_link(w);
            return std::span<const float>(host, size(width));
        });
    }
    void read_rows(Workspace& workspace, std::span<float> to) override {
        CudaWorkspace& w = self(workspace);
        check(std::ssize(to) == int64_t{w.rows()} * w.shape.d_model, "memory of other rows");
        run_noted(w, [&] {
            cuda_check(cudaMemcpyAsync(to.data(), w.x.data(), to.size_bytes(), cudaMemcpyDeviceToHost, stream_),
                       "cannot copy the residual stream");
            stream_.wait();
            check_link(w);
        });
    }
    // The calls that follow are enqueued after the copy, as a forward that begins without embed().
    void write_rows(Workspace& workspace, std::span<const float> from) override {
        CudaWorkspace& w = self(workspace);
        check(std::ssize(from) == int64_t{w.rows()} * w.shape.d_model, "memory of other rows");
        run_noted(w, [&] {
            cuda_check(cudaMemcpyAsync(w.x.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_),
                       "cannot copy the residual stream");
            stream_.wait();
        });
    }

    // Rows that cross to another host (kernels/cuda/hosts/device_rows.h).

    int device_index() const override { return device_.info().index; }
    void copy_rows_to(Workspace& workspace, void* to, std::size_t bytes, const Stream& then) override {
        CudaWorkspace& w = self(workspace);
        check(bytes == size(w.rows() * int64_t{w.shape.d_model}) * sizeof(float), "memory of other rows");
        run_noted(w, [&] {
            cuda_check(cudaMemcpyAsync(to, w.x.data(), bytes, cudaMemcpyDeviceToDevice, stream_),
                       "cannot copy the residual stream");
            event().record(stream_);
            event().await_on(then);
        });
    }
    void copy_rows_from(Workspace& workspace, const void* from, std::size_t bytes, const Stream& before) override {
        CudaWorkspace& w = self(workspace);
        check(bytes == size(w.rows() * int64_t{w.shape.d_model}) * sizeof(float), "memory of other rows");
        run_noted(w, [&] {
            event().record(before);
            event().await_on(stream_);
            cuda_check(cudaMemcpyAsync(w.x.data(), from, bytes, cudaMemcpyDeviceToDevice, stream_),
                       "cannot copy the residual stream");
        });
    }

    // Layers shared with other backends (kernels/layer_share.h).

    std::unique_ptr<PreparedOp> prepare_part(const AttentionInSpec& spec, Whole whole) override {
        return prepare_heads(spec, {whole.rows, whole.first});
    }
    std::unique_ptr<PreparedOp> prepare_part(const MlpInSpec& spec, Whole whole) override {
        return linear<PreparedMlpIn>(spec, WholeStack{whole.rows, whole.first});
    }
    std::unique_ptr<PreparedOp> prepare_part(const MlpOutSpec& spec, Whole whole) override {
        return linear<PreparedOut>(spec, WholeStack{whole.rows, whole.first});
    }
    std::unique_ptr<PreparedOp> prepare_finish(const MlpOutSpec& spec) override {
        const ContextScope scope = use();
        auto op = std::make_unique<PreparedOut>(spec);
        op->id = next_id();
        return op;
    }
    std::unique_ptr<PreparedOp> prepare_experts(const MoeSpec& spec, Part experts) override {
        return linear<PreparedMoe>(spec, MixtureWork::experts, OwnExperts{experts.first, experts.count});
    }
    std::unique_ptr<PreparedOp> prepare_expert_sum(const MoeSpec& spec) override {
        const ContextScope scope = use();
        auto op = std::make_unique<PreparedMoe>(spec, MixtureWork::sum);
        op->id = next_id();
        return op;
    }
    void agree(std::span<PreparedOp* const> experts) override {
        std::vector<Mixture*> parts;
        for (PreparedOp* const op : experts) {
            if (auto* const moe = dynamic_cast<PreparedMoe*>(op)) parts.push_back(&moe->mixture);
        }
        Mixture::agree(parts);
    }
    void start(Workspace& workspace) override {
        run_part(self(workspace), [] {});
    }
    void flush() override { run_open(); }
    bool idle() override { return stream_.has_run() && (copies_ == nullptr || copies_->has_run()); }
    void mark() override {
        const ContextScope scope = use();
        if (marks_ == nullptr) marks_ = std::make_unique<StreamMarks<Event>>();
        marks_->mark(stream_);
    }
    int64_t unreached() override { return marks_ != nullptr ? marks_->unreached() : 0; }
    void give_up() override { device_.give_up(); }
    void read_values(Workspace& workspace, Values values, int64_t width, std::span<float> to) override {
        CudaWorkspace& w = self(workspace);
        check(std::ssize(to) == w.rows() * w.row_values(values, width), "memory of other rows");
        run_part(w, [&] {
            if (values == Values::expert_outputs) {
                launch_clear_slots(stream_, w.rows() * w.shape.experts_used, static_cast<int32_t>(width), w.own_experts,
                                   w.experts.view());
            }
            cuda_check(cudaMemcpyAsync(to.data(), w.values(values), to.size_bytes(), cudaMemcpyDeviceToHost, stream_),
                       "cannot copy values of a layer");
            stream_.wait();
        });
    }
    void write_values(Workspace& workspace, Values values, int64_t width, std::span<const float> from) override {
        CudaWorkspace& w = self(workspace);
        check(std::ssize(from) == w.rows() * w.row_values(values, width), "memory of other rows");
        run_part(w, [&] {
            cuda_check(
                cudaMemcpyAsync(w.values(values), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_),
                "cannot copy values of a layer");
            stream_.wait();
        });
    }
    void clear_rows(Workspace& workspace) override {
        CudaWorkspace& w = self(workspace);
        const std::size_t bytes = size(w.rows() * int64_t{w.shape.d_model}) * sizeof(float);
        run_part(w, [&] { cuda_check(cudaMemsetAsync(w.x.data(), 0, bytes, stream_), "cannot clear memory"); });
    }
    // Few rows on the reader's stream, between two events where the other has a stream of its own.
    bool copy_values(const ValuesAt& to, LayerShare& other, const ValuesAt& from, int64_t count) override {
        auto* const source = dynamic_cast<CudaOps*>(&other);
        if (source == nullptr) return false;
        const bool apart = source->stream_.get() != stream_.get();
        if (apart && !(reaches(*source) && source->reaches(*this))) return false;
        CudaWorkspace &reader = self(to.workspace), &maker = self(from.workspace);
        if (reader.rows() >= kRowsCopiedBeside) {
            copy_beside(to, *source, from, count);
            return true;
        }
        source->run_part(maker, [&] {
            if (apart) source->event().record(source->stream_);
        });
        run_part(reader, [&] {
            if (apart) source->event().await_on(stream_);
            copy_rows(to, from, count, stream_);
            if (apart) event().record(stream_);
        });
        // What the source does next may write over what is copied.
        if (apart) {
            const ContextScope scope = source->use();
            source->reporting(maker, [&] { event().await_on(source->stream_); });
        }
        return true;
    }

    std::string try_copies(std::span<LayerShare* const> all) override {
        std::string pairs;
        for (std::size_t i = 0; i < all.size(); ++i) {
            for (std::size_t k = i + 1; k < all.size(); ++k) {
                auto *const a = dynamic_cast<CudaOps*>(all[i]), *const b = dynamic_cast<CudaOps*>(all[k]);
                if (a == nullptr || b == nullptr) continue;
                const bool there = a->loses_words(*b), back = b->loses_words(*a);
                if (!there && !back) continue;
                pairs += (pairs.empty() ? "cuda:" : ", cuda:") + std::to_string(a->device_.info().index) +
                         " and cuda:" + std::to_string(b->device_.info().index);
            }
        }
        if (pairs.empty()) return {};
        return "values that are copied between " + pairs +
               " do not arrive as they were, though the driver reports peer access, so they go through host memory; "
               "see whether an IOMMU is on";
    }
    bool copies_beside_ops(std::span<LayerShare* const> all) override {
        for (LayerShare* const one : all) {
            for (LayerShare* const other : all) {
                auto *const a = dynamic_cast<CudaOps*>(one), *const b = dynamic_cast<CudaOps*>(other);
                if (a == nullptr || b == nullptr || !a->reaches(*b)) return false;
                if (a != b && a->stream_.get() == b->stream_.get()) return false;
            }
        }
        return true;
    }
    int64_t shared_workspace_bytes(const ModelShape& shape, int32_t max_rows) const override {
        return PrefillWorkspace::bytes(shape, max_rows);
    }

    // All make their outputs, then all take what they need of the others', then all go on.
    bool gather_experts(std::span<LayerShare* const> all, std::span<Workspace* const> workspaces,
                        std::span<const Part> experts) override {
        check(all.size() <= kMostOwners, "few ranks");
        std::vector<CudaOps*> ranks;
        for (LayerShare* const share : all) ranks.push_back(dynamic_cast<CudaOps*>(share));
        const auto apart = [&](std::size_t a, std::size_t b) {
            return ranks[a]->stream_.get() != ranks[b]->stream_.get();
        };
        for (CudaOps* const one : ranks) {
            for (CudaOps* const other : ranks) {
                if (one == nullptr || other == nullptr || !one->reaches(*other)) return false;
            }
        }
        const auto each = [&](const auto& body) {
            for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r]->run_part(self(*workspaces[r]), [&] { body(r); });
        };
        // Rank r goes on when the others have done what they recorded.
        const auto await_others = [&](std::size_t r) {
            for (std::size_t o = 0; o < ranks.size(); ++o) {
                if (apart(r, o)) ranks[o]->event().await_on(ranks[r]->stream_);
            }
        };
        each([&](std::size_t r) { ranks[r]->event().record(ranks[r]->stream_); });
        each(await_others);
        each([&](std::size_t r) {
            CudaWorkspace& w = self(*workspaces[r]);
            TakeSlotsCall call;
            call.slots = w.rows() * w.shape.experts_used;
            call.width = w.shape.d_model;
            call.choice = w.experts.view().choice;
            call.out = w.experts.view().out;
            for (std::size_t o = 0; o < ranks.size(); ++o) {
                if (o == r || experts[o].count == 0) continue;
                call.owners[call.count++] = {{experts[o].first, experts[o].count},
                                             self(*workspaces[o]).experts.view().out};
            }
            launch_take_slots(ranks[r]->stream_, call);
            ranks[r]->event().record(ranks[r]->stream_);
        });
        // What one does next may write over what the others read.
        each(await_others);
        return true;
    }

    // Each on a device, or a part of one, of its own.
    LinkWay link(std::span<LayerShare* const> all) override {
        std::vector<CudaOps*> ranks;
        for (LayerShare* const share : all) ranks.push_back(dynamic_cast<CudaOps*>(share));
        LinkWay way = forbids_peer_access() ? LinkWay::host_memory : LinkWay::peer_access;
        for (CudaOps* const one : ranks) {
            for (CudaOps* const other : ranks) {
                if (one == nullptr || other == nullptr) return LinkWay::none;
                if (one != other && one->stream_.get() == other->stream_.get()) return LinkWay::none;
                if (!one->reaches(*other)) way = LinkWay::host_memory;
            }
        }
        auto ends = std::make_shared<std::vector<std::unique_ptr<RankLink>>>();
        std::vector<RankLink*> links;
        for (CudaOps* const rank : ranks) {
            const ContextScope scope = rank->use();
            ends->push_back(std::make_unique<RankLink>());
            links.push_back(ends->back().get());
        }
        if (way == LinkWay::peer_access) {
            RankLink::connect(links);
        } else if (!RankLink::connect_through_host(links)) {
            return LinkWay::none;
        }
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            ranks[r]->link_ = links[r];
            ranks[r]->links_ = ends;
        }
        return way;
    }
    std::string why_not_linked(const LinkFacts& facts, KvFormat cache) const override {
        for (const QuantType type : facts.types) {
            if (!can_link(type)) return "weights in " + std::string(info(type).name) + " are not linked";
            if (!share_launch(type, facts.types.front())) return "weights of such different types are not linked";
        }
        if (has_low_bits(cache)) return "a KV cache in " + name(cache) + " is not linked";
        if (facts.soft_caps) return "caps of attention scores are not linked";
        if (facts.layer_norms) return "models with LayerNorm are not linked";
        return facts.layer_embeddings ? "models with embeddings of layers are not linked" : "";
    }
    bool can_run_linked(Workspace& workspace, std::span<const LinkedCall> calls) override {
        CudaWorkspace& w = self(workspace);
        if (link_ == nullptr || link_->failed()) return false;
        ForwardShape shape = w.forward;
        shape.link = link_;
        shape.flash = {};  // attention is a part of the launch
        const ContextScope scope = use();
        run_open();
        // What is tried and prepared is a forward of this shape; run_linked() takes it over.
        const ForwardShape before = std::exchange(w.forward, shape);
        const bool links = reporting(w, [&] {
            if (shape != w.linked_shape || !std::ranges::equal(calls, w.linked_calls, {}, op_call)) {
                w.linked_shape = shape;
                w.linked_calls.clear();
                for (const LinkedCall& call : calls) w.linked_calls.push_back(op_call(call));
                w.links = ForwardRunner(w).can_link(w.linked_calls);
            }
            if (w.links) w.recorder.prepare(w.linked_calls, shape, ForwardRunner(w));
            return w.links;
        });
        w.forward = before;
        return links;
    }
    void run_linked(Workspace& workspace, std::span<const LinkedCall>) override {
        CudaWorkspace& w = self(workspace);
        w.forward = w.linked_shape;
        for (const OpCall& call : w.linked_calls) w.recorder.note(call);
        run_noted(w, [&] { link_->ask(stream_); });
    }
    std::optional<std::uint32_t> gave_up_on() override {
        if (link_ == nullptr || !link_->failed()) return std::nullopt;
        const auto own = std::ranges::find(*links_, link_, &std::unique_ptr<RankLink>::get) - links_->begin();
        return late_ranks({link_, &device_}, static_cast<int32_t>(own));
    }
    void mend_link(std::span<LayerShare* const> all) override {
        std::vector<LinkEnd> ends;
        for (LayerShare* const share : all) {
            auto& rank = dynamic_cast<CudaOps&>(*share);
            ends.push_back({rank.link_, &rank.device_});
        }
        mend(ends);
    }

private:
    static OpCall op_call(const LinkedCall& call) {
        const auto& known = static_cast<const CudaPreparedOp&>(*call.prepared);
        const auto* pages = static_cast<const CudaKv*>(call.kv);
        return {.op = call.op,
                .layer = call.layer,
                .prepared = &known,
                .kv = pages,
                .prepared_id = known.id,
                .kv_id = pages != nullptr ? pages->id : 0,
                .first = call.first,
                .heads = call.heads,
                .sums = call.sums};
    }
    // After the stream has been waited for.
    void check_link(const CudaWorkspace& w) const {
        if (w.forward.link != nullptr && link_->failed()) {
            throw Error("another GPU has not passed on its values in time, so the answer ends here");
        }
    }
    static void copy_rows(const ValuesAt& to, const ValuesAt& from, int64_t count, const Stream& stream) {
        CudaWorkspace &reader = self(to.workspace), &maker = self(from.workspace);
        const auto pitch = [](int64_t values) { return size(values) * sizeof(float); };
        cuda_check(cudaMemcpy2DAsync(reader.values(to.values) + to.first, pitch(to.width),
                                     maker.values(from.values) + from.first, pitch(from.width), pitch(count),
                                     size(reader.rows()), cudaMemcpyDefault, stream),
                   "cannot copy values between devices");
    }
    // On the reader's stream for copies. It comes after all that the two devices have been given so far; what they are
    // given next waits for it only where it is of one of the two workspaces (CudaWorkspace::await_copies).
    void copy_beside(const ValuesAt& to, CudaOps& source, const ValuesAt& from, int64_t count) {
        CudaWorkspace &reader = self(to.workspace), &maker = self(from.workspace);
        source.run_calls(maker);
        run_calls(reader);
        {
            const ContextScope scope = source.use();
            source.reporting(maker, [&] { source.event().record(source.stream_); });
        }
        const ContextScope scope = use();
        reporting(reader, [&] {
            const Stream& copies = copy_stream();
            source.event().await_on(copies);
            event().record(stream_);
            event().await_on(copies);
            // Other copies, for which the two streams may not wait yet: to and from the reader, and to the maker. Those
            // from the maker may run at the same time.
            for (const auto& copy : reader.copies) copy->await_on(copies);
            maker.copied->await_on(copies);
            copy_rows(to, from, count, copies);
            reader.copied->record(copies);
            for (CudaWorkspace* const one : {&reader, &maker}) {
                if (std::ranges::find(one->copies, reader.copied) == one->copies.end()) {
                    one->copies.push_back(reader.copied);
                }
            }
        });
    }
    // Enqueues the noted calls, if there are any.
    void run_calls(CudaWorkspace& w) {
        if (!w.recorder.empty() || !w.failure.empty()) run_part(w, [] {});
    }
    // Made at the first copy beside ops. A copy within a device is a kernel, which must not wait for the products'
    // CTAs.
    const Stream& copy_stream() {
        if (copies_ == nullptr) copies_ = std::make_unique<Stream>(Stream::urgent());
        return *copies_;
    }
    // Made at the first hand-over.
    Event& event() {
        if (event_ == nullptr) {
            const ContextScope scope = use();
            event_ = std::make_unique<Event>();
        }
        return *event_;
    }
    // Whether this device reads and writes the memory of the other one's. Asked, and tried, once for each.
    enum class Reach : std::uint8_t { whole, none, lossy };
    Reach reach(const CudaOps& ops) {
        const int other = ops.device_.info().index;
        if (other == device_.info().index) return Reach::whole;
        const auto [found, first] = peers_.try_emplace(other, Reach::none);
        if (first) {
            const ContextScope scope = use();
            if (enable_peer_access(other)) found->second = peer_words_arrive(other) ? Reach::whole : Reach::lossy;
        }
        return found->second;
    }
    bool reaches(const CudaOps& ops) { return reach(ops) == Reach::whole; }
    bool loses_words(const CudaOps& ops) { return reach(ops) == Reach::lossy; }

    static CudaWorkspace& self(Workspace& workspace) { return static_cast<CudaWorkspace&>(workspace); }
    ContextScope use() const { return ContextScope(device_); }

    // Packs the weights of a spec; with id and work figures (count_work).
    template <class Op, class Spec, class... More>
    static std::unique_ptr<Op> counted(const Spec& spec, const More&... more) {
        auto op = std::make_unique<Op>(spec, more...);
        op->id = next_id();
        count_work(spec, *op);
        return op;
    }
    template <class Op, class Spec, class... More>
    std::unique_ptr<PreparedOp> linear(const Spec& spec, const More&... more) {
        check_op(spec);
        const ContextScope scope = use();
        return counted<Op>(spec, more...);
    }

    // Notes a call. Touches no device, so it needs no DeviceScope.
    void note(ForwardOp op, const PreparedOp& prepared, Workspace& workspace, const KvPages* kv = nullptr,
              int32_t layer = 0) {
        const auto& known = static_cast<const CudaPreparedOp&>(prepared);
        const auto* pages = static_cast<const CudaKv*>(kv);
        self(workspace).recorder.note({op, layer, &known, pages, known.id, pages != nullptr ? pages->id : 0});
        open_->workspace = &self(workspace);
    }

    // Calls `body`. What it throws is kept in the workspace until the next forward begins.
    template <class Body>
    static std::invoke_result_t<const Body&> reporting(CudaWorkspace& w, const Body& body) {
        try {
            return body();
        } catch (const std::exception& error) {
            w.failure = error.what();
            throw;
        }
    }
    // Enqueues the noted calls, if any, and then calls `body`, which enqueues more or reads results. After a failure in
    // this forward it drops them and throws that failure again.
    template <class Body>
    std::invoke_result_t<const Body&> run_noted(CudaWorkspace& w, const Body& body, bool part = false) {
        const ContextScope scope = use();
        if (open_->workspace == &w) open_->workspace = nullptr;
        return reporting(w, [&] {
            if (!w.failure.empty()) {
                w.recorder.discard();
                throw Error(w.failure);
            }
            w.await_copies();
            w.recorder.run(w.forward, ForwardRunner(w), part);
            return body();
        });
    }
    // The same before a hand-over to other devices.
    template <class Body>
    std::invoke_result_t<const Body&> run_part(CudaWorkspace& w, const Body& body) {
        return run_noted(w, body, true);
    }
    // Enqueues the noted calls of whichever workspace of this backend has some.
    void run_open() {
        if (open_->workspace != nullptr) run_noted(*open_->workspace, [] {});
    }

    DeviceContext& device_;
    const Stream& stream_;
    RopeCache ropes_;
    std::unique_ptr<Event> event_;    // of hand-overs to other devices
    std::unique_ptr<Stream> copies_;  // what copies many rows from other workspaces
    std::unique_ptr<StreamMarks<Event>> marks_;
    std::map<int, Reach> peers_;
    RankLink* link_ = nullptr;  // to the other ranks, if there are any
    // The ends of all ranks, which are kept until the last of them has ended: what one runs stores in the others'
    // memory.
    std::shared_ptr<std::vector<std::unique_ptr<RankLink>>> links_;
    std::shared_ptr<OpenForward> open_ = std::make_shared<OpenForward>();
    std::weak_ptr<PrefillWorkspace::State> prefill_memory_;  // of the workspaces that there are
};

}  // namespace
}  // namespace cuda

// Says why there is no device at all, and else which ones there are, before anything is allocated.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
    std::string why;
    const std::vector<CudaDevice> devices = cuda_devices(&why);
    if (devices.empty())
        throw Error("cuda:" + std::to_string(options.device) + " cannot be used: " + why + "; use --device cpu");
    for (const CudaDevice& device : devices) {
        if (device.index == options.device) return std::make_unique<cuda::CudaOps>(options);
    }
    throw Error("there is no device cuda:" + std::to_string(options.device) +
                "; the last one is cuda:" + std::to_string(devices.back().index));
}

}  // namespace foresay::kernels
