// The CUDA backend: kernels/ops.h over the kernels of this folder. This file is plain C++; it keeps the books.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/read_bandwidth.h"
#include "kernels/cuda/memory/kv_expand.h"
#include "kernels/cuda/memory/workspace.h"
#include "kernels/cuda/weights/embed_table.h"
#include "kernels/stage_checks.h"

namespace foresay::kernels {
namespace cuda {
namespace {

using std::int32_t;
using std::int64_t;

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> id = 0;
    return ++id;
}

std::size_t size(int64_t value) { return static_cast<std::size_t>(value); }

struct EmbedStage : CudaStage {
    DeviceBuffer<std::byte> table;
    Encoding encoding = Encoding::f32;
    int64_t vocab = 0;
    float scale = 1.0f;
};
// A rope table; stages with the same angles share one.
struct Rope {
    RopePairs pairs;
    std::vector<float> inverse_frequency;
    float magnitude;
    std::size_t index;  // of its angles in the activations
    DeviceBuffer<float> on_device;
};
struct AttentionInStage : CudaStage {
    ModelShape shape;
    AttentionInLinear linear;
    DeviceNorm q_norm, k_norm;
    std::shared_ptr<const Rope> rope;  // null: none
    explicit AttentionInStage(const AttentionInSpec& spec)
        : shape(spec.shape), linear(spec), q_norm(spec.q_norm), k_norm(spec.k_norm) {}
};
struct AttendStage : CudaStage {
    AttendSpec spec;
};
struct OutStage : CudaStage {  // attention_out and mlp_out
    OutLinear linear;
    DeviceNorm post_norm;
    template <class Spec>
    explicit OutStage(const Spec& spec) : linear(spec), post_norm(spec.post_norm) {}
};
struct MlpInStage : CudaStage {
    MlpInLinear linear;
    explicit MlpInStage(const MlpInSpec& spec) : linear(spec) {}
};
struct HeadStage : CudaStage {
    HeadLinear linear;
    explicit HeadStage(const HeadSpec& spec) : linear(spec) {}
};

int64_t logit_stride(const ModelShape& shape) { return (static_cast<int64_t>(shape.vocab) + 63) / 64 * 64; }

// Rows of a prefill chunk: enough for matrix products to be worth the decoding of their weights.
constexpr int32_t kInputRows = 2048;

class CudaOps final : public Ops {
public:
    explicit CudaOps(const CudaOptions& options) : info_(device_info(options.device)), guard_(options.device) {}
    ~CudaOps() override { cudaStreamSynchronize(stream_); }

    BackendInfo describe() const override { return {"cuda", info_.name, 1}; }

    int64_t free_memory() const override {
        std::size_t free = 0, total = 0;
        cuda_check(cudaMemGetInfo(&free, &total), "cannot ask for free memory");
        return static_cast<int64_t>(free);
    }
    double read_bandwidth() override { return measure_read_bandwidth(stream_); }
    int32_t input_rows() const override { return kInputRows; }
    bool makes_random_weights() const override { return true; }
    bool asynchronous() const override { return true; }
    void wait(Activations& act) override {
        flush(self(act));
        stream_.wait();
    }

    std::unique_ptr<Prepared> prepare(const EmbedSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<EmbedStage>();
        stage->id = next_id();
        stage->table = embed_table(spec.table);
        stage->encoding = spec.table.encoding;
        stage->vocab = spec.table.rows;
        stage->scale = spec.scale;
        return stage;
    }

    std::unique_ptr<Prepared> prepare(const AttentionInSpec& spec) override {
        check_stage(spec);
        if (spec.shape.head_dim > kMaxAttendWidth) {
            throw Error("heads of " + std::to_string(spec.shape.head_dim) +
                        " values are wider than the cuda backend's " + std::to_string(kMaxAttendWidth));
        }
        auto stage = finish(std::make_unique<AttentionInStage>(spec), spec);
        stage->rope = rope_table(spec.rope);
        return stage;
    }
    std::unique_ptr<Prepared> prepare(const AttendSpec& spec) override {
        check_stage(spec);
        auto stage = std::make_unique<AttendStage>();
        stage->id = next_id();
        stage->spec = spec;
        return stage;
    }
    std::unique_ptr<Prepared> prepare(const AttentionOutSpec& spec) override {
        check_stage(spec);
        return finish(std::make_unique<OutStage>(spec), spec);
    }
    std::unique_ptr<Prepared> prepare(const MlpInSpec& spec) override {
        check_stage(spec);
        return finish(std::make_unique<MlpInStage>(spec), spec);
    }
    std::unique_ptr<Prepared> prepare(const MlpOutSpec& spec) override {
        check_stage(spec);
        return finish(std::make_unique<OutStage>(spec), spec);
    }
    std::unique_ptr<Prepared> prepare(const HeadSpec& spec) override {
        check_stage(spec);
        return finish(std::make_unique<HeadStage>(spec), spec);
    }

