// kernels/split_ops.h: a model whose layers are on several backends, one after the other: what does not fit on a GPU is
// on the processor. To the caller it is one backend.
//
// Placing:  the shapes of the specs say which backend of the list has a layer (ModelShape::devices, KvLayer::device).
//           The embedding is on the first that has layers, the LM head on the last; per-layer embeddings are made on
//           each. A model may use one backend only, as a draft does.
// Layout:   each backend has the weights of its layers, their part of every KV page, and a workspace. In host memory a
//           page is the parts of the backends, one after the other. Between two layers of different backends the rows
//           of the residual stream cross as they are, float32, through host memory.
// Law 1:    each layer is computed by its own backend and kept to its law, so that of the whole is as good. What a
//           forward computes depends on which layers are where, and on nothing else of the split.
// Threads:  as for the backends.
// Cost:     a forward waits for the device wherever its rows cross, and is done when lm_head() returns. It allocates
//           nothing.
// Limits:   a wait ends when the device has not gone on for `limit`. A device is called only when it has nothing to do,
//           so that no call waits without a limit, and begins a forward when the rows come to it: until then it may be
//           busy with the forward before. Many rows may take a while, so marks lie between their layers, and the host
//           does not enqueue so many that it would meet the end of a queue of the driver. Devices of other hosts limit
//           their waits themselves.
// Errors:   those of the backends, with the name of the device that failed before them; Error as well when one does not
//           answer in time. The list is then as it was: a forward can follow.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/list_ops.h"

namespace foresay::kernels {

// The most backends in a list, bits of ModelShape::devices.
inline constexpr int kMostDevices = 32;
// Layers that a device may have before it when the host gives it more. A layer is some twenty calls, a queue of the
// driver takes 1,024; and with fewer layers, a device would do less of a prompt's chunk beside the next one's.
inline constexpr std::int64_t kMostMarksOfLayers = 32;

class SplitOps final : public ListOps {
public:
    // Between one and kMostDevices of them. `names`: of each, for messages: "cuda:1"; none: as they describe
    // themselves.
    explicit SplitOps(std::vector<std::shared_ptr<Ops>> devices, std::vector<std::string> names = {},
                      std::chrono::milliseconds limit = kAnswerLimit);

    Ops& device(std::size_t i) { return *backends_[i]; }
    const Ops& device(std::size_t i) const { return *backends_[i]; }

    BackendInfo describe() const override;
    void wait(Workspace& workspace) override;

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override { return on_its_device(spec); }
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override;

    std::int64_t kv_bytes_on(std::size_t d, const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    std::int64_t expanded_kv_bytes_on(std::size_t d, const KvShape& shape, std::int32_t pages,
                                      KvFormat format) const override;
    std::int64_t workspace_bytes(const ModelShape& shape, std::int32_t max_rows,
                                 std::int32_t max_logit_rows) const override;
    std::unique_ptr<KvPages> allocate_kv(const KvShape& shape, std::int32_t pages, KvFormat format) override;
    std::unique_ptr<Workspace> allocate_workspace(const ModelShape& shape, std::int32_t max_rows,
                                                  std::int32_t max_logit_rows) override;

    void begin(Workspace& workspace, const Batch& batch) override;
    void embed(const PreparedOp& op, Workspace& workspace) override;
    void attention_in(const PreparedOp& op, Workspace& workspace, KvPages& kv, std::int32_t layer) override;
    void attend(const PreparedOp& op, Workspace& workspace, const KvPages& kv, std::int32_t layer) override;
    void attention_out(const PreparedOp& op, Workspace& workspace) override;
    void mlp_in(const PreparedOp& op, Workspace& workspace) override;
    void mlp_out(const PreparedOp& op, Workspace& workspace) override;
    void moe(const PreparedOp& op, Workspace& workspace) override;
    void per_layer_embed(const PreparedOp& op, Workspace& workspace) override;
    void per_layer(const PreparedOp& op, Workspace& workspace) override;
    void lm_head(const PreparedOp& op, Workspace& workspace) override;

    void sample(Workspace& workspace, std::span<const SamplingPlan> plans,
                std::span<const std::int32_t> slots) override;
    SampledToken sampled(Workspace& workspace, std::int32_t slot) override;
    Candidates candidates(Workspace& workspace, std::int32_t slot) override;
    std::span<float> logits(Workspace& workspace, std::int32_t i) override;
    std::span<const float> residual(Workspace& workspace, std::int32_t t) override;
    void read_rows(Workspace& workspace, std::span<float> to) override;
    void write_rows(Workspace& workspace, std::span<const float> from) override;

private:
    struct Kv;

    template <class Spec>
    std::unique_ptr<PreparedOp> on_its_device(const Spec& spec);
    // The layers of a cache that device `d` has.
    static KvShape part_of(const KvShape& shape, std::size_t d);
    std::size_t lowest(std::uint32_t devices) const;
    std::size_t highest(std::uint32_t devices) const;
    // The part of a layer's device, which must be the op's: keys and values do not cross.
    static KvPages& part(const KvPages& kv, const PreparedOp& op, std::int32_t layer);
    static std::int32_t layer_of(const KvPages& kv, std::int32_t layer);
    // Until device `d` has done all that it was given.
    void settle(std::size_t d) const;
    void before_pages(std::size_t d) const override { settle(d); }
    // Begins the forward on device `d`, unless it has begun there.
    void begin_on(Workspace& workspace, std::size_t d);
    // After a layer, on the device that has the rows.
    void pace(Workspace& workspace);
    // Makes device `d` the one that has the rows.
    void enter(Workspace& workspace, std::size_t d);
    // An op that needs no more than the rows, on its device.
    void run(void (Ops::*of)(const PreparedOp&, Workspace&), const PreparedOp& op, Workspace& workspace);
};

}  // namespace foresay::kernels
