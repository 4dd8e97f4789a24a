// Attention of prefill rows whose warps share keys and values (launch_flash_prefill): its bits are those of the form
// whose warps read them for themselves (launch_attend_prefill), with the rows cut into batches anywhere.

#include "tests/cuda_attention/attention_case.h"

namespace foresay::test {
namespace {

class FlashPrefill : public testing::TestWithParam<Heads> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        cuda::AttendCall call;
        kernels::ModelShape shape;
        shape.kv_heads = 1;
        shape.head_dim = GetParam().head_dim;
        call.layout = cuda::KvLayout(shape, 1, GetParam().format);
        if (!can_flash_prefill(call, cuda::device_info(0))) GTEST_SKIP() << "not run on CUDA: no such kernel for it";
    }
};

TEST_P(FlashPrefill, BatchesCutAnywhereHaveTheBitsOfTheOtherForm) {
    constexpr std::int32_t kMost = 300, kEnd = 12000 + kMost;
    const Cache cache(GetParam(), {kEnd});
    Attention attention(GetParam(), cache);
    const auto width = size(GetParam().heads * GetParam().head_dim);
    for (const std::int32_t first : {0, 1, 33, 1000, 4095, 12000}) {
        const std::vector<float> whole = attention.run(Form::prefill, rows_from(first, kMost));
        for (const float value : whole) ASSERT_TRUE(std::isfinite(value));
        for (const std::int32_t count : {1, 3, 47, 48, 49, 100, 300}) {
            for (const std::int32_t from : {0, kMost - count}) {
                for (const Form form : {Form::flash_prefill, Form::flash_prefill_of_few}) {
                    const std::vector<float> got = attention.run(form, rows_from(first + from, count));
                    ASSERT_EQ(std::memcmp(got.data(), whole.data() + size(from) * width, got.size() * sizeof(float)), 0)
                        << count << " rows from position " << first + from;
                }
            }
        }
    }
}

TEST_P(FlashPrefill, SequencesShareALaunch) {
    const std::vector<std::int32_t> lengths = {7, 1200, 5100, 700, 64, 130};
    const std::vector<std::int32_t> rows = {7, 1, 170, 50, 1, 40};
    const Cache cache(GetParam(), lengths);
    Attention attention(GetParam(), cache);
    std::vector<Place> places;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        for (std::int32_t t = 0; t < rows[s]; ++t) {
            places.push_back({static_cast<std::int32_t>(s), lengths[s] - rows[s] + t});
        }
    }
    const std::vector<float> want = attention.run(Form::prefill, places);
    for (const Form form : {Form::flash_prefill, Form::flash_prefill_of_few}) {
        const std::vector<float> got = attention.run(form, places);
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlashPrefill,
                         testing::Values(Heads{8, 2, 128, KvFormat::f16}, Heads{8, 2, 128, KvFormat::f16, 700},
                                         Heads{4, 2, 64, KvFormat::f16}, Heads{7, 1, 80, KvFormat::f16},
                                         Heads{20, 1, 128, KvFormat::f16}, Heads{4, 1, 256, KvFormat::f16, 100}));

}  // namespace
}  // namespace foresay::test
