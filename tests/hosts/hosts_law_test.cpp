// An engine over two hosts, rank 0 in this process: logits, keys and values have the bits of one host, whatever a cache
// does with its pages, and many texts at once have the bytes that each has alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/engine_loop.h"
#include "engine/hosts/hosts.h"
#include "tests/app/program.h"
#include "tests/hosts/free_port.h"
#include "tests/laws/rows.h"
#include "tests/support/error_of.h"

namespace foresay::engine {
namespace {

using kernels::RowClass;
using ::testing::HasSubstr;

core::Config config(const std::string& name, const std::string& more) {
    return load_config(testing::write_scratch(
        name, "target.model = \"" + testing::source("models/python-coder/target-q4_k_m.gguf") + "\"\ndraft.model = \"" +
                  testing::source("models/python-coder/draft-q8_0.gguf") +
                  "\"\ntarget.context = 256\nruntime.device = \"cpu\"\nruntime.threads = 1\n" +
                  "sampling.temperature.value = 0.8\n" + more));
}

// Two ranks, of which the second is the program. It ends with this object.
class TwoHosts {
public:
    explicit TwoHosts(const std::string& more = "") : config(engine::config("hosts.toml", kLayers + more)) {
        ::setenv("FORESAY_NCCL", FORESAY_NCCL_DOUBLE, 1);
        Launch launch{.rank = 0, .size = 2, .host = "127.0.0.1", .port = testing::free_port(), .seconds = 50.0};
        testing::Call call;
        call.arguments = {"complete", (testing::scratch() / "hosts.toml").string(), "-p", "a"};
        call.environment = {{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"MASTER_ADDR", launch.host},
                            {"MASTER_PORT", std::to_string(launch.port)},
                            {"FORESAY_HOST_WAIT", "50"}};
        other_ = std::thread([this, call] { outcome = testing::run(call); });
        hosts = Hosts::join(launch, config, FORESAY_VERSION);
    }
    ~TwoHosts() {
        hosts.reset();
        other_.join();
        EXPECT_EQ(outcome.status, 0) << outcome.error;
    }
    EngineOptions options() const {
        EngineOptions options;
        options.hosts = hosts;
        options.sequences = 4;
        return options;
    }

    core::Config config;
    std::shared_ptr<Hosts> hosts;
    testing::Outcome outcome;

private:
    static constexpr const char* kLayers = "runtime.host_layers = [4, 8]\n";
    std::thread other_;
};

struct Outcome {
    test::Rows logits;
    std::vector<std::byte> pages;
    std::vector<float> residual;
    bool operator==(const Outcome&) const = default;
};

std::vector<std::vector<std::byte>> pages_of(core::Context& context, core::SequenceId sequence) {
    kernels::KvPages& kv = context.cache().pages();
    const auto bytes = static_cast<std::size_t>(context.ops().kv_bytes(kv.shape, 1, kv.format));
    std::vector<std::vector<std::byte>> all;
    for (const std::int32_t page : context.cache().view(sequence).pages) {
        all.emplace_back(bytes);
        context.ops().read_page(kv, page, all.back());
    }
    return all;
}

// Given and generated text, several widths, a branch that copies a page, tokens that are taken back, pages that come
// back into another cache.
Outcome play(const Engine& engine) {
    const core::ContextOptions options{
        .length = 128, .prefill_rows = 64, .decode_rows = 64, .sequences = 2, .kv_format = engine.config().kv_format};
    core::Context context(engine.shared_target(), options), other(engine.shared_target(), options);
    const std::vector<std::int32_t> tokens = test::random_tokens(80, engine.target().config().shape.vocab, 5);
    Outcome outcome;
    EXPECT_TRUE(context.prefill(tokens));
    context.truncate(70);
    test::feed(context, RowClass::decode, std::span(tokens).first(9), {4, 1}, outcome.logits);
    const core::SequenceId fork = context.fork(0);
    test::feed(context, RowClass::decode, std::span(tokens).last(9), {9}, outcome.logits, fork);
    test::feed(context, RowClass::decode, std::span(tokens).last(8), {1}, outcome.logits);
    const std::span<const float> last = context.ops().residual(context.workspace(), 0);
    outcome.residual.assign(last.begin(), last.end());
    const auto kept = pages_of(context, 0);
    EXPECT_EQ(other.cache().reserve(0, context.length()), core::Reserve::ok);
    for (std::size_t i = 0; i < kept.size(); ++i) {
        other.ops().write_page(other.cache().pages(), other.cache().view(0).pages[i], kept[i]);
        outcome.pages.insert(outcome.pages.end(), kept[i].begin(), kept[i].end());
    }
    other.cache().commit(0, context.length());
    test::feed(other, RowClass::decode, std::span(tokens).first(20), {7, 13}, outcome.logits);
    test::feed(context, RowClass::decode, std::span(tokens).first(20), {20}, outcome.logits);
    return outcome;
}

TEST(HostsLaw, BitsAreThoseOfOneHost) {
    for (const std::string format : {"f16", "q8"}) {
        const std::string kv = "runtime.kv_cache = \"" + format + "\"\n";
        const Outcome alone = play(Engine::open(config("alone.toml", kv)));
        const TwoHosts two(kv);
        const Engine engine = Engine::open(two.config, two.options());
        EXPECT_THAT(engine.backend(), HasSubstr("layers 0-3 on cpu ("));
        EXPECT_THAT(engine.backend(), HasSubstr("4-11 on cpu ("));
        EXPECT_THAT(engine.backend(), HasSubstr("rank 1"));
        const Outcome shared = play(engine);
        EXPECT_TRUE(shared.logits == alone.logits) << format;
        EXPECT_TRUE(shared.pages == alone.pages) << format;
        EXPECT_TRUE(shared.residual == alone.residual) << format;
    }
}

// Keeps one answer of a batch.
class Answer final : public Sink {
public:
    void token(const speculative::TokenEvent&) override {}
    void end(const BatchEnd& end) override {
        EXPECT_EQ(end.error, "");
        text_.set_value(end.result.tokens);
    }
    std::vector<std::int32_t> tokens() { return text_.get_future().get(); }

private:
    std::promise<std::vector<std::int32_t>> text_;
};

TEST(HostsLaw, ManyTextsAreThoseOfOneHostAlone) {
    const std::vector<std::string> prompts = {"def add(a, b):\n", "class Stack:\n    def", "import os\n",
                                              "def add(a, b):\n    # sum"};
    std::vector<std::vector<std::int32_t>> expected, got;
    {
        const Engine alone = Engine::open(config("alone.toml", "speculation.mode = \"off\"\n"));
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            speculative::Generator generator = alone.make_generator();
            const std::vector<std::int32_t> prompt = alone.tokenizer().encode(prompts[i]);
            expected.push_back(generator.generate({.input = prompt, .max_tokens = 24, .seed = 7 + i}).tokens);
        }
    }
    const TwoHosts two;
    const Engine engine = Engine::open(two.config, two.options());
    EngineLoop loop(engine, {.sequences = 4});
    std::vector<std::shared_ptr<Answer>> answers;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        BatchRequest request;
        request.input = engine.tokenizer().encode(prompts[i]);
        request.max_tokens = 24;
        request.seed = 7 + i;
        answers.push_back(std::make_shared<Answer>());
        loop.add(std::move(request), answers.back());
    }
    for (const std::shared_ptr<Answer>& answer : answers) got.push_back(answer->tokens());
    EXPECT_EQ(got, expected);
    EXPECT_FALSE(got[0].empty());
}

