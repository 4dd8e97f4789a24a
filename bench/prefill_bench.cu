// Where the time of prefill rows goes. Times are medians over a stream that runs nothing else; rates are in units of
// 10^12 per second: bytes for "TB/s", floating-point operations for "T". "law" and "NOT" tell whether a product of
// cuBLASLt keeps law 1 (kernels/cuda/prefill/gemm.h); the backend uses none that does not.

#include "bench/prefill_bench.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "bench/device_time.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/memory/kv_pool.h"
#include "kernels/cuda/prefill/cublaslt.h"
#include "kernels/cuda/prefill/dequantize.h"
#include "kernels/cuda/prefill/rows.h"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay {
namespace {

namespace cuda = kernels::cuda;
using kernels::ModelShape;
using kernels::QuantType;
using kernels::TensorView;

double microseconds(const cuda::Stream& stream, const std::function<void()>& enqueue) {
    return stream_microseconds(stream, 9, enqueue);
}

// Numbers from -1 to 1.
__global__ void fill_numbers(float* to, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = static_cast<float>(static_cast<std::uint32_t>(i * 2654435761u) >> 8) * 0x1p-23f - 1.0f;
    }
}
cuda::DeviceBuffer<float> numbers(std::int64_t count) {
    cuda::DeviceBuffer<float> buffer(static_cast<std::size_t>(count));
    fill_numbers<<<1024, 256>>>(buffer.data(), count);
    cuda::launched("fill_numbers");
    return buffer;
}

// What the kernels of one op cost, each by itself: dequantising, converting, and the products that cuBLASLt proposes.
// `outs`: the packed rows of its stack; `normed`: whether a norm weight is multiplied in.
void bench_parts(const char* name, const cuda::Panels& panels, const std::vector<int>& widths, bool normed) {
    const cuda::Stream stream;
    std::int64_t outs = 0;
    for (const auto& part : panels.parts()) outs += static_cast<std::int64_t>(part.panels) * cuda::kPanelRows;
    const std::int64_t inputs = (panels.inputs() + 63) / 64 * 64;
    // Products have whole tiles of rows, so buffers do, too.
    const std::int64_t most = cuda::padded_rows(*std::max_element(widths.begin(), widths.end()));
    // Buffers of float16 are allocated as half as many floats.
    const auto weights = numbers(outs * inputs / 2), x = numbers(most * panels.inputs()),
               norm = numbers(panels.inputs()), sums = numbers(most * outs), scale = numbers(most),
               halves = numbers(most * inputs / 2);
    cuda::cuda_check(cudaDeviceSynchronize(), "the device failed");

    const int shift = cuda::dequantize_shift(panels.parts()[0]);
    const auto unpack = [&] {
        std::int64_t row = 0;
        for (const auto& part : panels.parts()) {
            cuda::launch_dequantize(stream, part, 0, part.panels, shift,
                                    reinterpret_cast<__half*>(weights.data()) + row * inputs, inputs);
            row += static_cast<std::int64_t>(part.panels) * cuda::kPanelRows;
        }
    };
    double us = microseconds(stream, unpack);
    std::printf("%s %lld x %lld: unpack %.1f us, %.2f TB/s\n", name, static_cast<long long>(outs),
                static_cast<long long>(inputs), us,
                static_cast<double>(panels.bytes() + 2 * outs * inputs) / us * 1e-6);
    std::printf("  convert");
    for (const int rows : widths) {
        const cuda::ConvertCall call{rows,          static_cast<std::int32_t>(panels.inputs()),
                                     x.data(),      normed ? norm.data() : nullptr,
                                     1e-5f,         true,
                                     halves.data(), inputs,
                                     scale.data()};
        us = microseconds(stream, [&] { cuda::launch_convert(stream, call); });
        std::printf(" | %d: %.1f us", rows, us);
    }
    std::printf("\n");
    const auto* chosen = cuda::PrefillGemm::find(cuda::GemmType::half, outs, inputs);
    std::printf("  chosen: %s\n", chosen == nullptr ? "none" : chosen->describe().c_str());
    // The proposals for few rows show what is lost by choosing for many (kGemmRows).
    for (const int asked : {2048, 256}) {
        std::printf("  proposed for %d rows\n", asked);
        for (const auto& product : cuda::PrefillGemm::candidates(cuda::GemmType::half, outs, inputs, asked)) {
            std::printf("  %s: %s", product.keeps_law() ? "law" : "NOT", product.describe().c_str());
            for (const int rows : widths) {
                const auto tiles = static_cast<std::int32_t>(cuda::padded_rows(rows));
                us = microseconds(stream, [&] {
                    product.try_run(stream, weights.data(), halves.data(), tiles, 1.0f, sums.data(), outs);
                });
                std::printf(" | %d: %.1f us %.0f T", rows, us,
                            2.0 * static_cast<double>(outs * inputs) * tiles / us * 1e-6);
            }
            std::printf("\n");
        }
    }
}

