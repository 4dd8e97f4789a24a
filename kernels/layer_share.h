// kernels/layer_share.h: what a backend can do, besides kernels/ops.h, so that several of them share each layer
// (kernels/divided_ops.h): its values are read and written between two ops, and ops that need a whole row run in two
// parts. A backend that does not derive from LayerShare has only whole layers.
//
// Layout:   read_values() and write_values() have rows without padding. Values of a row: as many as the op that makes
//           them, or the one that reads them, has. expert_outputs: [T, K, D], the experts of a row ascending.
// Life:     values are read after the op that makes them and written before the op that reads them, in one forward.
// Threads:  as for the ops.
// Precision: as of the whole op, to the bit.
// Errors:   the prepare functions throw Error as prepare() does. What fails on a device is thrown where it is noticed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/forward_op.h"
#include "kernels/progress.h"
#include "kernels/row_division.h"

namespace foresay::kernels {

// residual: x. attended: what attend makes for attention_out. inner: what mlp_in makes for mlp_out. sums: the products
// of mlp_out, with their bias. expert_outputs: of the experts that a row has chosen, down . act each.
enum class Values : std::uint8_t { residual, attended, inner, sums, expert_outputs };

// Some values of each row: from `first` of `width`.
struct ValuesAt {
    Workspace& workspace;
    Values values;
    std::int64_t width, first;
};

// What some rows are a part of: how many rows that has, and which of them is the first. Of attention_in the rows of q,
// k and v together, and the first one is not told.
struct Whole {
    std::int64_t rows = 0, first = 0;
};

// An op of a forward that backends run together (LayerShare::run_linked), of one of them: its part of the layer.
struct LinkedCall {
    ForwardOp op = ForwardOp::embed;  // one that divides: not moe, per_layer_embed, per_layer
    const PreparedOp* prepared = nullptr;
    const KvPages* kv = nullptr;  // attention_in, attend; the backend's own pages and layer
    std::int32_t layer = 0;
    std::int32_t first = 0;  // the first value that it makes of the whole row
    std::int32_t heads = 0;  // attend: of the whole row
    bool sums = false;       // attention_out, mlp_out: the sums alone; the op that prepare_finish() made follows
};

// How backends hand values on while they run: they do not; each stores in the memory of all; through host memory.
enum class LinkWay : std::uint8_t { none, peer_access, host_memory };

// What decides before a model is loaded whether its forwards of few decode rows will be linked.
struct LinkFacts {
    std::vector<QuantType> types;  // of the matrices of its layers, as a device keeps them; each once
    bool experts = false;
    bool soft_caps = false;         // of attention scores
    bool layer_norms = false;       // NormKind::layer
    bool layer_embeddings = false;  // Gemma 4
};

class LayerShare : public Progress {
public:
    // prepare() of a part of an op's outputs, which get the bits that they have among all of them.
    virtual std::unique_ptr<PreparedOp> prepare_part(const AttentionInSpec& spec, Whole whole) = 0;
    virtual std::unique_ptr<PreparedOp> prepare_part(const MlpInSpec& spec, Whole whole) = 0;
    virtual std::unique_ptr<PreparedOp> prepare_part(const MlpOutSpec& spec, Whole whole) = 0;
    // mlp_out(), for whose products `sums` are there already: the spec has no matrix and no bias.
    virtual std::unique_ptr<PreparedOp> prepare_finish(const MlpOutSpec& spec) = 0;
    // moe() in two parts. The first chooses among all experts of the spec, for each row, and computes expert_outputs of
    // `experts`, which may be none; the others' are zeros when they are read. The second adds them up, and all that
    // follows: without matrices. The choice stays in the workspace in between.
    virtual std::unique_ptr<PreparedOp> prepare_experts(const MoeSpec& spec, Part experts) = 0;
    virtual std::unique_ptr<PreparedOp> prepare_expert_sum(const MoeSpec& spec) = 0;
    // Once, by the first of the backends, with the first parts of one mixture of all of them: those that its own code
    // has prepared agree on what each has found out about its own weights and would have found out about all.
    virtual void agree(std::span<PreparedOp* const> /*experts*/) {}

