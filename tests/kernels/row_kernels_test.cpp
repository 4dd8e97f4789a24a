// What each instruction set does with one row (norm, int8 codes, float16, attention), compared with plain loops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <tuple>

#include "kernels/cpu/activation_tiles.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/kv/low_bits.h"
#include "kernels/kv_code.h"
#include "kernels/kv_names.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;
using namespace kernels::cpu;

class RowKernels : public testing::TestWithParam<std::string> {
protected:
    const IsaKernels& isa() const { return select_isa(GetParam()); }
    Random random_{5};
};

TEST_P(RowKernels, TheTableSaysWhoseItIs) { EXPECT_EQ(isa().name, GetParam()); }

TEST_P(RowKernels, NormEqualsPlainLoops) {
    for (const int n : {1, 2, 15, 16, 17, 31, 32, 33, 45, 64, 100, 256, 1000}) {
        for (const float spread : {1e-6f, 1.0f, 1e6f}) {
            const auto x = bell(random_, static_cast<std::size_t>(n), spread);
            const auto weight = bell(random_, static_cast<std::size_t>(n), 1.0f, 1.0f);
            double squares = 0;
            for (const float value : x) squares += static_cast<double>(value) * value;
            const double scale = 1.0 / std::sqrt(squares / n + 1e-5);
            std::vector<float> y(x.size() + 1, 77.0f), in_place = x;
            isa().rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
            isa().rms_norm(in_place.data(), weight.data(), 1e-5f, n, in_place.data());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const double expected = x[i] * scale * weight[i];
                ASSERT_NEAR(y[i], expected, kNorm * std::fabs(expected)) << "value " << i << " of " << n;
                ASSERT_EQ(y[i], in_place[i]);
            }
            ASSERT_EQ(y.back(), 77.0f) << "wrote beyond the row";
        }
    }
}

TEST_P(RowKernels, CodesEqualPlainLoops) {
    ActivationTiles tiles;
    tiles.reserve(64, 512);
    for (const int inputs : {32, 64, 96, 160, 256, 512}) {
        for (const int rows : {1, 2, 3, 5, 9, 13, 16, 17, 33}) {
            tiles.set_rows(rows, isa());
            for (int row = 0; row < rows; ++row) {
                // From groups that would overflow a code's scale to groups below the smallest normal number.
                constexpr float kSpreads[] = {1.0f, 1e-3f, 1e4f, 1e-36f, 1e-40f, 0.0f};
                auto x = bell(random_, static_cast<std::size_t>(inputs), kSpreads[row % 6]);
                if (row % 6 == 0) x[static_cast<std::size_t>(inputs) - 1] = -300.0f;
                tiles.fill(isa(), row, x.data(), inputs, true, true);
                const Codes codes(x);
                int index = 0;
                while (index + 1 < tiles.tiles() && tiles.first_row(index + 1) <= row) ++index;
                const ActivationTile& tile = tiles.tile(index);
                const int m = row - tiles.first_row(index);
                ASSERT_LT(m, tile.rows);
                ASSERT_LE(tile.rows, tile.stride);
                for (int i = 0; i < inputs; ++i) {
                    const std::int64_t at = static_cast<std::int64_t>(i / 32) * tile.stride + m;
                    ASSERT_EQ(tile.scale[static_cast<std::int64_t>(i / kScaleInputs) * tile.stride + m],
                              codes.scale[static_cast<std::size_t>(i / kScaleInputs)])
                        << "input " << i;
                    ASSERT_EQ(tile.q[32 * at + i % 32], codes.code[static_cast<std::size_t>(i)]) << "input " << i;
                    ASSERT_EQ(tile.values[static_cast<std::int64_t>(i) * tile.stride + m],
                              x[static_cast<std::size_t>(i)]);
                }
            }
        }
    }
}