    int64_t kv_bytes(const ModelShape& shape, int32_t pages, KvFormat format) const override {
        return KvLayout(shape, pages, format).layer_stride * shape.layers * static_cast<int64_t>(sizeof(__half));
    }

    int64_t activation_bytes(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) const override {
        const int64_t q = static_cast<int64_t>(shape.heads) * shape.head_dim;
        const int64_t kv = static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
        const int64_t per_row = shape.d_model + 2 * q + shape.d_ff + std::max<int64_t>(q + 2 * kv, shape.d_model);
        return static_cast<int64_t>(sizeof(float)) * (per_row * max_rows + logit_stride(shape) * max_logit_rows) +
               InputWorkspace::bytes(shape, max_rows);
    }

    std::unique_ptr<KvPages> allocate_kv(const ModelShape& shape, int32_t pages, KvFormat format) override {
        auto kv = std::make_unique<CudaKv>();
        kv->shape = shape;
        kv->pages = pages;
        kv->format = format;
        kv->bytes = kv_bytes(shape, pages, format);
        kv->layout = KvLayout(shape, pages, format);
        kv->id = next_id();
        kv->memory = DeviceBuffer<__half>(size(kv->bytes) / sizeof(__half));
        if (kv->bytes > 0) cuda_check(cudaMemset(kv->memory.data(), 0, size(kv->bytes)), "cannot clear memory");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
        return kv;
    }

    std::unique_ptr<Activations> allocate_activations(const ModelShape& shape, int32_t max_rows,
                                                      int32_t max_logit_rows) override;

    void copy_page(KvPages& pages, int32_t from, int32_t to) override {
        flush_open();
        static_cast<CudaKv&>(pages).copy_page(from, to, stream_);
    }

    void begin(Activations& act, const Batch& batch) override;

    void embed(const Prepared& stage, Activations& act) override { note(StageKind::embed, stage, act); }
    void attention_in(const Prepared& stage, Activations& act, KvPages& kv, int32_t layer) override {
        note(StageKind::attention_in, stage, act, &kv, layer);
    }
    void attend(const Prepared& stage, Activations& act, const KvPages& kv, int32_t layer) override {
        note(StageKind::attend, stage, act, &kv, layer);
    }
    void attention_out(const Prepared& stage, Activations& act) override { note(StageKind::attention_out, stage, act); }
    void mlp_in(const Prepared& stage, Activations& act) override { note(StageKind::mlp_in, stage, act); }
    void mlp_out(const Prepared& stage, Activations& act) override { note(StageKind::mlp_out, stage, act); }
    void head(const Prepared& stage, Activations& act) override {
        if (self(act).width.layout.logit_rows > 0) note(StageKind::head, stage, act);
        flush(self(act));
    }

    void draw(Activations& act, std::span<const DrawPlan> plans, std::span<const int32_t> slots) override;
    Drawn drawn(Activations& act, int32_t slot) override;
    Candidates candidates(Activations& act, int32_t slot) override;
    std::span<float> logits(Activations& act, int32_t i) override;
    std::span<const float> residual(Activations& act, int32_t t) override;

private:
    static CudaActivations& self(Activations& act) { return static_cast<CudaActivations&>(act); }

    template <class Stage, class Spec>
    static std::unique_ptr<Stage> finish(std::unique_ptr<Stage> stage, const Spec& spec) {
        stage->id = next_id();
        count_work(spec, *stage);
        return stage;
    }

