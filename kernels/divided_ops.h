// kernels/divided_ops.h: a model each of whose layers is divided by outputs over several backends, the ranks: each has
// some attention heads with their keys and values, some rows of every matrix and some experts, and makes the numbers
// that one backend would make, bit for bit (kernels/row_division.h). To the caller it is one backend.
//
// Placing:  the shapes of the specs say where an op is (ModelShape::devices, KvLayer::device): a shape that names
//           several backends is divided over all of them, one that names one is there alone, as a draft is. The
//           embedding and embeddings of layers are on the first. KvLayer::device is then -N: shared by the first N.
// Data flow: four hand-overs a layer: what heads have attended, the residual stream, the inner values of the
//           feed-forward network, the residual stream; with norms after a branch its sums in place of the stream, and
//           with experts their outputs. Finished numbers go from the rank that made them to all, from device to device
//           where both can (LayerShare::copy_values), else through host memory. Each rank has two workspaces: `in` has
//           all of the residual stream, and makes heads, inner values and logits of its own; `out` has all of those
//           values, and makes its own part of the stream.
// Layout:   in host memory a page is the parts of the ranks, one after the other.
// Law 1:    as of the ranks, whose numbers must not depend on how many rows a matrix has.
// Threads:  as for the ranks, which run one after the other where they do not run apart from the host.
// Cost:     a forward through host memory waits at every hand-over. Sampling is the host's. It allocates nothing.
// Errors:   those of the ranks, with the rank's name before them; Error as well when one does not answer in time. The
//           list is then as it was: a forward can follow.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/layer_share.h"
#include "kernels/list_ops.h"
#include "kernels/row_division.h"

namespace foresay::kernels {

inline constexpr std::size_t kMostRanks = 8;

struct DividedOptions {
    std::vector<std::string> names;         // of each rank, for messages: "cuda:1"; none: as they describe themselves
    std::vector<std::int32_t> shares;       // of each rank; none: equal ones
    bool through_host = false;              // hand over through host memory, whatever the ranks can do
    bool link = false;                      // few decode rows: ranks hand on by themselves while they run, if they can
    bool link_through_host = false;         // through host memory as well, where there is no other way
    std::chrono::milliseconds limit{5000};  // of waiting for a rank; as long again for each 64 rows
};

class DividedOps final : public ListOps {
public:
    // Between two and kMostRanks of them. Throws Error when one cannot share layers.
    explicit DividedOps(std::vector<std::shared_ptr<Ops>> ranks, DividedOptions options = {});

    Ops& rank(std::size_t r) { return *backends_[r]; }
    const Ops& rank(std::size_t r) const { return *backends_[r]; }
    const std::vector<std::int32_t>& shares() const { return options_.shares; }
    // Whether all ranks can have some experts of a mixture.
    bool shares_experts() const;
    // Whether the ranks can run forwards of few decode rows together (DividedOptions::link), and how many they have.
    bool linked() const { return link_way_ != LinkWay::none; }
    LinkWay link_way() const { return link_way_; }
    std::int64_t linked_forwards() const { return linked_forwards_; }
    // Before anything is prepared.
    void set_shares(std::vector<std::int32_t> shares);

    BackendInfo describe() const override;
    void wait(Workspace& workspace) override;

    std::unique_ptr<PreparedOp> prepare(const EmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttentionInSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttendSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const AttentionOutSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MlpInSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MlpOutSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const MoeSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const PerLayerEmbedSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const PerLayerSpec& spec) override;
    std::unique_ptr<PreparedOp> prepare(const LmHeadSpec& spec) override;

    std::int64_t kv_bytes_on(std::size_t r, const KvShape& shape, std::int32_t pages, KvFormat format) const override;
    std::int64_t workspace_bytes(const ModelShape& shape, std::int32_t max_rows,
                                 std::int32_t max_logit_rows) const override;
    std::int64_t workspace_bytes_on(std::size_t r, const ModelShape& shape, std::int32_t max_rows,
                                    std::int32_t max_logit_rows) const;
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
    struct Op;
    struct Kv;
    struct Space;
    struct Noted;
    // What a hand-over takes from a rank and gives to all.
    struct Handover;

    static Space& self(Workspace& workspace);
    static const Op& self(const PreparedOp& op);

    // The ranks that `devices` names. Divided: more than one.
    bool divided(std::uint32_t devices) const { return (devices & (devices - 1)) != 0; }
    std::size_t only(std::uint32_t devices) const;
    LayerShare& share(std::size_t r) const { return *shares_[r]; }
    template <class Spec>
    std::unique_ptr<PreparedOp> prepare_whole(const Spec& spec, std::size_t r);
    // make(rank r, part) of each rank that has one.
    template <class Spec, class Make>
    std::unique_ptr<PreparedOp> prepare_parts(const Spec& spec, std::vector<Part> parts, const Make& make);
    std::unique_ptr<PreparedOp> prepare_out(const MlpOutSpec& spec, std::vector<Part> inputs);

    KvShape kv_of(std::size_t r, const KvShape& shape) const;
    ModelShape in_shape(std::size_t r, const ModelShape& shape) const;
    ModelShape out_shape(std::size_t r, const ModelShape& shape) const;

    // Throws Error when the rank has not run by then what it was given.
    void await(std::size_t r) const;
    void before_pages(std::size_t r) const override { await(r); }
    void hand_over(Space& a, const Handover& what);
    // Gives the residual stream to those ranks that need it and do not have it.
    void spread(Space& a, std::uint32_t ranks);
    void give_slices(Space& a, const Op& op);
    void run_alone(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a);
    void run_all(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a);
    void project(const Op& op, Space& a, Values values);
    void begin_in(Space& a, const std::vector<std::unique_ptr<Workspace>>& workspaces);
    // Linked forwards. Whether the op has been noted, to be run when the forward ends.
    bool note(Space& a, const Noted& call) const;
    // Runs what is noted: linked if all ranks can, else one after the other.
    void run_noted(Space& a);
    bool run_linked(Space& a);

    std::vector<LayerShare*> shares_;
    LinkWay link_way_ = LinkWay::none;
    std::int64_t linked_forwards_ = 0;
    DividedOptions options_;
    std::size_t rows_ = 0, rows_before_ = 0;  // of the last two forwards, which may still run
    std::vector<KvLayer> heads_;              // kinds of attention that were prepared: one, or layers differ
};

}  // namespace foresay::kernels