TEST_P(RowKernels, CodesFilledInPartsEqualThoseFilledAtOnce) {
    ActivationTiles whole, parts;
    whole.reserve(17, 640);
    parts.reserve(17, 640);
    for (const int inputs : {96, 128, 192, 256, 576, 640}) {
        for (const int rows : {1, 3, 16, 17}) {
            whole.set_rows(rows, isa());
            parts.set_rows(rows, isa());
            for (int row = 0; row < rows; ++row) {
                const auto x = bell(random_, static_cast<std::size_t>(inputs), 1.0f);
                whole.fill(isa(), row, x.data(), inputs, true, false);
                for (int end = inputs; end > 0;) {  // the last part first: parts are independent
                    const int begin = (end - 1) / kScaleInputs * kScaleInputs;
                    parts.fill_codes(isa(), row, x.data(), inputs, begin, end);
                    end = begin;
                }
            }
            for (int i = 0; i < whole.tiles(); ++i) {
                const ActivationTile &a = whole.tile(i), &b = parts.tile(i);
                for (int m = 0; m < a.rows; ++m) {
                    for (int group = 0; group < (inputs + 31) / 32; ++group) {
                        const std::int64_t at = static_cast<std::int64_t>(group) * a.stride + m;
                        const std::int64_t scale_at =
                            static_cast<std::int64_t>(32 * group / kScaleInputs) * a.stride + m;
                        ASSERT_EQ(std::memcmp(a.q + 32 * at, b.q + 32 * at, 32), 0);
                        ASSERT_EQ(a.scale[scale_at], b.scale[scale_at]);
                        ASSERT_EQ(a.sum[at], b.sum[at]);
                        ASSERT_EQ(a.minus8[at], b.minus8[at]);
                        ASSERT_EQ(a.minus128[at], b.minus128[at]);
                        ASSERT_EQ(a.minus32[2 * at], b.minus32[2 * at]);
                        ASSERT_EQ(a.minus32[2 * at + 1], b.minus32[2 * at + 1]);
                    }
                }
            }
        }
    }
}

TEST_P(RowKernels, HalvesAreRoundedToNearestEven) {
    std::vector<float> values;
    for (std::uint32_t half = 0; half < 0x7c00; half += 7) {
        const float low = f16_to_f32(static_cast<std::uint16_t>(half));
        const float high = half + 1 < 0x7c00 ? f16_to_f32(static_cast<std::uint16_t>(half + 1)) : 65536.0f;
        const float middle = (low + high) / 2;
        for (const float value : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e6f)}) {
            values.push_back(value);
            values.push_back(-value);
        }
    }
    for (const float value : {1e-10f, 65519.9f, 65520.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
        values.push_back(value);
        values.push_back(-value);
    }
    std::vector<std::uint16_t> halves(values.size());
    isa().to_half(values.data(), static_cast<int>(values.size()), halves.data());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(halves[i], f32_to_f16(values[i])) << values[i];
    for (const int n : {0, 1, 15, 16, 17, 20, 33}) {
        std::vector<std::uint16_t> out(40, 0xabcd);
        isa().to_half(values.data(), n, out.data());
        for (int i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], halves[static_cast<std::size_t>(i)]);
        ASSERT_EQ(out[static_cast<std::size_t>(n)], 0xabcd) << "wrote beyond the row";
    }
}

// The 8-bit codes of a head's vector, by the functions of kernels/kv_code.h.
struct KvCodes {
    std::vector<std::int8_t> codes;
    float step = 0;

    explicit KvCodes(std::span<const float> x) {
        float largest = 0;
        for (const float value : x) largest = std::max(largest, std::fabs(value));
        for (const float value : x) codes.push_back(static_cast<std::int8_t>(kv_code(value, kv_code_scale(largest))));
        step = largest / kLargestKvCode;
    }
};

