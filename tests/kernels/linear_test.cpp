// The linear kernels of every instruction set against plain loops over the same int8 codes: exact except for the
// rounding of float32 sums.

#include <gtest/gtest.h>

#include <tuple>

#include "kernels/cpu/activation_tiles.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;

constexpr float kUntouched = 12345.0f;

struct MatrixShape {
    std::int64_t outputs, inputs;
};

std::vector<MatrixShape> shapes(QuantType quant_type) {
    if (is_k_quant(quant_type)) return {{1, 256}, {16, 256}, {37, 512}, {50, 768}};
    if (!test::is_float(quant_type)) return {{1, 32}, {16, 64}, {37, 96}, {33, 160}, {50, 256}};
    return {{1, 1}, {16, 2}, {17, 7}, {37, 31}, {50, 129}, {33, 256}};
}

PanelRange whole(const PanelMatrix& m) {
    return {m.type, m.panel(0), m.panel_bytes, test::is_float(m.quant_type) ? static_cast<int>(m.inputs) : m.blocks,
            0,      m.panels};
}

class Linear : public testing::TestWithParam<std::tuple<std::string, QuantType>> {
protected:
    const IsaKernels& isa() const { return select_isa(std::get<0>(GetParam())); }
    QuantType quant_type() const { return std::get<1>(GetParam()); }

    // `rows` rows of random inputs as tiles.
    std::vector<std::vector<float>> fill(ActivationTiles& tiles, int rows, std::int64_t inputs) {
        std::vector<std::vector<float>> x;
        tiles.set_rows(rows, isa());
        for (int row = 0; row < rows; ++row) {
            x.push_back(bell(random_, static_cast<std::size_t>(inputs), row % 3 == 2 ? 100.0f : 1.0f));
            if (row % 5 == 4) std::fill_n(x.back().begin(), std::min<std::size_t>(32, x.back().size()), 0.0f);
            const bool floats = test::is_float(quant_type());
            tiles.fill(isa(), row, x.back().data(), static_cast<int>(inputs), !floats, floats);
        }
        return x;
    }

    void check_rows(const MatrixShape& shape, int rows, bool bits) {
        const Tensor tensor = bits ? Tensor::random_bits(random_, quant_type(), shape.outputs, shape.inputs)
                                   : Tensor::random(random_, quant_type(), shape.outputs, shape.inputs);
        const PanelMatrix matrix = pack(tensor.view(), arena_, pool_);
        const std::vector<float> weights = tensor.values();
        ActivationTiles tiles;
        tiles.reserve(64, shape.inputs);
        const auto x = fill(tiles, rows, shape.inputs);
        const std::int64_t stride = matrix.padded_outputs();
        std::vector<float> set(static_cast<std::size_t>((rows + 1) * stride), kUntouched);
        std::vector<float> added = bell(random_, set.size(), 1.0f);
        const std::vector<float> before = added;
        for (int i = 0; i < tiles.tiles(); ++i) {
            const std::int64_t at = tiles.first_row(i) * stride;
            isa().linear(whole(matrix), tiles.tile(i), set.data() + at, stride, Store::set);
            isa().linear(whole(matrix), tiles.tile(i), added.data() + at, stride, Store::add);
        }
        for (int row = 0; row < rows; ++row) {
            const auto expected = multiply(weights, seen_by(quant_type(), x[static_cast<std::size_t>(row)]));
            for (std::int64_t o = 0; o < shape.outputs; ++o) {
                const auto at = static_cast<std::size_t>(row * stride + o);
                const Sum& sum = expected[static_cast<std::size_t>(o)];
                ASSERT_NEAR(set[at], sum.value, kSums * sum.magnitude) << "row " << row << ", output " << o;
                ASSERT_EQ(added[at], before[at] + set[at]) << "row " << row << ", output " << o;
            }
        }
        for (std::int64_t o = 0; o < stride; ++o) {
            const auto at = static_cast<std::size_t>(rows * stride + o);
            ASSERT_EQ(set[at], kUntouched) << "wrote beyond the last row";
            ASSERT_EQ(added[at], before[at]) << "wrote beyond the last row";
        }
    }

    Random random_{7};
    Arena arena_;
    ThreadPool pool_{1};
};

TEST_P(Linear, EqualsPlainLoopsAtEveryWidth) {
    for (const MatrixShape& shape : shapes(quant_type())) {
        for (int rows = 1; rows <= 17; ++rows) {
            SCOPED_TRACE(std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs) + ", " +
                         std::to_string(rows) + " rows");
            ASSERT_NO_FATAL_FAILURE(check_rows(shape, rows, false));
        }
        for (const int rows : {33, 64}) ASSERT_NO_FATAL_FAILURE(check_rows(shape, rows, false));
    }
}

