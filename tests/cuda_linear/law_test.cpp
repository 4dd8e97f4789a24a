// Law 1 on the device: the bits of a decode row are the same alone, at any place among up to 40 rows, beside any
// neighbours. Shapes are those of real models, so that clusters, rings and passes are all in play.

#include <cstring>

#include "tests/cuda_linear/device_case.h"

namespace foresay::test {
namespace {

class DeviceRowLaw : public testing::TestWithParam<QuantType> {
protected:
    void SetUp() override { SKIP_WITHOUT_DEVICE(); }
};

struct Shape {
    std::int64_t outs, width;
};

TEST_P(DeviceRowLaw, OutRowsDoNotSeeTheirNeighbours) {
    Random random(7u + static_cast<unsigned>(GetParam()));
    constexpr std::int32_t kMost = 40;
    for (const Shape shape : {Shape{512, 2048}, Shape{4096, 4096}, Shape{1024, 14336}, Shape{512, 28672}}) {
        kernels::MlpOutSpec spec;
        spec.down = {GetParam(), shape.outs, shape.width, nullptr};  // random, on the device
        const cuda::OutLinear op(spec);
        const std::vector<float> rows = bell(random, static_cast<std::size_t>(kMost * shape.width), 3.0f);
        const auto input = on_device(rows);
        const auto alone = poisoned(static_cast<std::size_t>(kMost * shape.outs));
        for (std::int32_t t = 0; t < kMost; ++t) {
            op.launch({nullptr, 1, kernels::RowClass::decode, nullptr, true},
                      {input.data() + t * shape.width, nullptr, alone.data() + t * shape.outs});
        }
        const std::vector<float> want = to_host(alone);
        for (float value : want) ASSERT_TRUE(std::isfinite(value));
        for (const std::int32_t width : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 31, 40}) {
            const std::int32_t first = kMost - width;
            const auto together = poisoned(static_cast<std::size_t>(width * shape.outs));
            op.launch({nullptr, width, kernels::RowClass::decode, nullptr, true},
                      {input.data() + first * shape.width, nullptr, together.data()});
            const std::vector<float> got = to_host(together);
            ASSERT_EQ(std::memcmp(got.data(), want.data() + first * shape.outs, got.size() * sizeof(float)), 0)
                << shape.outs << " x " << shape.width << ", " << width << " rows";
        }
    }
}

TEST_P(DeviceRowLaw, MlpInRowsDoNotSeeTheirNeighbours) {
    Random random(9u + static_cast<unsigned>(GetParam()));
    constexpr std::int32_t kMost = 20;
    for (const Shape shape : {Shape{1408, 2048}, Shape{2048, 4096}, Shape{1024, 8192}}) {
        kernels::MlpInSpec spec;
        spec.gate = {GetParam(), shape.outs, shape.width, nullptr};
        spec.up = spec.gate;
        spec.norm.weight = {QuantType::f32, 1, shape.width, nullptr};
        const cuda::MlpInLinear op(spec);
        const auto x = on_device(bell(random, static_cast<std::size_t>(kMost * shape.width), 3.0f));
        const auto alone = poisoned(static_cast<std::size_t>(kMost * shape.outs));
        for (std::int32_t t = 0; t < kMost; ++t) {
            op.launch({nullptr, 1, kernels::RowClass::decode, nullptr, true},
                      {x.data() + t * shape.width, alone.data() + t * shape.outs});
        }
        const std::vector<float> want = to_host(alone);
        for (float value : want) ASSERT_TRUE(std::isfinite(value));
        for (std::int32_t width = 2; width <= kMost; ++width) {
            const std::int32_t first = kMost - width;
            const auto together = poisoned(static_cast<std::size_t>(width * shape.outs));
            op.launch({nullptr, width, kernels::RowClass::decode, nullptr, true},
                      {x.data() + first * shape.width, together.data()});
            const std::vector<float> got = to_host(together);
            ASSERT_EQ(std::memcmp(got.data(), want.data() + first * shape.outs, got.size() * sizeof(float)), 0)
                << shape.outs << " x " << shape.width << ", " << width << " rows";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(QuantTypes, DeviceRowLaw, testing::ValuesIn(kAllQuantTypes),
                         [](const auto& info) { return std::string(kernels::info(info.param).name); });

}  // namespace
}  // namespace foresay::test