TEST_P(RowKernels, CacheCodesEqualTheSpecification) {
    for (const int n : {1, 3, 15, 16, 17, 32, 64, 80, 128, 256}) {
        for (const float spread : {1.0f, 1e-3f, 1e4f, 1e-29f, 1e-31f, 1e-40f, 0.0f, 1e36f}) {
            for (int i = 0; i < 20; ++i) {
                auto x = bell(random_, static_cast<std::size_t>(n), spread);
                // Halves between two codes, which go to the even one.
                if (i == 0 && n > 2) x = std::vector<float>(x.size(), 0.5f * spread), x[1] = 127 * spread;
                if (i == 1 && n > 2) x = std::vector<float>(x.size(), -1.5f * spread), x[2] = -127 * spread;
                const KvCodes expected(x);
                std::vector<std::int8_t> codes(x.size() + 1, 99);
                ASSERT_EQ(isa().to_kv_codes(x.data(), n, codes.data()), expected.step);
                for (std::size_t d = 0; d < x.size(); ++d) {
                    ASSERT_EQ(codes[d], expected.codes[d]) << "value " << d << " of " << n << ": " << x[d];
                }
                ASSERT_EQ(codes.back(), 99) << "wrote beyond the vector";
            }
        }
    }
}

// NaN and infinity must stay visible, not become plausible numbers.
TEST_P(RowKernels, CacheCodesOfWhatIsNotFiniteHaveNoStep) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const std::size_t at : {0, 17, 39}) {
            auto x = bell(random_, 40, 1.0f);
            x[at] = bad;
            std::vector<std::int8_t> codes(x.size());
            EXPECT_TRUE(std::isnan(isa().to_kv_codes(x.data(), 40, codes.data()))) << bad << " at " << at;
        }
    }
}

// The codes of fewer bits of a vector that is rotated already, by the functions of kernels/kv/low_bits.h.
struct LowCodes {
    std::vector<std::uint8_t> codes;
    float step = 0;

    LowCodes(std::span<const float> x, int bits) {
        const float extreme = kv_extreme(*std::max_element(x.begin(), x.end()), *std::min_element(x.begin(), x.end()));
        const float scale = kv_low_scale(extreme, bits);
        for (const float y : x) codes.push_back(static_cast<std::uint8_t>(kv_low_code(y, scale, bits)));
        step = extreme / -static_cast<float>(kv_code_zero(bits));
    }
};

TEST_P(RowKernels, LowCacheCodesEqualTheSpecification) {
    for (const int bits : {4, 6}) {
        for (const int n : {4, 12, 16, 20, 64, 80, 128, 256}) {
            for (const float spread : {1.0f, 1e-3f, 1e4f, 1e-29f, 1e-31f, 1e-40f, 0.0f, 1e36f}) {
                for (int i = 0; i < 20; ++i) {
                    auto x = bell(random_, static_cast<std::size_t>(n), spread);
                    // Halves between two codes, and both ends at once.
                    if (i == 0) x = std::vector<float>(x.size(), 0.5f * spread), x[1] = 8 * spread;
                    if (i == 1) x = std::vector<float>(x.size(), -1.5f * spread), x[2] = -8 * spread;
                    if (i == 2) x[0] = 9 * spread, x[3] = -9 * spread;
                    const LowCodes expected(x, bits);
                    std::vector<std::uint8_t> codes(x.size() + 1, 99);
                    ASSERT_EQ(isa().to_low_kv_codes(x.data(), n, bits, codes.data()), expected.step);
                    for (std::size_t d = 0; d < x.size(); ++d) {
                        ASSERT_EQ(codes[d], expected.codes[d]) << "value " << d << " of " << n << ": " << x[d];
                        ASSERT_LT(codes[d], 1 << bits);
                    }
                    ASSERT_EQ(codes.back(), 99) << "wrote beyond the vector";
                }
            }
        }
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const std::size_t at : {0, 17, 39}) {
            auto x = bell(random_, 40, 1.0f);
            x[at] = bad;
            std::vector<std::uint8_t> codes(x.size());
            EXPECT_TRUE(std::isnan(isa().to_low_kv_codes(x.data(), 40, 4, codes.data()))) << bad << " at " << at;
        }
    }
}