TEST_P(Linear, EveryCodeScaleAndMinimum) {
    for (const MatrixShape& shape : shapes(quant_type())) {
        for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16}) {
            SCOPED_TRACE(std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs) + ", " +
                         std::to_string(rows) + " rows");
            ASSERT_NO_FATAL_FAILURE(check_rows(shape, rows, true));
        }
    }
}

TEST_P(Linear, PanelsOutsideTheRangeStayUntouched) {
    const MatrixShape shape = {80, shapes(quant_type()).back().inputs};
    const Tensor tensor = Tensor::random(random_, quant_type(), shape.outputs, shape.inputs);
    const PanelMatrix matrix = pack(tensor.view(), arena_, pool_);
    ActivationTiles tiles;
    tiles.reserve(8, shape.inputs);
    fill(tiles, 3, shape.inputs);
    std::vector<float> all(3 * 80, kUntouched), part(3 * 80, kUntouched), gated(3 * 80, kUntouched);
    isa().linear(whole(matrix), tiles.tile(0), all.data(), 80, Store::set);
    PanelRange range = whole(matrix);
    range.begin = 2;
    range.end = 4;
    isa().linear(range, tiles.tile(0), part.data(), 80, Store::set);
    isa().gated(range, range, tiles.tile(0), gated.data(), 80, false);
    for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t o = 0; o < 80; ++o) {
            const std::size_t at = row * 80 + o;
            if (o >= 32 && o < 64) {
                ASSERT_EQ(part[at], all[at]);
                ASSERT_NE(gated[at], kUntouched);
            } else {
                ASSERT_EQ(part[at], kUntouched);
                ASSERT_EQ(gated[at], kUntouched);
            }
        }
    }
}

TEST_P(Linear, GatedEqualsPlainLoops) {
    for (const MatrixShape& shape : shapes(quant_type())) {
        // Some gates far beyond where the activations saturate.
        const Tensor gate = Tensor::random(random_, quant_type(), shape.outputs, shape.inputs, 0.4f);
        const Tensor up = Tensor::random(random_, quant_type(), shape.outputs, shape.inputs);
        const PanelMatrix gates = pack(gate.view(), arena_, pool_), ups = pack(up.view(), arena_, pool_);
        const std::vector<float> gate_values = gate.values(), up_values = up.values();
        ActivationTiles tiles;
        tiles.reserve(64, shape.inputs);
        for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 33}) {
            const auto x = fill(tiles, rows, shape.inputs);
            const std::int64_t stride = gates.padded_outputs();
            for (const bool gelu : {false, true}) {
                std::vector<float> y(static_cast<std::size_t>((rows + 1) * stride), kUntouched);
                for (int i = 0; i < tiles.tiles(); ++i) {
                    isa().gated(whole(gates), whole(ups), tiles.tile(i), y.data() + tiles.first_row(i) * stride, stride,
                                gelu);
                }
                for (int row = 0; row < rows; ++row) {
                    const auto seen = seen_by(quant_type(), x[static_cast<std::size_t>(row)]);
                    const auto g = multiply(gate_values, seen), u = multiply(up_values, seen);
                    for (std::size_t o = 0; o < g.size(); ++o) {
                        const double activated = gelu ? gelu_tanh(g[o].value) : silu(g[o].value);
                        // Both activations have slopes of at most 1.13.
                        const double allowed = kSums * (1.13 * g[o].magnitude * std::fabs(u[o].value) +
                                                        u[o].magnitude * std::fabs(activated)) +
                                               kActivation * (1.0 + std::fabs(g[o].value)) * std::fabs(u[o].value);
                        ASSERT_NEAR(y[static_cast<std::size_t>(row * stride) + o], activated * u[o].value, allowed)
                            << "gate " << g[o].value << (gelu ? ", gelu" : ", silu") << ", row " << row << " of "
                            << rows;
                    }
                }
                for (std::int64_t o = 0; o < stride; ++o)
                    ASSERT_EQ(y[static_cast<std::size_t>(rows * stride + o)], kUntouched);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Linear,
                         testing::Combine(testing::ValuesIn(usable_isas()), testing::ValuesIn(kAllQuantTypes)),
                         [](const auto& info) {
                             return std::get<0>(info.param) + "_" +
                                    std::string(kernels::info(std::get<1>(info.param)).name);
                         });

}  // namespace
}  // namespace foresay::test
