// Drafts of what a grammar forces: the tokens, who drafts them, that the text stays the same, and that every text is
// valid by a validator of others.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>

#include "plugins/host/isolated.h"
#include "plugins/host/plugin_host.h"
#include "speculative/drafters/forced_drafter.h"
#include "tests/speculative/batch_support.h"

namespace foresay::speculative {
namespace {

using namespace test;

class EndingVocabulary final : public samplers::Vocabulary {
public:
    std::int32_t size() const override { return vocabulary().size(); }
    std::string_view text(std::int32_t token) const override { return vocabulary().text(token); }
    std::int32_t find(std::string_view text) const override { return vocabulary().find(text); }
    bool ends_text(std::int32_t token) const override { return tokenizer().is_end_of_text(token); }
    std::string_view control_text(std::int32_t token) const override {
        return tokenizer().is_control(token) ? tokenizer().bytes(token) : std::string_view{};
    }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override {
        return vocabulary().tokens(text);
    }
};

// Records as programs exchange them: long names, short values.
const char* const kSchemas[] = {
    R"({"type":"object","additionalProperties":false,"required":["request_identifier","temperature_celsius","is_valid"],
        "properties":{"request_identifier":{"type":"integer","minimum":0,"maximum":99999},
        "temperature_celsius":{"type":"integer","minimum":-50,"maximum":150},"is_valid":{"type":"boolean"}}})",
    R"({"type":"object","additionalProperties":false,"required":["function_name","arguments","return_type"],
        "properties":{"function_name":{"type":"string","maxLength":12},"arguments":{"type":"array","minItems":1,
        "maxItems":3,"items":{"type":"object","additionalProperties":false,"required":["argument_name","has_default"],
        "properties":{"argument_name":{"type":"string","maxLength":8},"has_default":{"type":"boolean"}}}},
        "return_type":{"enum":["integer","string","boolean","nothing"]}}})",
    R"({"type":"array","minItems":2,"maxItems":4,"items":{"type":"object","additionalProperties":false,
        "required":["severity","source_file","line_number"],"properties":{"severity":{"enum":["warning","error"]},
        "source_file":{"type":"string","pattern":"^[a-z_]{1,10}\\.py$"},
        "line_number":{"type":"integer","minimum":1,"maximum":5000}}}})",
    R"({"$defs":{"point":{"type":"object","additionalProperties":false,"required":["longitude","latitude"],
        "properties":{"longitude":{"type":"integer","minimum":-180,"maximum":180},
        "latitude":{"type":"integer","minimum":-90,"maximum":90}}}},
        "type":"object","additionalProperties":false,"required":["departure","destination"],
        "properties":{"departure":{"$ref":"#/$defs/point"},"destination":{"$ref":"#/$defs/point"}}})",
    R"({"type":"object","additionalProperties":false,"required":["creation_date","server_address","session_key"],
        "properties":{"creation_date":{"type":"string","format":"date"},
        "server_address":{"type":"string","format":"ipv4"},"session_key":{"type":"string","format":"uuid"}}})",
};
const char* const kPrompts[] = {"# A record as JSON:\nrecord = ", "import json\n\nexample = json.loads('",
                                "def test_parse():\n    text = \"\"\"", "response = "};

std::unique_ptr<samplers::Chain> chain_under(const char* schema, double temperature,
                                             const char* language = "json_schema") {
    static const EndingVocabulary ending;
    return std::make_unique<samplers::Chain>(
        samplers::ChainSpec{stage("grammar", {{"language", std::string(language)}, {"text", std::string(schema)}}),
                            stage("temperature", {{"value", temperature}})},
        ending);
}

std::string spelt(std::span<const std::int32_t> tokens) {
    std::string text;
    for (const std::int32_t token : tokens) text += vocabulary().text(token);
    return text;
}

constexpr const char* kPattern = "first_name_of_all=[0-9];second_name_of_all=[0-9]";

TEST(Forced, AreTheTokensOfTheOnlyWayOn) {
    const auto chain = chain_under(kPattern, 0.0, "regex");
    chain->begin(0, 0, prompt());
    EXPECT_TRUE(chain->forces());
    samplers::DraftChain draft;
    draft.start(*chain);
    std::vector<std::int32_t> tokens;
    draft.forced(tokens);
    EXPECT_EQ(tokens, tokenizer().encode("first_name_of_all=", {.add_special = false}));
    for (const std::int32_t token : tokens) draft.advance(token);
    draft.forced(tokens);
    EXPECT_TRUE(tokens.empty()) << "ten digits may come";
    draft.advance(tokenizer().encode("x", {.add_special = false})[0]);
    draft.forced(tokens);
    EXPECT_TRUE(tokens.empty()) << "after a wrong guess";
    EXPECT_FALSE(temperature_chain(0.0)->forces());
}

