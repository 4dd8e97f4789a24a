// Packs the tensors of a file into panels, on the device: a slab of a tensor's bytes is copied over, then one thread
// per quantisation block writes its numbers where panel_format.h says.
//
//   TensorView of the file --cudaMemcpy, kSlabBytes at a time--> slab on the device --repack<Q>--> Panels::Part
//
// A thread reads one quantisation block and calls put(), which knows both layouts. put() is the inverse of what
// Multiply<E> (decode/multiply.cuh) and Dequantize<E> (prefill/dequantize.cu) read: a change of a layout concerns all
// three and panel_format.h.
//
// Rows that are 8 apart share words of the planes of upper bits, and different threads pack them, so bits are set by
// atomicOr into memory that was cleared.
//
// Threads:  all of this runs at load time, on the default stream, and waits. It needs a DeviceScope; threads of other
//           devices may pack meanwhile.

#include "kernels/cuda/weights/panels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/weights/packed_panels.h"
#include "kernels/cuda/weights/panel_format.h"
#include "kernels/quant/packed_panels.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {
namespace {

constexpr std::int64_t kSlabBytes = std::int64_t{64} << 20;  // of the file's bytes on the device at a time

__device__ void put_half(std::uint8_t* block, int byte, StoredF16 value) {
    reinterpret_cast<StoredF16*>(block + byte)[0] = value;
}

// Sets the 4-bit code of a row and input in its plane, whose words were cleared. A word has codes of one row and group
// only, which one thread packs.
__device__ void put_nibbles(std::uint8_t* plane, int row, int input, int code) {
    const Place place(row, input);
    const BitPlace bits = nibble_place(place);
    atomicOr(reinterpret_cast<std::uint32_t*>(plane) + bits.word, static_cast<std::uint32_t>(code & 15) << bits.shift);
}

// The eight 6-bit scales and minima of a K-quant block, as three words (ScaleCodePlace).
__device__ RowScaleCodes scale_codes(const KScales& scales) {
    RowScaleCodes out = {};
    for (int g = 0; g < KScales::kGroups; ++g) {
        const auto scale = static_cast<std::uint32_t>(scales.scale(g)),
                   min = static_cast<std::uint32_t>(scales.minimum(g));
        const ScaleCodePlace place(g);
        out.scales |= (scale & 15u) << place.nibble;
        out.minima |= (min & 15u) << place.nibble;
        out.upper |= (scale >> 4) << place.scale_upper | (min >> 4) << place.minimum_upper;
    }
    return out;
}

// put(): one quantisation block of row `row` of a panel, into a panel block that was cleared. `input`: the first input
// of the quantisation block within the panel block. Q4_0 and Q8_0 have two per panel block, K-quants one, and plain
// numbers 64, each a block of one element.
__device__ void put(const Q4_0::Block& from, std::uint8_t* block, int row, int input) {
    auto& out = *reinterpret_cast<PanelQ4_0*>(block);
    for (int i = 0; i < 32; ++i) put_nibbles(out.codes, row, input + i, from.codes[i % 16] >> (i / 16 * 4));
    out.d[Place(row, 0).row_slot()][input / 32] = from.d;
}
__device__ void put(const MXFP4::Block& from, std::uint8_t* block, int row, int input) {
    auto& out = *reinterpret_cast<PanelMXFP4*>(block);
    for (int i = 0; i < 32; ++i) {
        const auto code = static_cast<std::uint32_t>(MXFP4::code(from, i));
        const FloatCodePlace place{Place(row, input + i)};
        atomicOr(reinterpret_cast<std::uint32_t*>(out.codes) + place.word,
                 (code & 7u) << place.magnitude | (code >> 3) << place.sign);
    }
    out.exponents[Place(row, 0).row_slot()][input / 32] = from.exponent;
}
// Codes plus 128, so that kernels unpack unsigned bytes.
__device__ void put(const Q8_0::Block& from, std::uint8_t* block, int row, int input) {
    auto& out = *reinterpret_cast<PanelQ8_0*>(block);
    for (int i = 0; i < 32; ++i) {
        out.codes[byte_place(Place(row, input + i))] = static_cast<std::uint8_t>(from.codes[i] + 128);
    }
    out.d[Place(row, 0).row_slot()][input / 32] = from.d;
}
// K-quants: a quantisation block is a row's part of the whole panel block, four planes of 64 inputs.
__device__ void put(const Q4_K::Block& from, std::uint8_t* block, int row, int /*input*/) {
    auto& out = *reinterpret_cast<PanelQ4_K*>(block);
    for (int i = 0; i < 256; ++i) put_nibbles(out.codes[i / 64], row, i % 64, Q4_K::code(from, i));
    const int slot = Place(row, 0).row_slot();
    out.d[slot].d = from.d;
    out.d[slot].dmin = from.dmin;
    out.scales[slot] = scale_codes(from.scales);
}
// As Q4_K; the fifth bit of each code goes to a plane of its own.
__device__ void put(const Q5_K::Block& from, std::uint8_t* block, int row, int /*input*/) {
    auto& out = *reinterpret_cast<PanelQ5_K*>(block);
    for (int i = 0; i < 256; ++i) {
        const int code = Q5_K::code(from, i);
        put_nibbles(out.codes[i / 64], row, i % 64, code);
        const BitPlace bits = fifth_place(Place(row, i % 64));
        atomicOr(reinterpret_cast<std::uint32_t*>(out.fifth[i / 64]) + bits.word, static_cast<std::uint32_t>(code >> 4)
                                                                                      << bits.shift);
    }
    const int slot = Place(row, 0).row_slot();
    out.d[slot].d = from.d;
    out.d[slot].dmin = from.dmin;
    out.scales[slot] = scale_codes(from.scales);
}
// The lower four bits of a code, its upper two, and an int8 scale per 16 inputs.
__device__ void put(const Q6_K::Block& from, std::uint8_t* block, int row, int /*input*/) {
    auto& out = *reinterpret_cast<PanelQ6_K*>(block);
    for (int i = 0; i < 256; ++i) {
        const int code = Q6_K::code(from, i);
        put_nibbles(out.codes[i / 64], row, i % 64, code);
        const BitPlace bits = upper_place(Place(row, i % 64));
        atomicOr(reinterpret_cast<std::uint32_t*>(out.upper[i / 64]) + bits.word, static_cast<std::uint32_t>(code >> 4)
                                                                                      << bits.shift);
    }
    const int slot = Place(row, 0).row_slot();
    for (int i = 0; i < 16; ++i) out.scales[i / 4][slot][i % 4] = from.scales[i];
    out.d[slot] = from.d;
}
// 16-bit numbers lie as operand A of mma.m16n8k16; float32 in rows of 64, for a kernel without mma.
__device__ void put(const F16::Block& from, std::uint8_t* block, int row, int input) {
    put_half(block, 2 * half_place(Place(row, input)), from);
}
__device__ void put(const BF16::Block& from, std::uint8_t* block, int row, int input) {
    put_half(block, 2 * half_place(Place(row, input)), StoredF16{from.low, from.high});
}
__device__ void put(const F32::Block& from, std::uint8_t* block, int row, int input) {
    reinterpret_cast<F32::Block*>(block)[row * 64 + input] = from;
}

// A thread per quantisation block of `count` rows; `row_blocks` of them are a row of the file, and `panel_blocks` panel
// blocks are a panel.
template <class Q>
__global__ void repack(const typename Q::Block* from, std::int64_t count, std::int64_t row_blocks, RowTarget target,
                       std::uint8_t* panels, std::int32_t panel_blocks) {
    constexpr BlockFormat format = block_format(Q::kQuantType);
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count * row_blocks) return;
    const std::int64_t packed = target.packed(target.first + i / row_blocks);
    const std::int64_t input = i % row_blocks * Q::kElements;
    std::uint8_t* block =
        panels + (packed / kPanelRows * panel_blocks + input / format.inputs) * static_cast<std::int64_t>(format.bytes);
    put(from[i], block, static_cast<int>(packed % kPanelRows), static_cast<int>(input % format.inputs));
}

