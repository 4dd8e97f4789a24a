// Attention of prompt rows without a device, in an emulation of its threads: for heads of all widths, with windows,
// capped scores and trees, each output is what doubles give, and a row alone has the bits that it has among others.
#include <math.h>

#include "tests/cuda_linear/emulated/emulation.h"
// First: it makes host code of what the others have for devices.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cuda/attention/prefill_attention.cuh"

namespace foresay::kernels::cuda {
namespace {

struct Case {
    std::int32_t head_dim, heads, kv_heads;
    std::int32_t positions;  // before the rows
    std::int32_t rows;
    std::int32_t window = 0;
    float soft_cap = 0.0f;
    std::int32_t branch = 0;  // rows of a tree: positions of theirs in cells of their own
};

class PrefillAttention : public testing::TestWithParam<Case> {
protected:
    PrefillAttention()
        : of_(GetParam()),
          pages_((of_.positions + of_.rows + of_.branch + 8) / kPagePositions + 1),
          layout_(KvLayer{of_.kv_heads, of_.head_dim}, pages_, KvFormat::f16) {
        kv_.resize(static_cast<std::size_t>(layout_.layer_stride));
        for (__half& value : kv_) value = __float2half(number());
        q_.resize(static_cast<std::size_t>(of_.rows * of_.heads * of_.head_dim));
        for (float& value : q_) value = 3.0f * number();
        for (std::int32_t page = pages_; page-- > 0;) lists_.push_back(page);
        for (std::int32_t i = 0; i < of_.rows; ++i) {
            RowState row = {};
            row.position = of_.positions + (of_.branch > 0 ? of_.branch - 1 : i);
            row.branch = of_.branch;
            row.ancestors = static_cast<std::int32_t>(lists_.size());
            for (std::int32_t b = 0; b < of_.branch; ++b) {
                lists_.push_back(of_.positions + (3 * b + i) % (of_.branch + 8));
            }
            rows_.push_back(row);
        }
    }
    float number() { return static_cast<float>(static_cast<int>(random_() % 2001) - 1000) * 0.002f; }

    // Of rows [first, first + count), tiles as a batch has them.
    std::vector<float> attend(std::int32_t first, std::int32_t count) {
        const std::int32_t in_tile = of_.branch > 0 ? 1 : rows_per_tile(of_.heads / of_.kv_heads);
        std::vector<TileState> tiles;
        for (std::int32_t i = 0; i < count; i += in_tile) {
            TileState tile = {};
            tile.first = i;
            tile.rows = std::min(in_tile, count - i);
            tile.lowest = row(first + i).position;
            tile.highest = row(first + i + tile.rows - 1).position;
            tile.branch = row(first + i).branch;
            tiles.push_back(tile);
        }
        AttendCall call;
        call.batch = {rows_.data() + first, tiles.data(), nullptr, lists_.data()};
        call.tree = of_.branch > 0;
        call.tiles = static_cast<std::int32_t>(tiles.size());
        call.heads = of_.heads;
        call.kv_heads = of_.kv_heads;
        call.head_dim = of_.head_dim;
        call.scale = kScale;
        call.window = of_.window;
        call.soft_cap = of_.soft_cap;
        const std::int32_t width = of_.heads * of_.head_dim;
        call.q = q_.data() + static_cast<std::int64_t>(first) * width;
        call.kv = kv_.data();
        call.layout = layout_;
        call.rows = count;
        shape_attention(call);
        std::vector<float> out(static_cast<std::size_t>(count * width), 1e30f);
        call.out = out.data();
        with_attention_variant(call, [&](auto head, auto special) {
            namespace emulated = foresay::test::emulated;
            for (std::int32_t x = 0; x * kWarps < call.tiles; ++x) {
                for (std::int32_t y = 0; y < call.head_tiles; ++y) {
                    emulated::block_index = {static_cast<unsigned>(x), static_cast<unsigned>(y)};
                    emulated::run(kThreads, [&] { prefill_kernel<head.value, special.value>(call); });
                }
            }
        });
        return out;
    }
    const RowState& row(std::int32_t i) const { return rows_[static_cast<std::size_t>(i)]; }
    double value(std::int32_t head, std::int64_t at) const {
        return __half2float(kv_[static_cast<std::size_t>(head * layout_.head_stride + at)]);
    }
    // What a row's head attends to, in doubles.
    std::vector<double> expected(std::int32_t i, std::int32_t head) const {
        const RowState& state = row(i);
        const std::int32_t kv_head = head / (of_.heads / of_.kv_heads);
        const BatchView batch = {rows_.data(), nullptr, nullptr, lists_.data()};
        std::vector<double> sums(static_cast<std::size_t>(of_.head_dim));
        double total = 0.0;
        const std::int32_t from = of_.window > 0 ? std::max(0, state.position - of_.window + 1) : 0;
        for (std::int32_t p = from; p <= state.position; ++p) {
            const std::int32_t cell = batch.cell(state, p);
            const std::int32_t page = lists_[static_cast<std::size_t>(cell / kPagePositions)];
            const std::int32_t place = cell % kPagePositions;
            double score = 0.0;
            for (std::int32_t d = 0; d < of_.head_dim; ++d) {
                const float q = q_[static_cast<std::size_t>((i * of_.heads + head) * of_.head_dim + d)];
                score += static_cast<double>(__half2float(__float2half(q))) *
                         value(kv_head, layout_.k_cell(page, place) + KvLayout::key_value(d));
            }
            score *= kScale;
            if (of_.soft_cap > 0) score = of_.soft_cap * std::tanh(score / of_.soft_cap);
            const double weight = std::exp(score);
            total += weight;
            for (std::int32_t d = 0; d < of_.head_dim; ++d) {
                sums[static_cast<std::size_t>(d)] +=
                    weight * value(kv_head, layout_.v_cell(page, place) + KvLayout::value_value(d));
            }
        }
        for (double& sum : sums) sum /= total;
        return sums;
    }

