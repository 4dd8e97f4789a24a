// Cuts a stack of weights into slabs, and enqueues the kernels of a prefill op.
//
// Memory:   PrefillWorkspace::State, one for all workspaces of a backend and used by one op after the other: `weights`
//           holds one slab as plain numbers, `inputs` the converted rows, `sums` the results of all slabs, [rows,
//           packed rows], and `scale` a factor per row. Stream order keeps the ops apart.
// Weights:  where a matrix multiplies two groups of rows one after the other (kernels/divided_ops.h), the slab that the
//           first run() has left in `weights` is the second one's first, and is not dequantised again.
// Handover: mlp_in may leave its outputs in `inputs`, already converted for mlp_out (`ready`). Any other op in between
//           would overwrite them, so every run() takes `ready` and clears it, and only the matrix that it names uses
//           it.

#include "kernels/cuda/prefill/prefill_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/prefill/cublaslt.h"
#include "kernels/cuda/prefill/dequantize.h"
#include "kernels/cuda/prefill/dequantize_packed.h"
#include "kernels/cuda/prefill/rows.h"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {
namespace {

constexpr std::int64_t kSlabRows = 256;  // a stack that is cut is cut at multiples of this: whole tiles of a product

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Of matrices: an address may be used again.
std::uint64_t next_id() {
    static std::atomic<std::uint64_t> id = 0;
    return ++id;
}

GemmType kind_of(QuantType quant_type) { return quant_type == QuantType::f32 ? GemmType::single : GemmType::half; }
std::int64_t number_bytes(GemmType kind) { return kind == GemmType::half ? 2 : 4; }

// Elements and bytes of what a workspace holds: the largest of any op of the shape, at 4 bytes per number, because
// which ops have float32 weights is not known here. Inputs are padded to 64, rows of a part to whole panels; stacks of
// q, k and v may have three parts.
struct Sizes {
    std::int64_t inputs_bytes, weights_bytes, sums, rows;

    Sizes(const ModelShape& s, std::int32_t max_rows) : rows(padded_rows(max_rows)) {
        const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim,
                           kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
        const std::int64_t d = rounded_up(s.d_model, 64), f = rounded_up(s.d_ff, 64), h = rounded_up(q, 64);
        const std::int64_t p = rounded_up(s.per_layer, 64);
        const std::int64_t attention_in = q + 2 * kv + 3 * kPanelRows, mlp_in = 2LL * s.d_ff + kPanelRows,
                           out = s.d_model + kPanelRows,
                           per_layer = static_cast<std::int64_t>(s.layers) * s.per_layer + kPanelRows;
        inputs_bytes = rows * std::max({d, f, h, p}) * 4;
        sums = rows * rounded_up(std::max({attention_in, mlp_in, out, per_layer}), kPanelRows);
        weights_bytes = std::min(
            kSlabBytes, 4 * std::max({attention_in * d, mlp_in * d, out * f, out * h, out * p, per_layer * d}));
    }
};

}  // namespace

struct PrefillWorkspace::State {
    DeviceBuffer<std::byte> inputs, weights;
    DeviceBuffer<float> sums, scale;
    // The matrix whose rows the op before has left in `inputs`, converted, and how many rows; null: none.
    const PrefillMatrix* ready = nullptr;
    std::int32_t ready_rows = 0;
    // Which slab of which matrix `weights` holds.
    std::uint64_t held_matrix = 0;  // PrefillMatrix::id_; 0: none
    std::size_t held_slab = 0;

    // Room for the sizes as well. What an earlier forward uses is freed when that has run (device_free()).
    void reserve(const Sizes& sizes) {
        const auto grow = [](auto& buffer, std::int64_t count) {
            if (static_cast<std::size_t>(count) <= buffer.size()) return false;
            buffer = std::remove_reference_t<decltype(buffer)>(static_cast<std::size_t>(count));
            return true;
        };
        if (grow(weights, sizes.weights_bytes)) held_matrix = 0;
        grow(sums, sizes.sums);
        grow(scale, sizes.rows);
        if (!grow(inputs, sizes.inputs_bytes)) return;
        // A product has whole tiles of rows. Those past the batch are multiplied, too, and ignored; cleared, so that no
        // product reads memory that was never written.
        ready = nullptr;
        cuda_check(cudaMemset(inputs.data(), 0, inputs.bytes()), "cannot clear memory");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
    }
};

PrefillWorkspace::PrefillWorkspace() = default;
PrefillWorkspace::PrefillWorkspace(const ModelShape& shape, std::int32_t max_rows) {
    std::weak_ptr<State> own;
    *this = PrefillWorkspace(shape, max_rows, own);
}
PrefillWorkspace::PrefillWorkspace(const ModelShape& shape, std::int32_t max_rows, std::weak_ptr<State>& shared) {
    if (cublaslt() == nullptr) return;
    state_ = shared.lock();
    if (state_ == nullptr) shared = state_ = std::make_shared<State>();
    state_->reserve(Sizes(shape, max_rows));
}
PrefillWorkspace::~PrefillWorkspace() = default;
PrefillWorkspace::PrefillWorkspace(PrefillWorkspace&&) noexcept = default;
PrefillWorkspace& PrefillWorkspace::operator=(PrefillWorkspace&&) noexcept = default;
void PrefillWorkspace::discard() noexcept {
    if (state_ != nullptr) state_->ready = nullptr;
}

