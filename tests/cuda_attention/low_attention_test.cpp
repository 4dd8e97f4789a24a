// Caches with low bits on a device: what the kernel of heads writes is what kernels/kv/low_bits.h says, bit for bit;
// attention of decode rows over it equals plain loops, and a row's bits are its own; the expanded pages that prefill
// rows read hold the same numbers.
#include <cstring>
#include <numeric>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/memory/kv_expand.h"
#include "kernels/cuda/memory/low_codes.h"
#include "kernels/cuda/rowwise/rows.h"
#include "kernels/kv/low_bits.h"
#include "kernels/kv_names.h"
#include "tests/cuda_linear/device_case.h"

namespace foresay::test {
namespace {

using kernels::kPagePositions;
using kernels::KvFormat;
using kernels::KvType;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

struct Shape {
    std::int32_t heads, kv_heads, head_dim;
    KvFormat format;
    std::int32_t length;
    std::int32_t window = 0;
    float soft_cap = 0.0f;
    bool sinks = false;
};

void PrintTo(const Shape& s, std::ostream* out) {
    *out << s.heads << " heads, " << s.kv_heads << " key-value heads of " << s.head_dim << ", "
         << kernels::name(s.format) << ", length " << s.length << ", window " << s.window << ", cap " << s.soft_cap
         << (s.sinks ? ", sinks" : "");
}

// Small numbers, the same everywhere; one of 13 values of a head is large, as keys have them.
float number(std::int64_t i, std::int32_t d) {
    auto h = static_cast<std::uint32_t>(i) * 2654435761u;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    const float value = static_cast<float>((h ^ h >> 16) >> 8) * (2.0f / 16777216.0f) - 1.0f;
    return d % 13 == 5 ? 9.0f * value : value;
}

// A vector as a cache of that type holds it, rotated where it is; and its scale.
std::vector<float> kept(std::vector<float> x, KvType type, float& scale) {
    const auto n = static_cast<std::int32_t>(x.size());
    const int bits = kernels::kv_bits(type);
    if (bits < 8) kernels::rotate_for_cache(x.data(), n);
    const float largest = *std::max_element(x.begin(), x.end()), least = *std::min_element(x.begin(), x.end());
    scale = bits == 8 ? std::max(largest, -least) : kernels::kv_extreme(largest, least);
    for (float& value : x) {
        value = bits == 8 ? kernels::kv_code(value, kernels::kv_code_scale(scale)) * (scale * cuda::LowCodes::factor(8))
                          : static_cast<float>(kernels::kv_low_code(value, kernels::kv_low_scale(scale, bits), bits) -
                                               kernels::kv_code_zero(bits)) *
                                (scale * cuda::LowCodes::factor(bits));
    }
    return x;
}

class LowAttention : public testing::TestWithParam<Shape> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        const Shape& s = GetParam();
        pages_.resize(size((s.length + kPagePositions - 1) / kPagePositions));
        std::iota(pages_.begin(), pages_.end(), 0);
        std::reverse(pages_.begin(), pages_.end());
        kernels::ModelShape shape;
        shape.kv_heads = s.kv_heads;
        shape.head_dim = s.head_dim;
        layout_ = cuda::KvLayout(shape, static_cast<std::int32_t>(pages_.size()), s.format);
        pool_ = cuda::to_device(std::span<const __half>(std::vector<__half>(size(layout_.layer_stride))));
        std::vector<float> sinks;
        for (std::int32_t h = 0; h < s.heads; ++h) sinks.push_back(0.5f * static_cast<float>(h % 4));
        sinks_ = on_device(sinks);
        write_all();
        host_ = to_host(pool_);
    }
    // Of q, k or v of a position before the cache.
    std::vector<float> raw(std::int32_t position, std::int32_t head) const {
        const Shape& s = GetParam();
        std::vector<float> x;
        for (std::int32_t d = 0; d < s.head_dim; ++d) {
            const std::int64_t row = std::int64_t{position} * (s.heads + 2 * s.kv_heads) + head;
            x.push_back(number(row * s.head_dim + d, d));
        }
        return x;
    }
    struct OnDevice {
        cuda::DeviceBuffer<std::byte> bytes;
        cuda::BatchLayout layout;
        std::int32_t furthest;
    };
    OnDevice batch_of(std::int32_t first, std::int32_t count) const {
        std::vector<kernels::Row> rows;
        for (std::int32_t t = 0; t < count; ++t) rows.push_back({kernels::TokenRef::id(0), first + t, 0});
        const std::vector<kernels::SequenceView> views = {{pages_, first}};
        kernels::Batch batch;
        batch.rows = rows;
        batch.sequences = views;
        const std::int32_t room = cuda::rows_per_tile(GetParam().heads / GetParam().kv_heads);
        std::vector<std::int32_t> scratch(1);
        const auto [layout, furthest, listed] = cuda::measure_batch(batch, room, scratch);
        std::vector<std::byte> bytes(size(layout.lists_at() + 4 * listed));
        cuda::write_batch(batch, room, scratch, layout, bytes.data());
        return {cuda::to_device(std::span<const std::byte>(bytes)), layout, furthest};
    }
    // Heads of the positions [first, first + count) into the cache; returns q.
    cuda::DeviceBuffer<float> write(std::int32_t first, std::int32_t count) {
        const Shape& s = GetParam();
        const OnDevice batch = batch_of(first, count);
        std::vector<float> projections;
        for (std::int32_t t = 0; t < count; ++t) {
            for (std::int32_t h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
                const auto x = raw(first + t, h);
                projections.insert(projections.end(), x.begin(), x.end());
            }
        }
        const auto on = on_device(projections);
        auto q = poisoned(size(std::int64_t{count} * s.heads * s.head_dim));
        cuda::HeadsCall call;
        call.batch = batch.layout.view(batch.bytes.data());
        call.rows = count;
        call.heads = s.heads;
        call.kv_heads = s.kv_heads;
        call.head_dim = s.head_dim;
        call.raw = on.data();
        call.q = q.data();
        call.kv = pool_.data();
        call.layout = layout_;
        cuda::launch_heads(nullptr, call);
        cuda::cuda_check(cudaDeviceSynchronize(), "the kernel of heads failed");
        return q;
    }
    // In batches of several sizes, so that neighbouring positions are written by different launches.
    void write_all() {
        for (std::int32_t first = 0, step = 1; first < GetParam().length; first += step, step = step % 200 * 3 + 1) {
            write(first, std::min(step, GetParam().length - first));
        }
    }
    std::vector<float> attend(std::int32_t first, std::int32_t count) {
        const Shape& s = GetParam();
        const auto q = write(first, count);  // the same codes again
        const OnDevice batch = batch_of(first, count);
        const auto out = poisoned(q.size());
        cuda::AttendCall call;
        call.batch = batch.layout.view(batch.bytes.data());
        call.tiles = batch.layout.tiles;
        call.heads = s.heads;
        call.kv_heads = s.kv_heads;
        call.head_dim = s.head_dim;
        call.layout = layout_;
        cuda::shape_attention(call);
        call.chunks = cuda::chunk_of(cuda::attend_reach(batch.furthest) - 1, call.block_shift) + 1;
        call.scale = scale();
        call.window = s.window;
        call.soft_cap = s.soft_cap;
        if (s.sinks) call.sinks = sinks_.data();
        call.q = q.data();
        call.out = out.data();
        call.rows = count;
        call.kv = pool_.data();
        const std::size_t floats =
            size(static_cast<std::int64_t>(call.units()) * cuda::kTileRows * (2 + layout_.width));
        cuda::DeviceBuffer<float> partial(floats);
        cuda::cuda_check(cudaMemset(partial.data(), cuda::kNotReadyByte, partial.bytes()), "cannot fill memory");
        const auto taken = cuda::to_device(std::span<const std::int32_t>(std::vector<std::int32_t>(8)));
        call.partial = partial.data();
        call.taken = taken.data();
        if (layout_.width > cuda::kMaxTileWidth) {
            cuda::launch_attend_wide(nullptr, call);
        } else {
            cuda::launch_attend_low(nullptr, call, cuda::device_info(0).processors);
        }
        if (kernels::is_rotated(value_type(s.format))) cuda::launch_rotate_back(nullptr, call);
        for (const std::int32_t left : to_host(taken)) EXPECT_EQ(left, 0);
        return to_host(out);
    }
    float scale() const { return 0.5f / std::sqrt(static_cast<float>(GetParam().head_dim)); }
    float stored(std::int32_t position, std::int32_t head, bool is_value, std::int32_t d) const {
        const std::int32_t page = pages_[size(position / kPagePositions)];
        const auto* bytes = reinterpret_cast<const unsigned char*>(host_.data() + page * layout_.page_stride +
                                                                   head * layout_.head_stride);
        return cuda::LowCodes(layout_).number(bytes, is_value, position % kPagePositions, d);
    }

