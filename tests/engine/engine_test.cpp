// An engine from a configuration: what it opens, what its observer learns, and how it switches to another
// configuration.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "kernels/ops_decorator.h"
#include "tests/app/program.h"
#include "tests/support/error_of.h"

namespace foresay::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const char* const kTarget = "models/python-coder/target-q4_k_m.gguf";
const char* const kDraft = "models/python-coder/draft-q8_0.gguf";

// The bundled pair on one thread, and `more` after it.
core::Config pair(const std::string& more = "", const std::string& draft = testing::source(kDraft)) {
    const std::string text = "target.model = \"" + testing::source(kTarget) + "\"\ndraft.model = \"" + draft +
                             "\"\ntarget.context = 256\nruntime.device = \"cpu\"\n" + "runtime.threads = 1\n" + more;
    return load_config(testing::write_scratch("pair.toml", text));
}

std::vector<std::int32_t> generate(const Engine& engine, const core::SpeculationMode mode, std::int32_t count = 24) {
    speculative::Generator generator = engine.make_generator();
    generator.set_speculation({.mode = mode});
    const std::vector<std::int32_t> prompt = engine.tokenizer().encode("def add(a, b):\n");
    return generator.generate({.input = prompt, .max_tokens = count, .seed = 5}).tokens;
}

// A backend that says it is a device.
class Device final : public kernels::OpsDecorator {
public:
    explicit Device(std::unique_ptr<kernels::Ops> inner) : OpsDecorator(*inner), owned_(std::move(inner)) {}
    bool asynchronous() const override { return true; }

private:
    std::unique_ptr<kernels::Ops> owned_;
};

// The smallest safetensors model of the golden files, which has no tokenizer.
std::string tiny() { return testing::source("tests/golden/tiny/llama3"); }

struct Recorder : Observer {
    void notice(Notice kind, const std::string&) override { kinds.push_back(kind); }
    void begin_load(const std::string& what) override {
        loads.push_back(what);
        if (std::exchange(fail, false)) throw Error("the disk is gone");
    }
    void progress(std::int64_t done, std::int64_t all) override {
        EXPECT_LE(done, all);
        ++steps;
    }
    void end_load() override { loads.push_back("end"); }
    bool cancelled() override { return cancel; }

    std::vector<Notice> kinds;
    std::vector<std::string> loads;
    int steps = 0;
    bool cancel = false;
    bool fail = false;  // the next load
};

TEST(Engine, OpensAPairAndPrintsNothing) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Engine engine = Engine::open(pair());
    const auto plain = generate(engine, core::SpeculationMode::off);
    EXPECT_EQ(plain.size(), 24u);
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), plain);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(engine.context_length(), 256);
    EXPECT_NE(engine.draft(), nullptr);
    EXPECT_EQ(engine.backend().substr(0, 5), "cpu (");
}

TEST(Engine, CanBeMovedAndStandBesideAnother) {
    Engine first = Engine::open(pair());
    const auto expected = generate(first, core::SpeculationMode::off);
    const Engine second = Engine::open(pair("runtime.isa = \"portable\"\n"));
    Engine moved = std::move(first);
    EXPECT_EQ(generate(moved, core::SpeculationMode::automatic), expected);
    EXPECT_EQ(generate(second, core::SpeculationMode::automatic), generate(second, core::SpeculationMode::off));
}

TEST(Engine, TellsItsObserverWhatItLoads) {
    const auto recorder = std::make_shared<Recorder>();
    EngineOptions options;
    options.observer = recorder;
    const Engine engine = Engine::open(pair(), options);
    EXPECT_THAT(recorder->loads, ElementsAre("checking the target", "end", "checking the draft", "end",
                                             "loading the target", "end", "loading the draft", "end"));
    EXPECT_THAT(recorder->kinds, ElementsAre(Notice::memory, Notice::loading, Notice::loading));
    EXPECT_GT(recorder->steps, 10);

    recorder->loads.clear();
    recorder->cancel = true;
    EXPECT_EQ(test::error_of([&] { Engine::open(pair(), options); }), "cancelled while checking the target");
    EXPECT_THAT(recorder->loads, ElementsAre("checking the target", "end"));
    recorder->loads.clear();
    EXPECT_EQ(test::error_of([&] { Engine::open(pair("runtime.check_files = false\n"), options); }),
              "cancelled while loading the target");
    EXPECT_THAT(recorder->loads, ElementsAre("loading the target", "end"));
}

TEST(Engine, ChecksWithoutLoadingWeights) {
    EngineOptions options;
    options.weights = false;
    const auto recorder = std::make_shared<Recorder>();
    options.observer = recorder;
    const Engine engine = Engine::open(pair(), options);
    EXPECT_THAT(recorder->loads, IsEmpty());
    EXPECT_TRUE(engine.has_tokenizer());
    EXPECT_THAT(test::error_of([&] { Engine::open(pair("draft.model = \"" + tiny() + "\"\n"), options); }),
                HasSubstr("pair.toml"));
}