// In the middle of a draft of others, and again after it.
TEST(Forced, FollowsDraftsOfOthers) {
    const auto chain = chain_under(kPattern, 0.0, "regex");
    const auto text = prompt();
    chain->begin(0, 0, text);
    const auto drafter = make_forced_drafter();
    drafter->begin(text);
    drafter->begin_round(*chain);
    std::vector<std::int32_t> draft;
    const auto take = [&] {
        for (Proposal found = drafter->look_up(text, draft); found.token >= 0; found = drafter->look_up(text, draft)) {
            EXPECT_GT(found.chance, 0.5);
            draft.push_back(found.token);
        }
    };
    take();
    EXPECT_EQ(spelt(draft), "first_name_of_all=");
    draft.push_back(tokenizer().encode("7", {.add_special = false})[0]);
    take();
    EXPECT_EQ(spelt(draft), "first_name_of_all=7;second_name_of_all=");
    // Another chain, which forces nothing.
    const auto other = temperature_chain(0.0);
    other->begin(0, 0, text);
    drafter->begin_round(*other);
    EXPECT_LT(drafter->look_up(text, {}).token, 0);
}

// Alone, before n-gram lookup and before a draft model, in both modes.
TEST(Forced, DraftsAndLeavesTheTextAsItIs) {
    const auto input = tokenizer().encode(kPrompts[0]);
    std::int64_t accepted = 0;
    for (const double temperature : {0.0, 0.8}) {
        for (const char* schema : {kSchemas[0], kSchemas[2]}) {
            const GenerateRequest request{.input = input, .max_tokens = 160, .seed = 3};
            Generator plain = make_generator(chain_under(schema, temperature), nullptr, off());
            const GenerateResult expected = plain.generate(request);
            EXPECT_TRUE(expected.speculation.sources.empty());
            for (const bool model : {false, true}) {
                for (const SpeculationOptions& mode : {automatic(), fixed(3)}) {
                    auto drafters = sources(model ? model_drafter(bundled(fast_backend(), "draft")) : nullptr,
                                            model ? ngram_drafter() : nullptr);
                    Generator generator = make_generator(chain_under(schema, temperature), std::move(drafters), mode);
                    const GenerateResult found = generator.generate(request);
                    EXPECT_EQ(found.text, expected.text);
                    EXPECT_EQ(found.tokens, expected.tokens);
                    ASSERT_FALSE(found.speculation.sources.empty());
                    const SourceStatistics& forced = found.speculation.sources.back();
                    EXPECT_EQ(forced.name, "forced");
                    accepted += forced.accepted;
                    if (mode.mode == core::SpeculationMode::fixed) {
                        EXPECT_GT(forced.accepted, 0);
                        EXPECT_LT(found.speculation.rounds, expected.speculation.rounds);
                    }
                }
            }
        }
    }
    EXPECT_GT(accepted, 60);
}

TEST(Forced, DraftsInABatch) {
    const auto input = tokenizer().encode(kPrompts[0]);
    for (const SpeculationOptions& mode : {automatic(), fixed(4)}) {
        BatchParts parts = batch_parts(for_sequences(3));
        parts.speculation = mode;
        BatchGenerator batch(std::move(parts));
        Recorder recorders[3];
        for (std::uint64_t i = 0; i < 3; ++i) {
            // The last one has no grammar.
            batch.add({.input = input,
                       .chain = i < 2 ? chain_under(kSchemas[i], 0.7) : temperature_chain(0.7),
                       .max_tokens = i < 2 ? 160 : 40,
                       .seed = i},
                      recorders[i]);
        }
        while (batch.step()) {
        }
        for (std::uint64_t i = 0; i < 3; ++i) {
            Generator plain =
                make_generator(i < 2 ? chain_under(kSchemas[i], 0.7) : temperature_chain(0.7), nullptr, off());
            const GenerateResult expected = plain.generate({.input = input, .max_tokens = i < 2 ? 160 : 40, .seed = i});
            EXPECT_EQ(recorders[i].text, expected.text) << i;
            EXPECT_EQ(recorders[i].tokens, expected.tokens) << i;
            const auto& own = recorders[i].result.speculation.sources;
            if (i == 2) {
                EXPECT_TRUE(own.empty());
                continue;
            }
            ASSERT_EQ(own.size(), 1u);
            EXPECT_EQ(own[0].name, "forced");
            EXPECT_GT(own[0].accepted, 0) << i;
        }
    }
}

