// Sampler settings of other programs as configurations: names, orders, defaults, and what is said.

#include "app/sampler_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace foresay::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SamplerDialect kLlama = SamplerDialect::llama_cpp;

std::string error_of(std::string_view text, SamplerDialect dialect = kLlama) {
    return test::error_of([&] { import_samplers(text, dialect); });
}

TEST(SamplerImport, OptionsOfLlamaCpp) {
    const ImportedSamplers found = import_samplers(
        "llama-server -m model.gguf -c 4096 --temp 0.7 --top-k 20 --min-p 0 --repeat-penalty 1.1 -s 42 \\\n"
        "  --dry-multiplier 0.8 --dry-sequence-breaker \"\\n\" --dry-sequence-breaker ':' --top-nsigma -1",
        kLlama);
    EXPECT_EQ(found.toml,
              "# not settings of samplers here: c, m\n"
              "[sampling]\nseed = 42\nchain = [\"penalties\",\"dry\",\"top_k\",\"top_p\",\"temperature\"]\n"
              "\n[sampling.penalties]\nrepeat = 1.1\nwindow = 64\n"
              "\n[sampling.dry]\nbreakers = [\"\\n\",\":\"]\nmultiplier = 0.8\nwindow = 1048576\n"
              "\n[sampling.top_k]\nk = 20\n\n[sampling.top_p]\np = 0.95\n\n[sampling.temperature]\nvalue = 0.7\n");
    EXPECT_THAT(found.notes, ElementsAre("not settings of samplers here: c, m"));
}

TEST(SamplerImport, DefaultsAndOrdersOfEachProgram) {
    const auto chain = [](std::string_view text, SamplerDialect dialect) {
        const std::string toml = import_samplers(text, dialect).toml;
        const auto at = toml.find("chain = ") + 8;
        return toml.substr(at, toml.find('\n', at) - at);
    };
    EXPECT_EQ(chain("{\"top_k\": 40}", kLlama), R"(["top_k","top_p","min_p","temperature"])");
    EXPECT_EQ(chain("{\"top_k\": 50}", SamplerDialect::exllamav2), R"(["penalties","temperature","top_k","top_p"])");
    EXPECT_EQ(chain("{\"top_k\": 0}", SamplerDialect::exllamav3), "[]");
    EXPECT_EQ(chain("{\"temperature\": 0.5, \"min_p\": 0.1, \"temp_last\": true}", SamplerDialect::exllamav3),
              R"(["min_p","temperature"])");
    EXPECT_EQ(chain("{\"adaptive_target\": 0.5, \"min_p\": 0.1}", SamplerDialect::exllamav3),
              R"(["min_p","adaptive_p"])");
    EXPECT_EQ(chain("{\"temperature\": 0.5, \"skew\": 0.2, \"temperature_last\": true}", SamplerDialect::exllamav2),
              R"(["penalties","top_k","top_p","temperature","skew"])");
    EXPECT_EQ(chain("temperature: 0.5\ntop_a: 0.2", SamplerDialect::tabbyapi), R"(["temperature","top_a"])");
    // Stated orders, in each spelling.
    EXPECT_EQ(chain("--samplers temperature;top_k;typ_p --typical 0.9", kLlama),
              R"(["temperature","top_k","typical"])");
    EXPECT_EQ(chain("--sampling-seq tkmx --xtc-probability 0.5", kLlama), R"(["temperature","top_k","min_p","xtc"])");
    EXPECT_EQ(chain("{\"samplers\": [\"min-p\", \"nucleus\", \"temp\"]}", kLlama),
              R"(["min_p","top_p","temperature"])");
    EXPECT_EQ(chain("{\"samplers\": [\"adaptive_p\", \"min_p\"], \"adaptive_target\": 0.4}", kLlama),
              R"(["min_p","adaptive_p"])");
    EXPECT_EQ(chain("--mirostat 2 --top-k 3 --temp 0.9", kLlama), R"(["temperature","mirostat"])");
    EXPECT_EQ(chain("--mirostat 1 --temp 1.0", kLlama), R"(["mirostat_1"])");
    EXPECT_EQ(chain("--dynatemp-range 0.3 --temp 0.8 --min-p 0", kLlama), R"(["top_k","top_p","dynatemp"])");
}

