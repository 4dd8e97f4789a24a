// kernels/cuda/forward/forward_recorder.h: notes the op calls of a forward, runs them together, and keeps graphs of the
// forwards that come again.
//
// An op call only notes what is to be done. The noted calls run when the LM head is called or a result is asked for.
// The first time, they are enqueued one by one. The second time the same calls come with the same shape, they are
// captured into a graph, which is one launch from then on. Everything that changes from forward to forward lies in
// device memory (kernels/cuda/memory/batch_state.h), so a graph never has to be changed.
//
// Layout:   plain C++ without CUDA. The caller supplies the graph type and the target that enqueues calls, so tests run
//           it without a GPU.
// Threads:  one caller at a time.
// Errors:   run() passes on what the target throws. By then the noted calls are gone, and the target has been told to
//           abandon what it had begun: the next forward starts from nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention/attention_choice.h"
#include "kernels/cuda/memory/batch_state.h"
#include "kernels/forward_op.h"

namespace foresay::kernels::cuda {

struct CudaPreparedOp;
struct CudaKv;
class RankLink;  // kernels/cuda/decode/rank_link.h

struct OpCall {
    ForwardOp op = ForwardOp::embed;
    std::int32_t layer = 0;
    const CudaPreparedOp* prepared = nullptr;
    const CudaKv* kv = nullptr;
    std::uint64_t prepared_id = 0, kv_id = 0;  // compared in place of addresses, which may be used again
    // For a rank's part in a linked forward: the first value that it makes of the whole row, and of attend how many
    // heads that has. sums: they are wanted alone, because a finish follows.
    std::int32_t first = 0, heads = 0;
    bool sums = false;

    bool operator==(const OpCall& other) const {
        return op == other.op && layer == other.layer && prepared_id == other.prepared_id && kv_id == other.kv_id;
    }
};

// What the launches of a forward depend on besides its calls.
struct ForwardShape {
    RowClass row_class = RowClass::decode;
    BatchLayout layout;
    std::int32_t reach = 0;  // attention covers positions below it
    bool tree = false;
    std::int32_t together = 1;  // the most neighbouring attention tiles that a sequence has, up to kMostTogether
    FlashWorth flash;           // whether it is faster
    const SampledToken* slots = nullptr;  // the token slots that the rows may name
    const RankLink* link = nullptr;       // of ranks that run this forward together; null: not linked

    bool operator==(const ForwardShape& other) const {
        return row_class == other.row_class && layout.rows == other.layout.rows && layout.tiles == other.layout.tiles &&
               layout.logit_rows == other.layout.logit_rows && reach == other.reach && tree == other.tree &&
               together == other.together && flash == other.flash && slots == other.slots && link == other.link;
    }
};

inline constexpr std::size_t kKnownForwards = 128;  // remembered at once
inline constexpr std::int32_t kGraphRows = 64;      // wider forwards are not worth a graph

// Graph has empty() and reset(). A target, which run() is given, has
//   enqueue(calls)          enqueues the calls
//   capture(graph, calls)   makes a graph of what enqueue(calls) enqueues; the graph stays empty when that throws
//   launch(graph)
//   wait()                  until all that was launched is done
//   abandon() noexcept      forgets what an enqueue() or a capture() that threw has left behind
template <class Graph>
class ForwardRecorder {
public:
    explicit ForwardRecorder(std::size_t most_calls) : known_(kKnownForwards) {
        calls_.reserve(most_calls);
        for (KnownForward& forward : known_) forward.calls.reserve(most_calls);
    }

    void note(const OpCall& call) { calls_.push_back(call); }
    bool empty() const { return calls_.empty(); }
    void discard() { calls_.clear(); }
    // Memory that graphs refer to has moved.
    void forget_graphs() {
        for (KnownForward& forward : known_) forward.graph.reset();
    }

    // Makes the graph of calls that will be noted, unless there is one, and runs nothing: what is launched with graphs
    // of other devices must not be loaded while one of them waits for it.
    template <class Target>
    void prepare(std::span<const OpCall> calls, const ForwardShape& shape, Target&& target) {
        try {
            KnownForward* known = find(calls, shape);
            if (known == nullptr) known = &remember(calls, shape, target);
            if (known->graph.empty()) target.capture(known->graph, calls);
            known->used = ++runs_;
        } catch (...) {
            target.abandon();
            throw;
        }
    }

    // Runs the noted calls and forgets them, also when that throws. part: they are the few between two hand-overs of a
    // forward that other devices take part in, and are never a graph: a forward has hundreds of such parts, for each
    // number of rows others, and making their graphs takes longer than all launches that those would save.
    template <class Target>
    void run(const ForwardShape& shape, Target&& target, bool part = false) {
        if (calls_.empty()) return;
        try {
            if (part) {
                target.enqueue(calls());
            } else {
                run_noted(shape, target);
            }
        } catch (...) {
            calls_.clear();
            target.abandon();
            throw;
        }
        calls_.clear();
    }

private:
    struct KnownForward {
        ForwardShape shape;
        std::vector<OpCall> calls;
        Graph graph;             // empty until the calls came a second time
        std::uint64_t used = 0;  // the number of the last run() that had these calls
    };

    template <class Target>
    void run_noted(const ForwardShape& shape, Target& target) {
        ++runs_;
        if (shape.layout.rows > kGraphRows || shape.row_class == RowClass::prefill) return target.enqueue(calls());
        KnownForward* const known = find(calls(), shape);
        if (known == nullptr) {
            target.enqueue(calls());
            remember(calls(), shape, target);
            return;
        }
        if (known->graph.empty()) target.capture(known->graph, calls());
        known->used = runs_;
        target.launch(known->graph);
    }

    KnownForward* find(std::span<const OpCall> calls, const ForwardShape& shape) {
        const auto known = std::find_if(known_.begin(), known_.end(), [&](const KnownForward& forward) {
            return forward.shape == shape && std::ranges::equal(forward.calls, calls);
        });
        return known == known_.end() ? nullptr : &*known;
    }

    // Takes the place of the least recently used forward.
    template <class Target>
    KnownForward& remember(std::span<const OpCall> calls, const ForwardShape& shape, Target& target) {
        KnownForward& place = *std::min_element(known_.begin(), known_.end(),
                                                [](const auto& one, const auto& two) { return one.used < two.used; });
        if (!place.graph.empty()) {
            target.wait();  // it may be running
            place.graph.reset();
        }
        place.shape = shape;
        place.calls.assign(calls.begin(), calls.end());
        place.used = runs_;
        return place;
    }

    std::span<const OpCall> calls() const { return calls_; }

    std::vector<OpCall> calls_;  // noted and not yet run
    std::vector<KnownForward> known_;
    std::uint64_t runs_ = 0;
};

}  // namespace foresay::kernels::cuda
