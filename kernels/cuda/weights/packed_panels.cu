// Packed rows become panels: packed_layout() chooses the layout on the host, from the packing and from what the heads
// hold; pack_rows writes the panels, a thread for each group of 32 inputs of a row.
//
// Threads of neighbouring rows and groups share words of the planes, so bits are set by atomicOr into memory that was
// cleared.

#include "kernels/cuda/weights/packed_panels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/packed_panels.h"

namespace foresay::kernels::cuda {
namespace {

std::size_t rounded_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

template <class T>
T read(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

bool has_zero(ScaleForm form) { return form == ScaleForm::f16_zero || form == ScaleForm::f32_zero; }

// What all heads of the matrices have to say.
struct HeadFacts {
    bool centred = true;      // zeros are 2^(bits - 1)
    bool small_zeros = true;  // and float16 holds them
    bool in_range = true;     // scales times 2^24 are finite
};

HeadFacts facts_of_row(const Packing& packing, std::span<const PackedSource> groups, const std::byte* row) {
    constexpr float kLargest = 0x1p90f;
    HeadFacts facts;
    for (const PackedSource& group : groups) {
        const std::byte* const head = row + group.head_at;
        float zero = 0.0f, largest = 0.0f;
        switch (packing.form) {
            case ScaleForm::f16_zero:
                zero = read<std::int16_t>(head + 2);
                break;
            case ScaleForm::f32_zero:
                zero = read<float>(head + 4);
                largest = std::fabs(read<float>(head)) * std::max(1.0f, std::fabs(zero));
                break;
            case ScaleForm::f32_minimum:
            case ScaleForm::f32_table:
                largest = std::max(std::fabs(read<float>(head)), std::fabs(read<float>(head + 4)));
                break;
            case ScaleForm::k_table:
            case ScaleForm::e4m3:
                largest = std::fabs(read<float>(head));
                break;
            case ScaleForm::f16_minimum:
            case ScaleForm::k_minimum:
                break;
        }
        if (!(largest * std::max(1.0f, std::fabs(packing.factor)) < kLargest)) facts.in_range = false;
        if (!has_zero(packing.form)) continue;
        if (zero != static_cast<float>(1 << (group.bits - 1))) facts.centred = false;
        if (std::fabs(zero) > 2048.0f) facts.small_zeros = false;
    }
    return facts;
}

void add_facts(HeadFacts& to, const HeadFacts& facts) {
    to.centred = to.centred && facts.centred;
    to.small_zeros = to.small_zeros && facts.small_zeros;
    to.in_range = to.in_range && facts.in_range;
}

// Of matrices whose groups lie as `groups[m % 2]` says, or as groups[0] where groups[1] is empty.
HeadFacts facts_of(std::span<const TensorView> matrices, const std::vector<PackedSource> (&groups)[2]) {
    HeadFacts all;
    std::int64_t rows = 0;
    for (const TensorView& view : matrices) {
        all.in_range = all.in_range && std::fabs(view.packing->factor) < 0x1p60f;
        rows += view.rows;
    }
    if (matrices[0].data == nullptr) return all;
    const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency()), share = (rows + cores - 1) / cores;
    std::vector<HeadFacts> found(static_cast<std::size_t>(cores));
    std::vector<std::thread> threads;
    for (std::int64_t core = 0; core < cores; ++core) {
        threads.emplace_back([&, core] {
            HeadFacts facts;
            std::int64_t begin = 0;  // the matrix's first row, of all
            for (std::size_t m = 0; m < matrices.size(); ++m) {
                const TensorView& view = matrices[m];
                const auto& of = groups[groups[1].empty() ? 0 : m % 2];
                const std::int64_t end = std::min(view.rows, (core + 1) * share - begin);
                for (std::int64_t r = std::max<std::int64_t>(0, core * share - begin); r < end; ++r) {
                    add_facts(facts, facts_of_row(*view.packing, of, view.data + r * view.row_bytes()));
                }
                begin += view.rows;
            }
            found[static_cast<std::size_t>(core)] = facts;
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const HeadFacts& facts : found) add_facts(all, facts);
    return all;
}

std::optional<CodeKind> kind_of(ScaleForm form, int bits) {
    switch (form) {
        case ScaleForm::e4m3:
            return bits == 8 ? std::optional(CodeKind::e4m3) : std::nullopt;
        case ScaleForm::k_minimum:
            return bits == 2 ? std::optional(CodeKind::halves2) : std::nullopt;
        case ScaleForm::k_table:
        case ScaleForm::f32_table:
            return bits == 3   ? std::optional(CodeKind::table3)
                   : bits == 4 ? std::optional(CodeKind::table4)
                               : std::nullopt;
        default:
            break;
    }
    switch (bits) {
        case 2:
            return CodeKind::integer2;
        case 3:
            return CodeKind::integer3;
        case 4:
            return CodeKind::integer4;
        case 5:
            return CodeKind::integer5;
        case 6:
            return CodeKind::integer6;
        case 8:
            return CodeKind::integer8;
        default:
            return std::nullopt;
    }
}

PanelScales scales_of(ScaleForm form, bool centred) {
    switch (form) {
        case ScaleForm::f16_minimum:
            return PanelScales::f16_pair;
        case ScaleForm::f32_minimum:
            return PanelScales::f32_pair;
        case ScaleForm::f16_zero:
            return centred ? PanelScales::f16 : PanelScales::f16_pair;
        case ScaleForm::f32_zero:
            return centred ? PanelScales::f32 : PanelScales::f32_pair;
        case ScaleForm::k_minimum:
            return PanelScales::k_pair;
        case ScaleForm::k_table:
            return PanelScales::k_table;
        case ScaleForm::f32_table:
            return PanelScales::f32_16;
        case ScaleForm::e4m3:
            return PanelScales::f32;
    }
    return PanelScales::f32;
}

std::vector<PackedSource> groups_of(const Packing& packing, std::int64_t cols) {
    std::vector<PackedSource> groups(static_cast<std::size_t>(cols / kPackedGroup));
    std::uint32_t at = 0, head_at = 0;
    int index = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::uint8_t kind = packing.kind(static_cast<std::int64_t>(g));
        if ((kind & kHead) != 0) {
            head_at = at;
            index = 0;
            at += static_cast<std::uint32_t>(head_bytes(packing.form));
        }
        const int bits = kind & ~kHead;
        groups[g] = {at, head_at, static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(index)};
        index = std::min(index + 1, 255);
        at += static_cast<std::uint32_t>(bits * (kPackedGroup / 8));
    }
    return groups;
}

// Where a block lies in its panel.
struct BlockAt {
    const PackedRun& run;
    std::uint32_t offset;
};
FORESAY_HOST_DEVICE inline BlockAt block_at(const PackedHeader& header, int block) {
    int r = 0;
    while (block >= header.runs[r].end) ++r;
    const PackedRun& run = header.runs[r];
    return {run, run.offset + static_cast<std::uint32_t>((block - run.first) * run.bytes())};
}

__device__ void set_bits(std::uint8_t* plane, int word, std::uint32_t bits) {
    if (bits != 0) atomicOr(reinterpret_cast<std::uint32_t*>(plane) + word, bits);
}

// The code of a row and input (below 64) of a block whose bits were clear.
__device__ void put_code(CodeKind kind, std::uint8_t* block, const Place& place, std::uint32_t code) {
    const int bits = code_bits(kind);
    if (bits == 8) {
        block[byte_place(place)] = static_cast<std::uint8_t>(code);
        return;
    }
    if (kind == CodeKind::table4) {
        const BitPlace at = table4_place(place);
        return set_bits(block, at.word, code << at.shift);
    }
    if (kind == CodeKind::table3) {
        const BitPlace lower = table3_lower_place(place), upper = table3_upper_place(place);
        set_bits(block, lower.word, (code & 3u) << lower.shift);
        return set_bits(block + 512, upper.word, (code >> 2) << upper.shift);
    }
    int plane = 0;
    if (bits >= 4) {
        const BitPlace at = nibble_place(place);
        set_bits(block, at.word, (code & 15u) << at.shift);
        code >>= 4;
        plane = 1024;
    }
    if (bits == 2 || bits == 3 || bits == 6) {
        const BitPlace at = upper_place(place);
        set_bits(block + plane, at.word, (code & 3u) << at.shift);
        code >>= 2;
        plane += 512;
    }
    if (bits == 3 || bits == 5) {
        const BitPlace at = fifth_place(place);
        set_bits(block + plane, at.word, (code & 1u) << at.shift);
    }
}

__device__ std::uint32_t word_at(const std::uint8_t* from) {
    return from[0] | static_cast<std::uint32_t>(from[1]) << 8 | static_cast<std::uint32_t>(from[2]) << 16 |
           static_cast<std::uint32_t>(from[3]) << 24;
}

// The scales of a group. `to`: those of its block.
__device__ void put_scales(const PackedHeader& header, const PackedRun& run, ScaleForm form, const std::uint8_t* head,
                           int index, int slot, int g, std::uint8_t* to) {
    if (of_groups(header.scales)) {
        if (g == 1 && !run.apart) return;
        to += g * scale_bytes(header.scales);
    }
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
    auto* const words = reinterpret_cast<std::uint32_t*>(to);
    const std::uint32_t first = word_at(head);
    switch (header.scales) {
        case PanelScales::f16:
            halves[slot] = static_cast<std::uint16_t>(first);
            break;
        case PanelScales::f16_pair:
            halves[2 * slot] = static_cast<std::uint16_t>(first);
            halves[2 * slot + 1] = static_cast<std::uint16_t>(first >> 16);
            if (form == ScaleForm::f16_zero) {
                const auto zero = static_cast<float>(static_cast<std::int16_t>(first >> 16));
                halves[2 * slot + 1] = f32_to_f16(zero);
            }
            break;
        case PanelScales::f32:
            words[slot] = first;
            break;
        case PanelScales::f32_pair:
            words[2 * slot] = first;
            words[2 * slot + 1] = word_at(head + 4);
            break;
        case PanelScales::k_pair:
        case PanelScales::k_table:
            if (g == 0) words[slot] = first;
            for (int s = 0; s < 2; ++s) to[128 + 4 * slot + 2 * g + s] = head[4 + 2 * index + s];
            break;
        case PanelScales::f32_16:
            for (int s = 0; s < 2; ++s) words[(2 * g + s) * 32 + slot] = word_at(head + 4 * s);
            break;
    }
}

// A thread for each group of `count` rows.
__global__ void pack_rows(const std::uint8_t* from, std::int64_t row_bytes, std::int64_t count, std::int32_t groups,
                          const PackedSource* sources, ScaleForm form, bool centred, const RowTarget target,
                          const __grid_constant__ PackedHeader header, std::uint8_t* panels) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count * groups) return;
    const std::int64_t row = i / groups, packed = target.packed(target.first + row);
    const auto group = static_cast<int>(i % groups);
    const PackedSource source = sources[group];
    const std::uint8_t* const bytes = from + row * row_bytes;
    const BlockAt at = block_at(header, group / 2);
    std::uint8_t* const block = panels + packed / kPanelRows * header.panel_bytes + at.offset;
    const auto in_panel = static_cast<int>(packed % kPanelRows);
    const std::uint32_t mask = (1u << source.bits) - 1u;
    const auto moved =
        static_cast<std::uint32_t>(centred ? static_cast<int>(at.run.zero) - (1 << (source.bits - 1)) : 0);
    const std::uint8_t* const codes = bytes + source.codes_at;
    for (int k = 0; k < kPackedGroup; ++k) {
        const int bit = k * source.bits, byte = bit / 8;
        std::uint32_t code = codes[byte];
        if (bit % 8 + source.bits > 8) code |= static_cast<std::uint32_t>(codes[byte + 1]) << 8;
        code = (code >> (bit % 8) & mask) + moved;
        put_code(at.run.kind, block, Place(in_panel, group % 2 * 32 + k), code);
    }
    put_scales(header, at.run, form, bytes + source.head_at, source.index, Place(in_panel, 0).row_slot(), group % 2,
               block + code_bits(at.run.kind) * 256);
}

__device__ std::uint32_t scramble(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return static_cast<std::uint32_t>(x ^ (x >> 31));
}

// Of random codes, about.
__host__ __device__ float deviation(CodeKind kind) {
    switch (kind) {
        case CodeKind::e4m3:
            return 0.7f;
        case CodeKind::table3:
        case CodeKind::table4:
            return 60.0f;
        default:
            return 0.29f * static_cast<float>(1 << code_bits(kind));
    }
}

// A CTA for each block. Grid: (blocks of a panel, panels).
__global__ void fill_blocks(const __grid_constant__ PackedHeader header, float unit, std::uint64_t seed,
                            std::uint8_t* panels) {
    const BlockAt at = block_at(header, static_cast<int>(blockIdx.x));
    const PackedRun& run = at.run;
    auto* const words = reinterpret_cast<std::uint32_t*>(
        panels + static_cast<std::int64_t>(blockIdx.y) * header.panel_bytes + at.offset);
    const int codes = code_bits(run.kind) * 64;
    const float size = unit / deviation(run.kind);
    const std::uint64_t begin = seed + (static_cast<std::uint64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * 4096u;
    for (int i = static_cast<int>(threadIdx.x); i < run.bytes() / 4; i += static_cast<int>(blockDim.x)) {
        std::uint32_t bits = scramble((begin + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15ull);
        if (i < codes) {
            words[i] = run.kind == CodeKind::e4m3 ? bits & 0xbfbfbfbfu : bits;  // numbers below 2
            continue;
        }
        const int place = i - codes;
        const float scale = size * (0.5f + static_cast<float>(bits & 0xffffu) / 65536.0f);
        const float middle = 0.5f * static_cast<float>((1 << code_bits(run.kind)) - 1);
        switch (header.scales) {
            case PanelScales::f16:
                words[i] = f32_to_f16(scale) | static_cast<std::uint32_t>(f32_to_f16(size)) << 16;
                break;
            case PanelScales::f16_pair:
                words[i] = f32_to_f16(scale) | static_cast<std::uint32_t>(f32_to_f16(-scale * middle)) << 16;
                break;
            case PanelScales::f32:
            case PanelScales::f32_16:
                words[i] = __float_as_uint(scale);
                break;
            case PanelScales::f32_pair:
                words[i] = __float_as_uint(place % 2 == 0 ? size : -size * middle);
                break;
            case PanelScales::k_pair:
                if (place < 32) bits = f32_to_f16(scale / 9.0f) * 0x10001u;
                words[i] = bits;
                break;
            case PanelScales::k_table:
                if (place < 32) bits = __float_as_uint(scale / 74.0f);
                words[i] = bits;
                break;
        }
    }
}

// The most blocks, in sixteens if there are as many, that fit `most` bytes wherever in a panel they begin.
std::uint32_t packed_chunk_blocks(const PackedHeader& header, int most) {
    std::vector<int> bytes;  // of blocks
    for (int r = 0; r < header.run_count; ++r) {
        const PackedRun& run = header.runs[r];
        bytes.insert(bytes.end(), static_cast<std::size_t>(run.end - run.first), run.bytes());
    }
    const auto fit = [&](std::size_t count) {
        int sum = 0;
        for (std::size_t b = 0; b < bytes.size(); ++b) {
            sum += bytes[b] - (b >= count ? bytes[b - count] : 0);
            if (sum > most) return false;
        }
        return true;
    };
    std::size_t count = 1;
    while (count < bytes.size() && fit(count + 1)) ++count;
    return static_cast<std::uint32_t>(count < kPackedWarps ? count : count / kPackedWarps * kPackedWarps);
}

// Of matrices, or of pairs that interleave, that share panels packed as `packing`.
std::optional<PackedLayout> layout_of(std::span<const TensorView> matrices, bool interleaved, const Packing& packing) {
    const std::int64_t cols = matrices[0].cols;
    if (cols > 65536 || cols % kPackedGroup != 0) return std::nullopt;
    PackedLayout layout;
    layout.form = packing.form;
    layout.groups[0] = groups_of(*matrices[0].packing, cols);
    if (interleaved && !share_panels(*matrices[0].packing, *matrices[1].packing)) {
        layout.groups[1] = groups_of(*matrices[1].packing, cols);
    }
    for (const TensorView& view : matrices) check(view.cols == cols, "matrices that share panels have one input");
    const HeadFacts facts = facts_of(matrices, layout.groups);
    const bool zeros = has_zero(packing.form);
    if (!facts.in_range || (packing.form == ScaleForm::f16_zero && !facts.small_zeros)) return std::nullopt;
    layout.centred = zeros && facts.centred;
    PackedHeader& header = layout.header;
    header.scales = scales_of(packing.form, layout.centred);
    header.flags = zeros && !layout.centred ? kMinimumIsZero : 0;
    header.factor[0] = matrices[0].packing->factor;
    header.factor[1] = (interleaved ? matrices[1] : matrices[0]).packing->factor;
    for (std::size_t i = 0; i < 16; ++i) header.table[i] = static_cast<std::uint8_t>(packing.table[i] + 128);
    const std::vector<PackedSource> groups = groups_of(packing, cols);  // of the panels; of its places only the heads'
    layout.blocks = static_cast<std::int32_t>((groups.size() + 1) / 2);
    int runs = 0;
    std::uint32_t offset = 0;
    for (int block = 0; block < layout.blocks; ++block) {
        const PackedSource& low = groups[static_cast<std::size_t>(2 * block)];
        const bool alone = static_cast<std::size_t>(2 * block + 1) == groups.size();
        const PackedSource& high = alone ? low : groups[static_cast<std::size_t>(2 * block + 1)];
        const std::optional<CodeKind> kind = kind_of(packing.form, std::max(low.bits, high.bits));
        if (!kind) return std::nullopt;
        const bool apart = of_groups(header.scales) && low.head_at != high.head_at;
        PackedRun* run = runs == 0 ? nullptr : &header.runs[runs - 1];
        if (run == nullptr || run->kind != *kind || run->apart != apart) {
            if (runs == kMaxRuns) return std::nullopt;
            run = &header.runs[runs++];
            run->first = static_cast<std::uint16_t>(block);
            run->kind = *kind;
            run->apart = apart;
            run->lines = static_cast<std::uint8_t>(packed_block_bytes(*kind, header.scales, apart) / 64);
            run->offset = offset;
            run->zero = layout.centred ? static_cast<float>(1 << (code_bits(*kind) - 1)) : 0.0f;
        }
        run->end = static_cast<std::uint16_t>(block + 1);
        offset += static_cast<std::uint32_t>(run->bytes());
    }
    header.run_count = static_cast<std::uint16_t>(runs);
    header.panel_bytes = offset;
    header.chunk = packed_chunk_blocks(header, packed_chunk_bytes(gemv_scratch().little_shared));
    header.panels_at = sizeof(PackedHeader);
    return layout;
}

}  // namespace

std::optional<PackedLayout> packed_layout(std::span<const TensorView> matrices, bool interleaved) {
    const std::int64_t cols = matrices[0].cols;
    const std::optional<Packing> pair =
        interleaved ? packing_of_pair(*matrices[0].packing, *matrices[1].packing, cols) : std::nullopt;
    if (interleaved && !pair) return std::nullopt;
    const Packing& packing = interleaved ? *pair : *matrices[0].packing;
    for (const TensorView& view : matrices) {
        if (interleaved) continue;
        check(view.packing != nullptr && share_panels(packing, *view.packing), "a stack's matrices are packed alike");
        if (view.packing->factor != packing.factor) return std::nullopt;
    }
    std::optional<PackedLayout> layout = layout_of(matrices, interleaved, packing);
    if (!layout) return std::nullopt;
    for (const std::int32_t input : packing.order) layout->order.push_back(static_cast<std::uint16_t>(input));
    layout->header.panels_at =
        static_cast<std::uint32_t>(rounded_up(sizeof(PackedHeader) + 2 * layout->order.size(), alignof(PackedHeader)));
    return layout;
}

std::optional<PackedLayout> packed_layout_of_experts(std::span<const TensorView> first,
                                                     std::span<const TensorView> second) {
    std::vector<const Packing*> packings[2];
    std::vector<TensorView> matrices;
    for (std::size_t e = 0; e < first.size(); ++e) {
        packings[0].push_back(first[e].packing);
        matrices.push_back(first[e]);
        if (second.empty()) continue;
        packings[1].push_back(second[e].packing);
        matrices.push_back(second[e]);
    }
    const std::optional<Packing> packing = packing_of_experts(packings[0], packings[1], first[0].cols);
    if (!packing) return std::nullopt;
    std::optional<PackedLayout> layout = layout_of(matrices, !second.empty(), *packing);
    if (layout) layout->header.factor[0] = layout->header.factor[1] = 1.0f;
    return layout;
}

std::size_t packed_bytes(const PackedLayout& layout, std::int64_t panels) {
    return layout.header.panels_at + static_cast<std::size_t>(panels) * layout.header.panel_bytes;
}

void put_header(const PackedLayout& layout, std::uint8_t* to) {
    cuda_check(cudaMemcpy(to, &layout.header, sizeof(PackedHeader), cudaMemcpyHostToDevice), "cannot copy a header");
    if (layout.order.empty()) return;
    cuda_check(cudaMemcpy(to + kOrderAt, layout.order.data(), 2 * layout.order.size(), cudaMemcpyHostToDevice),
               "cannot copy an order");
}

void pack_slab(const PackedLayout& layout, const PackedSource* sources, const std::byte* slab, std::int64_t row_bytes,
               std::int64_t count, const RowTarget& target, std::uint8_t* to) {
    const auto groups = static_cast<std::int32_t>(layout.groups[0].size());
    pack_rows<<<static_cast<unsigned>((count * groups + 127) / 128), 128>>>(
        reinterpret_cast<const std::uint8_t*>(slab), row_bytes, count, groups, sources, layout.form, layout.centred,
        target, layout.header, to + layout.header.panels_at);
    launched("pack_rows");
}

void fill_packed_randomly(const PackedLayout& layout, std::int64_t inputs, std::int64_t panels, std::uint64_t seed,
                          std::uint8_t* to) {
    const dim3 grid(static_cast<unsigned>(layout.blocks), static_cast<unsigned>(panels));
    fill_blocks<<<grid, 128>>>(layout.header, 1.0f / std::sqrt(static_cast<float>(inputs)), seed,
                               to + layout.header.panels_at);
    launched("fill_blocks");
}

}  // namespace foresay::kernels::cuda
