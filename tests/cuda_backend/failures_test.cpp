// Launches that fail: the error is reported at once and again whenever a result is asked for, and the next forward runs
// as usual.

#include "base/error.h"
#include "kernels/cuda/device/device.h"
#include "tests/cuda_backend/device_runs.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::size_t kSteps = 4;  // the first decode row is launched, the second captured, the others replayed

struct FailureCase {
    const char* name;
    KvFormat format;
    bool head_norms;
};

class Failures : public testing::TestWithParam<FailureCase> {
protected:
    void SetUp() override { SKIP_WITHOUT_CUDA(); }
    void TearDown() override { cuda::fail_launch(0); }
    static TinyConfig config() {
        TinyConfig config = fused_config(GetParam().format);
        config.head_norms = GetParam().head_norms;
        config.shape.layers = 2;
        return config;
    }
};

TEST_P(Failures, EveryLaunchOfAText) {
    const TinyModel model(config());
    const std::unique_ptr<Ops> ops = make_cuda_ops({.device = usable_devices().front()});
    const std::vector<float> expected = [&] {
        TinyRun run(model, *ops, 4, 64);
        return text_logits(run, model.shape().vocab, kSteps);
    }();
    TinyRun kept(model, *ops, 4, 64);
    int launches = 0;
    for (int nth = 1; nth < 1000 && launches == 0; ++nth) {
        // A new workspace has no graphs yet, the old one has all of them.
        TinyRun fresh(model, *ops, 4, 64);
        for (TinyRun* const run : {&fresh, &kept}) {
            cuda::fail_launch(nth);
            std::string said;
            try {
                text_logits(*run, model.shape().vocab, kSteps);
            } catch (const Error& error) {
                said = error.what();
            }
            cuda::fail_launch(0);
            if (said.empty()) {
                if (run == &fresh) launches = nth - 1;
            } else {
                EXPECT_NE(said.find("made to fail by a test"), std::string::npos) << said;
                EXPECT_EQ(said.find('\n'), std::string::npos);
                EXPECT_THROW(run->logits(0), Error) << "what a failed forward left must not be read";
                EXPECT_THROW(run->residual(0), Error);
            }
            ASSERT_EQ(text_logits(*run, model.shape().vocab, kSteps), expected) << "after launch " << nth;
        }
    }
    EXPECT_GT(launches, 10) << "the text has prefill, a first decode row and a captured one";
}

TEST_P(Failures, ASampleThatWasNotLaunched) {
    const TinyModel model(config());
    const std::unique_ptr<Ops> ops = make_cuda_ops({.device = usable_devices().front()});
    TinyRun run(model, *ops, 4, 64);
    const auto sample = [&](bool fails) {
        const std::int32_t slot = 3;
        SamplingPlan plan;
        plan.key = {.seed = 3, .branch = 1, .index = 40};
        text_logits(run, model.shape().vocab, 1);
        cuda::fail_launch(fails ? 1 : 0);
        ops->sample(run.workspace(), {&plan, 1}, {&slot, 1});
        return ops->sampled(run.workspace(), slot).token;
    };
    const std::int32_t token = sample(false);
    within_a_minute("a token is awaited that was never sampled", [&] {
        EXPECT_THROW(sample(true), Error);
        EXPECT_THROW(ops->sampled(run.workspace(), 3), Error);
    });
    // The next forward finds the slot as it was: nothing awaits a token that was never sampled.
    within_a_minute("a slot after a failed sample", [&] {
        text_logits(run, model.shape().vocab, 1);
        EXPECT_EQ(ops->sampled(run.workspace(), 3).token, token);
    });
    EXPECT_EQ(sample(false), token);
}

// The 8-bit cache is expanded to float16 for prefill rows, in memory that is allocated during the forward.
TEST_P(Failures, OutOfMemoryDuringAForward) {
    if (GetParam().format != KvFormat::q8) GTEST_SKIP() << "this cache is not expanded";
    const TinyModel model(config());
    const std::unique_ptr<Ops> ops = make_cuda_ops({.device = usable_devices().front()});
    TinyRun run(model, *ops, 60000, 64), other(model, *ops, 4, 64);
    const std::vector<float> expected = text_logits(other, model.shape().vocab, kSteps);
    Sequence warm{{0}};
    feed(run, warm, random_tokens(5, 4, model.shape().vocab), {1});  // has all that decode rows need
    std::vector<cuda::DeviceBuffer<std::byte>> hogs;
    for (std::size_t bytes = std::size_t{1} << 38; bytes >= (std::size_t{1} << 20); bytes /= 2) {
        try {
            for (;;) hogs.emplace_back(bytes);
        } catch (const Error&) {
        }
    }
    EXPECT_THROW(text_logits(run, model.shape().vocab, kSteps), Error);
    // The other model's workspace needs no more memory, and the failed calls do not run with its forwards.
    EXPECT_EQ(text_logits(other, model.shape().vocab, kSteps), expected);
    hogs.clear();
    EXPECT_EQ(text_logits(run, model.shape().vocab, kSteps), expected);
}

INSTANTIATE_TEST_SUITE_P(cuda, Failures,
                         testing::Values(FailureCase{"f16", KvFormat::f16, false},
                                         FailureCase{"q8", KvFormat::q8, false},
                                         FailureCase{"q8_head_norms", KvFormat::q8, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace foresay::test
