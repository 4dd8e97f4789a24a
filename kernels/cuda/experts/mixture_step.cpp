#include "kernels/cuda/experts/mixture_step.h"

#include <algorithm>

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;

int32_t round_up(int32_t value, int32_t step) { return (value + step - 1) / step * step; }

// As many groups as possible, then the inputs of a tile if they fit, and then the ring as deep as possible.
bool plan_products(const ProductsCall& call, int32_t rows, int warps, int32_t room_bytes, MixtureProducts& to) {
    const ProductsUnit unit = products_unit(call.quant_type);
    const int units = (call.blocks + unit.blocks - 1) / unit.blocks;
    // As the launch has them: the number of warps decides the order of sums.
    to.warps = std::min(units, kProductWarps);
    if (to.warps > warps) return false;
    ProductsPlan& plan = to.plan;
    plan.room = std::min(rows, kExpertRows);
    plan.tiles = rows == 1 ? call.used : 0;
    plan.each = 1;
    const int kept = (units + to.warps - 1) / to.warps;
    for (to.groups = std::min(warps / to.warps, kMixtureGroups); to.groups > 0; --to.groups) {
        for (const bool keeps : {true, false}) {
            plan.keeps = keeps;
            for (plan.stages = 4; plan.stages > 1; --plan.stages) {
                const int32_t of_warp =
                    unit.warp_bytes(plan.stages, keeps ? kept : 1, plan.room) + 2 * sum_stride(plan.room) * 4;
                plan.shared_bytes = round_up(to.warps * of_warp, 128);
                if (to.groups * plan.shared_bytes <= room_bytes) return true;
            }
        }
    }
    return false;
}

}  // namespace

bool plan_mixture_step(const MixtureConstants& mixture, QuantType dense, int32_t rows, int warps, MixturePlan& plan) {
    const RouterCall& router = mixture.router;
    const CombineCall& combine = mixture.combine;
    if (rows > kMixtureRows || rows * router.used > kMixtureSlots || router.width % 4 != 0 || router.norm.layer ||
        router.norm.bias != nullptr || router.expert_norm.layer || router.expert_norm.bias != nullptr ||
        combine.post_norm.weight != nullptr || combine.keep_branch || !has_expert_code(dense, mixture.in.quant_type) ||
        !has_expert_code(dense, mixture.out.quant_type))
        return false;
    constexpr int32_t room = kMixtureShared - kMixtureWorkAt;
    if (!plan_products(mixture.in, rows, warps, room, plan.in) ||
        !plan_products(mixture.out, rows, warps, room, plan.out))
        return false;
    // The router's row and its norm, then the memory of choices; the latter is that of tiles, too.
    const int32_t choices = 2 * router.width * 4 + std::min(rows, warps) * (2 * router.experts + 2 * router.groups) * 4;
    const int32_t work = std::max({choices, 3 * rows * router.used * 4, plan.in.groups * plan.in.plan.shared_bytes,
                                   plan.out.groups * plan.out.plan.shared_bytes});
    if (work > room) return false;
    plan.work_at = kMixtureWorkAt;
    plan.shared_bytes = kMixtureWorkAt + round_up(work, 128);
    return true;
}

int32_t place_mixture_words(const MixtureConstants& mixture, int32_t rows, int32_t begin, MixturePlan& plan) {
    const int32_t slots = rows * mixture.router.used;
    plan.scores = begin;
    plan.stats = plan.scores + round_up(rows * mixture.router.experts, 4);
    plan.ff = plan.stats + round_up(rows, 4);
    plan.out_rows = plan.ff + slots * mixture.out.inputs;
    return plan.out_rows + slots * mixture.router.width;
}

}  // namespace foresay::kernels::cuda
