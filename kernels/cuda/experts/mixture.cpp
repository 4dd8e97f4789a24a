#include "kernels/cuda/experts/mixture.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/weights/panel_format.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {

// Of products.cuh; instantiated in a file for each type.
template <QuantType E>
void launch_products_as(cudaStream_t stream, const ProductsCall& call);

namespace {

using std::int32_t;
using std::int64_t;

std::size_t size(int64_t value) { return static_cast<std::size_t>(value); }

// Whether prefill rows are grouped on this device, for the types that are.
bool groups_rows() { return runs_grouped(DeviceContext::current().info(), QuantType::q4_0); }

// All rows of a matrix as float32. Synthetic weights: numbers of about 1 / sqrt(cols), as panels get them.
std::vector<float> all_rows(const TensorView& view) {
    std::vector<float> values(size(view.elements()));
    if (view.data != nullptr) {
        for (int64_t row = 0; row < view.rows; ++row) {
            dequantize_row(view, row, std::span(values).subspan(size(row * view.cols), size(view.cols)));
        }
        return values;
    }
    const float scale = 1.7320508f / std::sqrt(static_cast<float>(view.cols));
    std::uint64_t state = static_cast<std::uint64_t>(view.elements());
    for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = scale * (static_cast<float>(state >> 40) / 8388608.0f - 1.0f);
    }
    return values;
}
DeviceBuffer<float> matrix(const TensorView& view) {
    if (view.empty()) return {};
    return to_device(std::span<const float>(all_rows(view)));
}

// Biases [E, n] of gate and up, as their packed rows lie: 2 i and 2 i + 1 are unit i. Zeros for one that is absent.
DeviceBuffer<float> interleaved(const TensorView& gate, const TensorView& up) {
    if (gate.empty() && up.empty()) return {};
    const TensorView& any = gate.empty() ? up : gate;
    std::vector<float> both(size(2 * any.elements()), 0.0f);
    for (const TensorView* view : {&gate, &up}) {
        if (view->empty()) continue;
        const std::vector<float> values = all_rows(*view);
        for (std::size_t i = 0; i < values.size(); ++i) both[2 * i + (view == &up ? 1 : 0)] = values[i];
    }
    return to_device(std::span<const float>(both));
}

// Bytes of the images of so many slots, for either product; a K-quant's blocks may pad a row.
int64_t image_bytes(const ModelShape& shape, int64_t slots) {
    const int64_t widest = std::max<int64_t>(shape.d_model, shape.expert_ff);
    return 8 * most_eights(slots, shape.experts) * ((widest + 255) / 256 * 256) * 2;
}

int64_t slots_of(const ModelShape& shape, int32_t rows) { return int64_t{rows} * shape.experts_used; }

const MoeSpec& checked(const MoeSpec& spec) {
    if (spec.shape.experts > kMaxExperts || spec.shape.experts_used > kMaxUsed) {
        throw Error("this model has " + std::to_string(spec.shape.experts) + " experts, of which a row uses " +
                    std::to_string(spec.shape.experts_used) + ", and the cuda backend supports at most " +
                    std::to_string(kMaxExperts) + " and " + std::to_string(kMaxUsed) + "; use --device cpu");
    }
    return spec;
}

// The own experts' matrices, in the form that all have together.
ExpertPanels own_panels(const std::vector<TensorView>& first, const std::vector<TensorView>& second, OwnExperts own,
                        const ExpertForm& form) {
    if (own.count == 0) return {};
    const auto part = [&](const std::vector<TensorView>& all) {
        return all.empty() ? std::span<const TensorView>()
                           : std::span(all).subspan(static_cast<std::size_t>(own.first), size(own.count));
    };
    return {part(first), part(second), form};
}

}  // namespace

void launch_products(cudaStream_t stream, const ProductsCall& call) {
    if (call.quant_type == QuantType::packed) return launch_products_as<QuantType::packed>(stream, call);
    visit_quant_type(call.quant_type, [&](auto q) { launch_products_as<decltype(q)::kQuantType>(stream, call); });
}

ExpertNorm::ExpertNorm(const NormSpec& spec) : layer(spec.kind == NormKind::layer), present(!spec.empty()) {
    if (!present) return;
    norm = DeviceNorm(spec);
    bias = device_vector(spec.bias);
}
NormArgs ExpertNorm::args() const {
    if (!present) return {};
    return {norm.weight.data(), bias.data(), norm.eps, layer};
}

