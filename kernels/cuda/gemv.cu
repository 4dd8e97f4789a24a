#include "kernels/cuda/gemv.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/formats.h"

namespace foresay::kernels::cuda {

template <Encoding E>
void launch_gemv_as(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);

namespace {

constexpr int kBarrierBytes = 1024;
constexpr int kMaxStages = 16;

constexpr std::int32_t round_up(std::int32_t value, std::int32_t step) { return (value + step - 1) / step * step; }

}  // namespace

GemvTuning& gemv_tuning() {
    static GemvTuning tuning;
    return tuning;
}

int gemv_split(Encoding encoding, std::int64_t /*rows*/, std::int64_t inputs, int /*processors*/) {
    if (encoding == Encoding::f32) return 1;
    if (gemv_tuning().split > 0) return gemv_tuning().split;
    int split = 1;
    while (split < kMaxSplit && inputs / split > 4096) split *= 2;
    return split;
}

bool plan_gemv(Encoding encoding, std::size_t shared_budget, GemvArgs& args) {
    if (encoding == Encoding::f32) return true;
    const BlockFormat format = block_format(encoding);
    const bool floats = encoding == Encoding::f16 || encoding == Encoding::bf16;
    const int T = args.rows, slices = kGemvWarps * args.split;
    args.slice_blocks = (args.blocks + slices - 1) / slices;
    const int inputs = args.slice_blocks * format.inputs;
    args.x_stride = round_up(inputs * 2, 128) + 64;  // lanes of two rows of the batch meet no bank twice
    args.x_bytes = args.x_stride * T * (floats ? 2 : 1);
    args.sums_bytes = floats ? 0 : inputs / (encoding == Encoding::q6_k ? 16 : 32) * ((T + 1) / 2) * 16;
    args.stage_blocks = std::clamp(gemv_tuning().stage_bytes / format.bytes, 1, std::max(1, args.slice_blocks));
    const int stage_bytes = args.stage_blocks * format.bytes;
    args.flush_panels = args.split > 1 ? gemv_tuning().flush_panels : 0;
    const int parts_bytes = 2 * kGemvWarps * kPanelRows * T * 4;
    const int exchange_bytes = 2 * args.flush_panels * (kPanelRows / 2) * T * 8;
    const int stats_bytes = (kGemvWarps * 32 + 16) * 4;
    const int fixed = kBarrierBytes + kGemvWarps * (args.x_bytes + args.sums_bytes) + parts_bytes + exchange_bytes +
                      stats_bytes + 6 * 128;
    const auto stages_in = [&](std::size_t budget) {
        return (static_cast<std::int64_t>(budget) - fixed) / (kGemvWarps * stage_bytes);
    };
    // Half of a multiprocessor, if enough of it is left for weights: then the next kernel's ring fills beside this one.
    std::int64_t stages = stages_in(std::min<std::size_t>(shared_budget, gemv_tuning().shared_half));
    if (stages < 2 || stages * kGemvWarps * stage_bytes < gemv_tuning().least_ring) stages = stages_in(shared_budget);
    if (stages < 2) return false;
    const int per_panel = (args.slice_blocks + args.stage_blocks - 1) / args.stage_blocks;
    (void)per_panel;
    args.stages = static_cast<int>(std::min<std::int64_t>(stages, kMaxStages));
    int at = kBarrierBytes + kGemvWarps * args.stages * stage_bytes;
    const auto take = [&](int bytes) {
        at = round_up(at, 128);
        const int begin = at;
        at += bytes;
        return begin;
    };
    args.x_at = take(kGemvWarps * args.x_bytes);
    args.sums_at = take(kGemvWarps * args.sums_bytes);
    args.parts_at = take(parts_bytes);
    args.exchange_at = take(exchange_bytes);
    args.stats_at = take(stats_bytes);
    args.shared_bytes = at;
    return true;
}

void launch_gemv(Encoding encoding, const GemvArgs& args, int processors, bool overlap, cudaStream_t stream) {
    switch (encoding) {
        case Encoding::f32:
            return launch_gemv_as<Encoding::f32>(args, processors, overlap, stream);
        case Encoding::f16:
            return launch_gemv_as<Encoding::f16>(args, processors, overlap, stream);
        case Encoding::bf16:
            return launch_gemv_as<Encoding::bf16>(args, processors, overlap, stream);
        case Encoding::q4_0:
            return launch_gemv_as<Encoding::q4_0>(args, processors, overlap, stream);
        case Encoding::q8_0:
            return launch_gemv_as<Encoding::q8_0>(args, processors, overlap, stream);
        case Encoding::q4_k:
            return launch_gemv_as<Encoding::q4_k>(args, processors, overlap, stream);
        case Encoding::q5_k:
            return launch_gemv_as<Encoding::q5_k>(args, processors, overlap, stream);
        case Encoding::q6_k:
            return launch_gemv_as<Encoding::q6_k>(args, processors, overlap, stream);
    }
    bug("unknown weight encoding");
}

}  // namespace foresay::kernels::cuda
