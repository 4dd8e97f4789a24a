// An engine whose devices divide each layer: the text of one, shares by memory, limits, a rank that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "kernels/divided_ops.h"
#include "tests/app/program.h"
#include "tests/models/sharing_ops.h"
#include "tests/support/error_of.h"

namespace foresay::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::int64_t kMib = std::int64_t{1} << 20;

core::Config load(const std::string& more, const std::string& draft = "none") {
    const std::string target = testing::source("models/python-coder/target-q4_k_m.gguf");
    return load_config(
        testing::write_scratch("ranks.toml", "target.model = \"" + target + "\"\ndraft.model = \"" + draft +
                                                 "\"\ntarget.context = 256\nruntime.threads = 1\n" + more));
}
core::Config divided(const std::string& more = "", const std::string& draft = "none") {
    return load("runtime.devices = [\"cpu\", \"cpu\"]\nruntime.split_mode = \"row\"\n" + more, draft);
}
const std::string kDraft = testing::source("models/python-coder/draft-q8_0.gguf");

std::vector<std::int32_t> answer(const Engine& engine, speculative::Generator& generator) {
    generator.truncate(0);
    const std::vector<std::int32_t> prompt = engine.tokenizer().encode("def add(a, b):\n");
    return generator.generate({.input = prompt, .max_tokens = 24, .seed = 5}).tokens;
}
std::vector<std::int32_t> answer(const Engine& engine) {
    speculative::Generator generator = engine.make_generator();
    return answer(engine, generator);
}

// The host as a card with memory of its own; its feed-forward networks may be made to fail.
class Card final : public test::SharingOps {
public:
    Card(kernels::Ops& inner, const std::int64_t& free, int& calls) : SharingOps(inner), free_(free), calls_(calls) {}
    std::int64_t free_memory() const override { return free_; }
    double read_bandwidth() override { return 1e15; }
    kernels::LinkWay link(std::span<kernels::LayerShare* const>) override { return kernels::LinkWay::peer_access; }
    std::string why_not_linked(const kernels::LinkFacts& facts, kernels::KvFormat cache) const override {
        for (const kernels::QuantType type : facts.types) {
            if (type == kernels::QuantType::bf16) return "weights in bf16 are not linked";
        }
        return cache == kernels::KvFormat::q8 ? "a KV cache in q8 is not linked" : "";
    }
    void mlp_in(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        if (calls_ > 0 && --calls_ == 0) throw Error("the device is lost");
        inner().mlp_in(op, workspace);
    }

private:
    const std::int64_t& free_;
    int& calls_;  // until the one that fails; 0: none does
};

struct Cards {
    std::int64_t free[2] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
    int calls[2] = {};
    bool link = false;
    std::unique_ptr<kernels::Ops> host = kernels::make_cpu_ops({1, ""});

    EngineOptions options(bool weights = true) {
        EngineOptions options;
        options.weights = weights;
        options.wrap_backend = [this](std::unique_ptr<kernels::Ops>) -> std::unique_ptr<kernels::Ops> {
            std::vector<std::shared_ptr<kernels::Ops>> ranks;
            for (int r = 0; r < 2; ++r) ranks.push_back(std::make_shared<Card>(*host, free[r], calls[r]));
            return std::make_unique<kernels::DividedOps>(
                std::move(ranks), kernels::DividedOptions{.names = {"cuda:0", "cuda:1"}, .shares = {}, .link = link});
        };
        return options;
    }
};

std::vector<std::int32_t> shares(const Engine& engine) {
    return dynamic_cast<const kernels::DividedOps&>(engine.ops()).shares();
}