// The finaliser of splitmix64: neighbouring counters become unrelated words.
__device__ std::uint32_t scramble(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return static_cast<std::uint32_t>(x ^ (x >> 31));
}

// Random words for synthetic weights, straight into the layout of the panels: any bits are codes, but scales and plain
// numbers must be finite and of about `size`, between 0.5 and 1.5 times it. Scales are positive, plain numbers of
// either sign. 6-bit scales and upper bits are random, too.
__global__ void fill_random(std::uint32_t* words, std::int64_t count, QuantType quant_type, float size,
                            std::uint64_t seed) {
    const BlockFormat format = block_format(quant_type);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        std::uint32_t bits = scramble(seed + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ull);
        const auto at = static_cast<std::int32_t>(i * 4 % format.bytes);
        if (at >= format.scale_begin && at < format.scale_end) {
            const bool is_scale = format.scale_begin > 0;
            float values[2];
            for (int j = 0; j < 2; ++j) {
                const float unit = static_cast<float>(bits >> (16 * j) & 0x7fffu) / 32768.0f + 0.5f;
                values[j] = (!is_scale && (bits >> (16 * j) & 0x8000u) ? -unit : unit) * size;
            }
            if (quant_type == QuantType::f32) {
                bits = f32_bits(values[0]);
            } else if (quant_type == QuantType::bf16) {
                bits = f32_to_bf16(values[0]) | static_cast<std::uint32_t>(f32_to_bf16(values[1])) << 16;
            } else if (quant_type == QuantType::mxfp4) {
                bits =
                    (f32_bits(size) >> 23) * 0x01010101u + (bits & 0x01010101u);  // exponents, of this size and twice
            } else {
                bits = f32_to_f16(values[0]) | static_cast<std::uint32_t>(f32_to_f16(values[1])) << 16;
            }
        }
        words[i] = bits;
    }
}

