// kernels/cuda/activations.h: the working memory of one model's forwards on the device, and the forwards that it has seen.
//
// Graphs:   begin() only copies the batch; stage calls are noted, and run when the head is called or something is asked
//           for. A sequence of calls that comes a second time with the same widths is captured into a graph; from then on
//           it is one launch. Whatever changes from forward to forward lies in device memory (kernels/cuda/batch_state.h).
// Threads:  one caller at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/batch_state.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/draw.h"
#include "kernels/cuda/kv_pool.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/rows.h"
#include "kernels/draw.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// What a stage of any kind has in common; `id` is never used twice, unlike an address.
struct CudaStage : Prepared {
    std::uint64_t id = 0;
};

enum class StageKind : std::uint8_t { embed, attention_in, attend, attention_out, mlp_in, mlp_out, head };

struct StageCall {
    StageKind kind = StageKind::embed;
    std::int32_t layer = 0;
    const CudaStage* stage = nullptr;
    const CudaKv* kv = nullptr;
    std::uint64_t stage_id = 0, kv_id = 0;

    bool operator==(const StageCall& other) const {
        return kind == other.kind && layer == other.layer && stage_id == other.stage_id && kv_id == other.kv_id;
    }
};

// What a launch's configuration depends on.
struct Width {
    RowClass row_class = RowClass::decode;
    BatchLayout layout;
    std::int32_t reach = 0;  // attention covers positions below it
    bool tree = false;
    const Drawn* slots = nullptr;  // that tokens name

    bool operator==(const Width& other) const {
        return row_class == other.row_class && layout.rows == other.layout.rows && layout.tiles == other.layout.tiles &&
               layout.logit_rows == other.layout.logit_rows && reach == other.reach && tree == other.tree &&
               slots == other.slots;
    }
};

class Graph {
public:
    Graph() = default;
    ~Graph() { reset(); }
    Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept {
        std::swap(exec_, other.exec_);
        return *this;
    }
    bool empty() const { return exec_ == nullptr; }
    void reset() {
        if (exec_ != nullptr) cudaGraphExecDestroy(std::exchange(exec_, nullptr));
    }
    // Captures what `body` enqueues on the stream.
    template <class Body>
    void capture(const Stream& stream, const Body& body) {
        reset();
        cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture a graph");
        body();
        cudaGraph_t graph = nullptr;
        cuda_check(cudaStreamEndCapture(stream, &graph), "cannot capture a graph");
        const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
        cudaGraphDestroy(graph);
        cuda_check(status, "cannot make a graph");
    }
    void launch(const Stream& stream) const { cuda_check(cudaGraphLaunch(exec_, stream), "cannot launch a graph"); }

private:
    cudaGraphExec_t exec_ = nullptr;
};

// A sequence of calls that was seen, and its graph once it was seen twice.
struct KnownForward {
    Width width;
    std::vector<StageCall> calls;
    Graph graph;
    std::uint64_t used = 0;  // when, to find the one that was not used for longest
};

inline constexpr int kUploads = 4;          // forwards whose batches may be on their way at once
inline constexpr int kKnownForwards = 128;  // that are kept
inline constexpr int kGraphRows = 64;       // wider forwards are not worth a graph

// A batch on its way to the device.
struct Upload {
    PinnedBuffer<std::byte> host;
    cudaEvent_t done = nullptr;

    Upload() { cuda_check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cannot make an event"); }
    ~Upload() { cudaEventDestroy(done); }
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
};

struct CudaActivations : Activations {
    explicit CudaActivations(const Stream& stream) : stream_(&stream) {}
    ~CudaActivations() override { cudaStreamSynchronize(*stream_); }  // nothing may run that reads what goes now

    const Stream* stream_;
    // The batch.
    DeviceBuffer<std::byte> batch;
    Upload uploads[kUploads];
    int next_upload = 0;
    Width width;
    std::vector<std::int32_t> sequence_at;  // where each sequence's pages begin in the lists; -1: not there yet

    // Rows.
    DeviceBuffer<float> x, q, attended, ff, raw, logits;
    DeviceBuffer<std::int64_t> k_cell, v_cell;
    DeviceBuffer<float2> angles[kMaxRopes];
    std::int64_t logit_stride = 0;
    InputWorkspace workspace;
    LinearSequence sequence;           // decode stages on their way into one launch
    const StageCall* fresh = nullptr;  // the attention_in whose K and V are in `raw`, and not yet in the cache

    // Keys and values of a layer in halves, for input rows over a cache of codes; made when first needed.
    DeviceBuffer<__half> expanded;
    std::int32_t listed_pages = 0;  // of the batch: page numbers at the front of its lists; -1: not in one run

    // Attention of decode rows.
    DeviceBuffer<float> partial;
    DeviceBuffer<std::int32_t> taken;

    // Drawing.
    DeviceBuffer<Drawn> slots;
    PinnedBuffer<HostDrawn> host_slots;
    PinnedBuffer<std::int32_t> kept_ids;  // kMostCandidates for each slot; made when first asked for
    PinnedBuffer<float> kept_logits;
    std::uint32_t serials[kDrawSlots] = {};  // that host_slots will have
    std::uint32_t serial = 0;
    std::uint32_t plans_serial = 0;  // of the draw whose plans lie in plans_host
    DrawMemory draw_memory;
    PinnedBuffer<std::byte> plans_host;
    DeviceBuffer<std::byte> plans;
    DrawScratch draw_scratch;

    // What the host has of the last forward.
    PinnedBuffer<float> host_logits;           // [logit rows, V]
    std::vector<std::uint8_t> logits_fetched;  // by logit row
    std::vector<float> host_x;                 // [T, D], made when first asked for

    std::vector<StageCall> calls;  // noted and not yet run
    std::vector<KnownForward> known;
    std::uint64_t clock = 0;

    // Memory that graphs refer to has moved.
    void forget_graphs() {
        for (KnownForward& forward : known) forward.graph.reset();
    }
};

}  // namespace foresay::kernels::cuda
