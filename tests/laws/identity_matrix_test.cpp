// Same prompt, same seed, same bytes: with speculation off or on, with any draft, any draft length, at any temperature,
// with any chain and a plugin in it; and these are the bytes of an oracle that knows none of that (text_oracle.h).
//
// FORESAY_MATRIX_FRACTION=0.05 runs a fixed twentieth of the matrix (sanitizers); without it all of it runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/models/layer_split.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/laws/rewritten_draft.h"
#include "tests/laws/shipped.h"
#include "tests/laws/text_oracle.h"
#include "tests/models/family_models.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/speculative/support.h"
#include "tests/support/goldens.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

constexpr std::int32_t kTokens = 64;
constexpr std::uint64_t kSeeds[] = {0, 1, 42, 123456789, 0xfedcba9876543210u};
constexpr double kTemperatures[] = {0.0, 0.3, 0.7, 1.2};
constexpr int kChains = 6;

const char* const kPrompts[] = {
    "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\n\ndef main():\n",
    "# The quick brown fox jumps over the lazy dog. It is a sentence that\n",
};

// A stage of the plugin SDK that judges tokens, as a test or as a mask.
template <typename T>
samplers::StageSpec judge() {
    static const std::shared_ptr<const samplers::StageFactory> factory = samplers::linked_factory<T>();
    samplers::StageSpec spec = stage("rule");
    spec.factory = factory;
    return spec;
}