    std::vector<std::int32_t> pages_;
    cuda::KvLayout layout_;
    cuda::DeviceBuffer<__half> pool_;
    cuda::DeviceBuffer<float> sinks_;
    std::vector<__half> host_;
};

TEST_P(LowAttention, CodesAreThoseOfTheSpecification) {
    const Shape& s = GetParam();
    for (std::int32_t p = 0; p < s.length; p += 1 + p / 100) {
        for (std::int32_t head = 0; head < s.kv_heads; ++head) {
            for (const bool is_value : {false, true}) {
                float scale = 0;
                const auto expected = kept(raw(p, s.heads + head + (is_value ? s.kv_heads : 0)),
                                           is_value ? value_type(s.format) : key_type(s.format), scale);
                for (std::int32_t d = 0; d < s.head_dim; ++d) {
                    ASSERT_EQ(stored(p, head, is_value, d), expected[size(d)])
                        << (is_value ? "value " : "key ") << d << " of position " << p << ", head " << head;
                }
            }
        }
    }
    const std::vector<float> q = to_host(write(s.length - 1, 1));
    for (std::int32_t h = 0; h < s.heads; ++h) {
        auto expected = raw(s.length - 1, h);
        if (kernels::is_rotated(key_type(s.format))) kernels::rotate_for_cache(expected.data(), s.head_dim);
        for (std::int32_t d = 0; d < s.head_dim; ++d) ASSERT_EQ(q[size(h * s.head_dim + d)], expected[size(d)]);
    }
}