    // `width` values of each row.
    virtual void read_values(Workspace& workspace, Values values, std::int64_t width, std::span<float> to) = 0;
    virtual void write_values(Workspace& workspace, Values values, std::int64_t width, std::span<const float> from) = 0;
    // x becomes zeros.
    virtual void clear_rows(Workspace& workspace) = 0;
    // Copies `count` values of each row from a workspace of `other`, from device to device, after what makes them and
    // before what reads them, without waiting for either. False: not possible between the two, and nothing was done.
    virtual bool copy_values(const ValuesAt& /*to*/, LayerShare& /*other*/, const ValuesAt& /*from*/,
                             std::int64_t /*count*/) {
        return false;
    }
    // Once, by the first of `all`: tries whether values that are copied between them arrive as they were, where the
    // devices say that they can. Those that do not go through host memory from then on; the sentence names them. Empty:
    // all is well.
    virtual std::string try_copies(std::span<LayerShare* const> /*all*/) { return {}; }
    // Whether copy_values() between all of them runs beside their ops, so that a forward of many rows takes less time
    // in groups of rows: what one has made is copied while the next one's ops run. Asked of the first of `all`.
    virtual bool copies_beside_ops(std::span<LayerShare* const> /*all*/) { return false; }
    // Of workspace_bytes(): what all workspaces of the backend have together.
    virtual std::int64_t shared_workspace_bytes(const ModelShape& /*shape*/, std::int32_t /*max_rows*/) const {
        return 0;
    }
    // Completes expert_outputs in `workspaces`, one of each of `all`: every backend takes those of experts[r] from
    // backend r, from device to device, without waiting for any. Once, by the first of `all`, when the first part of
    // moe() has been called on each. False: not possible between all of them, and nothing was done.
    virtual bool gather_experts(std::span<LayerShare* const> /*all*/, std::span<Workspace* const> /*workspaces*/,
                                std::span<const Part> /*experts*/) {
        return false;
    }

    // Forwards of decode rows in which backends hand values on by themselves, while they run.
    // Once, by the first of `all`, whose others are made by the same code: how these can. Nothing is done where they
    // cannot. Through host memory where there is no other way.
    virtual LinkWay link(std::span<LayerShare* const> /*all*/) { return LinkWay::none; }
    // Why such a model with such a cache will not be run linked, as a sentence without a full stop; empty: it will be,
    // as far as can be said before can_run_linked().
    virtual std::string why_not_linked(const LinkFacts& /*facts*/, KvFormat /*cache*/) const { return {}; }
    // Whether this one can run its part of the forward that has begun in `workspace`: all layers divided, each with a
    // part of this backend. The first call may be embed and the last one lm_head. No call before has been given to it.
    virtual bool can_run_linked(Workspace& /*workspace*/, std::span<const LinkedCall> /*calls*/) { return false; }
    // Starts it, without waiting. Only if all can, and then all of them must before any is waited for. Afterwards every
    // workspace has the whole residual stream. A backend that does not hear from another in time goes on without; its
    // results are of no use, and it can run no linked forward until mend_link().
    virtual void run_linked(Workspace& /*workspace*/, std::span<const LinkedCall> /*calls*/) {}
    // Of the last linked forward, once this one is idle. None: it has heard all others. Else those of `all` that it
    // knows to have been late, bit by bit; 0: it does not know which.
    virtual std::optional<std::uint32_t> gave_up_on() { return std::nullopt; }
    // Once, by the first of `all`, when all of them are idle: the link is as link() has left it, whatever has become of
    // forwards since. May wait some seconds for what one of those has left.
    virtual void mend_link(std::span<LayerShare* const> /*all*/) {}
};

}  // namespace foresay::kernels
