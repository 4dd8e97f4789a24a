#include "kernels/cuda/gemv.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/formats.h"

namespace foresay::kernels::cuda {

template <Encoding E>
void launch_gemv_as(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);

namespace {

constexpr int kBarrierBytes = 1024;
constexpr int kMaxStages = 8;

constexpr std::int32_t round_up(std::int32_t value, std::int32_t step) { return (value + step - 1) / step * step; }

// How many blocks share the inputs of a panel: by the shape alone, so that sums have one order.
int split_of(const GemvOp& op, int processors) {
    const int least = (op.inputs + kSplitInputs - 1) / kSplitInputs;
    const auto use = [&](int split) {  // percent of the multiprocessors' time
        const int members = std::max(1, processors / split), each = (op.panel_count + members - 1) / members;
        return 100LL * op.panel_count * split / (static_cast<long long>(each) * processors);
    };
    int best = least;
    for (int split = least; split <= 2 * least + 2 && split <= processors; ++split) {
        if (use(best) >= gemv_tuning().balance) break;
        if (use(split) > use(best)) best = split;
    }
    return best;
}

struct Scratch {
    DeviceBuffer<std::uint32_t> counters;
    DeviceBuffer<float> partials;
    GemvScratch view;
};

}  // namespace

GemvTuning& gemv_tuning() {
    static GemvTuning tuning;
    return tuning;
}

const GemvScratch& gemv_scratch() {
    static std::mutex mutex;
    static std::map<int, Scratch> devices;
    const std::lock_guard lock(mutex);
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    Scratch& scratch = devices[device];
    if (scratch.counters.empty()) {
        scratch.counters = DeviceBuffer<std::uint32_t>(kScratchCounters);
        cuda_check(cudaMemset(scratch.counters.data(), 0, scratch.counters.bytes()), "cannot clear memory");
        scratch.partials = DeviceBuffer<float>(std::size_t{12} << 20);
        scratch.view = {scratch.counters.data(), scratch.partials.data(), scratch.partials.size()};
    }
    return scratch.view;
}

bool plan_gemv(Encoding encoding, std::size_t shared_budget, int processors, int least_stages, GemvArgs& args) {
    if (encoding == Encoding::f32) return true;
    const BlockFormat format = block_format(encoding);
    const bool floats = encoding == Encoding::f16 || encoding == Encoding::bf16;
    const GemvScratch& scratch = gemv_scratch();
    const int T = args.rows, pairs = (T + 1) / 2, warps = gemv_warps(encoding);
    args.counters = scratch.counters;
    args.partials = scratch.partials;
    args.x_bytes = args.sums_bytes = 0;
    int most_blocks = 1;
    for (int i = 0; i < args.count; ++i) {
        GemvOp& op = args.ops[i];
        op.split = split_of(op, processors);
        op.members = processors / op.split;
        op.panels_each = op.panel_count / op.members;
        op.panels_more = op.panel_count % op.members;
        op.blocks_each = op.blocks / op.split;
        op.blocks_more = op.blocks % op.split;
        const int part_blocks = op.blocks_each + (op.blocks_more > 0 ? 1 : 0);
        const int slice_blocks = (part_blocks + warps - 1) / warps, inputs = slice_blocks * format.inputs;
        most_blocks = std::max(most_blocks, slice_blocks);
        op.x_stride = round_up(inputs * 2, 128) + 64;  // lanes of two rows of the batch meet no bank twice
        args.x_bytes = std::max(args.x_bytes, op.x_stride * T * (floats ? 2 : 1));
        if (!floats) {
            args.sums_bytes = std::max(args.sums_bytes, inputs / (encoding == Encoding::q6_k ? 16 : 32) * pairs * 16);
        }
        if (op.split > 1) {
            check(2 + op.panel_count <= kScratchCounters &&
                      static_cast<std::size_t>(op.panel_count) * op.split * 33 * T <= scratch.partial_floats,
                  "the sums of a split matrix fit into the scratch memory");
        }
    }
    args.part_buffers = T <= 4 ? 2 : 1;
    const int parts_bytes = args.part_buffers * warps * kPanelRows * T * 4;
    const int stats_bytes = warps * 32 * 4 + 32 * 4;
    const int fixed = kBarrierBytes + warps * (args.x_bytes + args.sums_bytes) + parts_bytes + stats_bytes + 4 * 128;
    // Large stages cost fewer instructions; small ones leave room for two where the inputs take much.
    std::int64_t stages = 0;
    int stage_blocks = std::clamp(gemv_tuning().stage_bytes / format.bytes, 1, most_blocks);
    for (;; stage_blocks = (stage_blocks + 1) / 2) {
        args.stage_bytes = stage_blocks * format.bytes;
        const auto stages_in = [&](std::size_t budget) {
            return (static_cast<std::int64_t>(budget) - fixed) / (warps * args.stage_bytes);
        };
        stages = stages_in(std::min<std::size_t>(shared_budget, gemv_tuning().shared_most));
        if (stages < 2 || stages * warps * args.stage_bytes < gemv_tuning().least_ring)
            stages = stages_in(shared_budget);
        if (stages >= 2 || stage_blocks == 1) break;
    }
    if (stages < least_stages) return false;
    for (int i = 0; i < args.count; ++i) args.ops[i].stage_blocks = stage_blocks;
    args.stages = static_cast<int>(std::min<std::int64_t>(stages, kMaxStages));
    int at = kBarrierBytes + warps * args.stages * args.stage_bytes;
    const auto take = [&](int bytes) {
        at = round_up(at, 128);
        const int begin = at;
        at += bytes;
        return begin;
    };
    args.x_at = take(warps * args.x_bytes);
    args.sums_at = take(warps * args.sums_bytes);
    args.parts_at = take(parts_bytes);
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
