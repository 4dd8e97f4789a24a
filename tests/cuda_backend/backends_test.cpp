// Several CUDA backends in one process, on one device and on two, used from any thread.

#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/divided_ops.h"
#include "kernels/split_ops.h"
#include "tests/cuda_backend/device_runs.h"
#include "tests/kernels/law_case.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::size_t kSteps = 60;

// A backend with a model on it.
struct Loaded {
    std::unique_ptr<Ops> ops;
    std::optional<TinyRun> run;

    Loaded(const TinyModel& model, int device) : ops(make_cuda_ops({.device = device})) {
        run.emplace(model, *ops, 4, 64);
    }
};

// What a backend computes when it is the only one.
std::vector<float> logits_of(const TinyModel& model, int device) {
    Loaded loaded(model, device);
    return text_logits(*loaded.run, model.shape().vocab, kSteps);
}

int current() {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
}

// Layers whose matrices have several K-quants are one launch, too (linear_sequence.cpp): with the bits of ops that run
// one after the other, and of rows alone.
TEST(Backends, cuda_MixesOfTypesAreOneLaunch) {
    SKIP_WITHOUT_CUDA();
    struct Mix {
        QuantType most, more;
        std::uint32_t layers;
        bool post_norms;
    };
    for (const Mix& mix :
         {Mix{QuantType::q4_k, QuantType::q6_k, 0b100101, false}, Mix{QuantType::q5_k, QuantType::q6_k, 0b010010, true},
          Mix{QuantType::q4_k, QuantType::q5_k, 0b111011, false}}) {
        SCOPED_TRACE(std::string(info(mix.most).name) + " and " + std::string(info(mix.more).name));
        TinyConfig config = fused_config();
        config.linear(mix.most);
        config.shape.vocab = 53;
        config.more = mix.more;
        config.more_layers = mix.layers;
        config.post_norms = mix.post_norms;
        const TinyModel model(config);
        const auto tokens = random_tokens(5, 32, config.shape.vocab);
        const auto rows_of = [&](Ops& ops, std::size_t width) {
            TinyRun run(model, ops, 1, 16);
            Sequence sequence{{0}};
            return feed(run, sequence, tokens, {width});
        };
        const auto alone = rows_of(cuda_ops(), 1), expected = rows_of(reference_ops(), 16);
        for (std::size_t t = 0; t < alone.size(); ++t) {
            double error = 0.0, size = 0.0;
            for (std::size_t i = 0; i < alone[t].logits.size(); ++i) {
                error += std::pow(static_cast<double>(alone[t].logits[i]) - expected[t].logits[i], 2);
                size += std::pow(static_cast<double>(expected[t].logits[i]), 2);
            }
            EXPECT_LE(error, 1e-5 * size) << "row " << t;
        }
        for (const std::size_t width : {3, 8, 16}) {
            ASSERT_NO_FATAL_FAILURE(expect_same_bits(alone, rows_of(cuda_ops(), width)));
        }
        // Each half of a layer by itself.
        TinyRun run(model, cuda_ops(), 1, 16);
        const std::vector<std::int32_t> pages = {0};
        for (std::int32_t first = 0; first < 32; first += 16) {
            std::vector<Row> rows;
            for (std::int32_t t = first; t < first + 16; ++t) {
                rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(t)]), t});
            }
            const SequenceView view = {pages, first};
            run.begin({RowClass::decode, false, rows, {&view, 1}, {}});
            run.embed();
            for (std::int32_t layer = 0; layer < config.shape.layers; ++layer) {
                run.attention(layer);
                run.residual(0);
                run.mlp(layer);
                run.residual(0);
            }
            for (std::int32_t t = 0; t < 16; ++t) {
                const auto &found = run.residual(t), &whole = alone[static_cast<std::size_t>(first + t)].residual;
                ASSERT_EQ(std::memcmp(found.data(), whole.data(), whole.size() * sizeof(float)), 0) << first + t;
            }
        }
    }
}

TEST(Backends, cuda_TwoOfOneDeviceInTwoThreads) {
    SKIP_WITHOUT_CUDA();
    within_a_minute("two backends of one device", [] {
        const TinyModel model(fused_config());
        const int device = usable_devices().front();
        const std::vector<float> expected = logits_of(model, device);
        const auto work = [&] {
            Loaded loaded(model, device);
            for (int i = 0; i < 20; ++i) {
                ASSERT_EQ(text_logits(*loaded.run, model.shape().vocab, kSteps), expected) << "text " << i;
            }
        };
        std::future<void> one = std::async(std::launch::async, work), two = std::async(std::launch::async, work);
        one.get();
        two.get();
    });
}