TEST(Ranks, GiveTheTextOfOneDevice) {
    const std::vector<std::int32_t> expected = answer(Engine::open(load("runtime.device = \"cpu\"\n")));
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(answer(Engine::open(divided())), expected);
    EXPECT_EQ(answer(Engine::open(divided("runtime.device_shares = [1, 2]\n"))), expected);
    const Engine pair = Engine::open(divided("runtime.device_shares = [2, 1]\n", kDraft));
    EXPECT_EQ(answer(pair), expected);
    EXPECT_EQ(pair.draft()->config().shape.devices, 1u);
    EXPECT_EQ(pair.target().config().shape.devices, 3u);
    EXPECT_EQ(pair.placement()[1].count, 12);
    EXPECT_THAT(pair.placement()[1].share, HasSubstr("KV heads"));
}

// Pages of the two lie otherwise in a file; a session goes on with either.
TEST(Ranks, ShareTheLawOfOneDeviceAndNotItsPages) {
    const Engine one = Engine::open(load("runtime.device = \"cpu\"\n")), two = Engine::open(divided());
    EXPECT_EQ(one.instruction_set(), two.instruction_set());
    EXPECT_NE(one.page_fingerprint(), two.page_fingerprint());
    Engine reloaded = Engine::open(divided());
    EXPECT_TRUE(reloaded.needs_reload(divided("runtime.device_shares = [1, 2]\n")));
}

TEST(Ranks, HaveEqualSharesWhereThereIsRoom) {
    Cards cards;
    EXPECT_THAT(shares(Engine::open(divided(), cards.options(false))), ElementsAre(1, 1));
    cards.free[0] = std::int64_t{1} << 38;
    EXPECT_THAT(shares(Engine::open(divided(), cards.options(false))), ElementsAre(1, 1));
    EXPECT_THAT(shares(Engine::open(divided("runtime.device_shares = [1, 3]\n"), cards.options(false))),
                ElementsAre(1, 3));
}

TEST(Ranks, HaveSharesByTheirMemoryElse) {
    Cards cards;
    cards.free[0] = (512 + 20) * kMib;
    cards.free[1] = (512 + 200) * kMib;
    const Engine engine = Engine::open(divided(), cards.options(false));
    EXPECT_THAT(shares(engine), ElementsAre(20, 200));
    EXPECT_LT(engine.placement()[0].bytes, 20 * kMib);
    EXPECT_GT(engine.placement()[1].bytes, engine.placement()[0].bytes);
    EXPECT_GT(engine.placement()[1].read, 4 * engine.placement()[0].read);
}

TEST(Ranks, SayWhatDoesNotFit) {
    Cards cards;
    cards.free[0] = cards.free[1] = (512 + 3) * kMib;
    EXPECT_THAT(test::error_of([&] { Engine::open(divided(), cards.options(false)); }),
                AllOf(HasSubstr("ranks.toml:"), HasSubstr(" that cpu has needs "),
                      HasSubstr("and 3.0 MiB are free; use other runtime.device_shares")));
    cards = {};
    EXPECT_THAT(test::error_of([&] {
                    Engine::open(divided("runtime.device_mib = [0, 4]\nruntime.device_shares = [1, 1]\n"),
                                 cards.options(false));
                }),
                AllOf(HasSubstr("ranks.toml:"), HasSubstr(" that cpu has needs "), HasSubstr("and 4.0 MiB are free")));
}