TEST(SamplerImport, OverridesOfTabbyApi) {
    const ImportedSamplers found = import_samplers(
        "# a preset\ntemperature:\n  override: 0.9\n  force: false\nmin_temp:\n  override: 0.5\nmax_temp:\n"
        "  override: 1.5\nstop:\n  override: []\n  force: false\nmirostat_mode:\n  override: 2\nlogit_bias:\n"
        "  override:\n  force: false\nrepetition_decay:\n  override: 3\ndry_sequence_breakers:\n  - \"x\"\n",
        SamplerDialect::tabbyapi);
    EXPECT_THAT(found.toml, HasSubstr("chain = [\"temperature\",\"dynatemp\",\"mirostat\"]\n"));
    EXPECT_THAT(found.toml, HasSubstr("[sampling.dynatemp]\nmax = 1.5\nmin = 0.5\n"));
    EXPECT_THAT(found.toml, HasSubstr("[sampling.mirostat]\neta = 0.3\ntau = 1.5\n"));
    EXPECT_THAT(found.notes,
                ElementsAre("'repetition_decay' is not imported: penalties here end with their window, without a decay",
                            "not settings of samplers here: stop"));
}

TEST(SamplerImport, SaysWhatHasNoCounterpart) {
    EXPECT_THAT(import_samplers("--temp 0.5", kLlama).notes, IsEmpty());
    EXPECT_THAT(import_samplers("{\"min_keep\": 3, \"n_predict\": 5, \"grammar\": \"\"}", kLlama).notes,
                ElementsAre("'min_keep' is not imported: stages here keep one token at least",
                            "not settings of samplers here: n_predict"));
    EXPECT_THAT(
        import_samplers("--adaptive-target 0.5", kLlama).notes,
        ElementsAre("'adaptive_p' is set and stands in no place of the order, so it does nothing there and here"));
    EXPECT_THAT(import_samplers("--samplers infill;top_k", kLlama).notes,
                ElementsAre("'infill' is not imported: there is no such sampler here"));
    EXPECT_THAT(import_samplers("--top-p 1.5", kLlama).notes, ElementsAre(HasSubstr("top_p.p is 1.5")));
    EXPECT_THAT(import_samplers("{\"evil\\nname\": 1}", kLlama).toml,
                HasSubstr("# not settings of samplers here: evil?name\n"));
}

TEST(SamplerImport, BiasesByIdAndText) {
    const std::string bias =
        "[sampling.logit_bias]\ntext_values = [-1.0]\ntexts = [\"no\"]\ntokens = [15,16]\n"
        "values = [2,-inf]\n";
    EXPECT_THAT(import_samplers("{\"logit_bias\": [[15, 2], [16, false], [\"no\", -1.0]]}", kLlama).toml,
                HasSubstr(bias));
    EXPECT_THAT(import_samplers("--logit-bias 15+1.5 --logit-bias 16-inf", kLlama).toml,
                HasSubstr("tokens = [15,16]\nvalues = [1.5,-inf]\n"));
    EXPECT_THAT(import_samplers("{\"logit_bias\": {\"7\": -3}}", SamplerDialect::tabbyapi).toml,
                HasSubstr("tokens = [7]\nvalues = [-3]\n"));
}

TEST(SamplerImport, RefusesWhatItCannotRead) {
    EXPECT_EQ(error_of(""), "there are no settings: the text is empty");
    EXPECT_EQ(error_of("temperature"), "line 1 has neither ':' nor '='; give KEY: VALUE");
    EXPECT_EQ(error_of("temperature: hot"), "'temperature' must be a number");
    EXPECT_EQ(error_of("{\"temperature\": 1"), "the text begins as a JSON object and is none");
    EXPECT_EQ(error_of("--samplers top_q"), "the order names the sampler 'top_q', which is unknown here");
    EXPECT_EQ(error_of("--sampler-seq kz"), "the order 'kz' has the letter 'z', which is unknown here");
    EXPECT_EQ(error_of("--mirostat 3"), "'mirostat' must be 0, 1 or 2");
    EXPECT_EQ(error_of("--top-k 1.5"), "'top_k' must be a whole number");
    EXPECT_EQ(error_of("--dry-sequence-breaker \"x"), "the command line has a quote that does not end");
    EXPECT_EQ(error_of("temp = 1\n[a]\n[b]\n"), "line 3 begins a second section; give the settings of one");
    EXPECT_EQ(error_of("stop:\n  other: 1\n", SamplerDialect::tabbyapi),
              "line 2 has 'other' below 'stop', where only override, force and additive may stand");
}

}  // namespace
}  // namespace foresay::app
