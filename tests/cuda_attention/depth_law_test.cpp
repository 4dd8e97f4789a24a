// Law 1 after thousands of positions, through whole forwards: decode rows have the same bits alone and in batches, by
// the kernel of all layers and with flash attention between its parts, after prompts whose attention took either form.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/cuda/attention/attention_choice.h"
#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using kernels::cuda::choose_flash_attention;
using kernels::cuda::FlashAttention;

struct Case {
    std::int32_t heads, kv_heads, head_dim;
    kernels::KvFormat kv_format;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.heads << " heads, " << c.kv_heads << " key-value heads of " << c.head_dim
         << (c.kv_format == kernels::KvFormat::q8 ? ", codes" : "");
}

class DepthLaw : public testing::TestWithParam<Case> {
protected:
    static constexpr std::int32_t kRows = 33;

    void SetUp() override {
        FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
        for (const Backend& backend : backends()) {
            if (backend.name != "cuda") continue;
            core::ModelConfig config = small_config();
            config.shape.heads = GetParam().heads;
            config.shape.kv_heads = GetParam().kv_heads;
            config.shape.head_dim = GetParam().head_dim;
            config.context_length = 16384;
            model_ = random_model(config, kernels::QuantType::q8_0, kernels::QuantType::q8_0, backend.ops());
        }
        ASSERT_NE(model_, nullptr);
        std::mt19937 random(21);
        for (int i = 0; i < 10000; ++i) tokens_.push_back(static_cast<std::int32_t>(random() % 512));
    }
    void TearDown() override { choose_flash_attention(FlashAttention::by_speed); }

    // The logits of kRows decode rows after a prompt of `depth` tokens, `width` rows at a time, of the prompt `chunk`.
    std::vector<float> logits(FlashAttention choice, std::int32_t depth, std::int32_t width, std::int32_t chunk) const {
        choose_flash_attention(choice);
        core::Context context(
            model_, {.length = 10100, .prefill_rows = chunk, .decode_rows = 64, .kv_format = GetParam().kv_format});
        EXPECT_TRUE(context.prefill(std::span(tokens_).first(static_cast<std::size_t>(depth))));
        std::vector<float> all;
        // Twice, so that the second time runs what was captured.
        for (int time = 0; time < 2; ++time) {
            all.clear();
            context.truncate(depth);
            for (std::int32_t from = 0; from < kRows; from += width) {
                const std::int32_t count = std::min(width, kRows - from);
                std::vector<kernels::TokenRef> refs;
                std::vector<std::int32_t> rows;
                for (std::int32_t i = 0; i < count; ++i) {
                    refs.push_back(
                        kernels::TokenRef::id(tokens_[static_cast<std::size_t>((depth + from + i) % 10000)]));
                    rows.push_back(i);
                }
                EXPECT_TRUE(context.evaluate(kernels::RowClass::decode, refs, rows, 0));
                for (std::int32_t i = 0; i < count; ++i) {
                    const std::span<const float> of = context.logits(i);
                    all.insert(all.end(), of.begin(), of.end());
                }
            }
        }
        return all;
    }

    std::shared_ptr<const core::Model> model_;
    std::vector<std::int32_t> tokens_;
};

TEST_P(DepthLaw, cuda_EveryFormAndWidth) {
    for (const std::int32_t depth : {1, 1000, 4085, 9000}) {
        const std::vector<float> expected = logits(FlashAttention::never, depth, 1, 2048);
        for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
        for (const FlashAttention choice : {FlashAttention::never, FlashAttention::always, FlashAttention::by_speed}) {
            for (const std::int32_t width : {1, 2, 4, 5, 8, 11, 16, 17, 33}) {
                const std::int32_t chunk = width % 2 == 0 ? 2048 : 300 + 17 * width;
                const std::vector<float> found = logits(choice, depth, width, chunk);
                ASSERT_EQ(found.size(), expected.size());
                ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
                    << "choice " << static_cast<int>(choice) << ", " << width << " rows after " << depth
                    << " in chunks of " << chunk;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DepthLaw,
                         testing::Values(Case{8, 2, 128, kernels::KvFormat::f16},
                                         Case{8, 2, 128, kernels::KvFormat::q8}, Case{4, 2, 64, kernels::KvFormat::f16},
                                         Case{6, 2, 64, kernels::KvFormat::q8},
                                         Case{7, 1, 96, kernels::KvFormat::f16},
                                         Case{4, 2, 256, kernels::KvFormat::f16},
                                         Case{4, 1, 192, kernels::KvFormat::q8}));

}  // namespace
}  // namespace foresay::test