TEST_P(RowKernels, RotationForTheCacheEqualsTheSpecification) {
    for (const int n : {1, 3, 4, 6, 8, 16, 20, 24, 32, 40, 64, 80, 96, 112, 128, 192, 256, 512}) {
        const auto x = bell(random_, static_cast<std::size_t>(n), 2.0f);
        auto expected = x, found = x;
        rotate_for_cache(expected.data(), n);
        found.push_back(99.0f);
        isa().rotate_for_cache(found.data(), n);
        double before = 0, after = 0;
        for (int d = 0; d < n; ++d) {
            const auto at = static_cast<std::size_t>(d);
            ASSERT_EQ(found[at], expected[at]) << "value " << d << " of " << n;
            before += static_cast<double>(x[at]) * x[at];
            after += static_cast<double>(found[at]) * found[at];
        }
        EXPECT_EQ(found.back(), 99.0f) << "wrote beyond the vector";
        EXPECT_NEAR(after, before, 1e-5 * before);  // a rotation keeps lengths
        isa().rotate_for_cache(found.data(), n);
        for (std::size_t d = 0; d < x.size(); ++d) ASSERT_NEAR(found[d], x[d], 1e-5) << "is its own inverse";
    }
}

// Computed by hand: (1, 2, 3, 4) becomes (10, -2, -4, 0) / 2; the extreme is 5, so a step is -5/8.
TEST_P(RowKernels, LowCacheCodesOfFourValues) {
    float x[] = {1, 2, 3, 4};
    isa().rotate_for_cache(x, 4);
    EXPECT_THAT(x, testing::ElementsAre(5.0f, -1.0f, -2.0f, 0.0f));
    std::uint8_t codes[4];
    EXPECT_EQ(isa().to_low_kv_codes(x, 4, 4, codes), -0.625f);
    EXPECT_THAT(codes, testing::ElementsAre(0, 10, 11, 8));
    EXPECT_EQ(isa().to_low_kv_codes(x, 4, 6, codes), -0.15625f);
    EXPECT_THAT(codes, testing::ElementsAre(0, 38, 45, 32));
}

struct Pages {
    std::vector<std::vector<std::uint8_t>> k, v;
    std::vector<const std::uint8_t*> k_tiles, v_tiles;
};