std::int64_t PrefillWorkspace::bytes(const ModelShape& shape, std::int32_t max_rows) {
    if (cublaslt() == nullptr) return 0;
    const Sizes sizes(shape, max_rows);
    return sizes.inputs_bytes + sizes.weights_bytes + 4 * (sizes.sums + sizes.rows);
}

PrefillMatrix::PrefillMatrix(const Panels& panels, WholeStack whole)
    : usable_(cublaslt() != nullptr),
      id_(next_id()),
      inputs_(panels.inputs()),
      padded_(rounded_up(panels.inputs(), 64)) {
    if (!usable_) return;
    const std::span<const Panels::Part> parts = panels.parts();
    order_ = packed_order(parts[0]);  // the same one in all parts (Panels)
    // One shift for all parts of the stack, since a product has one scale: the smallest, with which no part overflows.
    int shift = 127;
    for (const Panels::Part& part : parts) {
        check(part.blocks * block_format(part.quant_type).inputs == padded_, "parts of a stack are padded alike");
        if (kind_of(part.quant_type) == GemmType::half) shift = std::min(shift, dequantize_shift(part));
    }
    shift_ = shift == 127 ? 0 : shift;
    // Neighbouring parts that become float16 are one matrix, those of float32 another.
    for (std::size_t begin = 0; begin < parts.size();) {
        std::size_t end = begin;
        const std::int64_t first_row = rows_;
        for (; end < parts.size() && kind_of(parts[end].quant_type) == kind_of(parts[begin].quant_type); ++end) {
            rows_ += static_cast<std::int64_t>(parts[end].panels) * kPanelRows;
        }
        // Parts of two kinds of numbers are stacks of their own. Which rows of the whole each is made of is not known
        // here; their slabs are then those of a matrix of their own.
        cut(panels, begin, end, first_row, begin == 0 && end == parts.size() ? whole : WholeStack{});
        begin = end;
    }
    usable_ = std::ranges::all_of(slabs_, [](const Slab& slab) { return slab.product != nullptr; });
}

// Cuts the parts [begin, end), whose first packed row is `first_row`, into slabs of even size, as few as kSlabBytes
// allows. A slab may have pieces of several parts. Slabs follow from the shape alone: their products are chosen by the
// number of their rows, and another product may have other bits.
void PrefillMatrix::cut(const Panels& panels, std::size_t begin, std::size_t end, std::int64_t first_row,
                        WholeStack whole) {
    const GemmType kind = kind_of(panels.parts()[begin].quant_type);
    const std::int64_t own = rows_ - first_row;
    const std::int64_t rows = whole.rows > 0 ? rounded_up(whole.rows, kPanelRows) : own;
    const std::int64_t most = std::max(kSlabRows, kSlabBytes / (padded_ * number_bytes(kind)) / kSlabRows * kSlabRows);
    const std::int64_t count = (rows + most - 1) / most;
    const std::int64_t each = count == 1 ? rows : rounded_up((rows + count - 1) / count, kSlabRows);
    for (std::int64_t at = 0, next = 0; at < own; at = next) {
        // The slab of the whole stack that the row is in, and where that ends here.
        const std::int64_t place = (whole.first + at) / each * each;
        next = std::min(place + each - whole.first, own);
        Slab slab{nullptr, kind, first_row + at, next - at, {}};
        std::int64_t part_row = 0;  // within these parts
        for (std::size_t p = begin; p < end; ++p) {
            const std::int64_t part_rows = static_cast<std::int64_t>(panels.parts()[p].panels) * kPanelRows;
            const std::int64_t from = std::max(at, part_row), to = std::min(at + slab.rows, part_row + part_rows);
            if (from < to) {
                slab.pieces.push_back({p, static_cast<std::int32_t>((from - part_row) / kPanelRows),
                                       static_cast<std::int32_t>((to - from) / kPanelRows), from - at});
            }
            part_row += part_rows;
        }
        const std::int64_t of = std::min(each, rows - place);
        slab.product = PrefillGemm::find_part(kind, std::max(of, slab.rows), slab.rows, padded_);
        if (slab.product == nullptr && whole.rows > 0 && PrefillGemm::find(kind, of, padded_) != nullptr) {
            throw Error("cuBLASLt multiplies " + std::to_string(slab.rows) + " of " + std::to_string(of) + " x " +
                        std::to_string(padded_) +
                        " weights in another order than all of them; use runtime.split_mode = \"layer\", or set "
                        "FORESAY_NO_CUBLASLT=1");
        }
        slabs_.push_back(std::move(slab));
    }
}

