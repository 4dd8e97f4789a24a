// The plan of a decode launch: how panels and K are divided among CTAs, and what lies where in shared memory.
//
// Two things are decided here and only here, because the kernel takes them from GemvPlan and GemvOp:
//   - which CTA multiplies what. K is split by the width of the matrix alone (kSplitInputs), never by the number of
//     rows: the split decides the order of the sums, and so the bits. How many panels a CTA has changes nothing but
//     speed, since a panel's sums are independent of all others.
//   - how shared memory is shared out. Everything but the ring has the size it needs; the ring gets the rest. More rows
//     mean fewer ring slots, down to `least_slots`; then plan_gemv() refuses and the caller takes fewer rows at a time.

#include "kernels/cuda/decode/gemv.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/decode/packed_plan.cuh"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/weights/panel_format.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {

template <QuantType E>
void launch_gemv_as(const GemvArgs<kManySteps>& args, int processors, bool overlap, cudaStream_t stream);
template <QuantType E, bool kMixes>
void launch_linked_as(const LinkedArgs& args, int processors, bool overlap, cudaStream_t stream);

namespace {

constexpr std::int32_t round_up(std::int32_t value, std::int32_t step) { return (value + step - 1) / step * step; }

// Parts that K is split into: by the shape alone, so that sums have one order. (No matrix is so wide that the number of
// multiprocessors counts.)
int split_of(const GemvOp& op, int processors) {
    return std::min((op.inputs + kSplitInputs - 1) / kSplitInputs, processors);
}

// Does nothing; asks what architecture the code of this library was compiled for.
__global__ void compiled() {}

}  // namespace

// The device memory that GemvScratch points to, one per device: 48 MiB of split-K packets and 24 MiB of flagged words.
// Wider models than that allows still run: plan_gemv() lets matrices share their packets, and flag_layers() leaves the
// layers to meet at barriers. Flagged words need no clearing here, because the epilogue warps reset them at the start
// of every launch that uses them.
struct DecodeScratch {
    DeviceBuffer<std::uint32_t> counters;
    DeviceBuffer<float> zeros, partials, flagged;
    GemvScratch view;

    explicit DecodeScratch(int device);
};

DecodeScratch::DecodeScratch(int device)
    : counters(kScratchCounters), zeros(4), partials(std::size_t{12} << 20), flagged(std::size_t{6} << 20) {
    cuda_check(cudaMemset(counters.data(), 0, counters.bytes()), "cannot clear memory");
    cuda_check(cudaMemset(zeros.data(), 0, zeros.bytes()), "cannot clear memory");
    cuda_check(cudaMemset(partials.data(), 0, partials.bytes()), "cannot clear memory");
    int reserved = 0;
    cuda_check(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device),
               "cannot ask for the shared memory that is reserved");
    // The kernels were compiled with kLittleShared of their architecture, which may be older than the device's.
    cudaFuncAttributes attributes = {};
    cuda_check(cudaFuncGetAttributes(&attributes, compiled), "cannot ask what kernels were compiled for");
    // Backends may launch on a stream that does not wait for the default one.
    cuda_check(cudaDeviceSynchronize(), "the device failed");
    view = {static_cast<std::uint32_t>(reserved),
            has_little_shared(attributes.ptxVersion),
            counters.data(),
            zeros.data(),
            partials.data(),
            partials.size(),
            flagged.data(),
            flagged.size()};
}

const GemvScratch& gemv_scratch() {
    DeviceContext& context = DeviceContext::current();
    const std::lock_guard lock(device_mutex(context.info().index));
    if (!context.decode_scratch) context.decode_scratch = std::make_shared<DecodeScratch>(context.info().index);
    return context.decode_scratch->view;
}