// The chain `number` at a temperature, with plugins in front or not: those that are shipped, or one that judges tokens.
std::unique_ptr<samplers::Chain> matrix_chain(int number, double temperature, bool plugin) {
    samplers::ChainSpec spec;
    if (plugin && (number == 0 || number == 1 || number == 3)) {
        spec.push_back(number == 0   ? judge<samplers::Tester>()
                       : number == 1 ? judge<samplers::Masker>()
                                     : judge<samplers::Judge>());
    } else if (plugin) {
        spec.push_back(shipped("wordlist", {{"forbid", std::vector<std::string>{"return", "self.", "open(", "is a"}}},
                               number == 5));  // there in a process of its own
        if (number == 2) spec.push_back(shipped("indent", {}));
        if (number == 5) {
            spec.push_back(shipped("budget", {{"tokens", std::int64_t{5}},
                                              {"begin", std::string("def")},
                                              {"end", std::string("\n")},
                                              {"message", std::string("  # enough")}}));
        }
    }
    const samplers::StageSpec heat = stage("temperature", {{"value", temperature}});
    switch (number) {
        case 0:
            spec.push_back(heat);
            if (plugin) spec.push_back(stage("mirostat_1", {{"tau", 3.0}}));
            break;
        case 1:
            spec.push_back(stage("penalties", {{"repeat", 1.1}, {"frequency", 0.1}, {"presence", 0.1}}));
            if (plugin) {
                spec.push_back(stage("min_length", {{"tokens", std::int64_t{20}}}));
                spec.push_back(stage("no_repeat_ngram", {{"size", std::int64_t{4}}}));
                spec.push_back(stage("dry", {{"multiplier", 0.8}}));
                spec.push_back(stage("top_n_sigma", {{"n", 2.0}}));
            }
            spec.push_back(stage("top_k", {{"k", std::int64_t{40}}}));
            spec.push_back(stage("top_p", {{"p", 0.95}}));
            spec.push_back(heat);
            break;
        case 2:
            spec.push_back(stage("logit_bias", {{"tokens", std::vector<std::int64_t>{199, 220}},
                                                {"values", std::vector<double>{-1.5, 1.0}}}));
            if (plugin) {
                spec.push_back(stage("tfs", {{"z", 0.98}}));
                spec.push_back(stage("typical", {{"p", 0.98}}));
                spec.push_back(stage("top_a", {{"a", 0.05}}));
                spec.push_back(stage("epsilon_cutoff", {{"epsilon", 0.0003}}));
                spec.push_back(stage("eta_cutoff", {{"eta", 0.001}}));
            }
            spec.push_back(stage("min_p", {{"p", 0.02}}));
            spec.push_back(stage("xtc", {{"probability", 0.5}, {"threshold", 0.1}}));
            spec.push_back(heat);
            break;
        case 3:
            if (!plugin) {
                spec.push_back(heat);
                spec.push_back(stage("mirostat"));
                break;
            }
            if (temperature > 0.0) {
                spec.push_back(stage("dynatemp", {{"min", 0.5 * temperature}, {"max", 1.5 * temperature}}));
                spec.push_back(stage("smoothing", {{"factor", 0.2}, {"curve", 2.0}}));
                spec.push_back(stage("skew", {{"skew", 0.2}}));
            } else {
                spec.push_back(heat);
            }
            spec.push_back(stage("adaptive_p"));
            break;
        case 5:  // where stages only judge, a device runs ahead
            spec.push_back(stage("penalties", {{"frequency", 0.1}}));
            spec.push_back(stage("top_k", {{"k", std::int64_t{40}}}));
            spec.push_back(heat);
            break;
        default:  // the text is JSON from its first byte, whatever the prompt is
            spec.insert(spec.begin(), stage("grammar", {{"language", std::string("json_schema")},
                                                        {"after", std::string("free")},
                                                        {"text", std::string(R"({"type":"array","minItems":20,"items":{
                                              "type":"object","properties":{"name":{"type":"string","maxLength":12},
                                              "size":{"type":"integer","minimum":-5}},"required":["name"]}})")}}));
            spec.push_back(stage("top_k", {{"k", std::int64_t{40}}}));
            spec.push_back(heat);
            break;
    }
    return make_chain(spec);
}

// One way to speculate, with a generator of its own that lives through the whole matrix, so that caches and controllers
// keep their history.
struct Variant {
    std::string name;
    std::vector<speculative::SpeculationOptions> modes;
    // Called again for each case when the drafter has to know the answer.
    std::function<std::unique_ptr<speculative::Drafter>(const std::vector<std::int32_t>& sequence, unsigned seed)>
        drafter;
    bool ngram = false;  // n-gram lookup takes part as well; without a drafter, alone
    bool knows = false;
    std::unique_ptr<speculative::Generator> generator;
};

std::vector<Variant> variants() {
    const auto draft = bundled(fast_backend(), "draft");
    const auto target = bundled(fast_backend(), "target");
    std::vector<Variant> all;
    std::vector<speculative::SpeculationOptions> lengths;
    for (std::int32_t length = 1; length <= 16; ++length) lengths.push_back(fixed(length));
    all.push_back(
        {.name = "draft", .modes = lengths, .drafter = [=](auto&, unsigned) { return model_drafter(draft); }});
    all.push_back({.name = "automatic", .modes = {automatic()}, .drafter = [=](auto&, unsigned) {
                       return model_drafter(draft);
                   }});
    const auto none = [](auto&, unsigned) { return nullptr; };
    all.push_back(
        {.name = "ngram", .modes = {fixed(1), fixed(4), fixed(16), automatic()}, .drafter = none, .ngram = true});
    all.push_back({.name = "draft and ngram",
                   .modes = {automatic()},
                   .drafter = [=](auto&, unsigned) { return model_drafter(draft); },
                   .ngram = true});
    all.push_back({.name = "random tokens and ngram",
                   .modes = {automatic()},
                   .drafter = [](auto&, unsigned) { return random_drafter(7); },
                   .ngram = true});
    all.push_back({.name = "random lengths", .modes = {fixed(16)}, .drafter = [=](auto&, unsigned) {
                       return std::make_unique<RandomLengthDrafter>(model_drafter(draft), 5);
                   }});
    all.push_back(
        {.name = "random tokens", .modes = {fixed(6)}, .drafter = [](auto&, unsigned) { return random_drafter(6); }});
    all.push_back({.name = "half right",
                   .modes = {fixed(16)},
                   .drafter = [](auto& sequence, unsigned seed) { return replay_drafter(sequence, 0.15, seed); },
                   .knows = true});
    all.push_back({.name = "always wrong",
                   .modes = {fixed(3)},
                   .drafter = [](auto& sequence, unsigned seed) { return replay_drafter(sequence, 1.0, seed); },
                   .knows = true});
    all.push_back({.name = "second best", .modes = {fixed(4)}, .drafter = [=](auto&, unsigned) {
                       return std::make_unique<SecondBestDrafter>(draft);
                   }});
    all.push_back({.name = "the target itself", .modes = {fixed(5)}, .drafter = [=](auto&, unsigned) {
                       return model_drafter(target);
                   }});
    return all;
}

// Keeps a fixed share of the cases, spread over all dimensions.
class Fraction {
public:
    Fraction() {
        const char* text = std::getenv("FORESAY_MATRIX_FRACTION");
        if (text != nullptr) share_ = std::strtod(text, nullptr);
    }
    bool next() {
        const double before = std::floor(static_cast<double>(count_) * share_);
        ++count_;
        return std::floor(static_cast<double>(count_) * share_) > before;
    }

private:
    double share_ = 1.0;
    std::int64_t count_ = 0;
};

struct Totals {
    std::int64_t cases = 0, drafted = 0, accepted = 0, differing = 0;
};

// Runs the chosen modes of every variant against the plain text of one case.
void run_case(std::vector<Variant>& all, Fraction& fraction,
              const std::function<std::unique_ptr<samplers::Chain>()>& chain,
              const speculative::GenerateRequest& request, const std::string& what, Totals& totals) {
    static speculative::Generator plain = make_generator(temperature_chain(0.0), nullptr, off());
    bool known = false;
    speculative::GenerateResult expected;
    std::vector<std::int32_t> sequence;
    for (Variant& variant : all) {
        for (const speculative::SpeculationOptions& mode : variant.modes) {
            if (!fraction.next()) continue;
            if (!known) {
                plain.truncate(0);
                plain.set_chain(chain());
                expected = plain.generate(request);
                sequence.assign(plain.tokens().begin(), plain.tokens().end());
                known = true;
            }
            if (!variant.generator || variant.knows) {
                auto drafters = sources(variant.drafter(sequence, static_cast<unsigned>(totals.cases)),
                                        variant.ngram ? ngram_drafter() : nullptr);
                variant.generator =
                    std::make_unique<speculative::Generator>(make_generator(chain(), std::move(drafters), mode));
            }
            speculative::Generator& generator = *variant.generator;
            generator.truncate(0);
            generator.set_chain(chain());
            generator.set_speculation(mode);
            const speculative::GenerateResult found = generator.generate(request);
            ++totals.cases;
            totals.drafted += found.speculation.drafted;
            totals.accepted += found.speculation.accepted;
            if (found.tokens == expected.tokens && found.text == expected.text && found.finish == expected.finish)
                continue;
            if (++totals.differing > 10) continue;
            const auto [a, b] = std::ranges::mismatch(found.tokens, expected.tokens);
            ADD_FAILURE() << what << ", " << variant.name << ", length " << mode.draft_length
                          << ": differs from plain at token " << (a - found.tokens.begin()) << " of "
                          << expected.tokens.size();
        }
    }
}

TEST(IdentityMatrix, EveryPathGivesThePlainText) {
    std::vector<Variant> all = variants();
    Fraction fraction;
    Totals totals;
    for (const bool plugin : {false, true}) {
        for (int chain = 0; chain < kChains; ++chain) {
            for (const double temperature : kTemperatures) {
                for (const std::uint64_t seed : kSeeds) {
                    const auto input = tokenizer().encode(kPrompts[(static_cast<std::size_t>(chain) + seed) % 4]);
                    const auto make = [&] { return matrix_chain(chain, temperature, plugin); };
                    const std::string what = "chain " + std::to_string(chain) + (plugin ? " with plugin" : "") +
                                             ", temperature " + std::to_string(temperature) + ", seed " +
                                             std::to_string(seed);
                    run_case(all, fraction, make,
                             {.input = input, .max_tokens = kTokens, .seed = seed, .branch = seed % 3}, what, totals);
                }
            }
        }
    }
    std::printf("%lld texts, %lld tokens drafted, %lld accepted, %lld texts differ\n",
                static_cast<long long>(totals.cases), static_cast<long long>(totals.drafted),
                static_cast<long long>(totals.accepted), static_cast<long long>(totals.differing));
    EXPECT_EQ(totals.differing, 0);
    // The matrix means nothing unless tokens were accepted and rejected.
    EXPECT_GT(totals.accepted, totals.cases);
    EXPECT_GT(totals.drafted - totals.accepted, totals.cases);
}

// Ways to generate that the oracle's text is compared with.
struct Way {
    const char* name;
    speculative::SpeculationOptions speculation;
    bool draft, lookup;
};
const Way kWays[] = {
    {"plain", off(), false, false},
    {"draft, fixed", fixed(5), true, false},
    {"draft and lookup", automatic(), true, true},
};

// The bundled pair with a number of threads, where the backend has threads to choose.
std::shared_ptr<const core::Model> model_of(const std::string& which, int threads) {
    const std::string& backend = fast_backend().name;
    if (backend != "cpu" && backend != "paced") return bundled(fast_backend(), which);
    return on_threads(which, threads, backend == "paced");
}
// What the oracle runs on: the host with one thread, at once; a device where the test is about one.
std::shared_ptr<const core::Model> oracle_model() {
    return fast_backend().name == "paced" ? on_threads("target", 1, false) : model_of("target", 1);
}

struct OracleTotals {
    std::int64_t cases = 0, stopped = 0, drafted = 0, accepted = 0;
};

// Two conversation turns with stop strings, against the oracle on the host with one thread.
void expect_oracle(const std::function<std::unique_ptr<samplers::Chain>()>& chain, kernels::KvFormat format,
                   std::uint64_t seed, const std::string& what, Fraction& fraction, OracleTotals& totals) {
    core::ContextOptions options = context_options();
    options.kv_format = format;
    const std::string first = kPrompts[seed % 4], second = "\n\n# And then\ndef ";
    const std::vector<std::string> stops = {"\n\n\n", "):\n", "self."};
    const std::vector<std::int32_t> inputs[] = {tokenizer().encode(first),
                                                tokenizer().encode(second, {.add_special = false})};
    std::vector<TextOracle::Answer> expected;
    for (const int threads : {1, 2, 3}) {
        for (const Way& way : kWays) {
            if (!fraction.next()) continue;
            SCOPED_TRACE(what + ", " + way.name + ", " + std::to_string(threads) + " threads");
            auto drafters = sources(way.draft ? model_drafter(model_of("draft", threads), options) : nullptr,
                                    way.lookup ? ngram_drafter() : nullptr);
            speculative::Generator generator =
                make_generator(chain(), std::move(drafters), way.speculation, options, model_of("target", threads));
            TextOracle oracle(oracle_model(), options);
            const bool known = !expected.empty();
            const auto oracle_chain = chain();
            for (std::size_t turn = 0; turn < 2; ++turn) {
                // The first turn is cut by stop strings, mostly; the second runs to its limit.
                speculative::GenerateRequest request{
                    .input = inputs[turn], .max_tokens = 40, .seed = seed, .branch = turn, .ignore_eos = turn == 1};
                if (turn == 0) request.stop = stops;
                if (!known) expected.push_back(oracle.answer(request, *oracle_chain));
                const speculative::GenerateResult found = generator.generate(request);
                ASSERT_EQ(found.tokens, expected[turn].tokens) << "turn " << turn;
                ASSERT_EQ(found.text, expected[turn].text) << "turn " << turn;
                ASSERT_EQ(found.finish, expected[turn].finish) << "turn " << turn;
                totals.stopped += found.finish == speculative::FinishReason::stop ? 1 : 0;
                totals.drafted += found.speculation.drafted;
                totals.accepted += found.speculation.accepted;
            }
            ++totals.cases;
        }
    }
}

TEST(IdentityMatrix, TextsAreThoseOfTheOracle) {
    Fraction fraction;
    OracleTotals totals;
    std::uint64_t seed = 10;
    constexpr int kFormatsEach = 3;
    const std::vector<kernels::KvFormat> formats = kernels::all_kv_formats();  // by turns
    for (const bool plugin : {false, true}) {
        for (int chain = 0; chain < kChains; ++chain) {
            for (const double temperature : {0.0, 0.7, 1.2}) {
                for (int i = 0; i < kFormatsEach; ++i) {
                    const kernels::KvFormat format = formats[seed % formats.size()];
                    const std::string what = "chain " + std::to_string(chain) + (plugin ? " with plugin" : "") +
                                             ", temperature " + std::to_string(temperature) + ", cache " +
                                             kernels::name(format);
                    ASSERT_NO_FATAL_FAILURE(expect_oracle([&] { return matrix_chain(chain, temperature, plugin); },
                                                          format, ++seed, what, fraction, totals));
                }
            }
        }
    }
    std::printf("%lld conversations of two turns, %lld turns ended by a stop, %lld tokens drafted, %lld accepted\n",
                static_cast<long long>(totals.cases), static_cast<long long>(totals.stopped),
                static_cast<long long>(totals.drafted), static_cast<long long>(totals.accepted));
    EXPECT_GT(totals.stopped, totals.cases / 4);
    EXPECT_GT(totals.accepted, 4 * totals.cases);
    EXPECT_GT(totals.drafted - totals.accepted, totals.cases);
}

// A file on the backend of the test.
std::shared_ptr<const core::Model> loaded(const std::filesystem::path& path) {
    std::shared_ptr<core::ModelSource> source = core::ModelSource::open(path);
    if (fast_backend().name == split_backend().name) {
        const std::int32_t layers = source->config().shape.layers;
        source->place_layers(core::devices_of({layers / 2, layers - layers / 2}));
    }
    return core::Model::load(std::move(source), fast_backend().ops());
}

// The bundled draft for a target in another format, which is the same model in other numbers: with every format of the
// cache, each at one of two temperatures.
void expect_oracle_of_target(const std::filesystem::path& path) {
    SCOPED_TRACE(path.string());
    const auto target = loaded(path);
    const auto input = tokenizer().encode(kPrompts[1]);
    std::int64_t drafted = 0, accepted = 0;
    std::uint64_t seed = 30;
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        core::ContextOptions options = context_options();
        options.kv_format = format;
        const speculative::GenerateRequest request{
            .input = input, .max_tokens = 32, .seed = ++seed, .ignore_eos = true};
        const double temperature = seed % 2 == 0 ? 0.8 : 0.0;
        TextOracle oracle(target, options);
        const std::vector<std::int32_t> expected = oracle.answer(request, *temperature_chain(temperature)).tokens;
        for (const Way& way : kWays) {
            auto drafters = sources(way.draft ? model_drafter(bundled(fast_backend(), "draft"), options) : nullptr,
                                    way.lookup ? ngram_drafter() : nullptr);
            speculative::Generator generator =
                make_generator(temperature_chain(temperature), std::move(drafters), way.speculation, options, target);
            const speculative::GenerateResult found = generator.generate(request);
            EXPECT_EQ(found.tokens, expected) << way.name << ", cache " << kernels::name(format);
            drafted += found.speculation.drafted;
            accepted += found.speculation.accepted;
        }
    }
    EXPECT_GT(accepted, drafted / 4) << "is it the same model?";
    EXPECT_GT(drafted, accepted);
}

TEST(IdentityMatrix, AnExl2TargetGivesTheOraclesText) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    expect_oracle_of_target(goldens_folder() / "formats/exl2-draft-4.0");
}
TEST(IdentityMatrix, AGptqTargetInAnOrderGivesTheOraclesText) {
    const core::testing::TemporaryDirectory folder;
    expect_oracle_of_target(RewrittenDraft().write_gptq(folder.path() / "gptq"));
}
TEST(IdentityMatrix, AMixedGgufTargetGivesTheOraclesText) {
    const core::testing::TemporaryDirectory folder;
    expect_oracle_of_target(RewrittenDraft().write_mixed_gguf(folder.path() / "mixed.gguf"));
}