TEST_P(LowAttention, EqualsPlainLoops) {
    const Shape& s = GetParam();
    for (const std::int32_t last : {0, 1, 63, 64, 130, s.length - 1}) {
        if (last >= s.length) continue;
        const std::vector<float> found = attend(last, 1);
        std::vector<double> expected;
        for (std::int32_t h = 0; h < s.heads; ++h) {
            auto q = raw(last, h);
            if (kernels::is_rotated(key_type(s.format))) kernels::rotate_for_cache(q.data(), s.head_dim);
            const std::int32_t kv_head = h / (s.heads / s.kv_heads);
            const std::int32_t first = s.window > 0 ? std::max(0, last - s.window + 1) : 0;
            std::vector<double> weights, sum(size(s.head_dim));
            for (std::int32_t p = first; p <= last; ++p) {
                double score = 0;
                for (std::int32_t d = 0; d < s.head_dim; ++d) score += q[size(d)] * stored(p, kv_head, false, d);
                score *= scale();
                weights.push_back(s.soft_cap > 0 ? s.soft_cap * std::tanh(score / s.soft_cap) : score);
            }
            const double sink = 0.5 * (h % 4);
            double peak = *std::max_element(weights.begin(), weights.end()), total = 0;
            if (s.sinks) peak = std::max(peak, sink), total = std::exp(sink - peak);
            for (std::int32_t p = first; p <= last; ++p) {
                const double weight = std::exp(weights[size(p - first)] - peak);
                total += weight;
                for (std::int32_t d = 0; d < s.head_dim; ++d) sum[size(d)] += weight * stored(p, kv_head, true, d);
            }
            std::vector<float> head;
            for (const double value : sum) head.push_back(static_cast<float>(value / total));
            if (kernels::is_rotated(value_type(s.format))) kernels::rotate_for_cache(head.data(), s.head_dim);
            expected.insert(expected.end(), head.begin(), head.end());
        }
        EXPECT_LT(distance(found, expected), 2e-3) << "position " << last;
    }
}