namespace {

// Panels and parts of K of each op, and where the sums of split ones lie.
void divide_among_ctas(const GemvScratch& scratch, int processors, std::span<GemvOp> ops, int rows, GemvPlan& plan) {
    plan.splits = false;
    std::size_t partial_floats = 0;
    for (GemvOp& op : ops) {
        if (op.kind != OpKind::matrix) continue;
        // The first `members` CTAs have part 0, the next ones part 1, and so on. What does not divide evenly goes to
        // the first of them, one panel or block each.
        op.split = split_of(op, processors);
        op.members = processors / op.split;
        op.panels_each = op.panel_count / op.members;
        op.panels_more = op.panel_count % op.members;
        op.blocks_each = op.blocks / op.split;
        op.blocks_more = op.blocks % op.split;
        if (op.split > 1) {
            plan.splits = true;
            // 16 pairs of sums and a sum of squares per row, 16 bytes each (SplitSums).
            const std::size_t floats = static_cast<std::size_t>(op.panel_count) * op.split * 17 * 4 * rows;
            check(floats <= scratch.partial_floats, "the sums of a split matrix fit into the scratch memory");
            op.partials_at = static_cast<std::int64_t>(partial_floats);
            partial_floats += floats;
        }
    }
    // Where the places together are too large, all matrices use the same one. Barriers between them keep that apart, so
    // layers then do not pass flagged words (linear_sequence.cpp).
    plan.apart = partial_floats <= scratch.partial_floats;
    if (!plan.apart) {
        for (GemvOp& op : ops) op.partials_at = 0;
    }
}

// Shared memory: header, ring, rows 8 to 15 of the activations, panel sums, row statistics. The ring gets what the
// others leave. False: that is less than `least_slots` slots.
bool place_shared(QuantType quant_type, bool little_shared, std::size_t shared_budget, int least_slots, bool attends,
                  int rows, GemvPlan& plan) {
    const int warps = gemv_warps(quant_type);
    const bool packed = quant_type == QuantType::packed;
    if (packed && rows > kPackedRows) return false;
    plan.upper_rows_bytes = packed ? packed_operand_bytes(rows) : upper_rows_bytes(quant_type, rows);
    // More buffers let the epilogue lag further; their memory is the ring's loss.
    plan.sum_buffers = rows == 1 ? 8 : rows <= 4 ? 4 : rows <= 8 ? 2 : 1;
    plan.sum_buffer_mask = static_cast<std::uint32_t>(plan.sum_buffers - 1);
    // Activations of up to eight rows pass through the sums' memory on their way to the lanes that multiply with them
    // (ActivationOperand), at least 128 inputs of a row, 256 bytes, at a time.
    plan.warp_sum_stride = std::max(plan.sum_buffers * kPanelRows * rows, std::min(rows, 8) * 64);
    plan.rows_inverse = inverse_of(rows);
    const int sums_bytes = warps * plan.warp_sum_stride * 4;
    const int row_stats_bytes = warps * 32 * 4;
    const int operand_bytes = warps * plan.upper_rows_bytes, header_bytes = packed ? kPackedHeaderBytes : 0;
    // Attention and panel sums use the same memory, in different steps. So do packed rows, before they are operands, as
    // far as the operands' memory does not suffice.
    const int passing_bytes = packed ? packed_rows_together(rows) * kPackedPassageBytes - operand_bytes : 0;
    const int sums_room = std::max({sums_bytes, attends ? kAttendShared : 0, passing_bytes});
    const int fixed = kGemvHeaderBytes + header_bytes + operand_bytes + sums_room + row_stats_bytes + 3 * 128;
    const int slot_bytes =
        packed ? packed_chunk_bytes(little_shared)
               : chunk_blocks(quant_type, rows > 8 ? 2 : 1, little_shared) * block_format(quant_type).bytes;
    plan.ring_slots =
        std::min((static_cast<int>(shared_budget) - fixed) / slot_bytes, packed ? kPackedRingSlots : kMaxRingSlots);
    if (plan.ring_slots < std::max(1, least_slots)) return false;
    int at = kGemvHeaderBytes + plan.ring_slots * slot_bytes;
    const auto take = [&](int bytes) {  // on lines of 128 bytes, which `fixed` has three of for rounding
        at = round_up(at, 128);
        const int begin = at;
        at += bytes;
        return begin;
    };
    take(header_bytes);
    plan.upper_rows_at = take(operand_bytes);
    plan.sums_at = take(sums_room);
    check(!packed || plan.sums_at == plan.upper_rows_at + operand_bytes, "packed rows pass through both");
    plan.row_stats_at = take(row_stats_bytes);
    plan.shared_bytes = at;
    return true;
}

}  // namespace

bool plan_gemv(QuantType quant_type, const GemvScratch& scratch, std::size_t shared_budget, int processors,
               int least_slots, std::span<GemvOp> ops, int rows, GemvPlan& plan) {
    if (quant_type == QuantType::f32) return true;  // gemv_f32 has no plan: no shared memory, no CTA waits for another
    plan.counters = scratch.counters;
    plan.zeros = scratch.zeros;
    plan.shared_start = scratch.shared_start;
    plan.partials = scratch.partials;
    divide_among_ctas(scratch, processors, ops, rows, plan);
    const bool attends =
        std::any_of(ops.begin(), ops.end(), [](const GemvOp& op) { return op.kind == OpKind::attend; });
    if (scratch.little_shared) shared_budget = std::min(shared_budget, kLittleSharedBytes);
    return place_shared(quant_type, scratch.little_shared, shared_budget, least_slots, attends, rows, plan);
}

void launch_gemv(QuantType quant_type, const GemvArgs<kManySteps>& args, int processors, bool overlap,
                 cudaStream_t stream) {
    if (quant_type == QuantType::packed) return launch_gemv_as<QuantType::packed>(args, processors, overlap, stream);
    visit_quant_type(quant_type,
                     [&](auto q) { launch_gemv_as<decltype(q)::kQuantType>(args, processors, overlap, stream); });
}

void launch_gemv_linked(QuantType quant_type, const LinkedArgs& args, int processors, bool overlap,
                        cudaStream_t stream) {
    check(can_link(quant_type), "a quantisation type with kernels for linked ranks");
    if (quant_type == QuantType::q4_0) {
        launch_linked_as<QuantType::q4_0, false>(args, processors, overlap, stream);
    } else if (quant_type == QuantType::q8_0) {
        launch_linked_as<QuantType::q8_0, false>(args, processors, overlap, stream);
    } else {
        launch_linked_as<kLargestOfMix, true>(args, processors, overlap, stream);
    }
}

}  // namespace foresay::kernels::cuda