bool PrefillMatrix::takes(const LinearCall& call) const {
    return usable_ && call.row_class == RowClass::prefill && call.workspace != nullptr &&
           call.workspace->state() != nullptr;
}

// Whether mlp_in can convert its outputs for the reader: that multiplies float16, and a row of them fits into shared
// memory.
bool PrefillMatrix::leaves_halves_for(const PrefillMatrix* reader) const {
    return reader != nullptr && reader->usable_ && reader->order_ == nullptr &&
           reader->slabs_.front().kind == GemmType::half && mlp_rows_fit(reader->inputs_);
}

void PrefillMatrix::dequantise(const Panels& panels, const Slab& slab, cudaStream_t stream, std::byte* to) const {
    for (const Piece& piece : slab.pieces) {
        launch_dequantize(stream, panels.parts()[piece.part], piece.first_panel, piece.panels, shift_,
                          to + piece.slab_row * padded_ * number_bytes(slab.kind), padded_);
    }
}

void PrefillMatrix::run(const Panels& panels, const LinearCall& call, const GemvOp& op, const GemvStep& step,
                        EpilogueArgs epilogue, const PrefillMatrix* reader) const {
    PrefillWorkspace::State& w = *call.workspace->state();
    const std::int64_t tiles = padded_rows(call.rows);
    check(static_cast<std::size_t>(tiles * rows_) <= w.sums.size() && static_cast<std::size_t>(tiles) <= w.scale.size(),
          "prefill rows fit their workspace");
    // Whether mlp_in has left the rows in the form that this matrix multiplies.
    bool converted = std::exchange(w.ready, nullptr) == this && w.ready_rows == call.rows;
    GemmType held = GemmType::half;
    // Slabs use the same memory for their weights one after the other; stream order keeps them apart. From the last one
    // to the first where the last one is there.
    const bool backwards = w.held_matrix == id_ && w.held_slab + 1 == slabs_.size();
    for (std::size_t i = 0; i < slabs_.size(); ++i) {
        const std::size_t number = backwards ? slabs_.size() - 1 - i : i;
        const Slab& slab = slabs_[number];
        const std::int64_t bytes = number_bytes(slab.kind);
        check(static_cast<std::size_t>(tiles * padded_ * bytes) <= w.inputs.bytes() &&
                  static_cast<std::size_t>(slab.rows * padded_ * bytes) <= w.weights.bytes(),
              "prefill rows fit their workspace");
        if (w.held_matrix != id_ || w.held_slab != number) {
            w.held_matrix = 0;  // if a launch fails
            dequantise(panels, slab, call.stream, w.weights.data());
            w.held_matrix = id_;
            w.held_slab = number;
        }
        // Once per op, unless slabs of float16 and of float32 weights alternate.
        if (!converted || held != slab.kind) {
            ConvertCall convert;
            convert.rows = call.rows;
            convert.inputs = static_cast<std::int32_t>(inputs_);
            convert.x = op.x;
            convert.norm = step.norm;
            convert.order = order_;
            convert.eps = op.eps;
            convert.half = slab.kind == GemmType::half;
            convert.out = w.inputs.data();
            convert.stride = padded_;
            convert.scale = w.scale.data();
            launch_convert(call.stream, convert);
            converted = true;
            held = slab.kind;
        }
        // The scale of the product undoes the shift of the weights; that of the rows is undone by the epilogue.
        slab.product->run(call.stream, w.weights.data(), w.inputs.data(), static_cast<std::int32_t>(tiles),
                          slab.kind == GemmType::half ? std::ldexp(1.0f, -shift_) : 1.0f,
                          w.sums.data() + slab.first_row, rows_);
    }
    // From here on `inputs` is free: all products are enqueued.
    const bool halves = epilogue.kind == Epilogue::mlp_in && leaves_halves_for(reader);
    // Sums of the parts lie side by side in a row, each with the padding of its panels.
    std::int64_t column = 0;
    for (const Panels::Part& part : panels.parts()) {
        const GemmSums sums{call.rows, w.sums.data() + column, rows_, w.scale.data(), step.bias, step.kv};
        epilogue.first_row = static_cast<std::int32_t>(part.first_row);
        epilogue.rows = static_cast<std::int32_t>(part.rows);
        if (epilogue.kind == Epilogue::mlp_in) {
            launch_mlp_epilogue(call.stream, sums, epilogue,
                                halves ? reinterpret_cast<__half*>(w.inputs.data()) : nullptr,
                                halves ? reader->padded_ : 0, w.scale.data());
        } else {
            launch_epilogue(call.stream, sums, epilogue);
        }
        column += static_cast<std::int64_t>(part.panels) * kPanelRows;
    }
    if (halves) {
        w.ready = reader;
        w.ready_rows = call.rows;
    }
}

}  // namespace foresay::kernels::cuda
