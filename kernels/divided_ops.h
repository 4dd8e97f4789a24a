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
//           where both can (LayerShare::copy_values, gather_experts), else through host memory. Each rank has two
//           workspaces: `in` has all of the residual stream, and makes heads, inner values and logits of its own; `out`
//           has all of those values, and makes its own part of the stream.
// Groups:   a prompt of many rows is cut into two groups of rows, which have workspaces of their own and go through
//           each layer one after the other: what the first one has made is copied while the second one's ops run. The
//           second one's rows may attend to the first one's, whose keys and values of a layer are written before.
// Layout:   in host memory a page is the parts of the ranks, one after the other.
// Law 1:    as of the ranks, whose numbers must not depend on how many rows a matrix has.
// Threads:  as for the ranks, which run one after the other where they do not run apart from the host.
// Cost:     a forward through host memory waits at every hand-over. Sampling is the host's. It allocates nothing.
// Limits:   a wait ends when no rank has gone on for DividedOptions::limit, however many rows it has. So that it can be
//           seen whether they go on, and so that the host never meets the end of a queue of the driver, where it would
//           wait without a limit, marks lie between the ops (Progress::mark), and the host enqueues no more than some
//           layers ahead.
// Link:     a linked forward that a rank has ended without the values of another is an error that names the other. The
//           next forward finds the link mended. If that fails as well, before any has gone well, forwards go by copies.
// Errors:   those of the ranks, with the rank's name before them; Error as well when one does not answer in time. The
//           list is then as it was: a forward can follow.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/layer_share.h"
#include "kernels/list_ops.h"
#include "kernels/row_division.h"

namespace foresay::kernels {

inline constexpr std::size_t kMostRanks = 8;
// Fewer rows leave a part of a device without work: 4,096 outputs of 256 rows are 64 tiles of 128 x 128.
inline constexpr std::int32_t kGroupRows = 512;
// Marks that a rank may not have reached when the host enqueues more. One lies in a layer for each group of rows, and
// some hundred calls between two of them (300 of eight ranks); a queue of the driver takes 1,024.
inline constexpr std::int64_t kMostMarks = 3;

struct DividedOptions {
    std::vector<std::string> names;    // of each rank, for messages: "cuda:1"; none: as they describe themselves
    std::vector<std::int32_t> shares;  // of each rank; none: equal ones
    bool through_host = false;         // hand over through host memory, whatever the ranks can do
    bool link = false;                 // few decode rows: ranks hand on by themselves while they run, if they can
    // A prompt of twice as many rows is cut into groups. 0: none is; -1: of kGroupRows, if copies run beside ops.
    std::int32_t group_rows = -1;
    std::chrono::milliseconds limit = kAnswerLimit;  // of waiting while no rank goes on
    // Told in one sentence, without a full stop, what has become of the ways between the ranks. From any thread.
    std::function<void(const std::string& sentence)> notice;
};

class DividedOps final : public ListOps {
public:
    // Between two and kMostRanks of them. Throws Error when one cannot share layers.
    explicit DividedOps(std::vector<std::shared_ptr<Ops>> ranks, DividedOptions options = {});

    Ops& rank(std::size_t r) { return *backends_[r]; }
    const Ops& rank(std::size_t r) const { return *backends_[r]; }
    const std::vector<std::int32_t>& shares() const { return options_.shares; }
    // Whether the ranks can run forwards of few decode rows together (DividedOptions::link), and how many they have.
    bool linked() const { return link_way_ != LinkWay::none; }
    LinkWay link_way() const { return link_way_; }
    std::int64_t linked_forwards() const { return linked_forwards_; }
    // Why forwards of few decode rows go by copies though they were to be linked, as a sentence without a full stop;
    // empty: they are linked, or nothing was to be. Before the first of them, by what the model and its cache are.
    std::string why_copies(const LinkFacts& facts, KvFormat cache) const;
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
    std::int64_t expanded_kv_bytes_on(std::size_t r, const KvShape& shape, std::int32_t pages,
                                      KvFormat format) const override;
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
    // Most rows of the second group of a forward; 0: forwards of this model are not cut.
    std::int32_t late_rows(const ModelShape& shape, std::int32_t max_rows) const;
    // Workspaces for one group of rows.
    std::unique_ptr<Space> allocate_space(const ModelShape& shape, std::int32_t max_rows, std::int32_t max_logit_rows);

    KvShape kv_of(std::size_t r, const KvShape& shape) const;
    ModelShape in_shape(std::size_t r, const ModelShape& shape) const;
    ModelShape out_shape(std::size_t r, const ModelShape& shape) const;

    // Ranks wait for each other, so one that goes on is a sign of life of all.
    template <class Done>
    void await(std::size_t r, const Done& done) const {
        ListOps::await(r, (1u << backends_.size()) - 1, done);
    }
    // Until the rank has run what it was given.
    void await(std::size_t r) const;
    // After what was started last: marks, and waits for ranks that have too many left to reach.
    void pace();
    void before_pages(std::size_t r) const override { await(r); }
    void giving_up() const override { told_ = true; }
    void hand_over(Space& a, const Handover& what);
    // Gives the residual stream to those ranks that need it and do not have it.
    void spread(Space& a, std::uint32_t ranks);
    void give_slices(Space& a, const Op& op);
    void run_alone(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a);
    void run_all(void (Ops::*of)(const PreparedOp&, Workspace&), const Op& op, Space& a);
    void project(const Op& op, Space& whole, Values values);
    void share_experts(const Op& op, Space& a);
    void begin_in(Space& a, const std::vector<std::unique_ptr<Workspace>>& workspaces);
    // Gives the later rows of a forward to a group of their own, if they are many.
    static void cut(Space& whole, std::int32_t group_rows);
    // body(group) of each group of the forward, in the order of their rows.
    template <class Body>
    static void each_group(Space& whole, const Body& body);
    // Linked forwards. Whether the op has been noted, to be run when the forward ends.
    bool note(Space& a, const Noted& call) const;
    // Runs what is noted: linked if all ranks can, else one after the other.
    void run_noted(Space& a);
    bool run_linked(Space& a);
    // When rank r is idle: throws Error if it has ended this forward without the values of others, which are named.
    void check_linked(Space& a, std::size_t r);
    std::string late_ranks() const;
    // Before a forward: what the last linked one may have left.
    void settle_link();
    void tell(const std::string& sentence) const;

    std::vector<LayerShare*> shares_;
    LinkWay link_way_ = LinkWay::none;
    std::int64_t linked_forwards_ = 0;
    bool refused_ = false;       // by a rank, the last forward that was to be linked
    bool unsettled_ = false;     // a linked forward was begun, and not looked at since by settle_link()
    bool half_begun_ = false;    // and not by all ranks
    mutable bool told_ = false;  // an error has said that it failed, if it did
    bool mended_ = false;        // since the last one that went well
    std::string why_unlinked_;   // for good; empty: it is not
    DividedOptions options_;
    std::vector<KvLayer> heads_;  // kinds of attention that were prepared: one, or layers differ
};

}  // namespace foresay::kernels