// The scale with which random codes give weights of about 1 / sqrt(inputs), so that the activations of a synthetic
// model neither vanish nor overflow from layer to layer. The divisors are the standard deviation of random codes (4.6
// for 4 bits, 74 for 8) and the root mean square of random 6-bit (36) or int8 (74) scales.
float random_scale(QuantType quant_type, std::int64_t inputs) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(inputs));
    switch (quant_type) {
        case QuantType::q4_0:
            return unit / 4.6f;
        case QuantType::q8_0:
            return unit / 74.0f;
        case QuantType::q4_k:
            return unit / (4.6f * 36.0f);  // minima as large as the middle code: sums stay near zero
        case QuantType::q5_k:
            return unit / (9.2f * 36.0f);
        case QuantType::q6_k:
            return unit / (18.0f * 74.0f);
        case QuantType::mxfp4:
            return unit / (2.9f * 1.2f);
        default:
            return unit;
    }
}

// Packs `count` rows of `cols` inputs, which are on the device in the layout of the file.
template <class Q>
void repack_slab(const std::byte* slab, std::int64_t count, std::int64_t cols, const RowTarget& target,
                 const Panels::Part& part) {
    const std::int64_t row_blocks = cols / Q::kElements, threads = count * row_blocks;
    repack<Q><<<static_cast<unsigned>((threads + 255) / 256), 256>>>(
        reinterpret_cast<const typename Q::Block*>(slab), count, row_blocks, target, part.data.data(), part.blocks);
    launched("repack");
}

// Copies a tensor to the device, kSlabBytes at a time: rows_at(first, count) are its rows on the host, `row` bytes
// each, and pack(slab, first, count) packs them. The next copy waits for the kernel before it: both are on the default
// stream, so one slab of device memory is enough.
template <class RowsAt, class Pack>
void pack_in_slabs(const TensorView& view, std::int64_t row, RowsAt rows_at, Pack pack) {
    const std::int64_t slab_rows = std::clamp<std::int64_t>(kSlabBytes / row, 1, view.rows);
    const DeviceBuffer<std::byte> slab(static_cast<std::size_t>(slab_rows * row));
    for (std::int64_t first = 0; first < view.rows; first += slab_rows) {
        const std::int64_t count = std::min(slab_rows, view.rows - first);
        cuda_check(cudaMemcpy(slab.data(), rows_at(first, count), static_cast<std::size_t>(count * row),
                              cudaMemcpyHostToDevice),
                   "cannot copy weights to the device");
        pack(slab.data(), first, count);
    }
    cuda_check(cudaDeviceSynchronize(), "cannot pack weights");
}

