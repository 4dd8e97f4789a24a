// kernels/divided_space.h: what kernels/divided_ops.cpp makes and kernels/divided_forward.cpp runs.
//
// Layout:   vectors by rank; null where a rank has no part.
// Threads:  as kernels/divided_ops.h.
#pragma once

#include <memory>
#include <vector>

#include "kernels/divided_ops.h"
#include "kernels/sampling.h"

namespace foresay::kernels {

struct DividedOps::Op final : PreparedOp {
    bool alone = false;  // on one rank, whole
    std::size_t rank = 0;
    std::vector<std::unique_ptr<PreparedOp>> ops;     // by rank; null: it has no part
    std::vector<Part> parts;                          // of the outputs, by rank
    std::vector<Part> inputs;                         // which rank makes which inputs; of O and down
    std::vector<std::unique_ptr<PreparedOp>> finish;  // by rank, what follows when all outputs are there; or empty
    bool keeps_branch = false;                        // of moe
    std::int32_t heads = 0;                           // of attend: of all ranks
};

// An op of a forward that may be run linked.
struct DividedOps::Noted {
    ForwardOp op = ForwardOp::embed;
    const Op* prepared = nullptr;
    Kv* kv = nullptr;
    std::int32_t layer = 0;
};

struct DividedOps::Kv final : Pages {
    std::vector<std::vector<std::int32_t>> places;  // by rank and layer: the layer of its part; -1: none
};

// What a group of rows has, and for the first group also what belongs to the whole forward.
struct DividedOps::Space final : Workspace {
    std::vector<std::unique_ptr<Workspace>> in, out;        // by rank; null: it has no part of the model
    std::vector<Workspace*> mixtures;                       // `in`, where experts run: all ranks
    std::uint32_t ranks = 0;                                // that have
    std::uint32_t fresh = 0;                                // whose `in` has the residual stream as it is
    bool slices = false;                                    // whether each `out` has its part of that
    std::shared_ptr<HostMemory> whole_memory, part_memory;  // of all groups: what uses them waits
    Batch batch;                                            // the group's
    std::size_t logit_rows = 0;                             // in it
    std::vector<std::int32_t> own_logit_rows;               // of a second group, counted from its first row

    // Of the whole forward.
    std::unique_ptr<Space> late;  // the second group; null: forwards of this model are not cut
    bool cut = false;             // whether this one is
    std::vector<Row> rows;
    bool notes = false;                          // ops are noted
    bool linked = false;                         // and were run so
    std::string unheard;                         // why results of that are of no use; empty: nothing is known
    std::vector<Noted> noted;                    // and not yet run
    std::vector<std::vector<LinkedCall>> calls;  // of them, by rank
    const Op* head = nullptr;                    // of the forward
    std::vector<float> logits;                   // [logit rows, V]
    std::vector<std::uint8_t> known;             // logit rows that are there
    HostSlots slots;

    std::size_t count() const { return batch.rows.size(); }
    static std::span<float> first(HostMemory& memory, std::int64_t values) {
        return {reinterpret_cast<float*>(memory.bytes.data()), static_cast<std::size_t>(values)};
    }
    std::span<float> whole(std::int64_t width) const { return first(*whole_memory, width * std::ssize(batch.rows)); }
    std::span<float> part(std::int64_t width) const { return first(*part_memory, width * std::ssize(batch.rows)); }
};

struct DividedOps::Handover {
    const std::vector<std::unique_ptr<Workspace>>& from;
    Values made;                     // in `from`
    const std::vector<Part>& parts;  // which each rank makes
    std::int64_t width;              // of all
    const std::vector<std::unique_ptr<Workspace>>& to;
    Values read;  // in `to`
};

template <class Body>
void DividedOps::each_group(Space& whole, const Body& body) {
    body(whole);
    if (whole.cut) body(*whole.late);
}

inline DividedOps::Space& DividedOps::self(Workspace& workspace) { return static_cast<Space&>(workspace); }
inline const DividedOps::Op& DividedOps::self(const PreparedOp& op) { return static_cast<const Op&>(op); }

}  // namespace foresay::kernels