// A shape without data: Panels fills in random weights.
TensorView made_up(QuantType quant_type, std::int64_t rows, std::int64_t cols) {
    return {quant_type, rows, cols, nullptr};
}

// One line: a whole op at each number of rows.
void whole(const char* name, const cuda::Stream& stream, const std::vector<int>& widths,
           const std::function<void(int)>& launch) {
    std::printf("  %s whole", name);
    for (const int rows : widths) std::printf(" | %d: %.1f us", rows, microseconds(stream, [&] { launch(rows); }));
    std::printf("\n");
}

// Attention of rows at positions 0, 1, ... of one text. Operations are counted as 2 * width * n^2: scores and outputs
// take 2 * width each per pair of positions, and half of the pairs are masked.
void bench_attend(const ModelShape& s, const cuda::KvLayout& layout, const __half* kv, const std::vector<int>& widths) {
    const cuda::Stream stream;
    const std::int32_t room = cuda::rows_per_tile(s.heads / s.kv_heads);
    std::printf("  attend");
    for (const int count : widths) {
        std::vector<cuda::RowState> rows;
        std::vector<cuda::TileState> tiles;
        std::vector<std::int32_t> pages;
        for (std::int32_t p = 0; p < count; ++p) {
            rows.push_back({0, p, p, 0, 0, 0});
            if (p % room == 0) tiles.push_back({p, 0, 0, 0, p, p, 0, 0});
            ++tiles.back().rows;
            tiles.back().highest = p;
            if (p % kernels::kPagePositions == 0) pages.push_back(p / kernels::kPagePositions);
        }
        // The batch as write_batch() would make it, on the device.
        const auto device_rows = cuda::to_device(std::span<const cuda::RowState>(rows));
        const auto device_tiles = cuda::to_device(std::span<const cuda::TileState>(tiles));
        const auto device_pages = cuda::to_device(std::span<const std::int32_t>(pages));
        const std::int64_t width = static_cast<std::int64_t>(s.heads) * s.head_dim;
        const auto q = numbers(count * width), out = numbers(count * width);
        cuda::cuda_check(cudaDeviceSynchronize(), "the device failed");
        cuda::AttendCall call;
        call.batch = {device_rows.data(), device_tiles.data(), nullptr, device_pages.data()};
        call.tiles = static_cast<std::int32_t>(tiles.size());
        call.heads = s.heads;
        call.kv_heads = s.kv_heads;
        call.head_dim = s.head_dim;
        cuda::shape_attention(call);
        call.scale = 0.1f;
        call.q = q.data();
        call.out = out.data();
        call.kv = kv;
        call.layout = layout;
        const double us = microseconds(stream, [&] { cuda::launch_attend_prefill(stream, call); });
        const double flops = 2.0 * static_cast<double>(width) * count * count;
        std::printf(" | %d: %.1f us %.0f T", count, us, flops / us * 1e-6);
    }
    std::printf("\n");
}

}  // namespace