// Pages with K and V of positions [first, last]; everything else is NaN, since contents are unspecified until written.
Pages pages_of(const std::vector<float>& k, const std::vector<float>& v, int head_dim, int first, int last,
               KvFormat format) {
    const cpu::CpuKvLayer kv{{.heads = 1, .head_dim = head_dim}, format};
    const std::int64_t padded = kv.v_stride();
    Pages pages;
    const auto put = [](std::vector<std::uint8_t>& tile, std::int64_t index, auto value) {
        std::memcpy(tile.data() + index * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    };
    for (int tile = first / 64; tile <= last / 64; ++tile) {
        auto& tile_k = pages.k.emplace_back(static_cast<std::size_t>(kv.k_bytes()), 0xff);
        auto& tile_v = pages.v.emplace_back(static_cast<std::size_t>(kv.v_bytes()), 0xff);
        for (int i = 0; i < 64; ++i) {
            const int position = 64 * tile + i;
            if (position < first || position > last) continue;
            const auto from = static_cast<std::size_t>(position * head_dim);
            const std::span<const float> key(k.data() + from, static_cast<std::size_t>(head_dim));
            const std::span<const float> value(v.data() + from, static_cast<std::size_t>(head_dim));
            // Low bits, as kernels/cpu/cpu_memory.h places them.
            const auto put_low = [&](std::vector<std::uint8_t>& tile, std::int64_t index, int code, int shift,
                                     int mask) {
                auto& byte = tile[static_cast<std::size_t>(index)];
                byte = static_cast<std::uint8_t>((byte & ~(mask << shift)) | (code & mask) << shift);
            };
            if (const int bits = kv.k_bits(); bits < 8) {
                const LowCodes low(key, bits);
                for (int d = 0; d < head_dim; ++d) {
                    const int code = low.codes[static_cast<std::size_t>(d)];
                    put_low(tile_k, kv.k_index(i) + d / 2 * 16, code, d % 2 * 4, 15);
                    if (bits > 4) put_low(tile_k, kv.k_index(i) + (head_dim / 2 + d / 4) * 16, code >> 4, d % 4 * 2, 3);
                }
                kv.k_steps(tile_k.data())[i] = low.step;
            }
            if (const int bits = kv.v_bits(); bits < 8) {
                const LowCodes low(value, bits);
                for (int d = 0; d < head_dim; ++d) {
                    const int code = low.codes[static_cast<std::size_t>(d)];
                    put_low(tile_v, i * padded + d / 32 * 16 + d % 16, code, d / 16 % 2 * 4, 15);
                    const std::int64_t high = i * padded + (head_dim + 31) / 32 * 16 + d / 64 * 16 + d % 16;
                    if (bits > 4) put_low(tile_v, high, code >> 4, d / 16 % 4 * 2, 3);
                }
                kv.v_steps(tile_v.data())[i] = low.step;
            }
            const KvCodes key_codes(key), value_codes(value);
            for (int d = 0; d < head_dim; ++d) {
                const auto at = static_cast<std::size_t>(d);
                const std::int64_t key_index = kv.k_index(i) + 16 * d, value_index = i * padded + d;
                if (kv.k_bits() == 8) put(tile_k, key_index, key_codes.codes[at]);
                if (kv.v_bits() == 8) put(tile_v, value_index, value_codes.codes[at]);
                if (format == KvFormat::f16) {
                    put(tile_k, key_index, f32_to_f16(key[at]));
                    put(tile_v, value_index, f32_to_f16(value[at]));
                }
            }
            if (kv.k_bits() == 8) kv.k_steps(tile_k.data())[i] = key_codes.step;
            if (kv.v_bits() == 8) kv.v_steps(tile_v.data())[i] = value_codes.step;
        }
    }
    for (const auto& tile : pages.k) pages.k_tiles.push_back(tile.data());
    for (const auto& tile : pages.v) pages.v_tiles.push_back(tile.data());
    return pages;
}

// All vectors of `width` values as the cache stores them.
std::vector<float> kept(const std::vector<float>& x, int width, KvType type) {
    std::vector<float> out;
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(width)) {
        const std::span<const float> vector(x.data() + at, static_cast<std::size_t>(width));
        const KvCodes codes(vector);
        const int bits = kv_bits(type) < 8 ? kv_bits(type) : 4;
        const LowCodes low(vector, bits);
        for (std::size_t d = 0; d < vector.size(); ++d) {
            out.push_back(type == KvType::f16  ? f16_to_f32(f32_to_f16(vector[d]))
                          : type == KvType::q8 ? static_cast<float>(codes.codes[d]) * codes.step
                                               : static_cast<float>(low.codes[d] - kv_code_zero(bits)) * low.step);
        }
    }
    return out;
}

struct Attention {
    int rows, heads, head_dim, first, last;  // positions of row 0; row r attends up to last + r
    float soft_cap;
    KvFormat format;
};