TEST_P(LowAttention, ARowIsARow) {
    const Shape& s = GetParam();
    const auto width = size(s.heads * s.head_dim);
    for (const std::int32_t count : {2, 5, 17, 64}) {
        if (count > s.length) continue;
        const std::int32_t first = s.length - count;
        const std::vector<float> together = attend(first, count);
        for (std::int32_t t = 0; t < count; t += 1 + t / 4) {
            const std::vector<float> alone = attend(first + t, 1);
            for (const float value : alone) ASSERT_TRUE(std::isfinite(value));
            ASSERT_EQ(std::memcmp(alone.data(), together.data() + size(t) * width, width * sizeof(float)), 0)
                << "row " << t << " of " << count;
        }
    }
    EXPECT_EQ(std::memcmp(to_host(pool_).data(), host_.data(), host_.size() * sizeof(__half)), 0)
        << "positions that were written again have other codes";
}

TEST_P(LowAttention, ExpandedPagesHoldTheSameNumbers) {
    const Shape& s = GetParam();
    cuda::KvExpandCall call;
    call.from = pool_.data();
    call.from_layout = layout_;
    call.to_layout = cuda::KvLayout(kernels::KvLayer{s.kv_heads, s.head_dim}, static_cast<std::int32_t>(pages_.size()));
    const auto to = cuda::to_device(std::span<const __half>(std::vector<__half>(size(call.to_layout.layer_stride))));
    call.to = const_cast<__half*>(to.data());
    call.kv_heads = s.kv_heads;
    call.head_dim = s.head_dim;
    call.pages = static_cast<std::int32_t>(pages_.size());
    cuda::launch_kv_expand(nullptr, call);
    const std::vector<__half> halves = to_host(to);
    for (std::int32_t p = 0; p < s.length; p += 1 + p / 100) {
        const std::int32_t page = pages_[size(p / kPagePositions)], place = p % kPagePositions;
        for (std::int32_t head = 0; head < s.kv_heads; ++head) {
            const std::int64_t at = head * call.to_layout.head_stride;
            for (std::int32_t d = 0; d < s.head_dim; ++d) {
                const __half key = halves[size(call.to_layout.k_cell(page, place) + at + cuda::KvLayout::key_value(d))];
                const __half value =
                    halves[size(call.to_layout.v_cell(page, place) + at + cuda::KvLayout::value_value(d))];
                ASSERT_EQ(__half2float(key), __half2float(__float2half_rn(stored(p, head, false, d))));
                ASSERT_EQ(__half2float(value), __half2float(__float2half_rn(stored(p, head, true, d))));
            }
        }
    }
}

constexpr KvFormat q4 = kernels::kv_format(KvType::q4, KvType::q4), q6 = kernels::kv_format(KvType::q6, KvType::q6);
constexpr KvFormat q8_q4 = kernels::kv_format(KvType::q8, KvType::q4);
constexpr KvFormat q4_q8 = kernels::kv_format(KvType::q4, KvType::q8);
constexpr KvFormat q6_q4 = kernels::kv_format(KvType::q6, KvType::q4);

INSTANTIATE_TEST_SUITE_P(Shapes, LowAttention,
                         testing::Values(Shape{8, 2, 128, q4, 3000}, Shape{8, 2, 128, q6, 3000},
                                         Shape{8, 2, 128, q8_q4, 700}, Shape{8, 2, 128, q4_q8, 700, 100},
                                         Shape{6, 2, 64, q6_q4, 5000}, Shape{7, 1, 80, q6, 300, 0, 2.0f},
                                         Shape{5, 1, 96, q4, 300, 0, 0.0f, true}, Shape{20, 1, 20, q6, 200},
                                         Shape{4, 1, 256, q6_q4, 900}, Shape{3, 1, 192, q4, 300},
                                         Shape{4, 2, 512, q6, 200}, Shape{4, 1, 320, q8_q4, 150, 70, 3.0f, true}));

}  // namespace
}  // namespace foresay::test
