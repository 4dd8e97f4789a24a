// linear_bench: how fast the device reads weights.
//
//   linear_bench read                          bandwidth of a kernel that only reads
//   linear_bench ops SHAPE QUANT [ROWS..]      each op, at 1, 2, 4, 8, 16 rows, over buffers larger than the L2
//   linear_bench input SHAPE QUANT [ROWS..]    what prefill rows cost, and the products that cuBLASLt proposes for them
//   linear_bench chain SHAPE QUANT [ROWS..]    a whole token: layers x 5 kernels and the LM head, in one graph
//   linear_bench experts QUANT [ROWS..]        a layer's experts in the shape of Qwen3 30B A3B
//
// SHAPE is a name of bench/named_shapes.h, QUANT a quantisation type such as q4_0, one of packings() below, or q4_k_m,
// whose v and down are Q6_K in every second layer; of ops and chain also several of them, as in q4_0,fp8,exl2. Weights
// are synthetic.
//
// Options after that, as key=value: overlap (0 or 1: whether kernels start before their predecessor has ended), fused
// (0: a launch per op; 1: one from attention to attention; 2: one for all layers, without attention). A lone / begins
// another set of options, so that variants can be compared within one process; mixed=0 has the decode kernel take more
// than 16 rows, too, and tile=42064 has mixed_gemm take tiles of 4 panels, 2 slices and 64 rows where it has them;
// prompt=1: rows of a prompt, without the LM head.
//
// Attention is replaced by a kernel that only waits and copies. Every time is the median of replays of a graph. The
// percentage after a time is the rate at which weights were read, of the bandwidth that `read` measures.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bench/device_time.h"
#include "bench/named_shapes.h"
#include "bench/prefill_bench.h"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/experts/mixture.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.h"
#include "kernels/quant/packing.h"

namespace foresay {
namespace {

namespace cuda = kernels::cuda;
using kernels::ModelShape;
using kernels::QuantType;
using kernels::TensorView;

// Eight independent 16-byte loads per iteration and thread. The store never happens; it keeps the loads.
__global__ void read_only(const uint4* data, std::int64_t count, std::uint32_t* out) {
    std::uint32_t sum = 0;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + 7 * step < count; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = __ldcs(data + i + j * step);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < count; i += step) sum ^= data[i].x;
    if (sum == 0x12345678u) *out = sum;
}

__global__ void fill_words(std::uint32_t* data, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        data[i] = static_cast<std::uint32_t>(i * 2654435761u);
    }
}

// Stands in for attention: what it waits for and writes, not what it computes.
__global__ void attention_stand_in(const float* q, float* out, int count) {
    cuda::allow_successor();
    cuda::await_predecessors();
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
         i += static_cast<int>(gridDim.x * blockDim.x)) {
        out[i] = __ldcg(q + i);
    }
}

// Like launch_overlapping() (kernels/cuda/device/launch.cuh), but overlap can be switched off.
void launch_stand_in(const float* q, float* out, int count, bool overlap, cudaStream_t stream) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(128);
    config.blockDim = dim3(128);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    cudaFuncSetAttribute(attention_stand_in, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cuda::cuda_check(cudaLaunchKernelEx(&config, attention_stand_in, q, out, count), "cannot launch the stand-in");
}

// Terabytes per second of reading 8 GiB, the best of several grids: the 100 % of all percentages.
double read_bandwidth(const cuda::Stream& stream, bool print) {
    constexpr std::size_t bytes = std::size_t{8} << 30;
    const cuda::DeviceBuffer<std::uint32_t> data(bytes / 4), out(1);
    fill_words<<<2048, 256, 0, stream>>>(data.data(), bytes / 4);
    double best = 0;
    for (const int blocks : {132, 264, 528}) {
        for (const int threads : {512, 1024}) {
            const double us = graph_microseconds(stream, 7, [&] {
                read_only<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
                    reinterpret_cast<const uint4*>(data.data()), bytes / 16, out.data());
            });
            const double rate = static_cast<double>(bytes) / us * 1e-6;
            if (print) std::printf("read %4d x %4d: %.3f TB/s\n", blocks, threads, rate);
            best = std::max(best, rate);
        }
    }
    return best;
}

