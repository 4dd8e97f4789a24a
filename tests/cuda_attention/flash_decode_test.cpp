// Attention that reads keys and values once for all rows of a sequence (launch_flash_decode): its bits are those of the
// form that takes a tile at a time (launch_attend_decode) with each row alone, and both are near attention in doubles.

#include "tests/cuda_attention/attention_case.h"

namespace foresay::test {
namespace {

class FlashDecode : public testing::TestWithParam<Heads> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        cuda::AttendCall call;
        kernels::ModelShape shape;
        shape.kv_heads = 1;
        shape.head_dim = GetParam().head_dim;
        call.layout = cuda::KvLayout(shape, 1, GetParam().format);
        if (!can_flash_decode(call, cuda::device_info(0))) GTEST_SKIP() << "not run on CUDA: no such kernel for it";
    }
};

TEST_P(FlashDecode, ABatchHasTheBitsOfRowsAlone) {
    constexpr std::int32_t kMost = 37, kEnd = 40000 + kMost;
    const Cache cache(GetParam(), {kEnd});
    Attention attention(GetParam(), cache);
    const auto width = size(GetParam().heads * GetParam().head_dim);
    for (const std::int32_t first : {0, 1, 50, 1000, 1023, 2047, 4090, 9000, 16380, 32760, 40000}) {
        std::vector<float> alone;
        for (const Place& place : rows_from(first, kMost)) {
            const std::vector<float> one = attention.run(Form::decode, {place});
            for (const float value : one) ASSERT_TRUE(std::isfinite(value));
            alone.insert(alone.end(), one.begin(), one.end());
        }
        for (const std::int32_t count : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 37}) {
            for (const std::int32_t from : {0, kMost - count}) {
                const std::vector<float> got = attention.run(Form::flash_decode, rows_from(first + from, count));
                ASSERT_EQ(std::memcmp(got.data(), alone.data() + size(from) * width, got.size() * sizeof(float)), 0)
                    << count << " rows from position " << first + from;
            }
        }
    }
    attention.expect_clean();
}

// Sequences of different lengths, each with rows of its own.
TEST_P(FlashDecode, SequencesShareALaunch) {
    const std::vector<std::int32_t> lengths = {7, 1200, 5100, 700, 20000, 64, 130, 9000};
    const std::vector<std::int32_t> rows = {7, 1, 17, 5, 4, 1, 40, 2};
    const Cache cache(GetParam(), lengths);
    Attention attention(GetParam(), cache);
    std::vector<Place> places;
    std::vector<float> alone;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        for (std::int32_t t = 0; t < rows[s]; ++t) {
            places.push_back({static_cast<std::int32_t>(s), lengths[s] - rows[s] + t});
            const std::vector<float> one = attention.run(Form::decode, {places.back()});
            alone.insert(alone.end(), one.begin(), one.end());
        }
    }
    const std::vector<float> got = attention.run(Form::flash_decode, places);
    ASSERT_EQ(got.size(), alone.size());
    const auto width = size(GetParam().heads * GetParam().head_dim);
    for (std::size_t t = 0; t < places.size(); ++t) {
        ASSERT_EQ(std::memcmp(&got[t * width], &alone[t * width], width * sizeof(float)), 0)
            << "sequence " << places[t].sequence << ", position " << places[t].position;
    }
    attention.expect_clean();
}

TEST_P(FlashDecode, WritesTheCodesOfItsRows) {
    if (GetParam().format != KvFormat::q8) GTEST_SKIP() << "only codes are written by attention";
    const Cache cache(GetParam(), {3000});
    Attention attention(GetParam(), cache);
    for (const std::int32_t count : {1, 4, 9, 16, 33}) {
        for (const std::int32_t first : {100, 1020, 2040, 3000 - count}) {
            const std::vector<Place> places = rows_from(first, count);
            const std::vector<float> want = attention.run(Form::flash_decode, places);
            const std::vector<float> got = attention.run(Form::flash_decode, places, true);
            ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
                << count << " rows from position " << first;
            ASSERT_EQ(std::memcmp(attention.pool().data(), cache.host.data(), cache.host.size() * sizeof(__half)), 0);
        }
    }
}

TEST_P(FlashDecode, IsNearAttentionInDoubles) {
    const Heads& h = GetParam();
    const Cache cache(h, {41000});
    Attention attention(h, cache);
    const std::vector<Place> places = rows_from(40984, 16);
    const std::vector<float> got = attention.run(Form::flash_decode, places);
    for (const std::int32_t t : {0, 15}) {
        const std::int32_t head = t == 0 ? 0 : h.heads - 1, kv_head = head / (h.heads / h.kv_heads);
        const std::int32_t last = places[size(t)].position, first = h.window > 0 ? last - h.window + 1 : 0;
        const std::int64_t width = h.heads * h.head_dim;
        std::vector<double> truth(size(h.head_dim));
        double sum = 0;
        for (std::int32_t p = first; p <= last; ++p) {
            double score = 0;
            for (std::int32_t d = 0; d < h.head_dim; ++d) {
                score += static_cast<double>(number(1000000007LL + last * width + head * h.head_dim + d)) *
                         cache.read(0, p, kv_head, 0, d);
            }
            const double weight = std::exp(score * 2 / std::sqrt(static_cast<double>(h.head_dim)));
            sum += weight;
            for (std::int32_t d = 0; d < h.head_dim; ++d) truth[size(d)] += weight * cache.read(0, p, kv_head, 1, d);
        }
        for (double& value : truth) value /= sum;
        const auto from = got.begin() + static_cast<std::ptrdiff_t>(t * width + head * h.head_dim);
        EXPECT_LT(distance(std::vector<float>(from, from + h.head_dim), truth), 4e-3) << "row " << t;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlashDecode,
                         testing::Values(Heads{8, 2, 128, KvFormat::f16}, Heads{8, 2, 128, KvFormat::q8},
                                         Heads{8, 2, 128, KvFormat::f16, 700}, Heads{8, 2, 128, KvFormat::q8, 5000},
                                         Heads{2, 2, 64, KvFormat::f16}, Heads{6, 2, 64, KvFormat::q8},
                                         Heads{7, 1, 80, KvFormat::f16}, Heads{5, 1, 96, KvFormat::q8},
                                         Heads{16, 1, 64, KvFormat::f16}, Heads{32, 1, 40, KvFormat::q8},
                                         Heads{20, 1, 128, KvFormat::f16}));

}  // namespace
}  // namespace foresay::test
