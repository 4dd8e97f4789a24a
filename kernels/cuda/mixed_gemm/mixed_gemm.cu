// The plan of a launch of mixed_gemm, and the memory that its launches share.
//
// What a tile costs is estimated from what its CTA reads for each block of K, from L2 at best, and from the products;
// the tile with the least cost times waves is taken. Tiles of few panels divide a small matrix among more
// multiprocessors and read the operands more often.

#include "kernels/cuda/mixed_gemm/mixed_gemm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {

// sm90a/ has these.
template <QuantType E>
void launch_mixed_as(const OperandCall& operands, const MixedArgs& args, const DeviceInfo& device, cudaStream_t stream);

namespace {

// Calls body with the type as a constant. float32 has no such kernel.
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
        case QuantType::f32:
            break;
    }
    bug("float32 has no mixed_gemm");
}

// Images of a row and input, in bytes: those of plain numbers are the largest.
constexpr std::int64_t kImageBytesOf64 = OperandImage<QuantType::f16>::kBytes;

constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

int parts_of(std::int64_t inputs) { return static_cast<int>((inputs + kSplitInputs - 1) / kSplitInputs); }

// Sums of the parts, in floats, of a stack of `outs` packed rows.
std::int64_t terms_of(std::int64_t outs, std::int64_t inputs, std::int64_t rows) {
    const int parts = parts_of(inputs);
    return parts == 1 ? 0 : parts * rounded_up(outs, 8 * kPanelRows) * rounded_up(rows, kMixedTile);
}

struct Sizes {
    std::int64_t operand_bytes, squares, terms, arrivals;

    Sizes(const ModelShape& s, std::int32_t max_rows) {
        const std::int64_t rows = rounded_up(std::min(max_rows, kMixedRows), 8);
        const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim,
                           kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
        const std::int64_t widest = rounded_up(std::max<std::int64_t>({s.d_model, s.d_ff, q}), 256);
        operand_bytes = widest / 64 * rows / 8 * kImageBytesOf64;
        squares = parts_of(widest) * 16 * rows;
        // Enough for 128 rows of any op but the LM head; and of that where it is no
        // larger.
        const std::int64_t outs = std::max<std::int64_t>(q + 2 * kv, 2LL * s.d_ff);
        terms = std::max({terms_of(outs, s.d_model, kMixedTile), terms_of(s.d_model, widest, kMixedTile),
                          std::min<std::int64_t>(terms_of(s.d_model, widest, kMixedRows), 16 << 20)});
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

// The plan with the least estimated time; stages 0 where no tile has room for two.
template <QuantType E>
MixedPlan plan_of(const GemvOp& op, std::int32_t rows, const DeviceInfo& device) {
    // Bytes that a multiprocessor takes from L2 per clock, instructions per clock, and clocks that a stage takes at
    // least.
    constexpr double kBytesPerClock = 20, kInstructionsPerClock = 3, kStageClocks = 400;
    MixedPlan best;
    double least = 0;
    const int wanted = rows <= 32 ? 32 : rows <= 64 ? 64 : kMixedTile;
    visit_mixed_tiles<E>([&](auto panels, auto sets, auto slices, auto columns, auto cluster) {
        using Tile = MixedTile<E, panels, sets * columns, slices>;
        if (sets * columns != wanted) return;
        MixedPlan plan;
        plan.panels = panels;
        plan.sets = sets;
        plan.slices = slices;
        plan.columns = columns;
        plan.cluster = cluster;
        plan.token_tiles = (rows + wanted - 1) / wanted;
        // Of whole clusters; units are those of a cluster.
        plan.row_tiles = (op.panel_count + panels * cluster - 1) / (panels * cluster) * cluster;
        plan.units = plan.token_tiles * plan.row_tiles / cluster * op.split;
        constexpr int kBefore = kMixedRingAt + Tile::kPassageBytes;
        plan.stages = std::min((static_cast<int>(device.shared_bytes) - kBefore) / Tile::kStageBytes, kMaxMixedStages);
        plan.shared_bytes = kBefore + plan.stages * Tile::kStageBytes;
        if (plan.stages < 2) return;
        const int clusters = device.processors / cluster, waves = (plan.units + clusters - 1) / clusters;
        // Of a block of K. What is copied to all CTAs of a cluster is read once.
        const double bytes = panels * Tile::kWeightBytes + 1.0 * wanted / 8 * Tile::kImageBytes / cluster;
        constexpr int kInputs = block_format(E).inputs;
        const double instructions = panels * 2.0 * sets * kInputs / 64 * (90 + 1.3 * columns);
        double cost = waves * std::max({bytes / kBytesPerClock, instructions / kInstructionsPerClock,
                                        kStageClocks * kInputs / 64 / slices});
        static const char* const only = std::getenv("MIXED_ONLY");  // EXPERIMENT panels,sets,slices,cluster
        if (only != nullptr) {
            const char name[5] = {static_cast<char>('0' + panels), static_cast<char>('0' + sets),
                                  static_cast<char>('0' + slices), static_cast<char>('0' + cluster), 0};
            if (std::strstr(only, name) == nullptr) cost += 1e9;
        }
        if (best.stages == 0 || cost < least) {
            best = plan;
            least = cost;
        }
    });
    static const char* const experiment = std::getenv("MIXED_EXPERIMENT");  // EXPERIMENT
    if (experiment != nullptr) best.experiment = std::atoi(experiment);
    return best;
}

}  // namespace

MixedWorkspace::MixedWorkspace(const ModelShape& shape, std::int32_t max_rows) {
    if (max_rows < kMixedLeast) return;
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
    if (max_rows < kMixedLeast) return 0;
    const Sizes sizes(shape, max_rows);
    return sizes.operand_bytes + 4 * (sizes.squares + sizes.terms + sizes.arrivals);
}

std::int32_t mixed_rows(QuantType quant_type, const GemvOp& op, std::int32_t rows, const MixedScratch& scratch) {
    const DeviceInfo& device = DeviceContext::current().info();
    if (quant_type == QuantType::f32 || rows < kMixedLeast || !runs_mixed(device)) return 0;
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
                   (divided.split == 1 ||
                    static_cast<std::size_t>(static_cast<std::int64_t>(plan.units) * plan.cluster * plan.panels *
                                             kPanelRows * plan.sets * plan.columns) <= scratch.term_floats);
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