    static constexpr float kScale = 0.0625f;
    const Case of_;
    const std::int32_t pages_;
    const KvLayout layout_;
    std::mt19937 random_{7};
    std::vector<__half> kv_;
    std::vector<float> q_;
    std::vector<std::int32_t> lists_;
    std::vector<RowState> rows_;
};

TEST_P(PrefillAttention, HasTheOutputsOfDoublesAndOfEachRowAlone) {
    const std::vector<float> all = attend(0, of_.rows);
    const auto width = static_cast<std::size_t>(of_.heads * of_.head_dim);
    for (std::int32_t i = 0; i < of_.rows; ++i) {
        const std::vector<float> alone = attend(i, 1);
        const std::span<const float> among = std::span(all).subspan(static_cast<std::size_t>(i) * width, width);
        ASSERT_TRUE(std::ranges::equal(alone, among)) << i;
        for (std::int32_t head = 0; head < of_.heads; ++head) {
            const std::vector<double> wanted = expected(i, head);
            for (std::size_t d = 0; d < wanted.size(); ++d) {
                ASSERT_NEAR(among[static_cast<std::size_t>(head) * wanted.size() + d], wanted[d], 1e-3)
                    << "row " << i << ", head " << head << ", value " << d;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, PrefillAttention,
                         testing::Values(Case{.head_dim = 32, .heads = 4, .kv_heads = 2, .positions = 100, .rows = 9},
                                         Case{64, 8, 2, 70, 5, 0, 10.0f, 4},   //
                                         Case{80, 4, 4, 60, 18, 33},           //
                                         Case{128, 8, 2, 150, 10},             //
                                         Case{128, 8, 2, 90, 4, 0, 0.0f, 4},   //
                                         Case{256, 4, 2, 0, 9},                //
                                         Case{200, 4, 1, 130, 6, 64},          //
                                         Case{256, 4, 2, 120, 9, 0, 30.0f},    //
                                         Case{256, 4, 2, 100, 4, 50, 0.0f, 5}  //
                                         ),
                         [](const auto& info) {
                             const Case& of = info.param;
                             return "Heads" + std::to_string(of.head_dim) + (of.window > 0 ? "Window" : "") +
                                    (of.soft_cap > 0 ? "Capped" : "") + (of.branch > 0 ? "Tree" : "") +
                                    std::to_string(of.rows);
                         });

}  // namespace
}  // namespace foresay::kernels::cuda