void fill(const TensorView& view, RowTarget target, const Panels::Part& part) {
    const QuantType quant_type = kept_type(view);
    std::vector<std::byte> unpacked;
    pack_in_slabs(
        view, row_bytes(quant_type, view.cols),
        [&](std::int64_t first, std::int64_t count) { return kept_rows(view, first, count, unpacked); },
        [&](const std::byte* slab, std::int64_t first, std::int64_t count) {
            target.first = first;
            visit_quant_type(quant_type,
                             [&](auto q) { repack_slab<decltype(q)>(slab, count, view.cols, target, part); });
        });
}

// The same of rows that stay packed.
void fill_packed(const TensorView& view, RowTarget target, const PackedLayout& layout, const PackedSource* sources,
                 const Panels::Part& part) {
    const std::int64_t row = view.row_bytes();
    pack_in_slabs(
        view, row, [&](std::int64_t first, std::int64_t) { return view.data + first * row; },
        [&](const std::byte* slab, std::int64_t first, std::int64_t count) {
            target.first = first;
            pack_slab(layout, sources, slab, row, count, target, part.data.data());
        });
}

// Each matrix gets other numbers, but the same ones in every run of the program that loads in the same order.
std::uint64_t next_seed() {
    constexpr std::uint64_t kSeedStep = 0x632be59bd9b4e019ull;
    static std::atomic<std::uint64_t> last_seed = 0;
    return last_seed.fetch_add(kSeedStep) + kSeedStep;
}
// Synthetic weights: nothing is copied, so a model of any size is there within seconds.
void fill_randomly(const Panels::Part& part, std::int64_t inputs) {
    const std::uint64_t seed = next_seed();
    const auto words = static_cast<std::int64_t>(part.data.size() / 4);
    fill_random<<<2048, 256>>>(reinterpret_cast<std::uint32_t*>(part.data.data()), words, part.quant_type,
                               random_scale(part.quant_type, inputs), seed);
    launched("fill_random");
    cuda_check(cudaDeviceSynchronize(), "cannot make random weights");
}

Panels::Part make_part(QuantType quant_type, std::int64_t first_row, std::int64_t rows, std::int64_t inputs) {
    const BlockFormat format = block_format(quant_type);
    Panels::Part part;
    part.quant_type = quant_type;
    part.first_row = first_row;
    part.rows = rows;
    // Cleared below, because codes are set by atomicOr, and because rows and inputs that pad a panel need scale 0.
    part.panels = static_cast<std::int32_t>((rows + kPanelRows - 1) / kPanelRows);
    part.blocks = static_cast<std::int32_t>((inputs + format.inputs - 1) / format.inputs);
    part.data = DeviceBuffer<std::uint8_t>(static_cast<std::size_t>(part.panels) * part.blocks * format.bytes);
    cuda_check(cudaMemset(part.data.data(), 0, part.data.bytes()), "cannot clear memory");
    return part;
}

// A part of packed rows, with what lies before its panels.
Panels::Part make_packed_part(const PackedLayout& layout, std::int64_t first_row, std::int64_t rows) {
    Panels::Part part;
    part.quant_type = QuantType::packed;
    part.first_row = first_row;
    part.rows = rows;
    part.panels = static_cast<std::int32_t>((rows + kPanelRows - 1) / kPanelRows);
    part.blocks = layout.blocks;
    part.data = DeviceBuffer<std::uint8_t>(packed_bytes(layout, part.panels));
    cuda_check(cudaMemset(part.data.data(), 0, part.data.bytes()), "cannot clear memory");
    put_header(layout, part.data.data());
    return part;
}

void fill_packed_randomly(const PackedLayout& layout, std::int64_t inputs, const Panels::Part& part) {
    fill_packed_randomly(layout, inputs, part.panels, next_seed(), part.data.data());
    cuda_check(cudaDeviceSynchronize(), "cannot make random weights");
}