    std::shared_ptr<const Rope> rope_table(const RopeSpec& spec) {
        if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return nullptr;
        std::vector<float> frequencies(spec.inverse_frequency.begin(), spec.inverse_frequency.end());
        std::size_t free = kMaxRopes;
        for (std::size_t i = kMaxRopes; i-- > 0;) {
            const std::shared_ptr<const Rope> rope = ropes_[i].lock();
            if (!rope) {
                free = i;
            } else if (rope->pairs == spec.pairs && rope->magnitude == spec.magnitude &&
                       rope->inverse_frequency == frequencies) {
                return rope;
            }
        }
        if (free == kMaxRopes) {
            throw Error("the cuda backend keeps " + std::to_string(kMaxRopes) +
                        " tables of rope angles at a time, and the models loaded need more; load fewer models");
        }
        DeviceBuffer<float> on_device = to_device<float>(frequencies);
        auto rope = std::make_shared<const Rope>(
            Rope{spec.pairs, std::move(frequencies), spec.magnitude, free, std::move(on_device)});
        ropes_[free] = rope;
        return rope;
    }
    // The tables that the noted calls use.
    RopeTables noted_ropes(const CudaActivations& a) const {
        RopeTables tables;
        bool taken[kMaxRopes] = {};
        for (const StageCall& call : a.calls) {
            if (call.kind != StageKind::attention_in) continue;
            const Rope* rope = static_cast<const AttentionInStage*>(call.stage)->rope.get();
            if (rope == nullptr || std::exchange(taken[rope->index], true)) continue;
            tables.table[tables.count++] = {rope->on_device.data(),
                                            static_cast<int32_t>(rope->inverse_frequency.size()), rope->magnitude,
                                            a.angles[rope->index].data()};
        }
        return tables;
    }

    void note(StageKind kind, const Prepared& stage, Activations& act, const KvPages* kv = nullptr, int32_t layer = 0) {
        const auto& known = static_cast<const CudaStage&>(stage);
        const auto* pages = static_cast<const CudaKv*>(kv);
        self(act).calls.push_back({kind, layer, &known, pages, known.id, pages != nullptr ? pages->id : 0});
        open_ = &self(act);
    }

    void flush_open() {
        if (open_ != nullptr) flush(*open_);
    }
    void flush(CudaActivations& a);
    void run(CudaActivations& a, const StageCall& call, const RopeTables& ropes);
    void run_attend(CudaActivations& a, const StageCall& call);
    void expand(CudaActivations& a, const StageCall& noted, AttendCall& call);
    // The attention of the batch as a launch sees it; grows what it needs.
    AttendCall attend_call(const CudaActivations& a, const ModelShape& shape, const KvLayout& kv) const;
    void settle(CudaActivations& a);
    FinishHeadsCall heads_call(const CudaActivations& a, const StageCall& call, const ModelShape& shape) const;
    void reserve(CudaActivations& a);

    BatchView view(const CudaActivations& a) const { return a.width.layout.view(a.batch.data()); }
    LinearCall linear_call(CudaActivations& a, int32_t rows) const {
        return {stream_,
                rows,
                a.width.row_class,
                &a.workspace,
                info_.capability >= 90,
                a.width.row_class == RowClass::decode ? &a.sequence : nullptr};
    }