// Packed rows as formats of files have them: the bits of groups of 32, and how many groups share a head.
struct NamedPacking {
    const char* name;
    kernels::ScaleForm form;
    std::vector<int> bits;  // shares of the inputs, each as large as the others
    int heads = 1;
    bool ordered = false;
};
const std::vector<NamedPacking>& packings() {
    using F = kernels::ScaleForm;
    static const std::vector<NamedPacking> list = {
        {"q4_1", F::f16_minimum, {4}},
        {"q5_1", F::f16_minimum, {5}},
        {"q2_k", F::k_minimum, {2}, 8},
        {"iq4_xs", F::k_table, {4}, 8},
        {"iq2", F::k_table, {3}, 8},
        {"nvfp4", F::f32_table, {4}},
        {"fp8", F::e4m3, {8}, 4},
        {"awq", F::f16_minimum, {4}, 4},
        {"gptq_order", F::f16_zero, {4}, 4, true},
        {"gptq3", F::f16_zero, {3}, 4, true},
        {"mlx4", F::f32_minimum, {4}, 2},
        {"mlx6", F::f32_minimum, {6}, 2},
        {"int8", F::f32_zero, {8}, 4},
        // Of 32 groups 1 has 8 bits, 2 have 6, 2 have 5, 19 have 4, 8 have 3.
        {"exl2",
         F::f16_zero,
         {8, 6, 6, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3},
         4,
         true},
        // 3.0 bits: of 32 groups 1 has 6, 1 has 5, 4 have 4, 17 have 3, 9 have 2.
        {"exl2_3",
         F::f16_zero,
         {6, 5, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2},
         4,
         true},
        // 6.0 bits: 4 have 8, 24 have 6, 4 have 4.
        {"exl2_6", F::f16_zero, {8, 6, 6, 6, 6, 6, 6, 4}, 4, true},
        {"exl2_head", F::f16_zero, {8, 6, 6, 6, 6, 6, 6, 6}, 4, true},
    };
    return list;
}

// "exl2" of exl2_3.
std::string family_of(const NamedPacking& packing) {
    const std::string name = packing.name;
    return name.substr(0, name.find('_'));
}

// What weights are made of.
struct Encoding {
    QuantType type = QuantType::f32;
    const NamedPacking* packing = nullptr;
};

// A packing of `cols` inputs; kept for the life of the program. in_place: without an order.
const kernels::Packing* packing_of(const NamedPacking& named, std::int64_t cols, bool in_place) {
    static std::map<std::tuple<std::string, std::int64_t, bool>, kernels::Packing> made;
    const auto [entry, is_new] = made.try_emplace({named.name, cols, in_place});
    kernels::Packing& packing = entry->second;
    if (!is_new) return &packing;
    packing.form = named.form;
    const auto groups = static_cast<std::size_t>(cols / kernels::kPackedGroup);
    for (std::size_t g = 0; g < groups; ++g) {
        const int bits = named.bits[g / 4 * 4 * named.bits.size() / groups];
        const bool head = g % static_cast<std::size_t>(named.heads) == 0;
        packing.kinds.push_back(static_cast<std::uint8_t>(bits | (head ? kernels::kHead : 0)));
    }
    for (std::size_t i = 0; i < 16; ++i) packing.table[i] = static_cast<std::int8_t>(15 * static_cast<int>(i) - 112);
    for (std::int64_t i = 0; named.ordered && !in_place && i < cols; ++i) {
        packing.order.push_back(static_cast<std::int32_t>((i * 1013 + 7) % cols));
    }
    return &packing;
}

// A shape without data: Panels fills in random weights.
TensorView made_up(QuantType quant_type, std::int64_t rows, std::int64_t cols) {
    return {quant_type, rows, cols, nullptr};
}
TensorView made_up(const Encoding& encoding, std::int64_t rows, std::int64_t cols, bool in_place = false) {
    if (encoding.packing == nullptr) return made_up(encoding.type, rows, cols);
    return {QuantType::packed, rows, cols, nullptr, packing_of(*encoding.packing, cols, in_place)};
}

// The ops of one layer, and the LM head, which Q4 models have in Q6_K.
struct Stages {
    kernels::AttentionInSpec attention_in;
    kernels::AttentionOutSpec attention_out;
    kernels::MlpInSpec mlp_in;
    kernels::MlpOutSpec mlp_out;
    kernels::LmHeadSpec head;