// Every family, with the target as its own draft and with a draft that knows nothing, with lookup alone, and with both
// and a length that is chosen on the way; with a chain of penalties and cuts, and with a cache of eight bits.
TEST(IdentityMatrix, FamiliesGiveTheOraclesText) {
    struct Setup {
        double temperature;
        std::uint64_t seed;
        bool others;  // another chain, another cache, and the other ways to draft
    };
    enum class Drafts : std::uint8_t { knows, random, lookup, both };
    std::int64_t drafted = 0, accepted = 0;
    for (const std::string& family : family_names()) {
        core::ModelConfig config = config_of(family_json(family));
        config.shape.vocab = tokenizer().vocab_size();
        const auto target =
            random_model(config, kernels::QuantType::q8_0, kernels::QuantType::q8_0, fast_backend().ops());
        for (const Setup& setup : {Setup{0.0, 5, false}, Setup{0.8, 5, false}, Setup{0.8, 6, true}}) {
            core::ContextOptions options = context_options();
            options.length = 192;
            if (setup.others) options.kv_format = kernels::KvFormat::q8;
            const auto chain = [&] {
                return setup.others ? matrix_chain(1, setup.temperature, false) : temperature_chain(setup.temperature);
            };
            const auto input = tokenizer().encode(std::string(kPrompts[0]) + kPrompts[0]);
            const speculative::GenerateRequest request{
                .input = input, .max_tokens = 48, .seed = setup.seed, .ignore_eos = true};
            TextOracle oracle(target, options);
            const auto expected = oracle.answer(request, *chain()).tokens;
            for (const Drafts drafts :
                 setup.others ? std::array{Drafts::lookup, Drafts::both} : std::array{Drafts::knows, Drafts::random}) {
                const bool model = drafts == Drafts::knows || drafts == Drafts::both;
                auto drafters = sources(model                      ? model_drafter(target, options)
                                        : drafts == Drafts::random ? random_drafter(3)
                                                                   : nullptr,
                                        setup.others ? ngram_drafter() : nullptr);
                speculative::Generator generator = make_generator(
                    chain(), std::move(drafters), drafts == Drafts::both ? automatic() : fixed(5), options, target);
                const speculative::GenerateResult found = generator.generate(request);
                EXPECT_EQ(found.tokens, expected) << family << ", seed " << setup.seed << ", temperature "
                                                  << setup.temperature << ", drafts " << static_cast<int>(drafts);
                drafted += found.speculation.drafted;
                accepted += found.speculation.accepted;
            }
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(drafted - accepted, 0);
}

// The comparison itself must be able to fail: a seed that differs gives another text.
TEST(IdentityMatrix, OtherSeedsGiveOtherTexts) {
    const auto input = tokenizer().encode(kPrompts[0]);
    speculative::Generator generator = make_generator(temperature_chain(0.9), nullptr, off());
    const auto text = generator.generate({.input = input, .max_tokens = kTokens, .seed = 1}).tokens;
    for (const auto& [seed, branch] : {std::pair<std::uint64_t, std::uint64_t>{2, 0}, {1, 1}}) {
        generator.truncate(0);
        EXPECT_NE(generator.generate({.input = input, .max_tokens = kTokens, .seed = seed, .branch = branch}).tokens,
                  text);
    }
}

}  // namespace
}  // namespace foresay::test