    DeviceInfo info_;
    DeviceGuard guard_;
    Stream stream_;
    std::weak_ptr<const Rope> ropes_[kMaxRopes];
    CudaActivations* open_ = nullptr;  // whose calls have not run yet
};

std::unique_ptr<Activations> CudaOps::allocate_activations(const ModelShape& shape, int32_t max_rows,
                                                           int32_t max_logit_rows) {
    auto act = std::make_unique<CudaActivations>(stream_);
    act->shape = shape;
    act->max_rows = max_rows;
    act->max_logit_rows = max_logit_rows;
    const int64_t rows = max_rows, q = static_cast<int64_t>(shape.heads) * shape.head_dim;
    const int64_t kv = static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
    act->logit_stride = logit_stride(shape);
    act->x = DeviceBuffer<float>(size(rows * shape.d_model));
    act->q = DeviceBuffer<float>(size(rows * q));
    act->attended = DeviceBuffer<float>(size(rows * q));
    act->ff = DeviceBuffer<float>(size(rows * shape.d_ff));
    act->raw = DeviceBuffer<float>(size(rows * std::max<int64_t>(q + 2 * kv, shape.d_model)));
    act->logits = DeviceBuffer<float>(size(act->logit_stride * max_logit_rows));
    act->k_cell = DeviceBuffer<int64_t>(size(rows));
    act->v_cell = DeviceBuffer<int64_t>(size(rows));
    act->workspace = InputWorkspace(shape, max_rows);
    act->slots = DeviceBuffer<Drawn>(kDrawSlots);
    cuda_check(cudaMemset(act->slots.data(), 0, act->slots.bytes()), "cannot clear memory");
    act->host_slots = PinnedBuffer<HostDrawn>(kDrawSlots);
    std::memset(static_cast<void*>(act->host_slots.data()), 0, act->host_slots.bytes());
    act->draw_memory.allocate(max_logit_rows, shape.vocab);
    act->draw_scratch.reserve(shape.vocab);
    act->host_logits = PinnedBuffer<float>(size(static_cast<int64_t>(shape.vocab) * max_logit_rows));
    act->logits_fetched.resize(size(max_logit_rows));
    act->calls.reserve(size(5 * shape.layers + 8));
    act->known.resize(kKnownForwards);
    for (KnownForward& forward : act->known) forward.calls.reserve(act->calls.capacity());
    act->sequence_at.reserve(64);
    act->bytes = activation_bytes(shape, max_rows, max_logit_rows);
    cuda_check(cudaDeviceSynchronize(), "the device failed");
    return act;
}

// ------------------------------------------------------------------------------------------------------------- batch

void CudaOps::begin(Activations& act, const Batch& batch) {
    flush_open();
    check_batch(act, batch);
    auto& a = self(act);
    const int32_t room = rows_per_tile(a.shape.heads / a.shape.kv_heads);
    a.sequence_at.resize(batch.sequences.size());
    const auto [layout, furthest, lists] = measure_batch(batch, room, a.sequence_at);
    a.listed_pages = batch.tree ? -1 : static_cast<int32_t>(lists);
    a.width = {batch.row_class, layout, batch.row_class == RowClass::decode ? attend_reach(furthest) : 0, batch.tree,
               (batch.drawer != nullptr ? self(*batch.drawer) : a).slots.data()};
    const auto bytes = size(layout.lists_at() + lists * static_cast<int64_t>(sizeof(int32_t)));
    if (bytes > a.batch.size()) {
        stream_.wait();
        a.batch = DeviceBuffer<std::byte>(std::max(2 * bytes, size(64) * 1024));
        for (Upload& upload : a.uploads) upload.host = PinnedBuffer<std::byte>(a.batch.size());
        a.forget_graphs();
    }
    reserve(a);
    Upload& upload = a.uploads[a.next_upload];
    a.next_upload = (a.next_upload + 1) % kUploads;
    cuda_check(cudaEventSynchronize(upload.done), "the device failed");
    write_batch(batch, room, a.sequence_at, layout, upload.host.data());
    cuda_check(cudaMemcpyAsync(a.batch.data(), upload.host.data(), bytes, cudaMemcpyHostToDevice, stream_),
               "cannot copy a batch");
    cuda_check(cudaEventRecord(upload.done, stream_), "cannot record an event");
    std::fill(a.logits_fetched.begin(), a.logits_fetched.end(), std::uint8_t{0});
}

// Room for the attention and the angles of the batch.
void CudaOps::reserve(CudaActivations& a) {
    const AttendCall call = attend_call(a, a.shape, KvLayout(a.shape, 1));
    const bool decode = a.width.row_class == RowClass::decode;
    const auto partial = decode ? size(attend_partial_floats(call)) : 0;
    if (partial > a.partial.size()) {
        stream_.wait();
        constexpr int32_t none[] = {0};
        a.taken = to_device(std::span<const int32_t>(none));
        a.partial = DeviceBuffer<float>(partial + partial / 2);
        cuda_check(cudaMemset(a.partial.data(), kNothingByte, a.partial.bytes()), "cannot fill memory");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
        a.forget_graphs();
    }
    for (std::size_t i = 0; i < kMaxRopes; ++i) {
        const std::shared_ptr<const Rope> rope = ropes_[i].lock();
        if (!rope) continue;
        const std::size_t most = size(a.max_rows) * rope->inverse_frequency.size();
        if (a.angles[i].size() >= most) continue;
        stream_.wait();
        a.angles[i] = DeviceBuffer<float2>(most);
        a.forget_graphs();
    }
}

// ----------------------------------------------------------------------------------------------------------- forwards

void CudaOps::flush(CudaActivations& a) {
    if (open_ == &a) open_ = nullptr;
    if (a.calls.empty()) return;
    const auto run_all = [&] {
        const RopeTables ropes = noted_ropes(a);
        if (a.calls.front().kind != StageKind::embed) launch_angles(stream_, view(a), a.width.layout.rows, ropes);
        for (const StageCall& call : a.calls) run(a, call, ropes);
        settle(a);
        a.sequence.flush();
    };
    ++a.clock;
    if (a.width.layout.rows > kGraphRows || a.width.row_class == RowClass::input) {
        run_all();
        a.calls.clear();
        return;
    }
    const auto known = std::find_if(a.known.begin(), a.known.end(), [&](const KnownForward& forward) {
        return forward.width == a.width && forward.calls == a.calls;
    });
    if (known != a.known.end()) {
        if (known->graph.empty()) known->graph.capture(stream_, run_all);
        known->used = a.clock;
        known->graph.launch(stream_);
    } else {
        run_all();
        KnownForward& place = *std::min_element(a.known.begin(), a.known.end(),
                                                [](const auto& one, const auto& two) { return one.used < two.used; });
        if (!place.graph.empty()) {
            stream_.wait();
            place.graph.reset();
        }
        place.width = a.width;
        place.calls = a.calls;
        place.used = a.clock;
    }
    a.calls.clear();
}

AttendCall CudaOps::attend_call(const CudaActivations& a, const ModelShape& shape, const KvLayout& kv) const {
    AttendCall call;
    call.batch = view(a);
    call.tiles = a.width.layout.tiles;
    call.tree = a.width.tree;
    call.heads = shape.heads;
    call.kv_heads = shape.kv_heads;
    call.head_dim = shape.head_dim;
    call.layout = kv;
    call.q = a.q.data();
    call.out = a.attended.data();
    call.partial = a.partial.data();
    call.taken = a.taken.data();
    shape_attention(call);
    call.chunks = a.width.reach > 0 ? chunk_of(a.width.reach - 1, call.block_shift) + 1 : 0;
    return call;
}

// Puts K and V into the cache where no attention has done so.
void CudaOps::settle(CudaActivations& a) {
    const StageCall* const fresh = std::exchange(a.fresh, nullptr);
    if (fresh == nullptr) return;
    a.sequence.flush();
    launch_finish_heads(stream_, heads_call(a, *fresh, static_cast<const AttentionInStage*>(fresh->stage)->shape));
}

// Of K and V alone, rotated, without norms.
FinishHeadsCall CudaOps::heads_call(const CudaActivations& a, const StageCall& call, const ModelShape& shape) const {
    FinishHeadsCall heads;
    heads.batch = view(a);
    heads.rows = a.width.layout.rows;
    heads.kv_heads = shape.kv_heads;
    heads.head_dim = shape.head_dim;
    heads.raw = a.raw.data();
    heads.kv = call.kv->layer(call.layer);
    heads.k_cell = a.k_cell.data();
    heads.v_cell = a.v_cell.data();
    heads.layout = call.kv->layout;
    return heads;
}

void CudaOps::run_attend(CudaActivations& a, const StageCall& noted) {
    const AttendSpec& spec = static_cast<const AttendStage*>(noted.stage)->spec;
    AttendCall call = attend_call(a, spec.shape, noted.kv->layout);
    call.scale = spec.scale;
    call.window = spec.window;
    call.soft_cap = spec.soft_cap;
    call.kv = noted.kv->layer(noted.layer);
    if (a.width.row_class == RowClass::decode) {
        if (a.fresh != nullptr) {
            call.fresh = a.raw.data();
            call.rows = a.width.layout.rows;
        }
        if (a.sequence.attend(call)) {
            a.fresh = nullptr;
            return;
        }
        settle(a);
        a.sequence.flush();
        call.fresh = nullptr;
        launch_attend_decode(stream_, call);
        return;
    }
    if (noted.kv->format == KvFormat::q8) expand(a, noted, call);
    launch_attend_input(stream_, call);
}

// Input rows are many: they read codes once, as halves.
void CudaOps::expand(CudaActivations& a, const StageCall& noted, AttendCall& call) {
    ModelShape layer = noted.kv->shape;
    layer.layers = 1;
    KvExpandCall expansion;
    expansion.from = call.kv;
    expansion.from_layout = call.layout;
    expansion.to_layout = KvLayout(layer, noted.kv->pages);
    const auto halves = size(expansion.to_layout.layer_stride);
    if (halves > a.expanded.size()) {
        stream_.wait();
        a.expanded = DeviceBuffer<__half>(halves);
    }
    expansion.to = a.expanded.data();
    expansion.kv_heads = call.kv_heads;
    expansion.head_dim = call.head_dim;
    expansion.pages = a.listed_pages < 0 ? noted.kv->pages : a.listed_pages;
    expansion.list = a.listed_pages < 0 ? nullptr : call.batch.lists;
    launch_kv_expand(stream_, expansion);
    call.kv = expansion.to;
    call.layout = expansion.to_layout;
}

void CudaOps::run(CudaActivations& a, const StageCall& call, const RopeTables& ropes) {
    const int32_t rows = a.width.layout.rows;
    const auto out = [&](const OutStage& stage, const DeviceBuffer<float>& input) {
        OutLinear::Io io;
        io.input = input.data();
        io.x = a.x.data();
        const bool normed = !stage.post_norm.weight.empty();
        if (normed) io.raw = a.raw.data();
        stage.linear.launch(linear_call(a, rows), io);
        if (normed) {
            a.sequence.flush();
            launch_add_normed(stream_, rows, a.shape.d_model, a.raw.data(), stage.post_norm.weight.data(),
                              stage.post_norm.eps, a.x.data());
        }
    };
    switch (call.kind) {
        case StageKind::embed: {
            a.sequence.flush();
            const auto& stage = static_cast<const EmbedStage&>(*call.stage);
            EmbedCall embed;
            embed.batch = view(a);
            embed.rows = rows;
            embed.table = stage.table.data();
            embed.encoding = stage.encoding;
            embed.vocab = stage.vocab;
            embed.d_model = a.shape.d_model;
            embed.scale = stage.scale;
            embed.slots = a.width.slots;
            embed.x = a.x.data();
            embed.kv = KvLayout(a.shape, 1);
            embed.k_cell = a.k_cell.data();
            embed.v_cell = a.v_cell.data();
            embed.ropes = ropes;
            launch_embed(stream_, embed);
            break;
        }
        case StageKind::attention_in: {
            const auto& stage = static_cast<const AttentionInStage&>(*call.stage);
            AttentionInLinear::Io io;
            io.x = a.x.data();
            // Codes need the whole of a head: those of decode rows are made by the attention, or right before it.
            settle(a);
            const bool codes = call.kv->format == KvFormat::q8;
            if (!stage.linear.has_head_norms() && (!codes || a.width.row_class == RowClass::decode)) {
                io.q = a.q.data();
                if (codes) {
                    a.fresh = &call;
                    io.fresh = a.raw.data();
                }
                io.kv = call.kv->layer(call.layer);
                io.cell = a.k_cell.data();
                io.v_cell = a.v_cell.data();
                io.head_stride = call.kv->layout.head_stride;
                if (stage.rope) io.rope = a.angles[stage.rope->index].data();
                stage.linear.launch(linear_call(a, rows), io);
                break;
            }
            io.raw = a.raw.data();
            stage.linear.launch(linear_call(a, rows), io);
            a.sequence.flush();
            FinishHeadsCall heads = heads_call(a, call, stage.shape);
            heads.heads = stage.shape.heads;
            heads.q_norm = stage.q_norm.weight.data();
            heads.k_norm = stage.k_norm.weight.data();
            heads.q_eps = stage.q_norm.eps;
            heads.k_eps = stage.k_norm.eps;
            if (stage.rope) {
                heads.pairs = stage.rope->pairs;
                heads.rope_pairs = static_cast<int32_t>(stage.rope->inverse_frequency.size());
                heads.angles = a.angles[stage.rope->index].data();
            }
            heads.q = a.q.data();
            launch_finish_heads(stream_, heads);
            break;
        }
        case StageKind::attend:
            run_attend(a, call);
            break;
        case StageKind::attention_out:
            out(static_cast<const OutStage&>(*call.stage), a.attended);
            break;
        case StageKind::mlp_in: {
            MlpInLinear::Io io{a.x.data(), a.ff.data(), nullptr};
            const StageCall* next = &call + 1;
            if (next < a.calls.data() + a.calls.size() && next->kind == StageKind::mlp_out) {
                io.reader = &static_cast<const OutStage*>(next->stage)->linear;
            }
            static_cast<const MlpInStage&>(*call.stage).linear.launch(linear_call(a, rows), io);
            break;
        }
        case StageKind::mlp_out:
            out(static_cast<const OutStage&>(*call.stage), a.ff);
            break;
        case StageKind::head: {
            HeadLinear::Io io;
            io.x = a.x.data();
            io.row = view(a).logit_rows;
            io.logits = a.logits.data();
            io.logit_stride = a.logit_stride;
            static_cast<const HeadStage&>(*call.stage).linear.launch(linear_call(a, a.width.layout.logit_rows), io);
            break;
        }
    }
}

// ------------------------------------------------------------------------------------------------ drawing and reading

void CudaOps::draw(Activations& act, std::span<const DrawPlan> plans, std::span<const int32_t> slots) {
    auto& a = self(act);
    flush(a);
    if (plans.empty()) return;
    const int32_t vocab = a.shape.vocab;
    bool runs = true;
    int64_t words = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        runs = runs && plan_runs(plans[i], vocab);
        words += plan_words(plans[i]);
    }
    ++a.serial;
    if (a.kept_ids.size() == 0 && std::any_of(plans.begin(), plans.end(), [](const auto& plan) { return plan.keep; })) {
        a.kept_ids = PinnedBuffer<int32_t>(static_cast<std::size_t>(kDrawSlots) * kMostCandidates);
        a.kept_logits = PinnedBuffer<float>(a.kept_ids.size());
    }
    if (!runs) {
        for (std::size_t i = 0; i < plans.size(); ++i) {
            check(!plans[i].keep, "a plan that keeps its candidates has a cut");
            const Drawn drawn = draw_row(logits(act, static_cast<int32_t>(i)), plans[i], a.draw_scratch);
            a.host_slots.data()[slots[i]].drawn = drawn;
            a.host_slots.data()[slots[i]].serial = a.serials[slots[i]] = a.serial;
            cuda_check(cudaMemcpyAsync(a.slots.data() + slots[i], &a.host_slots.data()[slots[i]].drawn, sizeof(Drawn),
                                       cudaMemcpyHostToDevice, stream_),
                       "cannot copy a token");
        }
        stream_.wait();
        return;
    }
    const std::size_t lists_at = plans.size() * sizeof(DevicePlan);
    const std::size_t bytes = lists_at + size(words) * sizeof(std::uint32_t);
    const bool travels = plans.size() == 1 && words == 0;  // with the launch
    if (!travels && bytes > a.plans.size()) {
        stream_.wait();
        a.plans = DeviceBuffer<std::byte>(std::max<std::size_t>(2 * bytes, 64 * 1024));
        a.plans_host = PinnedBuffer<std::byte>(a.plans.size());
    } else if (!travels && a.plans_serial != 0) {
        // The last plans must have left page-locked memory: they have once a token of theirs, or a later one, is known.
        int32_t known = -1;
        for (int32_t slot = 0; slot < kDrawSlots; ++slot) {
            const bool later = a.serials[slot] >= a.plans_serial;
            if (later && (known < 0 || a.serials[slot] < a.serials[known])) known = slot;
        }
        drawn(act, known);
    }
    // Rows that the host has seen, and may have written to, go back first.
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (a.logits_fetched[i] == 0) continue;
        cuda_check(cudaMemcpyAsync(a.logits.data() + static_cast<int64_t>(i) * a.logit_stride,
                                   a.host_logits.data() + static_cast<int64_t>(i) * vocab, size(vocab) * sizeof(float),
                                   cudaMemcpyHostToDevice, stream_),
                   "cannot copy logits");
        a.logits_fetched[i] = 0;
    }
    DevicePlan single;
    DevicePlan* const encoded = travels ? &single : reinterpret_cast<DevicePlan*>(a.plans_host.data());
    auto* const lists = travels ? nullptr : reinterpret_cast<std::uint32_t*>(a.plans_host.data() + lists_at);
    int64_t used = 0;
    int32_t candidates = 1;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        encode_plan(plans[i], vocab, slots[i], encoded[i], lists, used);
        candidates = std::max(candidates, encoded[i].vocab);
        a.serials[slots[i]] = a.serial;
    }
    if (!travels) {
        a.plans_serial = a.serial;
        cuda_check(cudaMemcpyAsync(a.plans.data(), a.plans_host.data(), bytes, cudaMemcpyHostToDevice, stream_),
                   "cannot copy plans");
    }
    DrawCall call;
    call.rows = static_cast<int32_t>(plans.size());
    call.vocab = vocab;
    call.logits = a.logits.data();
    call.stride = a.logit_stride;
    call.candidates = candidates;
    if (!travels) {
        call.plans = reinterpret_cast<const DevicePlan*>(a.plans.data());
        call.words = reinterpret_cast<const std::uint32_t*>(a.plans.data() + lists_at);
    }
    call.slots = a.slots.data();
    call.host_slots = a.host_slots.data();
    call.host_ids = a.kept_ids.data();
    call.host_logits = a.kept_logits.data();
    call.serial = a.serial;
    call.memory = &a.draw_memory;
    launch_draw(stream_, call, single);
}