    // `upper`: of v and down.
    Stages(const ModelShape& s, const Encoding& quant_type, const Encoding& upper, std::span<const float> frequencies) {
        const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim,
                           kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
        const kernels::NormSpec norm = {made_up(QuantType::f32, 1, s.d_model), 1e-5f, false};
        attention_in.shape = s;
        attention_in.norm = norm;
        attention_in.q = made_up(quant_type, q, s.d_model);
        attention_in.k = made_up(quant_type, kv, s.d_model);
        attention_in.v = made_up(upper, kv, s.d_model);
        attention_in.rope = {kernels::RopePairs::adjacent, frequencies, 1.0f};
        attention_out.shape = s;
        attention_out.o = made_up(quant_type, s.d_model, q);
        mlp_in.shape = s;
        mlp_in.norm = norm;
        mlp_in.gate = made_up(quant_type, s.d_ff, s.d_model);
        mlp_in.up = made_up(quant_type, s.d_ff, s.d_model);
        mlp_out.shape = s;
        mlp_out.down = made_up(upper, s.d_model, s.d_ff, true);  // as OpMaker::with_inputs_in_place()
        head.shape = s;
        head.norm = norm;
        Encoding of_head = quant_type;
        if (quant_type.type == QuantType::q4_0 || quant_type.type == QuantType::q4_k) of_head.type = QuantType::q6_k;
        for (const NamedPacking& named : packings()) {
            if (quant_type.packing != nullptr && family_of(*quant_type.packing) + "_head" == named.name) {
                of_head.packing = &named;
            }
        }
        head.weight = made_up(of_head, s.vocab, s.d_model);
    }
};

// Activations and one page of a KV cache; all layers use the same.
struct Buffers {
    cuda::MixedWorkspace mixed;
    cuda::DeviceBuffer<float> x, q, attended, ff, logits;
    cuda::DeviceBuffer<__half> kv;
    cuda::KvLayout layout;
    cuda::DeviceBuffer<std::int64_t> cell, v_cell;
    cuda::DeviceBuffer<float2> rope;
    ModelShape shape;

    Buffers(const ModelShape& s, int rows) : mixed(s, rows), shape(s) {
        const auto many = static_cast<std::size_t>(rows);
        const auto random = [](std::size_t count) {
            std::vector<float> values(count);
            for (float& value : values) value = static_cast<float>(std::rand()) / static_cast<float>(RAND_MAX) - 0.5f;
            return cuda::to_device(std::span<const float>(values));
        };
        const auto q_width = static_cast<std::size_t>(s.heads * s.head_dim);
        x = random(many * static_cast<std::size_t>(s.d_model));
        q = random(many * q_width);
        attended = random(many * q_width);
        ff = random(many * static_cast<std::size_t>(s.d_ff));
        logits = random(many * static_cast<std::size_t>(s.vocab));
        layout = cuda::KvLayout(s, 1);
        kv = cuda::DeviceBuffer<__half>(static_cast<std::size_t>(layout.page_stride));
        std::vector<std::int64_t> cells, v_cells;
        for (int t = 0; t < rows; ++t) {
            cells.push_back(layout.k_cell(0, t % kernels::kPagePositions));
            v_cells.push_back(layout.v_cell(0, t % kernels::kPagePositions));
        }
        cell = cuda::to_device(std::span<const std::int64_t>(cells));
        v_cell = cuda::to_device(std::span<const std::int64_t>(v_cells));
        const std::vector<float2> turns(many * static_cast<std::size_t>(s.head_dim / 2), float2{0.8f, 0.6f});
        rope = cuda::to_device(std::span<const float2>(turns));
    }
    cuda::AttentionInLinear::Io attention_in() const {
        cuda::AttentionInLinear::Io io;
        io.x = x.data();
        io.q = q.data();
        io.kv = kv.data();
        io.cell = cell.data();
        io.head_stride = layout.head_stride;
        io.v_cell = v_cell.data();
        io.rope = rope.data();
        return io;
    }
};

// The value of an option, or `otherwise`.
int option(const std::map<std::string, int>& options, const char* key, int otherwise) {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
}

// The tile of "tile=": panels, slices, and columns in three digits.
void choose_tile(const std::map<std::string, int>& options) {
    const int tile = option(options, "tile", 0);
    cuda::force_mixed_tile({static_cast<std::uint8_t>(tile / 10000), static_cast<std::uint8_t>(tile / 1000 % 10),
                            static_cast<std::uint8_t>(tile % 1000)});
}

