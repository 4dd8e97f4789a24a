// Allocation of a workspace, and the copy of a batch to the device.
//
// The constructor allocates what depends on the shape and the number of rows. Memory whose size depends on batches (the
// batch itself, partials of attention, angles) grows in begin(), before anything of the forward is enqueued, and never
// shrinks. Growing waits for the stream, because earlier forwards may still use the old memory, and forgets all graphs,
// because they hold its address. So a conversation that grows pays for that a few times, not per token.

#include "kernels/cuda/memory/workspace.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cuda/attention/attention_choice.h"
#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/device/probe.h"
#include "kernels/given_up.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

std::size_t size(int64_t value) { return static_cast<std::size_t>(value); }

// Floats of a row of each kind of activations. `raw` holds the projections of attention_in, or what attention_out and
// mlp_out compute before a post norm.
struct RowFloats {
    int64_t q, raw, ff, x, per_layer;
    explicit RowFloats(const ModelShape& s)
        : q(static_cast<int64_t>(s.heads) * s.head_dim),
          raw(std::max<int64_t>({q + 2LL * s.kv_heads * s.head_dim, s.d_model, s.per_layer})),
          ff(std::max(s.d_ff, s.per_layer)),
          x(s.d_model),
          per_layer(static_cast<int64_t>(s.layers) * s.per_layer) {}
};

// What attention of a batch has to do, in tiles of `room` rows.
AttendWork attend_work(const Batch& batch, int32_t room, int32_t furthest) {
    AttendWork work;
    work.row_class = batch.row_class;
    work.furthest = furthest;
    work.rows = static_cast<int32_t>(batch.rows.size());
    int32_t run = 0;  // neighbouring rows of a sequence
    for (std::size_t t = 0; t < batch.rows.size(); ++t) {
        run = t > 0 && batch.rows[t].sequence == batch.rows[t - 1].sequence ? run + 1 : 1;
        work.together = std::max(work.together, (run + room - 1) / room);
        if (run % room == 1 || room == 1) work.tile_positions += batch.rows[t].position + 1;
    }
    work.together = std::min(work.together, kMostTogether);
    return work;
}

}  // namespace

// Most of what the constructor allocates; callers plan memory by it. Left out are the memory of sampling and what grows
// with batches; the largest of that, expanded_kv, is counted by Ops::expanded_kv_bytes().
int64_t CudaWorkspace::bytes_of(const ModelShape& shape, int32_t max_rows, int32_t max_logit_rows) {
    const RowFloats row(shape);
    const int64_t per_row = 2 * row.x + 2 * row.q + row.ff + row.raw + row.per_layer;
    return static_cast<int64_t>(sizeof(float)) *
               (per_row * max_rows + LogitRows::stride_of(shape.vocab) * max_logit_rows) +
           PrefillWorkspace::bytes(shape, max_rows) + MixedWorkspace::bytes(shape, max_rows) +
           ExpertsWorkspace::bytes(shape, max_rows);
}

// A forward has at most nine calls per layer, two embeddings and an LM head, so noting them never allocates.
CudaWorkspace::CudaWorkspace(DeviceContext& on, std::shared_ptr<OpenForward> open,
                             std::weak_ptr<PrefillWorkspace::State>& prefill_memory, const ModelShape& of, int32_t rows,
                             int32_t logit_rows)
    : device(on),
      stream(on.stream()),
      overlaps(code_version(on.info().index) >= 90),
      recorder(size(9 * of.layers + 8)),
      copied(std::make_shared<Event>()),
      logits(logit_rows, of.vocab),
      token_slots(logit_rows, of.vocab),
      open_(std::move(open)) {
    // No buffer is cleared: each op writes all of the rows that the next one reads.
    shape = of;
    max_rows = rows;
    max_logit_rows = logit_rows;
    tile_rows = rows_per_tile(of.heads / of.kv_heads);
    const RowFloats row(of);
    x = DeviceBuffer<float>(size(rows * row.x));
    normed = DeviceBuffer<float>(size(rows * row.x));
    per_layer = DeviceBuffer<float>(size(rows * row.per_layer));
    q = DeviceBuffer<float>(size(rows * row.q));
    attended = DeviceBuffer<float>(size(rows * row.q));
    ff = DeviceBuffer<float>(size(rows * row.ff));
    raw = DeviceBuffer<float>(size(rows * row.raw));
    k_cell = DeviceBuffer<int64_t>(size(rows));
    v_cell = DeviceBuffer<int64_t>(size(rows));
    prefill = PrefillWorkspace(of, rows, prefill_memory);
    mixed = MixedWorkspace(of, rows);
    experts = ExpertsWorkspace(of, rows);
    sequence_at.reserve(64);
    copies.reserve(16);
    bytes = bytes_of(of, rows, logit_rows);
    cuda_check(cudaDeviceSynchronize(), "the device failed");
}

CudaWorkspace::~CudaWorkspace() {
    if (open_->workspace == this) open_->workspace = nullptr;
    if (any_device_hangs()) return;
    const DeviceScope scope(device.info().index, std::nothrow);
    // Kernels and copies may still use the memory that is freed now.
    cudaStreamSynchronize(stream);
    for (const auto& copy : copies) copy->wait(std::nothrow);
}