// A plugin that forces: what the budget writes when it is spent is drafted, in its own process or not, and the text is
// the same.
TEST(Forced, APluginForcesWhatItWrites) {
    const auto input = tokenizer().encode("total = 1  (* I think that ");
    const std::string message = " enough of that, so here is the answer to the question ";
    const auto loaded = plugins::PluginHost({{FORESAY_PLUGIN_FOLDER}, {}}).load("budget");
    for (const bool apart : {false, true}) {
        const auto factory = apart ? plugins::isolate(loaded, std::chrono::milliseconds(5000)) : loaded;
        const auto chain = [&] {
            static const EndingVocabulary ending;
            const samplers::Parameters parameters = {{"tokens", std::int64_t{6}},
                                                     {"begin", std::string("(*")},
                                                     {"end", std::string("*)")},
                                                     {"message", message}};
            return std::make_unique<samplers::Chain>(
                samplers::ChainSpec{{"budget", parameters, factory}, stage("temperature", {{"value", 0.7}})}, ending);
        };
        EXPECT_TRUE(chain()->forces());
        const GenerateRequest request{.input = input, .max_tokens = 40, .seed = 5};
        Generator plain = make_generator(chain(), nullptr, off());
        const GenerateResult expected = plain.generate(request);
        EXPECT_NE(expected.text.find(message + "*)"), std::string::npos) << expected.text;
        for (const SpeculationOptions& mode : {automatic(), fixed(4)}) {
            Generator generator = make_generator(chain(), nullptr, mode);
            const GenerateResult found = generator.generate(request);
            EXPECT_EQ(found.tokens, expected.tokens);
            // What pays is measured, so only fixed drafts are counted.
            if (mode.mode == core::SpeculationMode::automatic) continue;
            ASSERT_FALSE(found.speculation.sources.empty());
            const SourceStatistics& forced = found.speculation.sources.back();
            EXPECT_EQ(forced.name, "forced");
            EXPECT_EQ(forced.accepted, forced.drafted) << "nothing else may come";
            EXPECT_GE(forced.accepted, 8);
            EXPECT_LT(found.speculation.rounds, expected.speculation.rounds);
        }
    }
}

// Texts for python3-jsonschema, of `schemas` by their index.
class ForTheValidator {
public:
    ForTheValidator(const std::string& name, std::span<const char* const> schemas)
        : path_(testing::TempDir() + name), texts_(path_) {
        std::ofstream all(path_ + ".schemas");
        for (std::size_t i = 0; i < schemas.size(); ++i) all << (i == 0 ? "[" : ",") << schemas[i];
        all << "]";
    }
    void add(std::size_t schema, const std::string& text) {
        texts_ << "{\"schema\":" << schema << ",\"text\":" << text << "}\n";
    }
    // Whether all are valid; or, with "--expect-invalid", whether of each schema some text is not.
    bool finds(const std::string& option = "") {
        texts_.close();
        const std::string command = std::string("python3 ") + FORESAY_SOURCE_DIR + "/tests/speculative/validate.py " +
                                    option + " '" + path_ + ".schemas' '" + path_ + "'";
        return std::system(command.c_str()) == 0;
    }

private:
    std::string path_;
    std::ofstream texts_;
};