void check_attention(const IsaKernels& isa, Random& random, const Attention& a) {
    const auto head_dim = static_cast<std::size_t>(a.head_dim), heads = static_cast<std::size_t>(a.heads);
    // Rows lie apart, as in a backend's memory; what is between them stays as it is.
    const std::size_t q_stride = heads * head_dim + 5, out_stride = heads * head_dim + 3;
    // Scores spread over several units, so that the weights are far from equal and the running maximum moves.
    const auto q = bell(random, static_cast<std::size_t>(a.rows) * q_stride, 3.0f);
    const auto count = static_cast<std::size_t>(a.last + a.rows) * head_dim;
    const auto k = bell(random, count, 1.0f), v = bell(random, count, 1.0f);
    const Pages pages = pages_of(k, v, a.head_dim, a.first, a.last + a.rows - 1, a.format);
    const auto kept_k = kept(k, a.head_dim, key_type(a.format)), kept_v = kept(v, a.head_dim, value_type(a.format));
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
    std::vector<float> out(static_cast<std::size_t>(a.rows) * out_stride, 77.0f);
    std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(a.head_dim)));
    isa.attend({q.data(), out.data(), static_cast<std::int64_t>(q_stride), static_cast<std::int64_t>(out_stride),
                a.rows, a.heads, a.head_dim, a.first, a.last, scale, a.soft_cap, pages.k_tiles.data(),
                pages.v_tiles.data(), scratch.data(), key_type(a.format), value_type(a.format)});
    for (std::size_t row = 0; row < static_cast<std::size_t>(a.rows); ++row) {
        const int last = a.last + static_cast<int>(row);
        for (std::size_t h = 0; h < heads; ++h) {
            std::vector<double> scores, sum(head_dim);
            double total = 0, largest = 0;
            for (int p = a.first; p <= last; ++p) {
                double score = 0;
                for (std::size_t d = 0; d < head_dim; ++d) {
                    const float key = kept_k[static_cast<std::size_t>(p) * head_dim + d];
                    score += static_cast<double>(q[row * q_stride + h * head_dim + d]) * key;
                }
                score *= scale;
                scores.push_back(a.soft_cap > 0 ? a.soft_cap * std::tanh(score / a.soft_cap) : score);
            }
            const double peak = *std::max_element(scores.begin(), scores.end());
            for (int p = a.first; p <= last; ++p) {
                const double weight = std::exp(scores[static_cast<std::size_t>(p - a.first)] - peak);
                total += weight;
                for (std::size_t d = 0; d < head_dim; ++d) {
                    const float value = kept_v[static_cast<std::size_t>(p) * head_dim + d];
                    sum[d] += weight * value;
                    largest = std::max<double>(largest, std::fabs(value));
                }
            }
            for (std::size_t d = 0; d < head_dim; ++d) {
                ASSERT_NEAR(out[row * out_stride + h * head_dim + d], sum[d] / total, kAttention * largest)
                    << "row " << row << ", head " << h << ", value " << d;
            }
        }
        for (std::size_t i = heads * head_dim; i < out_stride; ++i)
            ASSERT_EQ(out[row * out_stride + i], 77.0f) << "wrote beyond the last head";
    }
}

TEST_P(RowKernels, AttentionEqualsPlainLoops) {
    for (const int head_dim : {1, 3, 16, 20, 32, 64, 80, 128}) {
        for (const int heads : {1, 2, 3, 4, 7, 8, 16}) {
            for (const float cap : {0.0f, 2.0f}) {
                for (const auto& [rows, first, last] : std::vector<std::tuple<int, int, int>>{{1, 0, 0},
                                                                                              {1, 0, 15},
                                                                                              {1, 0, 16},
                                                                                              {1, 0, 63},
                                                                                              {1, 0, 64},
                                                                                              {1, 63, 64},
                                                                                              {1, 17, 17},
                                                                                              {1, 30, 150},
                                                                                              {1, 64, 127},
                                                                                              {2, 0, 0},
                                                                                              {3, 0, 61},
                                                                                              {9, 0, 70},
                                                                                              {64, 0, 64}}) {
                    if (rows > 3 && (head_dim > 32 || heads > 8)) continue;
                    for (const KvFormat format :
                         {KvFormat::f16, KvFormat::q8, kv_format(KvType::q6, KvType::q4),
                          kv_format(KvType::q4, KvType::q6), kv_format(KvType::q8, KvType::q4)}) {
                        // The types of keys and of values are independent, so some shapes are enough for the mixed.
                        if (has_low_bits(format) && (head_dim % 4 != 0 || (cap > 0 && heads > 2))) continue;
                        SCOPED_TRACE(testing::Message()
                                     << rows << " rows, " << heads << " heads of " << head_dim << ", positions "
                                     << first << " to " << last << ", cap " << cap << ", " << name(format));
                        ASSERT_NO_FATAL_FAILURE(
                            check_attention(isa(), random_, {rows, heads, head_dim, first, last, cap, format}));
                    }
                }
            }
        }
    }
}

TEST_P(RowKernels, ReadSeesEveryByte) {
    std::vector<std::uint8_t> data(1024 + 16384);
    const std::uint64_t zero = isa().read(data.data(), 1024);
    for (std::size_t i = 0; i < 1024; i += 37) {
        data[i] = 1;
        EXPECT_NE(isa().read(data.data(), 1024), zero) << i;
        data[i] = 0;
    }
}

INSTANTIATE_TEST_SUITE_P(All, RowKernels, testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