// The groups of a layout, on the device.
class DeviceGroups {
public:
    explicit DeviceGroups(const PackedLayout& layout) {
        for (int m = 0; m < 2; ++m) {
            if (!layout.groups[m].empty()) groups_[m] = to_device(std::span<const PackedSource>(layout.groups[m]));
        }
    }
    // `second`: of the second matrix of a pair.
    const PackedSource* of(bool second) const { return groups_[second && groups_[1].data() != nullptr ? 1 : 0].data(); }

private:
    DeviceBuffer<PackedSource> groups_[2];
};

// Fills a part with matrices that share its panels.
void fill_packed_part(std::span<const PackSource> matrices, RowOrder order, std::int64_t inputs,
                      const PackedLayout& layout, const Panels::Part& part) {
    if (matrices[0].view.data == nullptr) {
        fill_packed_randomly(layout, inputs, part);
        return;
    }
    const bool interleaved = order == RowOrder::interleaved;
    const DeviceGroups groups(layout);
    std::int64_t offset = 0;
    for (const PackSource& matrix : matrices) {
        const PackedSource* const sources = groups.of(interleaved && offset == 1);
        fill_packed(matrix.view, {0, offset, interleaved ? 2 : 1, matrix.order}, layout, sources, part);
        offset += interleaved ? 1 : matrix.view.rows;
    }
}

bool stays_packed(const TensorView& view) { return view.packing != nullptr && devices_keep_packed(*view.packing); }

// Neighbouring matrices of a stack that become one part.
struct Group {
    std::size_t begin = 0, end = 0;
    std::optional<PackedLayout> layout;  // none: blocks of kept_type()
};
// Packed rows stay packed where the kernels have a layout for them. Inputs in an order are gathered once per stack when
// there are many rows, so all matrices must have the same order or none; else those with one are unpacked.
std::vector<Group> groups_of(std::span<const PackSource> matrices) {
    const auto order_of = [&](std::size_t m) {
        const Packing* const packing = matrices[m].view.packing;
        return packing == nullptr ? std::vector<std::int32_t>() : packing->order;
    };
    std::vector<TensorView> views;
    for (const PackSource& matrix : matrices) views.push_back(matrix.view);
    bool orders = true;
    for (std::size_t m = 1; m < matrices.size(); ++m) orders = orders && order_of(m) == order_of(0);
    for (;;) {
        std::vector<Group> groups;
        bool again = false;
        const auto may_stay = [&](const TensorView& view) {
            return stays_packed(view) && (orders || view.packing->order.empty());
        };
        for (std::size_t begin = 0; begin < matrices.size();) {
            const TensorView& first = views[begin];
            Group group{begin, begin + 1, std::nullopt};
            const bool packed = may_stay(first);
            const auto joins = [&](const TensorView& view) {
                // One that can stay packed does not become blocks because its neighbour is some.
                if (!packed) return !may_stay(view) && kept_type(view) == kept_type(first);
                return stays_packed(view) && share_panels(*view.packing, *first.packing) &&
                       view.packing->factor == first.packing->factor;
            };
            while (group.end < matrices.size() && joins(views[group.end])) ++group.end;
            if (packed) {
                group.layout = packed_layout(std::span(views).subspan(begin, group.end - begin), false);
                // Alone they may have a layout that together they have not, but that is rare.
                if (!group.layout && !first.packing->order.empty()) again = true;
            }
            begin = group.end;
            groups.push_back(std::move(group));
        }
        if (!again) return groups;
        orders = false;
    }
}

// A matrix dequantised to float32, for stacks of unlike types that interleave.
std::vector<float> decoded(const TensorView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    for (std::int64_t row = 0; row < view.rows; ++row) {
        dequantize_row(
            view, row,
            std::span(values).subspan(static_cast<std::size_t>(row * view.cols), static_cast<std::size_t>(view.cols)));
    }
    return values;
}

void check_inputs(std::int64_t inputs) {
    if (inputs % 4 == 0) return;
    throw Error("a matrix with " + std::to_string(inputs) +
                " inputs per row, which is no multiple of 4, cannot run on the device; use --device cpu");
}

}  // namespace