// One line: an op at several numbers of rows. Uses several copies of the op, 400 MiB in all, one after the other, so
// that the L2 never holds the weights that are read.
template <class Stage, class Spec, class Launch>
void bench_op(const char* name, const Spec& spec, double peak, const std::vector<int>& widths, const Buffers& b,
              const std::map<std::string, int>& options, Launch launch) {
    const cuda::Stream stream;
    std::vector<Stage> copies;
    std::int64_t total = 0;
    while (total < (std::int64_t{400} << 20) || copies.size() < 2) {
        copies.emplace_back(spec);
        total += copies.back().bytes();
    }
    choose_tile(options);
    const double bytes = static_cast<double>(copies[0].bytes());
    std::printf("%-14s %8.2f MB ", name, bytes * 1e-6);
    for (const int rows : widths) {
        const cuda::LinearCall call{stream,
                                    rows,
                                    kernels::RowClass::decode,
                                    nullptr,
                                    option(options, "overlap", 1) != 0,
                                    nullptr,
                                    option(options, "mixed", 1) != 0 ? b.mixed.scratch() : nullptr};
        // About 24 launches or more in a graph, so that the launch of the graph itself hardly counts.
        const int loops = std::max<int>(1, 24 / static_cast<int>(copies.size()));
        const double us = graph_microseconds(stream, 9,
                                             [&] {
                                                 for (int i = 0; i < loops; ++i) {
                                                     for (const Stage& stage : copies) launch(stage, call);
                                                 }
                                             }) /
                          static_cast<double>(loops * static_cast<int>(copies.size()));
        std::printf(" | %2d: %7.2f us %4.1f%%", rows, us, 100.0 * bytes / us * 1e-6 / peak);
    }
    std::printf("\n");
}

// One line per op of a layer, and one for the LM head.
void bench_ops(const ModelShape& s, const Encoding& quant_type, double peak, const std::vector<int>& widths,
               const std::map<std::string, int>& options) {
    const std::vector<float> frequencies(static_cast<std::size_t>(s.head_dim / 2), 1.0f);
    const Stages stages(s, quant_type, quant_type, frequencies);
    const Buffers b(s, *std::max_element(widths.begin(), widths.end()));
    bench_op<cuda::AttentionInLinear>(
        "attention_in", stages.attention_in, peak, widths, b, options,
        [&](const auto& stage, const auto& call) { stage.launch(call, b.attention_in()); });
    bench_op<cuda::OutLinear>("attention_out", stages.attention_out, peak, widths, b, options,
                              [&](const auto& stage, const auto& call) {
                                  stage.launch(call, {b.attended.data(), b.x.data(), nullptr});
                              });
    bench_op<cuda::MlpInLinear>("mlp_in", stages.mlp_in, peak, widths, b, options,
                                [&](const auto& stage, const auto& call) {
                                    stage.launch(call, {b.x.data(), b.ff.data()});
                                });
    bench_op<cuda::OutLinear>("mlp_out", stages.mlp_out, peak, widths, b, options,
                              [&](const auto& stage, const auto& call) {
                                  stage.launch(call, {b.ff.data(), b.x.data(), nullptr});
                              });
    bench_op<cuda::LmHeadLinear>("head", stages.head, peak, widths, b, options,
                                 [&](const auto& stage, const auto& call) {
                                     stage.launch(call, {b.x.data(), nullptr, b.logits.data(), s.vocab});
                                 });
}