// Sessions go on with one host or several of the same kind; pages of a cache that were laid out otherwise do not.
TEST(HostsLaw, SharesTheLawOfOneHostAndNotItsPages) {
    const Engine alone = Engine::open(config("alone.toml", ""));
    TwoHosts two;
    Engine engine = Engine::open(two.config, two.options());
    EXPECT_EQ(engine.instruction_set(), alone.instruction_set());
    EXPECT_NE(engine.page_fingerprint(), alone.page_fingerprint());
    EXPECT_GT(engine.read_bandwidth(), 0.0);
    // Another split of the same ranks, and the text is the same.
    const auto text = [](const Engine& of) {
        speculative::Generator generator = of.make_generator();
        const std::vector<std::int32_t> prompt = of.tokenizer().encode("def add(a, b):\n");
        return generator.generate({.input = prompt, .max_tokens = 12, .seed = 5}).tokens;
    };
    const auto expected = text(engine);
    EXPECT_EQ(text(alone), expected);
    core::Config next = engine::config("next.toml", "runtime.host_layers = [11, 1]\n");
    ASSERT_TRUE(engine.needs_reload(next));
    engine.reload(next, [] {});
    EXPECT_EQ(engine.placement()[1].count, 1);
    EXPECT_EQ(text(engine), expected);
    // None on rank 0: the embedding and all layers are elsewhere.
    next = engine::config("next.toml", "runtime.host_layers = [0, 12]\n");
    engine.reload(next, [] {});
    EXPECT_EQ(text(engine), expected);
}

// What another host cannot do is an error of that turn.
TEST(HostsLaw, AnErrorOfAnotherHostIsNamed) {
    const TwoHosts two;
    kernels::Message request(kernels::MessageKind::copy_page);
    request.put(std::int32_t{99}).put(std::int32_t{0}).put(std::int32_t{0});
    EXPECT_THAT(test::error_of([&] { two.hosts->group().ask(1, request); }),
                ::testing::AllOf(HasSubstr("rank 1 ("), HasSubstr("a request is wrong: an unknown id")));
    request.clear(kernels::MessageKind::load_status);
    EXPECT_FALSE(two.hosts->group().ask(1, request).get<kernels::LoadStatus>().done);
}

TEST(HostsLaw, RefusesAnotherVersion) {
    ::setenv("FORESAY_NCCL", FORESAY_NCCL_DOUBLE, 1);
    Launch launch{.rank = 0, .size = 2, .host = "127.0.0.1", .port = testing::free_port(), .seconds = 50.0};
    testing::Call call;
    call.arguments = {"complete", "-p", "a", "--device", "cpu"};
    call.environment = {{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"MASTER_ADDR", launch.host},
                        {"MASTER_PORT", std::to_string(launch.port)},
                        {"FORESAY_HOST_WAIT", "50"}};
    std::thread other([&] { testing::run(call); });
    EXPECT_THAT(test::error_of([&] { Hosts::join(launch, config("alone.toml", ""), "0.0.1"); }),
                HasSubstr("and rank 0 foresay 0.0.1; start the same program on every host"));
    other.join();
}

}  // namespace
}  // namespace foresay::engine