void bench_input(const ModelShape& s, QuantType quant_type, const std::vector<int>& widths) {
    if (cuda::cublaslt() == nullptr) {
        std::printf("there is no cuBLASLt here\n");
        return;
    }
    std::printf("cuBLASLt %zu\n", cuda::cublaslt()->version());
    const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim,
                       kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
    const TensorView wq = made_up(quant_type, q, s.d_model), wk = made_up(quant_type, kv, s.d_model),
                     gate = made_up(quant_type, s.d_ff, s.d_model), o = made_up(quant_type, s.d_model, q),
                     down = made_up(quant_type, s.d_model, s.d_ff);
    // First each kernel by itself, then whole ops. V has the shape of K.
    const auto parts = [&](const char* name, std::vector<cuda::PackSource> sources, cuda::RowOrder order, bool normed) {
        const cuda::Panels panels(sources, order);
        bench_parts(name, panels, widths, normed);
    };
    parts("attention_in", {{wq, {}}, {wk, {}}, {wk, {}}}, cuda::RowOrder::stacked, true);
    parts("attention_out", {{o, {}}}, cuda::RowOrder::stacked, false);
    parts("mlp_in", {{gate, {}}, {gate, {}}}, cuda::RowOrder::interleaved, true);
    parts("mlp_out", {{down, {}}}, cuda::RowOrder::stacked, false);

    // Whole ops, as a forward launches them.
    const std::int64_t most = *std::max_element(widths.begin(), widths.end());
    const cuda::Stream stream;
    cuda::PrefillWorkspace workspace(s, static_cast<std::int32_t>(most));
    const auto x = numbers(most * s.d_model), ff = numbers(most * s.d_ff), attended = numbers(most * q),
               queries = numbers(most * q);
    // Any angles do: the epilogue rotates all the same.
    const std::vector<float> frequencies(static_cast<std::size_t>(s.head_dim / 2), 1.0f);
    const auto turns = numbers(most * s.head_dim);  // rope angles
    // One page after the other, as kv_pool.h has them.
    ModelShape one_layer = s;
    one_layer.layers = 1;
    const cuda::KvLayout layout(one_layer, static_cast<std::int32_t>(most / kernels::kPagePositions + 1));
    const cuda::DeviceBuffer<__half> kv_memory(static_cast<std::size_t>(layout.layer_stride));
    cuda::cuda_check(cudaMemset(kv_memory.data(), 0x1c, kv_memory.bytes()), "cannot fill memory");
    std::vector<std::int64_t> k_cells, v_cells;
    for (std::int32_t t = 0; t < most; ++t) {
        k_cells.push_back(layout.k_cell(t / kernels::kPagePositions, t % kernels::kPagePositions));
        v_cells.push_back(layout.v_cell(t / kernels::kPagePositions, t % kernels::kPagePositions));
    }
    const auto k_cell = cuda::to_device(std::span<const std::int64_t>(k_cells)),
               v_cell = cuda::to_device(std::span<const std::int64_t>(v_cells));
    const auto call = [&](int rows) {
        return cuda::LinearCall{stream, rows, kernels::RowClass::prefill, &workspace, true};
    };
    const kernels::NormSpec norm{made_up(QuantType::f32, 1, s.d_model), 1e-5f, false};
    kernels::AttentionInSpec in_spec;
    in_spec.shape = s;
    in_spec.norm = norm;
    in_spec.q = wq;
    in_spec.k = in_spec.v = wk;
    in_spec.rope = {kernels::RopePairs::half_split, frequencies, 1.0f};
    kernels::AttentionOutSpec out_spec;
    out_spec.o = o;
    kernels::MlpInSpec mlp_in_spec;
    mlp_in_spec.norm = norm;
    mlp_in_spec.gate = mlp_in_spec.up = gate;
    kernels::MlpOutSpec mlp_out_spec;
    mlp_out_spec.down = down;
    const cuda::AttentionInLinear attention_in(in_spec);
    const cuda::OutLinear attention_out(out_spec), mlp_out(mlp_out_spec);
    const cuda::MlpInLinear mlp_in(mlp_in_spec);
    cuda::cuda_check(cudaDeviceSynchronize(), "the device failed");
    whole("attention_in", stream, widths, [&](int rows) {
        cuda::AttentionInLinear::Io io;
        io.x = x.data();
        io.q = queries.data();
        io.kv = kv_memory.data();
        io.cell = k_cell.data();
        io.v_cell = v_cell.data();
        io.head_stride = layout.head_stride;
        io.rope = reinterpret_cast<const float2*>(turns.data());
        attention_in.launch(call(rows), io);
    });
    whole("attention_out", stream, widths, [&](int rows) {
        attention_out.launch(call(rows), {attended.data(), x.data(), nullptr});
    });
    // mlp_in twice: to float32 outputs, and to the float16 rows that mlp_out multiplies, which saves it a convert.
    whole("mlp_in to ff", stream, widths, [&](int rows) { mlp_in.launch(call(rows), {x.data(), ff.data(), nullptr}); });
    whole("mlp_in to halves", stream, widths, [&](int rows) {
        mlp_in.launch(call(rows), {x.data(), ff.data(), &mlp_out});
    });
    whole("mlp_out", stream, widths, [&](int rows) { mlp_out.launch(call(rows), {ff.data(), x.data(), nullptr}); });
    whole("mlp_in and mlp_out", stream, widths, [&](int rows) {
        mlp_in.launch(call(rows), {x.data(), ff.data(), &mlp_out});
        mlp_out.launch(call(rows), {ff.data(), x.data(), nullptr});
    });
    bench_attend(s, layout, kv_memory.data(), widths);
}

}  // namespace foresay