// One line: a mixture at several numbers of rows, which choose their experts at random.
void bench_experts(const Encoding& encoding, double peak, const std::vector<int>& widths,
                   const std::map<std::string, int>& options) {
    ModelShape s{.layers = 48, .d_model = 2048, .heads = 32, .kv_heads = 4, .head_dim = 128, .vocab = 151936};
    s.experts = 128, s.experts_used = 8, s.expert_ff = 768;
    kernels::MoeSpec spec;
    spec.shape = s;
    spec.norm = {made_up(QuantType::f32, 1, s.d_model), 1e-6f, false};
    spec.router.weight = made_up(QuantType::f32, s.experts, s.d_model);
    spec.router.renormalize = true;
    for (std::int32_t e = 0; e < s.experts; ++e) {
        spec.gate.push_back(made_up(encoding, s.expert_ff, s.d_model));
        spec.up.push_back(made_up(encoding, s.expert_ff, s.d_model));
        spec.down.push_back(made_up(encoding, s.d_model, s.expert_ff));
    }
    const int most = *std::max_element(widths.begin(), widths.end());
    const cuda::ExpertsWorkspace workspace(s, most);
    const Buffers b(s, most);
    std::vector<cuda::Mixture> copies;
    for (int i = 0; i < 3; ++i) copies.emplace_back(spec);
    const bool prompt = option(options, "prompt", 0) != 0;
    const cuda::Stream stream;
    const double of_a_row = static_cast<double>(copies[0].bytes()) * s.experts_used / s.experts;
    std::printf("experts %s%8.2f MB ", prompt ? "prompt " : "", static_cast<double>(copies[0].bytes()) * 1e-6);
    for (const int rows : widths) {
        const double us =
            graph_microseconds(stream, 9,
                               [&] {
                                   for (int i = 0; i < 24; ++i) {
                                       copies[static_cast<std::size_t>(i) % copies.size()].launch(
                                           stream, prompt ? kernels::RowClass::prefill : kernels::RowClass::decode,
                                           rows, b.x.data(), workspace);
                                   }
                               }) /
            24;
        std::printf(" | %2d: %7.2f us", rows, us);
        if (rows == 1) std::printf(" %4.1f%%", 100.0 * of_a_row / us * 1e-6 / peak);
    }
    std::printf("\n");
}

// The weights of a layer.
struct Layer {
    cuda::AttentionInLinear attention_in;
    cuda::OutLinear attention_out;
    cuda::MlpInLinear mlp_in;
    cuda::OutLinear mlp_out;
    explicit Layer(const Stages& s)
        : attention_in(s.attention_in), attention_out(s.attention_out), mlp_in(s.mlp_in), mlp_out(s.mlp_out) {}
    std::int64_t bytes() const {
        return attention_in.bytes() + attention_out.bytes() + mlp_in.bytes() + mlp_out.bytes();
    }
};

// One line per set of options: all layers and the LM head, at each number of rows (`widths`).
void bench_chain(const ModelShape& s, const Encoding& quant_type, const Encoding& upper, double peak,
                 const std::vector<int>& widths, const std::vector<std::map<std::string, int>>& variants) {
    const std::vector<float> frequencies(static_cast<std::size_t>(s.head_dim / 2), 1.0f);
    const Stages stages(s, quant_type, quant_type, frequencies), others(s, quant_type, upper, frequencies);
    const Buffers b(s, *std::max_element(widths.begin(), widths.end()));
    const cuda::Stream stream;
    std::vector<Layer> layers;
    layers.reserve(static_cast<std::size_t>(s.layers));
    std::int64_t bytes = 0;
    for (int i = 0; i < s.layers; ++i) {
        layers.emplace_back(i % 2 == 0 ? others : stages);
        bytes += layers.back().bytes();
    }
    const cuda::LmHeadLinear head(stages.head);
    bytes += head.bytes();
    for (const auto& options : variants) {
        const int fused = option(options, "fused", 1);
        choose_tile(options);
        const bool overlap = option(options, "overlap", 1) != 0;
        const bool prompt = option(options, "prompt", 0) != 0;
        cuda::PrefillWorkspace workspace;
        if (prompt) workspace = cuda::PrefillWorkspace(s, *std::max_element(widths.begin(), widths.end()));
        std::printf("chain ");
        for (const auto& [key, value] : options) std::printf("%s=%d ", key.c_str(), value);
        for (const int rows : widths) {
            const cuda::LinearCall call{
                stream,  rows,    prompt ? kernels::RowClass::prefill : kernels::RowClass::decode, &workspace,
                overlap, nullptr, option(options, "mixed", 1) != 0 ? b.mixed.scratch() : nullptr};
            // The head is launched by itself: it may have another quantisation type than the layers.
            const double us = graph_microseconds(stream, 15, [&] {
                cuda::LinearSequence sequence;
                cuda::LinearCall joined = call;
                joined.sequence = fused != 0 ? &sequence : nullptr;
                for (const Layer& layer : layers) {
                    layer.attention_in.launch(joined, b.attention_in());
                    // With fused=2 nothing separates the layers, and attention is left out.
                    if (fused < 2) {
                        sequence.flush();
                        launch_stand_in(b.q.data(), b.attended.data(), rows * s.heads * s.head_dim, overlap, stream);
                    }
                    layer.attention_out.launch(joined, {b.attended.data(), b.x.data(), nullptr});
                    layer.mlp_in.launch(joined, {b.x.data(), b.ff.data(), prompt ? &layer.mlp_out : nullptr});
                    layer.mlp_out.launch(joined, {b.ff.data(), b.x.data(), nullptr});
                }
                sequence.flush();
                if (prompt) return;  // few rows of a prompt have logits
                head.launch(call, {b.x.data(), nullptr, b.logits.data(), s.vocab});
            });
            std::printf("| %2d rows %8.1f us %6.1f/s %4.1f%% ", rows, us, 1e6 / us,
                        100.0 * static_cast<double>(bytes) / us * 1e-6 / peak);
        }
        std::printf("\n");
        std::fflush(stdout);
    }
}