ExpertsWorkspace::ExpertsWorkspace(const ModelShape& shape, int32_t max_rows) {
    if (shape.experts == 0) return;
    const int64_t slots = slots_of(shape, max_rows);
    scores_ = DeviceBuffer<float>(size(int64_t{max_rows} * shape.experts));
    weight_ = DeviceBuffer<float>(size(slots));
    ff_ = DeviceBuffer<float>(size(slots * shape.expert_ff));
    out_ = DeviceBuffer<float>(size(slots * shape.d_model));
    branch_ = DeviceBuffer<float>(size(int64_t{max_rows} * shape.d_model));
    stats_ = DeviceBuffer<float2>(size(max_rows));
    choice_ = DeviceBuffer<int32_t>(size(slots));
    tiles_ = DeviceBuffer<ExpertTile>(size(most_tiles(slots, shape.experts)));
    constexpr int32_t none[] = {0};
    done_ = to_device(std::span<const int32_t>(none));
    tile_count_ = to_device(std::span<const int32_t>(none));
    if (!groups_rows()) return;
    const int64_t eights = most_eights(slots, shape.experts);
    counts_ = DeviceBuffer<int32_t>(size(shape.experts));
    rank_ = DeviceBuffer<int32_t>(size(slots));
    order_ = DeviceBuffer<int32_t>(size(8 * eights));
    back_ = DeviceBuffer<float>(size(8 * eights));
    eights_ = DeviceBuffer<GroupEight>(size(eights));
    groups_ = DeviceBuffer<ExpertGroup>(size(most_groups(slots, shape.experts)));
    totals_ = DeviceBuffer<int32_t>(2);
    images_ = DeviceBuffer<std::uint8_t>(size(image_bytes(shape, slots)));
}

int64_t ExpertsWorkspace::bytes(const ModelShape& shape, int32_t max_rows) {
    if (shape.experts == 0) return 0;
    const int64_t slots = slots_of(shape, max_rows), eights = most_eights(slots, shape.experts);
    const int64_t tiled = 4 * (int64_t{max_rows} * (shape.experts + shape.d_model + 2) +
                               slots * (int64_t{shape.expert_ff} + shape.d_model + 2)) +
                          static_cast<int64_t>(sizeof(ExpertTile)) * most_tiles(slots, shape.experts);
    if (!groups_rows()) return tiled;
    return tiled + 4 * (shape.experts + slots) + (64 + static_cast<int64_t>(sizeof(GroupEight))) * eights +
           static_cast<int64_t>(sizeof(ExpertGroup)) * most_groups(slots, shape.experts) + image_bytes(shape, slots);
}

bool ExpertsWorkspace::has_room(const ModelShape& shape, int32_t rows) const {
    const int64_t slots = slots_of(shape, rows);
    return size(int64_t{rows} * shape.experts) <= scores_.size() && size(slots) <= weight_.size() &&
           size(slots * shape.expert_ff) <= ff_.size() && size(slots * shape.d_model) <= out_.size() &&
           size(most_tiles(slots, shape.experts)) <= tiles_.size() &&
           (images_.size() == 0 || (size(shape.experts) <= counts_.size() && size(slots) <= rank_.size() &&
                                    size(most_eights(slots, shape.experts)) <= eights_.size() &&
                                    size(most_groups(slots, shape.experts)) <= groups_.size() &&
                                    size(image_bytes(shape, slots)) <= images_.size()));
}

ExpertBuffers ExpertsWorkspace::view() const {
    return {scores_.data(), stats_.data(),  choice_.data(), weight_.data(), tiles_.data(),  tile_count_.data(),
            done_.data(),   ff_.data(),     out_.data(),    branch_.data(), counts_.data(), rank_.data(),
            order_.data(),  eights_.data(), groups_.data(), totals_.data(), back_.data(),   images_.data()};
}

Mixture::Stack::Stack(const std::vector<TensorView>& first, const std::vector<TensorView>& second,
                      DeviceBuffer<float> biases, OwnExperts own)
    : bias(std::move(biases)) {
    const ExpertForm form = form_of_experts(first, second);
    panels = own_panels(first, second, own, form);
    grouped = runs_grouped(DeviceContext::current().info(), form.quant_type);
    if (grouped && own.count > 0) shift = grouped_shift(panels.part());
}

Mixture::Mixture(const MoeSpec& spec, MixtureWork work, OwnExperts own)
    : work_(work),
      own_(own),
      shape_(checked(spec).shape),
      post_norm_(spec.post_norm),
      gating_(spec.router.gating),
      renormalize_(spec.router.renormalize),
      router_scale_(spec.router.scale),
      groups_(spec.router.groups),
      groups_used_(spec.router.groups_used),
      activation_(spec.activation),
      limit_(spec.limit),
      keep_branch_(spec.keep_branch),
      scale_(spec.scale),
      stream_scale_(spec.stream_scale) {
    if (work == MixtureWork::sum) return;
    norm_ = ExpertNorm(spec.norm);
    router_norm_ = ExpertNorm(spec.router.norm);
    router_ = matrix(spec.router.weight);
    router_bias_ = matrix(spec.router.bias);
    choice_bias_ = matrix(spec.router.choice_bias);
    factor_ = matrix(spec.router.factor);
    gate_up_ = Stack(spec.gate, spec.up, interleaved(spec.gate_bias, spec.up_bias), own);
    down_ = Stack(spec.down, {}, matrix(spec.down_bias), own);
}