const std::byte* kept_rows(const TensorView& view, std::int64_t first, std::int64_t count,
                           std::vector<std::byte>& storage) {
    const std::int64_t from = view.row_bytes(), to = row_bytes(kept_type(view), view.cols);
    const std::byte* const rows = view.data + first * from;
    if (view.packing == nullptr) return rows;
    storage.resize(static_cast<std::size_t>(count * to));
    const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::int64_t share = (count + cores - 1) / cores;
    std::vector<std::thread> threads;
    for (std::int64_t begin = 0; begin < count; begin += share) {
        threads.emplace_back([&, begin] {
            for (std::int64_t r = begin; r < std::min(begin + share, count); ++r) {
                unpack_to_plain(*view.packing, rows + r * from, view.cols, storage.data() + r * to);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return storage.data();
}

Panels::Panels(std::span<const PackSource> matrices, RowOrder order) : inputs_(matrices[0].view.cols) {
    // The scratch memory of the decode kernel is allocated with the first weights: nothing can be allocated while a
    // graph is captured.
    gemv_scratch();
    check_inputs(inputs_);
    for (const PackSource& matrix : matrices) {
        check(matrix.view.cols == inputs_, "stacked matrices read the same input");
        rows_ += matrix.view.rows;
    }
    // Interleaved: row i of both matrices are neighbours. A panel block has one quantisation type, so matrices of
    // unlike types are dequantised to float32 on the host first.
    if (order == RowOrder::interleaved) {
        check(matrices.size() == 2 && matrices[0].view.rows == matrices[1].view.rows,
              "two matrices of one shape interleave");
        const TensorView views[] = {matrices[0].view, matrices[1].view};
        if (views[0].packing != nullptr && views[1].packing != nullptr) {
            if (const std::optional<PackedLayout> layout = packed_layout(views, true)) {
                Part& part = parts_.emplace_back(make_packed_part(*layout, 0, rows_));
                fill_packed_part(matrices, order, inputs_, *layout, part);
                return;
            }
        }
        const bool alike = kept_type(matrices[0].view) == kept_type(matrices[1].view);
        const QuantType quant_type = alike ? kept_type(matrices[0].view) : QuantType::f32;
        Part& part = parts_.emplace_back(make_part(quant_type, 0, rows_, inputs_));
        // Either all matrices of a stack have data, or none has.
        if (matrices[0].view.data == nullptr) {
            fill_randomly(part, inputs_);
            return;
        }
        for (std::int64_t m = 0; m < 2; ++m) {
            TensorView view = matrices[static_cast<std::size_t>(m)].view;
            std::vector<float> values;
            if (!alike) {
                values = decoded(view);
                view = {QuantType::f32, view.rows, view.cols, reinterpret_cast<const std::byte*>(values.data())};
            }
            fill(view, {0, m, 2, {}}, part);
        }
        return;
    }
    // Stacked: neighbouring matrices of one quantisation type become one part, one launch step of the decode kernel.
    std::int64_t first_row = 0;
    for (const Group& group : groups_of(matrices)) {
        const std::span<const PackSource> sources = matrices.subspan(group.begin, group.end - group.begin);
        std::int64_t rows = 0;
        for (const PackSource& source : sources) rows += source.view.rows;
        if (group.layout) {
            Part& part = parts_.emplace_back(make_packed_part(*group.layout, first_row, rows));
            fill_packed_part(sources, order, inputs_, *group.layout, part);
        } else {
            Part& part = parts_.emplace_back(make_part(kept_type(sources[0].view), first_row, rows, inputs_));
            if (sources[0].view.data == nullptr) {
                fill_randomly(part, inputs_);
            } else {
                std::int64_t offset = 0;
                for (const PackSource& source : sources) {
                    fill(source.view, {0, offset, 1, source.order}, part);
                    offset += source.view.rows;
                }
            }
        }
        first_row += rows;
    }
}

ExpertForm form_of_experts(std::span<const TensorView> first, std::span<const TensorView> second) {
    if (std::optional<PackedLayout> layout = packed_layout_of_experts(first, second)) {
        return {QuantType::packed, std::make_shared<const PackedLayout>(*std::move(layout))};
    }
    const QuantType stored = kept_type(first[0]);
    const auto is_stored = [&](const TensorView& view) { return kept_type(view) == stored; };
    const bool alike = std::ranges::all_of(first, is_stored) && std::ranges::all_of(second, is_stored);
    return {alike ? stored : QuantType::f32, nullptr};
}

ExpertPanels::ExpertPanels(std::span<const TensorView> first, std::span<const TensorView> second,
                           const ExpertForm& form)
    : rows_(first[0].rows * (second.empty() ? 1 : 2)), inputs_(first[0].cols) {
    check_inputs(inputs_);
    if (form.packed != nullptr) {
        pack(first, second, *form.packed);
        return;
    }
    const QuantType quant_type = form.quant_type;
    const std::int64_t padded = (rows_ + kPanelRows - 1) / kPanelRows * kPanelRows;
    part_ = make_part(quant_type, 0, padded * static_cast<std::int64_t>(first.size()), inputs_);
    if (first[0].data == nullptr) {
        fill_randomly(part_, inputs_);
        return;
    }
    const auto pack = [&](TensorView view, std::size_t expert, std::int64_t place) {
        std::vector<float> values;
        if (kept_type(view) != quant_type) {
            values = decoded(view);
            view = {QuantType::f32, view.rows, view.cols, reinterpret_cast<const std::byte*>(values.data())};
        }
        fill(view, {0, static_cast<std::int64_t>(expert) * padded + place, second.empty() ? 1 : 2, {}}, part_);
    };
    for (std::size_t e = 0; e < first.size(); ++e) {
        pack(first[e], e, 0);
        if (!second.empty()) pack(second[e], e, 1);
    }
}

void ExpertPanels::pack(std::span<const TensorView> first, std::span<const TensorView> second,
                        const PackedLayout& layout) {
    const std::int64_t padded = (rows_ + kPanelRows - 1) / kPanelRows * kPanelRows;
    const PackedHeader& header = layout.header;
    part_ = make_packed_part(layout, 0, padded * static_cast<std::int64_t>(first.size()));
    packed_.panel_bytes = header.panel_bytes;
    packed_.panels_at = header.panels_at;
    std::vector<float> factors;
    std::vector<std::uint16_t> order;
    for (std::size_t e = 0; e < first.size(); ++e) {
        factors.insert(factors.end(), {first[e].packing->factor, (second.empty() ? first : second)[e].packing->factor});
        for (const std::int32_t input : first[e].packing->order) order.push_back(static_cast<std::uint16_t>(input));
    }
    packed_.factors = to_device(std::span<const float>(factors));
    if (!order.empty()) packed_.order = to_device(std::span<const std::uint16_t>(order));
    for (std::int32_t block = 0; block < layout.blocks; block += 2) {
        std::int32_t bytes = 0;
        for (std::int32_t b = block; b < std::min(block + 2, layout.blocks); ++b) {
            const auto has = [&](const PackedRun& run) { return b < run.end; };
            bytes += std::ranges::find_if(header.runs, has)->bytes();
        }
        packed_.unit_bytes = std::max(packed_.unit_bytes, bytes);
    }
    if (first[0].data == nullptr) {
        fill_packed_randomly(layout, inputs_, part_);
        return;
    }
    const DeviceGroups groups(layout);
    for (std::size_t e = 0; e < first.size(); ++e) {
        const std::int64_t place = static_cast<std::int64_t>(e) * padded;
        const std::int32_t stride = second.empty() ? 1 : 2;
        fill_packed(first[e], {0, place, stride, {}}, layout, groups.of(false), part_);
        if (!second.empty()) fill_packed(second[e], {0, place + 1, stride, {}}, layout, groups.of(true), part_);
    }
}

std::int64_t ExpertPanels::bytes() const {
    return static_cast<std::int64_t>(part_.data.bytes() + packed_.factors.bytes() + packed_.order.bytes());
}

std::int64_t Panels::bytes() const {
    std::int64_t sum = 0;
    for (const Part& part : parts_) sum += static_cast<std::int64_t>(part.data.bytes());
    return sum;
}

}  // namespace foresay::kernels::cuda