TEST(Ranks, AreOfOneKindAndNotTooMany) {
    const auto problem = [](const std::string& text) {
        return test::error_of([&] { load("runtime.split_mode = \"row\"\n" + text); });
    };
    EXPECT_THAT(
        problem("runtime.devices = [\"cpu\", \"cuda:0\"]\n"),
        HasSubstr("'runtime.split_mode' row needs devices of one kind, and 'runtime.devices' has cpu and cuda:0"));
    EXPECT_THAT(problem("runtime.devices = [\"cpu\", \"cpu\"]\nruntime.device_layers = [6, 6]\n"),
                HasSubstr("with row use 'runtime.device_shares'"));
    EXPECT_THAT(problem("runtime.devices = [\"cpu\", \"cpu\"]\nruntime.device_shares = [0, 0]\n"),
                HasSubstr("gives nothing to any device"));
    EXPECT_THAT(problem("runtime.devices = [\"cpu\", \"cpu\"]\nruntime.device_shares = [1, 1, 1]\n"),
                HasSubstr("'runtime.device_shares' has 3 numbers and 'runtime.devices' 2 devices"));
    std::string nine = "\"cpu\"";
    for (int i = 0; i < 8; ++i) nine += ", \"cpu\"";
    EXPECT_THAT(problem("runtime.devices = [" + nine + "]\n"), HasSubstr("is for at most 8 devices"));
    EXPECT_THAT(test::error_of([] { load("runtime.devices = [\"cpu\", \"cpu\"]\n"); }), HasSubstr("names cpu twice"));
    EXPECT_THAT(
        test::error_of([] {
            Engine::open(load("runtime.split_mode = \"row\"\nruntime.devices = [\"reference\", \"reference\"]\n"));
        }),
        HasSubstr("reference cannot share layers with other devices"));
    EXPECT_THAT(problem("runtime.devices = [\"cpu\", \"cpu\"]\nruntime.row_handover = \"links\"\n"),
                HasSubstr("'runtime.row_handover' must be one of auto, link, copy"));
    EXPECT_THAT(test::error_of([] { Engine::open(divided("runtime.row_handover = \"link\"\n")); }),
                HasSubstr("'runtime.row_handover' link needs GPUs, and cpu and the others"));
}

// Without weights as `inspect`, and after a step as `/show model`.
TEST(Ranks, AreSaidToBeLinkedWhereTheyAre) {
    Cards cards;
    EXPECT_THAT(Engine::open(divided(), cards.options(false)).backend(), EndsWith("1 thread)")) << "nothing was to be";
    cards.link = true;
    EXPECT_THAT(Engine::open(divided(), cards.options(false)).backend(), EndsWith(", linked"));
    EXPECT_THAT(Engine::open(divided("runtime.kv_cache = \"q8\"\n"), cards.options(false)).backend(),
                EndsWith(", by copies (a KV cache in q8 is not linked)"));
    const auto random = [&](const std::string& shape, const std::string& type) {
        EngineOptions options = cards.options(false);
        options.tokenizer = false;
        options.random_target = {shape, type};
        core::Config config = divided();
        config.target_model.clear();
        return Engine::open(config, options).backend();
    };
    EXPECT_THAT(random("llama-3.2-1b", "q4_0"), EndsWith(", linked"));
    EXPECT_THAT(random("llama-3.2-1b", "bf16"), EndsWith(", by copies (weights in bf16 are not linked)"));
    EXPECT_THAT(random("qwen3-30b-a3b", "q4_0"), EndsWith(", by copies (mixtures of experts are not linked)"));
    // The cards refuse each step, which is seen then.
    const Engine engine = Engine::open(divided(), cards.options());
    EXPECT_THAT(engine.backend(), EndsWith(", linked"));
    answer(engine);
    EXPECT_THAT(engine.backend(), EndsWith(", by copies (the layers of this model cannot be linked)"));
}

TEST(Ranks, AnotherHandoverIsAnotherBackend) {
    EXPECT_TRUE(Engine::open(divided()).needs_reload(divided("runtime.row_handover = \"copy\"\n")));
}

// The sentence names the device, and the next answer is what it would have been.
TEST(Ranks, AFailureIsNamedAndTheNextAnswerComes) {
    Cards cards;
    const Engine engine = Engine::open(divided("", kDraft), cards.options());
    speculative::Generator generator = engine.make_generator();
    const std::vector<std::int32_t> expected = answer(engine, generator);
    for (const int call : {1, 5, 12, 40}) {
        cards.calls[1] = call;
        EXPECT_EQ(test::error_of([&] { answer(engine, generator); }), "cuda:1: the device is lost") << call;
        cards.calls[1] = 0;
        EXPECT_EQ(answer(engine, generator), expected) << call;
    }
}

}  // namespace
}  // namespace foresay::engine
