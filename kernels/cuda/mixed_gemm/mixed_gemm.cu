// The plan of a launch of mixed_gemm, and the memory that its launches share.

#include "kernels/cuda/mixed_gemm/mixed_gemm.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {

// sm90a/ has these.
template <QuantType E>
void launch_mixed_as(const OperandCall& operands, const MixedArgs& args, const DeviceInfo& device, cudaStream_t stream);

namespace {

// float32 is rare, and mxfp4 is a type of experts, which have products of their own.
constexpr bool has_mixed_gemm(QuantType quant_type) {
    return quant_type != QuantType::f32 && quant_type != QuantType::mxfp4;
}

// Calls body with the type as a constant.
template <class Body>
auto with_type(QuantType quant_type, const Body& body) {
    switch (quant_type) {
        case QuantType::q4_0:
            return body(std::integral_constant<QuantType, QuantType::q4_0>());
        case QuantType::q8_0:
            return body(std::integral_constant<QuantType, QuantType::q8_0>());
        case QuantType::q4_k:
            return body(std::integral_constant<QuantType, QuantType::q4_k>());
        case QuantType::q5_k:
            return body(std::integral_constant<QuantType, QuantType::q5_k>());
        case QuantType::q6_k:
            return body(std::integral_constant<QuantType, QuantType::q6_k>());
        case QuantType::f16:
            return body(std::integral_constant<QuantType, QuantType::f16>());
        case QuantType::bf16:
            return body(std::integral_constant<QuantType, QuantType::bf16>());
        case QuantType::packed:
            return body(std::integral_constant<QuantType, QuantType::packed>());
        case QuantType::f32:
        case QuantType::mxfp4:
            break;
    }
    bug("a quantisation type without mixed_gemm");
}

// Images of a row and input, in bytes: those of plain numbers are the largest.
constexpr std::int64_t kImageBytesOf64 = OperandImage<QuantType::f16>::kBytes;
static_assert(OperandImage<QuantType::packed>::kBytes <= kImageBytesOf64);

constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

int parts_of(std::int64_t inputs) { return static_cast<int>((inputs + kSplitInputs - 1) / kSplitInputs); }

// Sums of the parts, in floats, of a stack of `outs` packed rows and whole tiles of rows of the batch.
std::int64_t terms_of(std::int64_t outs, std::int64_t inputs, std::int64_t rows) {
    const int parts = parts_of(inputs);
    return parts == 1 ? 0 : parts * rounded_up(outs, 8 * kPanelRows) * rows;
}

constexpr std::int32_t least_rows(QuantType quant_type) {
    return quant_type == QuantType::packed ? kMixedLeastPacked : kMixedLeast;
}

struct Sizes {
    std::int64_t operand_bytes, squares, terms, arrivals;

    Sizes(const ModelShape& s, std::int32_t max_rows) {
        const std::int64_t rows = rounded_up(std::min(max_rows, kMixedRows), 8);
        const bool few = rows < kMixedLeast;  // of packed weights alone
        const std::int64_t tile = few ? kMixedFew : kMixedTile, most = few ? kMixedFew : kMixedRows;
        const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim,
                           kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
        const std::int64_t widest = rounded_up(std::max<std::int64_t>({s.d_model, s.d_ff, q}), 256);
        operand_bytes = widest / 64 * rows / 8 * kImageBytesOf64;
        squares = parts_of(widest) * 16 * rows;
        // Enough for 128 rows of any op but the LM head; and of that where it is no larger.
        const std::int64_t outs = std::max<std::int64_t>(q + 2 * kv, 2LL * s.d_ff);
        terms = std::max({terms_of(outs, s.d_model, tile), terms_of(s.d_model, widest, tile),
                          std::min<std::int64_t>(terms_of(s.d_model, widest, most), 16 << 20)});
        arrivals = std::int64_t{1} << 16;
    }
};

// Fills in the parts of K as plan_gemv() does.
void divide(GemvOp& op) {
    op.split = parts_of(op.inputs);
    op.blocks_each = op.blocks / op.split;
    op.blocks_more = op.blocks % op.split;
}

// Whether the device runs the kernels of sm90a/, and they were built.
bool runs_mixed([[maybe_unused]] const DeviceInfo& device) {
#ifdef FORESAY_HAVE_SM90A
    return device.capability == 90;
#else
    return false;
#endif
}

std::atomic<MixedTileShape> forced_tile;

// Clocks of a step: 64 inputs of a slice of K, measured on an H200 and an H100 (docs/experiments/mixed-gemm.md). They
// hardly depend on how many warpgroups a tile has, since each waits for its own products, but for four of 64 rows.
// Slices at once share a step, in which more operands come and after which their sums meet.
constexpr double step_clocks(QuantType quant_type, const MixedTileShape& tile) {
    const double one = tile.columns > 64             ? 1340
                       : has_four_groups_of_64(tile) ? 1475
                       : tile.columns == 64          ? 900
                       : tile.columns == kMixedFew   ? 760
                                                     : 950;
    // Packed rows are unpacked for so long that this hardly shows.
    if (quant_type == QuantType::packed) return one * (1 + 0.08 * (tile.slices - 1));
    return one * (tile.slices == 1 ? 1.0 : tile.slices == 2 ? 1.3 : 1.4);
}

// The plan with the least estimated time; stages 0 where no tile has room for two. It is a matter of how many steps a
// CTA takes, one unit after the other.
template <QuantType E>
MixedPlan plan_of(const GemvOp& op, std::int32_t rows, const DeviceInfo& device) {
    constexpr double kUnitClocks = 3000;
    const MixedTileShape forced = forced_tile.load();
    MixedPlan best;
    double least = 0;
    visit_mixed_tiles<E>([&](auto panels, auto slices, auto columns) {
        using Tile = MixedTile<E, panels, columns, slices>;
        MixedPlan plan;
        plan.panels = panels;
        plan.slices = slices;
        plan.columns = columns;
        plan.token_tiles = (rows + columns - 1) / columns;
        plan.row_tiles = (op.panel_count + panels - 1) / panels;
        plan.units = plan.token_tiles * plan.row_tiles * op.split;
        constexpr int kBefore = Tile::kStagesAt;
        plan.stages = std::min((static_cast<int>(device.shared_bytes) - kBefore) / Tile::kStageBytes, kMaxMixedStages);
        plan.shared_bytes = kBefore + plan.stages * Tile::kStageBytes;
        if (plan.stages < 2) return;
        const MixedTileShape tile{std::uint8_t{panels()}, std::uint8_t{slices()}, std::uint8_t{columns()}};
        if (Tile::kTotalShared && op.split > 1) return;
        // Two tiles of 16 rows instead of one of 32 have not been measured.
        if (columns == kMixedFew && rows > columns && tile != forced) return;
        const double clocks = step_clocks(E, tile) * block_format(E).inputs / 64;
        const int waves = (plan.units + device.processors - 1) / device.processors;
        const int steps = (op.blocks / op.split + slices - 1) / slices;
        const double cost = tile == forced ? 0.0 : waves * (steps * clocks + kUnitClocks);
        if (best.stages == 0 || cost < least) {
            best = plan;
            least = cost;
        }
    });
    return best;
}

}  // namespace

