// kernels/cuda/memory/workspace.h: the memory of one model's forwards on the device: the batch, activations, logits,
// token slots, and what attention and prefill need besides.
//
// Layout:   activations are float32, row-major, one row per row of the batch (kernels/cuda/linear.h).
// Threads:  one caller at a time; everything here needs a DeviceScope.
// Cost:     begin() is one copy to the device. It allocates where a batch is larger than all before.
// Errors:   the constructor and begin() throw Error when the device has no room. What fails in a forward is kept in
//           `failure` until the next begin(), so that no result of the failed forward can be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/experts/mixture.h"
#include "kernels/cuda/forward/forward_recorder.h"
#include "kernels/cuda/forward/graph.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/memory/batch_state.h"
#include "kernels/cuda/memory/kv_pool.h"
#include "kernels/cuda/rowwise/rope_cache.h"
#include "kernels/cuda/sampling/token_slots.h"
#include "kernels/layer_share.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

inline constexpr int kUploads = 4;  // forwards whose batches may be in transfer at once

struct CudaWorkspace;
// Which workspace has noted calls that have not run; null: none. A backend and its workspaces share it, because either
// may be destroyed first.
struct OpenForward {
    CudaWorkspace* workspace = nullptr;
};

struct CudaWorkspace : Workspace {
    // `prefill_memory`: of all workspaces of the backend.
    CudaWorkspace(DeviceContext& device, std::shared_ptr<OpenForward> open,
                  std::weak_ptr<PrefillWorkspace::State>& prefill_memory, const ModelShape& shape,
                  std::int32_t max_rows, std::int32_t max_logit_rows);
    ~CudaWorkspace() override;
    static std::int64_t bytes_of(const ModelShape& shape, std::int32_t max_rows, std::int32_t max_logit_rows);

    // Takes a batch, whose tokens name `token_slots`.
    void begin(const Batch& new_batch, const SampledToken* token_slots, const RopeCache& ropes);

    BatchView view() const { return forward.layout.view(batch.data()); }
    std::int32_t rows() const { return forward.layout.rows; }
    bool decodes() const { return forward.row_class == RowClass::decode; }
    // The attention of the batch, without what differs between layers (kv, scale, window, soft_cap).
    AttendCall attend_call(const ModelShape& of, const KvLayout& kv) const;
    LinearCall linear_call(std::int32_t of_rows);
    // What several backends hand on (kernels/layer_share.h).
    float* values(Values of) {
        switch (of) {
            case Values::residual:
                return x.data();
            case Values::attended:
                return attended.data();
            case Values::inner:
                return ff.data();
            case Values::sums:
                return raw.data();
            case Values::expert_outputs:
                break;
        }
        return experts.view().out;
    }
    // Values of a row, `width` as the row's op has it.
    std::int64_t row_values(Values of, std::int64_t width) const {
        return of == Values::expert_outputs ? shape.experts_used * width : width;
    }
    // What runs on the backend's stream from now on may read and overwrite the values here.
    void await_copies() {
        for (const auto& copy : copies) copy->await_on(stream);
        copies.clear();
    }
    // Whether k_cell and v_cell are places in the pages of a float16 cache of this layout.
    bool has_cells_of(const KvLayout& layout) const {
        const KvLayout cells(shape, 1);
        return layout.format != KvFormat::f16 ||
               (layout.page_stride == cells.page_stride && layout.width == cells.width);
    }

    DeviceContext& device;
    const Stream& stream;
    const bool overlaps;         // whether kernels may begin before the one before them has ended
    std::int32_t tile_rows = 1;  // rows of a tile of a batch, at most
    std::string failure;         // of the forward; empty: none
    ForwardShape forward;
    ForwardRecorder<Graph> recorder;

    // Copies of values between workspaces that run beside the ops (kernels/layer_share.h). `copied`: the last one into
    // this workspace. `copies`: of those to and from here, what the stream does not wait for yet: it does once calls
    // that use the values come. Shared, because a workspace that copies from here may be destroyed first.
    std::shared_ptr<Event> copied;
    std::vector<std::shared_ptr<Event>> copies;

    // The batch as the device reads it, and page-locked host copies of the last few, which may still be in transfer.
    DeviceBuffer<std::byte> batch;
    struct Upload {
        PinnedBuffer<std::byte> host;
        Event done;
    };
    Upload uploads[kUploads];
    int next_upload = 0;
    std::vector<std::int32_t> sequence_at;  // where each sequence's pages begin in the lists; -1: not there yet
    std::int32_t listed_pages = 0;          // page numbers at the front of the lists; -1: they lie apart (trees)

    // Activations.
    DeviceBuffer<float> x, normed, q, attended, ff;  // normed: x after a LayerNorm
    DeviceBuffer<float> per_layer;                   // per-layer embeddings, [T, L * P]
    DeviceBuffer<float> raw;  // projections for another kernel to complete; also new K and V of a cache of codes
    ExpertsWorkspace experts;
    OwnExperts own_experts;                     // whose outputs `experts` has, of a mixture that others share
    DeviceBuffer<std::int64_t> k_cell, v_cell;  // of a float16 cache whose layers all have the heads of `shape`
    DeviceBuffer<float2> angles[kMaxRopes];
    PrefillWorkspace prefill;
    MixedWorkspace mixed;
    LinearSequence sequence;  // decode ops on their way into one launch
    // The attention_in whose K and V are in `raw` and not yet in the cache. With norms of heads its Q is there as well.
    const OpCall* new_kv = nullptr;
    // The last forward for which ForwardRunner::can_link() was asked, and its answer.
    std::vector<OpCall> linked_calls;
    ForwardShape linked_shape;
    bool links = false;
    DeviceBuffer<__half> expanded_kv;  // a layer's codes as float16, for prefill rows; made when first needed

    // Attention of decode rows (AttendCall).
    DeviceBuffer<float> partial;
    DeviceBuffer<float> flash_partial;  // of launch_flash_decode(); made when first needed
    DeviceBuffer<std::int32_t> taken;

    LogitRows logits;
    TokenSlots token_slots;
    std::vector<float> host_x;  // [T, D], made when first asked for

private:
    void reserve(const RopeCache& ropes);

    std::shared_ptr<OpenForward> open_;
};

}  // namespace foresay::kernels::cuda