TEST(Backends, cuda_TwoOfOneDeviceAlternating) {
    SKIP_WITHOUT_CUDA();
    within_a_minute("two backends of one device, alternating", [] {
        const TinyModel model(fused_config());
        const int device = usable_devices().front();
        Loaded one(model, device);
        const std::vector<float> expected = text_logits(*one.run, model.shape().vocab, kSteps);
        for (int i = 0; i < 5; ++i) {
            Loaded two(model, device);
            EXPECT_EQ(text_logits(*two.run, model.shape().vocab, kSteps), expected);
            EXPECT_EQ(text_logits(*one.run, model.shape().vocab, kSteps), expected);
        }
    });
}

TEST(Backends, cuda_AnUnfinishedForwardDiesWithItsWorkspace) {
    SKIP_WITHOUT_CUDA();
    const TinyModel model(fused_config());
    Loaded loaded(model, usable_devices().front());
    const std::vector<float> expected = text_logits(*loaded.run, model.shape().vocab, 2);
    {
        TinyRun other(model, *loaded.ops, 4, 64);
        const std::vector<std::int32_t> pages = {0};
        const Row row{.token = TokenRef::id(1), .position = 0};
        const SequenceView view{pages, 0};
        other.begin({.rows = {&row, 1}, .sequences = {&view, 1}});
        other.embed();
        other.keep(0);
    }
    EXPECT_EQ(text_logits(*loaded.run, model.shape().vocab, 2), expected);
}

TEST(Backends, cuda_TwoDevicesAreAlikeInAnyThread) {
    SKIP_WITHOUT_TWO_DEVICES();
    within_a_minute("a device that is not the thread's", [] {
        const std::vector<int> devices = usable_devices();
        const TinyModel model(fused_config());
        const int before = current();
        const std::vector<float> expected = logits_of(model, devices[0]);
        Loaded second(model, devices[1]);
        EXPECT_EQ(current(), before);
        // Whichever device is current, and in a thread that has never chosen one.
        for (const int chosen : {devices[0], devices[1]}) {
            ASSERT_EQ(cudaSetDevice(chosen), cudaSuccess);
            EXPECT_EQ(text_logits(*second.run, model.shape().vocab, kSteps), expected);
            EXPECT_EQ(current(), chosen);
        }
        ASSERT_EQ(cudaSetDevice(before), cudaSuccess);
        std::async(std::launch::async, [&] {
            const int fresh = current();
            EXPECT_EQ(text_logits(*second.run, model.shape().vocab, kSteps), expected);
            EXPECT_EQ(current(), fresh);
            TinyRun other(model, *second.ops, 4, 64);
            EXPECT_EQ(text_logits(other, model.shape().vocab, kSteps), expected);
        }).get();
    });
}

TEST(Backends, cuda_TwoDevicesAtOnce) {
    SKIP_WITHOUT_TWO_DEVICES();
    within_a_minute("two devices", [] {
        const std::vector<int> devices = usable_devices();
        const TinyModel model(fused_config());
        Loaded one(model, devices[0]), two(model, devices[1]);
        const std::vector<float> expected = text_logits(*one.run, model.shape().vocab, kSteps);
        EXPECT_EQ(text_logits(*two.run, model.shape().vocab, kSteps), expected);
        const auto work = [&](Loaded& loaded) {
            for (int i = 0; i < 10; ++i) {
                ASSERT_EQ(text_logits(*loaded.run, model.shape().vocab, kSteps), expected) << "text " << i;
            }
        };
        std::future<void> first = std::async(std::launch::async, work, std::ref(one));
        work(two);
        first.get();
    });
}

// What decides which rows of a text are decode rows: a device named twice makes the text of that device.
TEST(Backends, cuda_AListHasTheShortTextsOfItsDevice) {
    SKIP_WITHOUT_CUDA();
    const std::shared_ptr<Ops> one = make_cuda_ops({}), other = make_cuda_ops({});
    EXPECT_EQ(SplitOps({one, other}).reads_weights_once(), one->reads_weights_once());
    EXPECT_EQ(DividedOps({one, other}).reads_weights_once(), one->reads_weights_once());
}

TEST(Backends, cuda_TwoDevicesAndMemoryOfOneFreedFromTheOther) {
    SKIP_WITHOUT_TWO_DEVICES();
    const std::vector<int> devices = usable_devices();
    const TinyModel model(fused_config());
    const std::unique_ptr<Ops> ops = make_cuda_ops({.device = devices[1]});
    { TinyRun warm(model, *ops, 4, 64); }
    ASSERT_EQ(cudaSetDevice(devices[0]), cudaSuccess);
    const std::int64_t free = ops->free_memory();
    for (int i = 0; i < 8; ++i) {
        std::unique_ptr<KvPages> kv = ops->allocate_kv(model.shape(), 20000, KvFormat::f16);
        EXPECT_LT(ops->free_memory(), free - (std::int64_t{1} << 30));
        kv.reset();
        EXPECT_GE(ops->free_memory(), free);
        EXPECT_EQ(current(), devices[0]);
    }
}

}  // namespace
}  // namespace foresay::test