TEST(Engine, NamesThePlaceOfWhatIsWrong) {
    EXPECT_THAT(test::error_of([] {
                    Engine::open(pair("[[plugin]]\nname = \"none_such\"\n[sampling]\nchain = [\"none_such\"]"));
                }),
                HasSubstr("pair.toml:"));
    core::Config config = load_config(
        testing::write_scratch("pair.toml", "target.model = \"" + tiny() + "\"\ndraft.model = \"" +
                                                testing::source(kDraft) + "\"\nruntime.device = \"cpu\"\n"));
    EXPECT_THAT(test::error_of([&] { Engine::open(config); }), HasSubstr("has no tokenizer"));
    EngineOptions options;
    options.tokenizer = false;
    EXPECT_THAT(test::error_of([&] { Engine::open(config, options); }), HasSubstr("cannot draft for"));
    options.inflate_draft = {.shape = "llama-3.2-1b"};
    config.sources = {"ngram"};
    EXPECT_THAT(test::error_of([&] { Engine::open(config, options); }), HasSubstr("no draft model to inflate"));
}

TEST(Engine, RandomWeightsStandForATargetThatTheConfigurationDoesNotName) {
    core::Config config = load_config({}, false);
    config.device = "cpu";
    EngineOptions options;
    options.weights = options.tokenizer = false;
    EXPECT_THAT(test::error_of([&] { Engine::open(config, options); }), HasSubstr("target.model"));
    options.random_target = {.shape = "llama-3.2-1b"};
    EXPECT_EQ(Engine::open(config, options).context_length(), 2048);
}

TEST(Engine, ReloadsAndTakesALeftOutDraftAway) {
    EngineOptions options;
    options.tokenizer = false;
    Engine engine = Engine::open(pair(), options);
    EXPECT_FALSE(engine.needs_reload(pair("sampling.seed = 3\n")));
    EXPECT_TRUE(engine.needs_reload(pair("speculation.sources = [\"ngram\"]\n")));
    engine.reconfigure(pair("sampling.seed = 3\n"));
    EXPECT_EQ(engine.config().seed, 3u);

    // A file that is missing is an error before anything is released.
    core::Config next = pair();
    next.target_model = "none.gguf";
    bool released = false;
    EXPECT_THAT(test::error_of([&] { engine.reload(next, [&] { released = true; }); }), HasSubstr("none.gguf"));
    EXPECT_FALSE(released);
    EXPECT_NE(engine.draft(), nullptr);

    next.target_model = tiny();
    const ReloadResult result = engine.reload(next, [&] { released = true; });
    EXPECT_TRUE(released);
    EXPECT_TRUE(result.draft_left_out);
    EXPECT_THAT(result.notes, ElementsAre(StartsWith("the draft model is not used: ")));
    EXPECT_EQ(engine.draft(), nullptr);
    EXPECT_FALSE(engine.has_tokenizer());
    EXPECT_EQ(engine.make_context()->capacity(), 256);
}

TEST(Engine, AFailedLoadBringsBackWhatWasThere) {
    const auto recorder = std::make_shared<Recorder>();
    EngineOptions options;
    options.observer = recorder;
    Engine engine = Engine::open(pair(), options);
    const auto expected = generate(engine, core::SpeculationMode::off);
    core::Config next = pair("sampling.seed = 9\n");
    next.target_model = testing::source(kDraft);
    recorder->fail = true;
    recorder->cancel = true;  // not asked any more
    EXPECT_EQ(test::error_of([&] { engine.reload(next, [] {}); }), "the disk is gone");
    EXPECT_EQ(engine.config().target_model, pair().target_model);
    EXPECT_NE(engine.draft(), nullptr);
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), expected);
}

TEST(Engine, ReloadsOnAnotherBackendAndBack) {
    Engine engine = Engine::open(pair());
    const auto expected = generate(engine, core::SpeculationMode::off);
    core::Config next = pair();
    next.device = "reference";
    next.threads = 2;
    EXPECT_TRUE(engine.needs_reload(next));
    EXPECT_THAT(engine.reload(next, [] {}).notes, IsEmpty());
    EXPECT_EQ(engine.backend().substr(0, 9), "reference");
    engine.reload(pair(), [] {});
    EXPECT_EQ(generate(engine, core::SpeculationMode::off), expected);
}