// Enqueues the copy of the batch and nothing else. `forward` is what graphs are looked up by: it has no positions, only
// the reach of attention, rounded up, so that neighbouring tokens share a graph.
void CudaWorkspace::begin(const Batch& new_batch, const SampledToken* slots, const RopeCache& ropes) {
    sequence_at.resize(new_batch.sequences.size());
    const auto [layout, furthest, lists] = measure_batch(new_batch, tile_rows, sequence_at);
    listed_pages = new_batch.tree ? -1 : static_cast<int32_t>(lists);
    const AttendWork work = attend_work(new_batch, tile_rows, furthest);
    forward = {.row_class = new_batch.row_class,
               .layout = layout,
               .reach = new_batch.row_class == RowClass::decode ? attend_reach(furthest) : 0,
               .tree = new_batch.tree,
               .together = work.together,
               .flash = flash_worth(shape, work),
               .slots = slots};
    const auto needed = size(layout.lists_at() + lists * static_cast<int64_t>(sizeof(int32_t)));
    // Twice what is needed, and 64 KiB at least: page lists grow with every page.
    if (needed > batch.size()) {
        stream.wait();
        batch = DeviceBuffer<std::byte>(std::max(2 * needed, size(64) * 1024));
        for (Upload& upload : uploads) upload.host = PinnedBuffer<std::byte>(batch.size());
        recorder.forget_graphs();
    }
    reserve(ropes);
    // Host copies are used in rotation: the one that is written now was read by the copy of kUploads forwards ago.
    Upload& upload = uploads[next_upload];
    next_upload = (next_upload + 1) % kUploads;
    upload.done.wait();
    write_batch(new_batch, tile_rows, sequence_at, layout, upload.host.data());
    cuda_check(cudaMemcpyAsync(batch.data(), upload.host.data(), needed, cudaMemcpyHostToDevice, stream),
               "cannot copy a batch");
    upload.done.record(stream);
    logits.forget();
}

// Room for the attention and the angles of the batch. Partials are all kNotReady between launches (attention.h), so new
// memory is filled with it.
void CudaWorkspace::reserve(const RopeCache& ropes) {
    // The layers may differ: the widest heads, the smallest blocks, and so the most chunks. Tiles of heads: as many as
    // key-value heads, or more than half full.
    AttendCall most = attend_call(shape, KvLayout(shape, 1));
    most.head_tiles = std::max(most.head_tiles, 2 * shape.heads / (kTileRows / tile_rows));
    most.chunks = forward.reach > 0 ? chunk_of(forward.reach - 1, attend_block_shift(KvFormat::f16, 0)) + 1 : 0;
    AttendCall padded = most;  // as a cache with low bits has narrow heads
    padded.layout.width = std::max(padded.layout.width, 64);
    const auto floats = decodes() ? size(attend_partial_floats(padded)) : 0;
    if (floats > partial.size()) {
        stream.wait();
        taken = to_device(std::span<const int32_t>(std::array<int32_t, kTakenCounters>()));  // none
        partial = DeviceBuffer<float>(floats + floats / 2);
        cuda_check(cudaMemset(partial.data(), kNotReadyByte, partial.bytes()), "cannot fill memory");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
        recorder.forget_graphs();
    }
    if (decodes() && (forward.flash.f16 || forward.flash.q8) && floats > flash_partial.size() &&
        can_flash_decode(most, device.info())) {
        stream.wait();
        flash_partial = DeviceBuffer<float>(floats + floats / 2);
        recorder.forget_graphs();
    }
    // Angles of every table in use, by any model: which ones this forward uses is known only when its ops come.
    for (std::size_t i = 0; i < kMaxRopes; ++i) {
        const std::size_t pairs = size(max_rows) * ropes.pairs_of(i);
        if (angles[i].size() >= pairs) continue;
        stream.wait();
        angles[i] = DeviceBuffer<float2>(pairs);
        recorder.forget_graphs();
    }
}

// Same addresses and same `chunks` for every layer of a forward: layers must be able to share a call (LinearSequence).
AttendCall CudaWorkspace::attend_call(const ModelShape& of, const KvLayout& kv) const {
    AttendCall call;
    call.batch = view();
    call.tiles = forward.layout.tiles;
    call.rows = forward.layout.rows;
    call.tree = forward.tree;
    call.heads = of.heads;
    call.kv_heads = of.kv_heads;
    call.head_dim = of.head_dim;
    call.layout = kv;
    call.q = q.data();
    call.out = attended.data();
    call.partial = partial.data();
    call.taken = taken.data();
    shape_attention(call, kTileRows / tile_rows);
    call.chunks = forward.reach > 0 ? chunk_of(forward.reach - 1, call.block_shift) + 1 : 0;
    return call;
}

// Decode rows go to the sequence, prefill rows are launched at once.
LinearCall CudaWorkspace::linear_call(int32_t of_rows) {
    return {stream, of_rows, forward.row_class, &prefill, overlaps, decodes() ? &sequence : nullptr, mixed.scratch()};
}

}  // namespace foresay::kernels::cuda