Drawn CudaOps::drawn(Activations& act, int32_t slot) {
    auto& a = self(act);
    flush(a);
    // The device writes the token and then its serial number; looking at it is quicker than waiting for the stream.
    const volatile HostDrawn& held = a.host_slots.data()[slot];
    for (std::uint32_t looks = 1; held.serial != a.serials[slot]; ++looks) {
        if (looks % 4096 != 0) continue;
        const cudaError_t status = cudaStreamQuery(stream_);
        if (status == cudaErrorNotReady) continue;
        cuda_check(status, "the device failed");
        check(held.serial == a.serials[slot], "a draw has ended without a token");
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return a.host_slots.data()[slot].drawn;
}

Candidates CudaOps::candidates(Activations& act, int32_t slot) {
    auto& a = self(act);
    drawn(act, slot);
    const std::size_t first = static_cast<std::size_t>(slot) * kMostCandidates;
    return {a.kept_ids.data() + first, a.kept_logits.data() + first, a.host_slots.data()[slot].candidates};
}

std::span<float> CudaOps::logits(Activations& act, int32_t i) {
    auto& a = self(act);
    flush(a);
    float* host = a.host_logits.data() + static_cast<int64_t>(i) * a.shape.vocab;
    if (a.logits_fetched[size(i)] == 0) {
        cuda_check(cudaMemcpyAsync(host, a.logits.data() + i * a.logit_stride, size(a.shape.vocab) * sizeof(float),
                                   cudaMemcpyDeviceToHost, stream_),
                   "cannot copy logits");
        stream_.wait();
        a.logits_fetched[size(i)] = 1;
    }
    return {host, size(a.shape.vocab)};
}

std::span<const float> CudaOps::residual(Activations& act, int32_t t) {
    auto& a = self(act);
    flush(a);
    a.host_x.resize(size(static_cast<int64_t>(a.max_rows) * a.shape.d_model));
    float* host = a.host_x.data() + static_cast<int64_t>(t) * a.shape.d_model;
    cuda_check(cudaMemcpyAsync(host, a.x.data() + static_cast<int64_t>(t) * a.shape.d_model,
                               size(a.shape.d_model) * sizeof(float), cudaMemcpyDeviceToHost, stream_),
               "cannot copy the residual stream");
    stream_.wait();
    return {host, size(a.shape.d_model)};
}

}  // namespace
}  // namespace cuda

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