// The type with a name of kernels/quant_type.h, such as q4_0, or a packing.
Encoding quant_type_named(const std::string& name) {
    for (const NamedPacking& named : packings()) {
        if (named.name == name) return {QuantType::packed, &named};
    }
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        if (kernels::info(static_cast<QuantType>(i)).name == name) return {static_cast<QuantType>(i)};
    }
    throw Error("no such encoding: " + name);
}

// The command line, as the top of this file describes it. "input" measures no bandwidth: its rates are absolute.
int run(std::vector<std::string> args) {
    if (args.empty()) throw Error("say read, ops, input, chain or experts; see the top of bench/linear_bench.cu");
    const cuda::Stream stream;
    const double peak = args[0] == "input" ? 0.0 : read_bandwidth(stream, args[0] == "read");
    if (peak > 0.0) std::printf("read bandwidth %.3f TB/s\n", peak);
    if (args[0] == "read") return 0;
    const bool experts = args[0] == "experts";
    if (experts) args.insert(args.begin() + 1, kShapes[0].name);  // which is not used
    if (args.size() < 3) throw Error("say which shape and encoding");
    ModelShape shape;
    for (const NamedShape& named : kShapes) {
        if (args[1] == named.name) shape = named.shape;
    }
    if (shape.layers == 0) throw Error("no such shape: " + args[1]);
    std::vector<std::string> names(1);
    for (const char c : args[2]) {
        if (c == ',') {
            names.emplace_back();
        } else {
            names.back() += c;
        }
    }
    const auto of = [](const std::string& name) { return quant_type_named(name == "q4_k_m" ? "q4_k" : name); };
    std::vector<int> widths;
    std::vector<std::map<std::string, int>> variants(1);  // a lone "/" begins the next
    for (std::size_t i = 3; i < args.size(); ++i) {
        const std::size_t equals = args[i].find('=');
        if (args[i] == "/") {
            variants.emplace_back();
        } else if (equals == std::string::npos) {
            widths.push_back(std::stoi(args[i]));
        } else {
            variants.back()[args[i].substr(0, equals)] = std::stoi(args[i].substr(equals + 1));
        }
    }
    if (args[0] == "input") {
        bench_input(shape, of(args[2]).type, widths.empty() ? std::vector<int>{16, 64, 256, 2048} : widths);
        return 0;
    }
    if (widths.empty()) widths = {1, 2, 4, 8, 16};
    for (const std::string& name : names) {
        const Encoding encoding = of(name);
        std::printf("%s %s\n", experts ? "30b-a3b" : args[1].c_str(), name.c_str());
        if (experts) {
            for (const auto& options : variants) bench_experts(encoding, peak, widths, options);
            continue;
        }
        if (args[0] == "chain") {
            const Encoding upper = name == "q4_k_m" ? Encoding{QuantType::q6_k} : encoding;
            bench_chain(shape, encoding, upper, peak, widths, variants);
            continue;
        }
        for (const auto& options : variants) bench_ops(shape, encoding, peak, widths, options);
    }
    return 0;
}

}  // namespace
}  // namespace foresay

int main(int argc, char** argv) {
    try {
        return foresay::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "linear_bench: %s\n", error.what());
        return 1;
    }
}