MixedTileShape force_mixed_tile(MixedTileShape tile) { return forced_tile.exchange(tile); }

MixedWorkspace::MixedWorkspace(const ModelShape& shape, std::int32_t max_rows) {
    if (max_rows < kMixedLeastPacked) return;
    const Sizes sizes(shape, max_rows);
    operands_ = DeviceBuffer<std::uint8_t>(static_cast<std::size_t>(sizes.operand_bytes));
    squares_ = DeviceBuffer<float>(static_cast<std::size_t>(sizes.squares));
    terms_ = DeviceBuffer<float>(static_cast<std::size_t>(sizes.terms));
    arrivals_ = DeviceBuffer<std::uint32_t>(static_cast<std::size_t>(sizes.arrivals));
    cuda_check(cudaMemset(arrivals_.data(), 0, arrivals_.bytes()), "cannot clear memory");
    cuda_check(cudaDeviceSynchronize(), "the device failed");
    view_ = {operands_.data(), operands_.bytes(), squares_.data(),  squares_.size(),
             terms_.data(),    terms_.size(),     arrivals_.data(), arrivals_.size()};
}

std::int64_t MixedWorkspace::bytes(const ModelShape& shape, std::int32_t max_rows) {
    if (max_rows < kMixedLeastPacked) return 0;
    const Sizes sizes(shape, max_rows);
    return sizes.operand_bytes + 4 * (sizes.squares + sizes.terms + sizes.arrivals);
}

MixedPlan plan_mixed_gemm(QuantType quant_type, const GemvOp& op, std::int32_t rows, const DeviceInfo& device) {
    GemvOp divided = op;
    divide(divided);
    return with_type(quant_type, [&](auto type) { return plan_of<type>(divided, rows, device); });
}

std::int32_t mixed_rows(QuantType quant_type, const GemvOp& op, std::int32_t rows, const MixedScratch& scratch) {
    const DeviceInfo& device = DeviceContext::current().info();
    if (!has_mixed_gemm(quant_type) || rows < least_rows(quant_type) || !runs_mixed(device)) return 0;
    GemvOp divided = op;
    divide(divided);
    rows = std::min(rows, kMixedRows);
    for (;; rows = rows / 2 / kMixedTile * kMixedTile) {
        if (rows == 0) return 0;
        const bool fits = with_type(quant_type, [&](auto type) {
            const std::int64_t eights = (rows + 7) / 8;
            const MixedPlan plan = plan_of<type>(divided, rows, device);
            return plan.stages >= 2 &&
                   static_cast<std::size_t>(op.blocks * eights * OperandImage<type>::kBytes) <= scratch.operand_bytes &&
                   static_cast<std::size_t>(divided.split * gemv_warps(type) * 8 * eights) <= scratch.square_floats &&
                   static_cast<std::size_t>(plan.row_tiles * plan.token_tiles) <= scratch.arrival_words &&
                   (divided.split == 1 || static_cast<std::size_t>(static_cast<std::int64_t>(plan.units) * plan.panels *
                                                                   kPanelRows * plan.columns) <= scratch.term_floats);
        });
        if (fits) return rows;
    }
}

void launch_mixed_gemm(QuantType quant_type, const GemvOp& op, const GemvStep& step, std::int32_t rows,
                       const MixedScratch& scratch, cudaStream_t stream) {
    const DeviceInfo& device = DeviceContext::current().info();
    with_type(quant_type, [&](auto type) {
        OperandCall operands;
        operands.op = op;
        divide(operands.op);
        operands.norm = step.norm;
        operands.panels = step.panels;
        operands.rows = rows;
        operands.eights = (rows + 7) / 8;
        operands.operands = scratch.operands;
        operands.squares = scratch.squares;
        MixedArgs args;
        args.op = operands.op;
        args.step = step;
        args.rows = rows;
        args.eights = operands.eights;
        args.operands = scratch.operands;
        args.squares = scratch.squares;
        args.terms = scratch.terms;
        args.arrivals = scratch.arrivals;
        args.plan = plan_of<type>(args.op, rows, device);
#ifdef FORESAY_HAVE_SM90A
        launch_mixed_as<type>(operands, args, device, stream);
#endif
    });
}

}  // namespace foresay::kernels::cuda
