// An engine on a list of devices: what lies where when memory is limited, many sequences, a draft on a device of its
// choice, a device that fails, and answers that are interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <utility>

#include "base/error.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "kernels/ops_decorator.h"
#include "kernels/split_ops.h"
#include "tests/app/program.h"
#include "tests/support/error_of.h"

namespace foresay::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMib = std::int64_t{1} << 20;
constexpr std::int32_t kLayers = 12;  // of the bundled target

core::Config load(const std::string& draft, const std::string& more) {
    const std::string target = testing::source("models/python-coder/target-q4_k_m.gguf");
    return load_config(testing::write_scratch(
        "devices.toml", "target.model = \"" + target + "\"\ndraft.model = \"" + draft +
                            "\"\ntarget.context = 256\nruntime.devices = [\"cpu\", \"reference\"]\n" +
                            "runtime.threads = 1\n" + more));
}
core::Config pair(const std::string& more = "") {
    return load(testing::source("models/python-coder/draft-q8_0.gguf"), more);
}
core::Config alone(const std::string& more) { return load("none", more); }

// The host as a card: with memory of its own, and the fastest of all.
class Card : public kernels::OpsDecorator {
public:
    explicit Card(const std::int64_t& free) : OpsDecorator(kernels::make_cpu_ops({1, ""})), free_(free) {}
    std::int64_t free_memory() const override { return free_; }
    double read_bandwidth() override { return 1e15; }

private:
    const std::int64_t& free_;
};

// One that keeps a layer of a cache of codes as it was, too.
class ExpandingCard final : public Card {
public:
    using Card::Card;
    std::int64_t expanded_kv_bytes(const kernels::KvShape&, std::int32_t, kernels::KvFormat format) const override {
        return format == kernels::KvFormat::f16 ? 0 : 10 * kMib;
    }
};

// The host, whose feed-forward networks may be made to fail.
class Failing final : public kernels::OpsDecorator {
public:
    explicit Failing(int& calls) : OpsDecorator(kernels::make_cpu_ops({1, ""})), calls_(calls) {}
    void mlp_in(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        if (calls_ > 0 && --calls_ == 0) throw Error("the device is lost");
        inner().mlp_in(op, workspace);
    }

private:
    int& calls_;  // until the one that fails; 0: none does
};

// An engine whose devices are `first` and the host.
template <class Device, class Argument>
EngineOptions beside_the_host(Argument& argument) {
    EngineOptions options;
    options.wrap_backend = [&argument](std::unique_ptr<kernels::Ops>) -> std::unique_ptr<kernels::Ops> {
        std::vector<std::shared_ptr<kernels::Ops>> devices = {std::make_shared<Device>(argument),
                                                              kernels::make_cpu_ops({1, ""})};
        return std::make_unique<kernels::SplitOps>(std::move(devices), std::vector<std::string>{"card", "host"});
    };
    return options;
}

std::int32_t contexts(const Engine& engine, std::int32_t sequences) {
    return engine.make_batch({.sequences = sequences, .keep_pages = false}).target().options().sequences;
}

std::vector<std::int32_t> answer(const Engine& engine, speculative::Generator& generator,
                                 const std::atomic<bool>* cancel = nullptr,
                                 std::function<bool(const speculative::TokenEvent&)> stop_when = {}) {
    generator.truncate(0);
    const std::vector<std::int32_t> prompt = engine.tokenizer().encode("def add(a, b):\n");
    return generator
        .generate({.input = prompt, .max_tokens = 24, .seed = 5, .cancel = cancel, .stop_when = std::move(stop_when)})
        .tokens;
}

// What is free on a card counts for the keys and values of its own layers, and not for those of all.
TEST(Devices, ACardNeedsRoomForTheKeysOfItsOwnLayers) {
    std::int64_t free = std::int64_t{1} << 40;
    const Engine engine = Engine::open(alone("runtime.device_layers = [1, 11]\n"), beside_the_host<Card>(free));
    const std::int64_t all =
        engine.ops().kv_bytes(engine.target().kv_shape(), 256 / kernels::kPagePositions, kernels::KvFormat::f16);
    free = 2 * all;  // for all layers of one context, by half of it
    EXPECT_EQ(contexts(engine, 64), kLayers);
    free = 20 * all;
    EXPECT_EQ(contexts(engine, 64), 64);
    free = 0;
    EXPECT_EQ(contexts(engine, 64), 1);
}

TEST(Devices, ACacheOfCodesNeedsALayerMoreThatPromptsRead) {
    std::int64_t free = std::int64_t{1} << 40;
    const auto bytes = [&](const auto& options, const std::string& cache) {
        const std::string more = "runtime.device_layers = [6, 6]\nruntime.kv_cache = \"" + cache + "\"\n";
        return Engine::open(alone(more), options).placement()[0].bytes;
    };
    const EngineOptions plain = beside_the_host<Card>(free), expanding = beside_the_host<ExpandingCard>(free);
    EXPECT_EQ(bytes(expanding, "q8"), bytes(plain, "q8") + 10 * kMib);
    EXPECT_EQ(bytes(expanding, "f16"), bytes(plain, "f16"));
}