// What the next test would be worth without it: where a keyword is left out, the validator finds texts that the whole
// schema does not allow.
TEST(Forced, AKeywordThatIsLeftOutIsFoundByTheValidator) {
    if (std::system("python3 -c 'import jsonschema'") != 0) GTEST_SKIP() << "python3-jsonschema is not installed";
    const struct {
        const char* schema;
        const char* piece;
    } left_out[] = {
        {kSchemas[0], R"(,"required":["request_identifier","temperature_celsius","is_valid"])"},
        {R"({"type":"object","additionalProperties":false,"required":["port_number"],
             "properties":{"port_number":{"type":"integer","minimum":49152,"maximum":65535}}})",
         R"(,"minimum":49152,"maximum":65535)"},
        {kSchemas[0], R"("type":"boolean")"},
        {kSchemas[1], R"(,"maxLength":12)"},
        {kSchemas[1], R"("enum":["integer","string","boolean","nothing"])"},
        {kSchemas[2], R"("minItems":2,"maxItems":4,)"},
        {kSchemas[2], R"(,"pattern":"^[a-z_]{1,10}\\.py$")"},
        {kSchemas[4], R"(,"format":"date")"},
        {kSchemas[4], R"(,"format":"ipv4")"},
    };
    std::vector<const char*> whole;
    for (const auto& one : left_out) whole.push_back(one.schema);
    ForTheValidator texts("foresay_left_out.jsonl", whole);
    Generator generator = make_generator(temperature_chain(0.0), nullptr, off());
    for (std::size_t i = 0; i < whole.size(); ++i) {
        std::string schema = whole[i];
        const std::size_t at = schema.find(left_out[i].piece);
        ASSERT_NE(at, schema.npos) << left_out[i].piece;
        schema.erase(at, std::string_view(left_out[i].piece).size());
        int complete = 0;
        for (std::uint64_t seed = 0; complete < 3 && seed < 12; ++seed) {
            generator.truncate(0);
            generator.set_chain(chain_under(schema.c_str(), 1.0));
            const auto input = tokenizer().encode(kPrompts[seed % std::size(kPrompts)]);
            const GenerateResult result = generator.generate({.input = input, .max_tokens = 120, .seed = seed});
            if (result.finish != FinishReason::stop) continue;  // JSON that is cut off is no text of either schema
            texts.add(i, result.text);
            ++complete;
        }
        EXPECT_EQ(complete, 3) << left_out[i].piece;
    }
    EXPECT_TRUE(texts.finds("--expect-invalid"));
}

// FORESAY_CONSTRAINED texts, plain and speculated, for python3-jsonschema. Prints what they took.
TEST(Forced, EveryTextIsValid) {
    const char* wanted = std::getenv("FORESAY_CONSTRAINED");
    if (wanted == nullptr) GTEST_SKIP() << "set FORESAY_CONSTRAINED to a number of texts";
    const int count = std::atoi(wanted);
    ForTheValidator validator("foresay_constrained.jsonl", kSchemas);
    Generator plain = make_generator(temperature_chain(0.0), nullptr, off());
    Generator fast = make_generator(
        temperature_chain(0.0), sources(model_drafter(bundled(fast_backend(), "draft")), ngram_drafter()), automatic());
    double plain_ms = 0.0, fast_ms = 0.0;
    std::int64_t tokens = 0, forced = 0, drafted = 0, rounds = 0;
    for (int i = 0; i < count; ++i) {
        const std::size_t schema = static_cast<std::size_t>(i) % std::size(kSchemas);
        const auto input =
            tokenizer().encode(kPrompts[(static_cast<std::size_t>(i) / std::size(kSchemas)) % std::size(kPrompts)]);
        const double temperature = i % 3 == 0 ? 0.0 : i % 3 == 1 ? 0.6 : 1.0;
        const GenerateRequest request{.input = input, .seed = static_cast<std::uint64_t>(i)};
        std::string texts[2];
        for (Generator* generator : {&plain, &fast}) {
            generator->truncate(0);
            generator->set_chain(chain_under(kSchemas[schema], temperature));
            const GenerateResult result = generator->generate(request);
            ASSERT_EQ(result.finish, FinishReason::stop) << i;
            texts[generator == &fast ? 1 : 0] = result.text;
            (generator == &fast ? fast_ms : plain_ms) += result.decode_ms;
            if (generator != &fast) continue;
            tokens += static_cast<std::int64_t>(result.tokens.size());
            forced += result.speculation.sources.back().accepted;
            drafted += result.speculation.sources.back().drafted;
            rounds += result.speculation.rounds;
        }
        ASSERT_EQ(texts[0], texts[1]) << i;
        for (const std::string& text : texts) validator.add(schema, text);
    }
    std::printf(
        "%d texts of %lld tokens in %lld rounds, %lld forced of %lld so drafted; plain %.0f ms, speculated "
        "%.0f ms: %.2f times\n",
        count, static_cast<long long>(tokens), static_cast<long long>(rounds), static_cast<long long>(forced),
        static_cast<long long>(drafted), plain_ms, fast_ms, plain_ms / fast_ms);
    EXPECT_TRUE(validator.finds());
}

}  // namespace
}  // namespace foresay::speculative