// The largest weight of all decides, so the smallest shift.
void Mixture::agree(std::span<Mixture* const> parts) {
    for (Stack Mixture::*const of : {&Mixture::gate_up_, &Mixture::down_}) {
        int shift = 127;
        for (const Mixture* const part : parts) {
            if (part->own_.count > 0) shift = std::min(shift, (part->*of).shift);
        }
        for (Mixture* const part : parts) (part->*of).shift = shift;
    }
}

ProductsCall Mixture::products(const Stack& stack, int32_t rows) const {
    const Panels::Part& part = stack.panels.part();
    ProductsCall call;
    call.quant_type = part.quant_type;
    call.panels = part.data.data();
    call.panel_count = part.panels / own_.count;
    call.blocks = part.blocks;
    int64_t panel_bytes = int64_t{part.blocks} * block_format(part.quant_type).bytes;
    if (part.quant_type == QuantType::packed) {
        const ExpertPanels::Packed& packed = stack.panels.packed();
        call.panels += packed.panels_at;
        panel_bytes = packed.panel_bytes;
        call.packed = {part.data.data(), packed.factors.data(), packed.order.data(), packed.unit_bytes};
    }
    call.expert_bytes = call.panel_count * panel_bytes;
    call.inputs = static_cast<int32_t>(stack.panels.inputs());
    call.rows = static_cast<int32_t>(stack.panels.rows());
    call.slots = static_cast<int32_t>(slots_of(shape_, rows));
    call.used = shape_.experts_used;
    call.experts = own_.count;
    call.part = own_.count < shape_.experts;
    const DeviceInfo& device = DeviceContext::current().info();
    call.processors = device.processors;
    call.shared_bytes = static_cast<int32_t>(device.shared_bytes);
    if (stack.bias.size() > 0) call.bias = stack.bias.data() + int64_t{own_.first} * call.rows;
    return call;
}

void Mixture::launch_groups_of(cudaStream_t stream, const Stack& stack, const ProductsCall& call, int32_t used) const {
    ImagesCall images;
    images.slots = call.slots;
    images.experts = call.experts;
    images.used = used;
    images.inputs = call.inputs;
    images.stride = call.blocks * (call.quant_type == QuantType::packed ? 64 : block_format(call.quant_type).inputs);
    images.x = call.x;
    images.norm = call.norm;
    images.order = call.packed.order;
    images.first_expert = own_.first;
    images.to = call.with;
    launch_images(stream, images);
    launch_grouped(stream, {call, stack.shift});
}

void Mixture::launch(cudaStream_t stream, RowClass row_class, int32_t rows, float* x,
                     const ExpertsWorkspace& workspace) const {
    check(workspace.has_room(shape_, rows), "the experts of a forward fit their workspace");
    const ExpertBuffers buffers = workspace.view();
    if (work_ != MixtureWork::sum) launch_experts(stream, row_class, rows, x, buffers);
    if (work_ == MixtureWork::experts) return;
    CombineCall combine;
    combine.rows = rows;
    combine.width = shape_.d_model;
    combine.used = shape_.experts_used;
    combine.post_norm = post_norm_.args();
    combine.keep_branch = keep_branch_;
    combine.scale = scale_;
    combine.stream_scale = stream_scale_;
    combine.x = x;
    combine.with = buffers;
    launch_combine(stream, combine);
}

void Mixture::launch_experts(cudaStream_t stream, RowClass row_class, int32_t rows, const float* x,
                             const ExpertBuffers& buffers) const {
    RouterCall router;
    router.rows = rows;
    router.width = shape_.d_model;
    router.experts = shape_.experts;
    router.used = shape_.experts_used;
    router.own = own_;
    router.x = x;
    router.norm = router_norm_.present ? router_norm_.args() : norm_.args();
    router.expert_norm = norm_.args();
    router.weight = router_.data();
    router.bias = router_bias_.data();
    router.choice_bias = choice_bias_.data();
    router.factor = factor_.data();
    router.gating = gating_;
    router.renormalize = renormalize_;
    router.scale = router_scale_;
    router.groups = groups_;
    router.groups_used = groups_used_;
    router.grouped = row_class == RowClass::prefill && gate_up_.grouped && down_.grouped;
    router.to = buffers;
    launch_router(stream, router);
    if (own_.count == 0) return;
    if (router.grouped) launch_groups(stream, {router.rows * router.used, own_, buffers});

    ProductsCall in = products(gate_up_, rows);
    in.gate_up = true;
    in.x = x;
    in.norm = norm_.args();
    in.activation = activation_;
    in.limit = limit_;
    in.out = buffers.ff;
    in.with = buffers;

    ProductsCall out = products(down_, rows);
    out.x = buffers.ff;
    out.out = buffers.out;
    out.with = buffers;
    if (router.grouped) {
        launch_groups_of(stream, gate_up_, in, shape_.experts_used);
        launch_groups_of(stream, down_, out, 1);
    } else {
        launch_products(stream, in);
        launch_products(stream, out);
    }
}

int64_t Mixture::bytes() const {
    return gate_up_.panels.bytes() + down_.panels.bytes() + static_cast<int64_t>(router_.bytes());
}

}  // namespace foresay::kernels::cuda