// Layers make room for the sequences that will run, and fewer of these run where all do not fit.
TEST(Devices, LayersLeaveRoomForSequences) {
    std::int64_t free = (512 + 60) * kMib;
    const auto open = [&](std::int32_t sequences, const std::string& more = "") {
        EngineOptions options = beside_the_host<Card>(free);
        options.sequences = sequences;
        return Engine::open(alone(more), options);
    };
    const Engine one = open(1), many = open(64);
    EXPECT_EQ(one.placement()[0].count, kLayers);
    EXPECT_GT(many.placement()[0].count, 0);
    EXPECT_LT(many.placement()[0].count, kLayers / 2);
    free = 0;  // the rest went elsewhere
    EXPECT_EQ(contexts(many, 64), 64);
    EXPECT_EQ(contexts(one, 64), 1);
    // All layers on the card: fewer contexts.
    free = (512 + 60) * kMib;
    const Engine whole = open(64, "runtime.device_layers = [12, 0]\n");
    free = 0;
    EXPECT_GE(contexts(whole, 64), 2);
    EXPECT_LT(contexts(whole, 64), 32);
}

TEST(Devices, AreLimited) {
    EngineOptions options;
    options.weights = false;
    const std::string limit = "runtime.device_mib = [30, 0]\n";
    const Engine engine = Engine::open(alone(limit), options);
    EXPECT_LE(engine.placement()[0].bytes, 30 * kMib);
    EXPECT_GT(engine.placement()[1].count, 0);
    options.sequences = 64;
    EXPECT_LT(Engine::open(alone(limit), options).placement()[0].count, engine.placement()[0].count);
    options.sequences = 1;
    EXPECT_THAT(test::error_of([&] { Engine::open(alone("runtime.device_mib = [5, 6]\n"), options); }),
                AllOf(HasSubstr("devices.toml:"), HasSubstr("and there are 5 MiB on cpu, 6 MiB on reference; use")));
    EXPECT_THAT(test::error_of([&] { Engine::open(pair("runtime.device_mib = [2, 0]\n"), options); }),
                HasSubstr("the draft does not fit: it needs "));
    EXPECT_THAT(test::error_of([&] {
                    Engine::open(pair("runtime.device_mib = [20, 0]\nruntime.device_layers = [12, 0]\n"), options);
                }),
                HasSubstr("12 layers of "));
    // A limit on what is loaded is one on the contexts of a batch.
    options.weights = true;
    const Engine limited =
        Engine::open(alone("runtime.device_mib = [64, 0]\nruntime.device_layers = [12, 0]\n"), options);
    EXPECT_GE(contexts(limited, 64), 2);
    EXPECT_LT(contexts(limited, 64), 32);
}

TEST(Devices, ADraftIsWhereItIsToBe) {
    EXPECT_EQ(Engine::open(pair()).draft()->config().shape.devices, 1u);
    const Engine other = Engine::open(pair("draft.device = \"reference\"\nruntime.device_layers = [12, 0]\n"));
    EXPECT_EQ(other.draft()->config().shape.devices, 2u);
    EXPECT_EQ(other.target().config().shape.devices, 1u);
    Engine moved = Engine::open(pair("runtime.device_layers = [12, 0]\n"));
    EXPECT_TRUE(moved.needs_reload(pair("draft.device = \"reference\"\nruntime.device_layers = [12, 0]\n")));
    speculative::Generator generator = other.make_generator();
    speculative::Generator expected = moved.make_generator();
    EXPECT_EQ(answer(other, generator), answer(moved, expected));
}

// Predictions come from what was measured, for who asks before anything is loaded.
TEST(Devices, ThePredictionIsWhatTheLayersRead) {
    EngineOptions options;
    options.weights = false;
    std::int64_t free = std::int64_t{1} << 40;
    options.wrap_backend = beside_the_host<Card>(free).wrap_backend;
    const Engine engine = Engine::open(pair("runtime.device_layers = [12, 0]\n"), options);
    EXPECT_GT(engine.placement()[0].read, 20 * kMib);
    EXPECT_DOUBLE_EQ(engine.placement()[0].seconds, static_cast<double>(engine.placement()[0].read) / 1e15);
    EXPECT_DOUBLE_EQ(engine.read_bandwidth(), 1e15);
    EXPECT_LT(Engine::open(pair("runtime.device_layers = [6, 6]\n"), options).read_bandwidth(), 1e13);
    EXPECT_EQ(engine.placement()[1].read, 0);
}

// The sentence names the device, and the next answer is what it would have been.
TEST(Devices, AFailureIsNamedAndTheNextAnswerComes) {
    int calls = 0;
    const Engine engine = Engine::open(pair("runtime.device_layers = [6, 6]\n"), beside_the_host<Failing>(calls));
    speculative::Generator generator = engine.make_generator();
    const std::vector<std::int32_t> expected = answer(engine, generator);
    for (const int call : {1, 5, 6, 7, 40}) {
        calls = call;
        EXPECT_EQ(test::error_of([&] { answer(engine, generator); }), "card: the device is lost") << call;
        calls = 0;
        EXPECT_EQ(answer(engine, generator), expected) << call;
    }
}

TEST(Devices, InterruptedAnswersLeaveNothing) {
    int calls = 0;
    const Engine engine = Engine::open(pair("runtime.device_layers = [6, 6]\n"), beside_the_host<Failing>(calls));
    speculative::Generator generator = engine.make_generator();
    const std::vector<std::int32_t> expected = answer(engine, generator);
    std::mt19937 random(3);
    for (int turn = 0; turn < 60; ++turn) {
        std::atomic<bool> cancel{turn % 7 == 0};
        int left = static_cast<int>(random() % 6);
        const std::vector<std::int32_t> begun = answer(engine, generator, &cancel, [&](const speculative::TokenEvent&) {
            if (left-- == 0) cancel = true;
            return false;
        });
        ASSERT_LE(begun.size(), expected.size());
        EXPECT_TRUE(std::equal(begun.begin(), begun.end(), expected.begin())) << turn;
    }
    EXPECT_EQ(answer(engine, generator), expected);
}

}  // namespace
}  // namespace foresay::engine