// Two devices of the host have the layers, and the text is that of one; of two backends, another law.
TEST(Engine, LayersOnSeveralDevices) {
    const auto expected = generate(Engine::open(pair()), core::SpeculationMode::off);
    core::Config two = pair();
    two.devices = {"cpu", "cpu"};
    const std::int32_t layers = Engine::open(pair()).target().config().shape.layers;
    two.device_layers = {1, layers - 1};
    Engine engine = Engine::open(two);
    EXPECT_THAT(engine.backend(), StartsWith("layer 0 on cpu ("));
    ASSERT_EQ(engine.placement().size(), 2u);
    EXPECT_EQ(engine.placement()[1].first, 1);
    EXPECT_EQ(engine.placement()[1].count, layers - 1);
    EXPECT_EQ(generate(engine, core::SpeculationMode::off), expected);
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), expected);
    const std::string fingerprint = engine.page_fingerprint();
    // Another cut is another backend, whose sessions and pages are its own.
    core::Config other = two;
    other.device_layers = {2, layers - 2};
    EXPECT_TRUE(engine.needs_reload(other));
    engine.reload(other, [] {});
    EXPECT_NE(engine.page_fingerprint(), fingerprint);
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), expected);
    // All of it fits on the first, which is then the only one.
    core::Config chosen = pair();
    chosen.devices = {"cpu", "reference"};
    engine.reload(chosen, [] {});
    EXPECT_EQ(engine.placement()[0].count, layers);
    EXPECT_EQ(engine.instruction_set(), Engine::open(pair()).instruction_set());
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), expected);
    chosen.device_layers = {1, layers};
    EXPECT_THAT(test::error_of([&] { engine.reload(chosen, [] {}); }), HasSubstr("choose numbers that add up"));
    EXPECT_EQ(generate(engine, core::SpeculationMode::automatic), expected);
}

// Before any weight is made: a model of a terabyte.
TEST(Engine, DevicesWithoutRoomAreOneSentence) {
    EngineOptions options;
    options.weights = options.tokenizer = options.draft = false;
    options.random_target = {.shape = "qwen3-235b-a22b", .quant_type = "f32"};
    core::Config config = pair();
    config.target_model.clear();
    config.devices = {"cpu", "reference"};
    EXPECT_THAT(test::error_of([&] { Engine::open(config, options); }),
                AllOf(HasSubstr(" GiB and working memory, and there are "), HasSubstr(" on cpu, "),
                      HasSubstr(" on reference; use a smaller model")));
    config.device_layers = {90, 4};
    EXPECT_THAT(test::error_of([&] { Engine::open(config, options); }),
                AllOf(HasSubstr("90 layers of random qwen3-235b-a22b need "), HasSubstr(" on cpu, and ")));
}

TEST(EngineConfiguration, NamesTheDraftersAndAcceptsOlderNames) {
    EXPECT_THAT(pair("speculation.sources = [\"suffix\"]\n").sources, ElementsAre("ngram"));
    EXPECT_THAT(pair().sources, ElementsAre("draft", "ngram"));
    EXPECT_THAT(test::error_of([] { pair("speculation.sources = [\"ngrm\"]\n"); }), HasSubstr("did you mean 'ngram'?"));
    EXPECT_THAT(find_key("speculation.sources")->choices, ElementsAre("draft", "ngram"));
    EXPECT_EQ(find_key("sampling.top_k.k")->key, "k");
    EXPECT_EQ(find_key("sampling.seed")->key, "sampling.seed");
    EXPECT_EQ(find_key("none.such"), nullptr);
}

// A draft model for texts side by side is loaded on a device, if it is small; else the engine does without it.
TEST(Engine, ADraftForTextsSideBySideIsLoadedWhereItIsCheap) {
    const auto drafts = [](const core::Config& config, bool device, std::vector<Notice>* notices = nullptr) {
        EngineOptions options;
        options.draft_if_cheap = true;
        const auto recorder = std::make_shared<Recorder>();
        options.observer = recorder;
        if (device) {
            options.wrap_backend = [](std::unique_ptr<kernels::Ops> ops) -> std::unique_ptr<kernels::Ops> {
                return std::make_unique<Device>(std::move(ops));
            };
        }
        const Engine engine = Engine::open(config, options);
        EXPECT_FALSE(engine.needs_reload(config) && engine.draft() == nullptr && !device);
        if (notices != nullptr) *notices = recorder->kinds;
        return engine.draft() != nullptr;
    };
    EXPECT_TRUE(drafts(pair(), true));
    EXPECT_FALSE(drafts(pair(), false));
    std::vector<Notice> notices;
    // As large as the target; and one that does not fit it.
    EXPECT_FALSE(drafts(pair("", testing::source(kTarget)), true, &notices));
    EXPECT_THAT(notices, ::testing::Contains(Notice::draft_skipped));
    EXPECT_FALSE(drafts(pair("", tiny()), true, &notices));
    EXPECT_THAT(notices, ::testing::Contains(Notice::draft_skipped));
}

}  // namespace
}  // namespace foresay::engine
