// The program under a grammar: answers are valid, the same with speculation and without, and what is wrong is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kSchema = R"({"type": "object", "additionalProperties": false, "required": ["name", "sizes"],
    "properties": {"name": {"type": "string", "pattern": "^[a-z_]{3,12}$"},
                   "sizes": {"type": "array", "items": {"type": "integer", "minimum": 2, "maximum": 99},
                             "minItems": 2, "maxItems": 4},
                   "kind": {"enum": ["list", "tuple"]}}})";

Outcome complete_under(const std::string& option, const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"complete", "-p", "def parse(text):\n    return ", "-n", "120", option, file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
}

TEST(GrammarProgram, AnswersAreValidAndTheSameWithSpeculationAndWithout) {
    const std::string file = write_scratch("schema.json", kSchema);
    for (const char* temperature : {"0", "0.9"}) {
        const std::vector<std::string> options = {"--seed", "7", "--temperature", temperature};
        const auto with = [&](const std::string& speculation) {
            std::vector<std::string> more = options;
            more.insert(more.end(), {"--speculation", speculation});
            return complete_under("--json-schema", file, more);
        };
        const Outcome plain = with("off");
        ASSERT_EQ(plain.status, 0) << plain.error;
        for (const char* speculation : {"auto", "4"}) EXPECT_EQ(with(speculation).out, plain.out) << speculation;
        const json value = json::parse(plain.out, nullptr, false);
        ASSERT_TRUE(value.is_object()) << plain.out;
        const std::string name = value.at("name");
        EXPECT_TRUE(name.size() >= 3 && name.size() <= 12 &&
                    name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == name.npos)
            << name;
        EXPECT_TRUE(value.at("sizes").size() >= 2 && value.at("sizes").size() <= 4) << plain.out;
        for (const json& size : value.at("sizes")) EXPECT_TRUE(size >= 2 && size <= 99) << plain.out;
        EXPECT_TRUE(!value.contains("kind") || value["kind"] == "list" || value["kind"] == "tuple") << plain.out;
        EXPECT_LE(value.size(), 3u);
    }
}

TEST(GrammarProgram, AGbnfFileAndTheEnd) {
    const std::string file =
        write_scratch("answer.gbnf", "root ::= \"yes, \" reason\nreason ::= [a-z]{4} \" \" reason | \"so\"\n");
    const Outcome outcome = complete_under("--grammar", file, {"--temperature", "0", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const json result = json::parse(outcome.out);
    const std::string text = result.at("text");
    EXPECT_TRUE(text.starts_with("yes, ")) << text;
    EXPECT_TRUE(result.at("finish_reason") == "length" || text.ends_with("so")) << text;
}

// A limit, or the end of the context, that comes before the end of the grammar.
TEST(GrammarProgram, AnAnswerThatEndsWithinTheGrammarIsSaid) {
    const std::string file = write_scratch("long.gbnf", "root ::= [a-z]{400} \"!\"\n");
    const auto cut = [&](std::vector<std::string> more) {
        std::vector<std::string> arguments = {"complete", "-p", "x =", "--grammar", file};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    };
    const Outcome limit = cut({"-n", "3", "--json"});
    EXPECT_EQ(limit.status, 0);
    EXPECT_EQ(json::parse(limit.out).at("unfinished"), "grammar");
    EXPECT_EQ(limit.error,
              "foresay: the answer ends before the grammar of sampler 'grammar' does: it has the 3 tokens "
              "that it may have; -n allows more\n");
    const Outcome context = cut({"-n", "0", "--context", "16"});
    EXPECT_EQ(context.error,
              "foresay: the answer ends before the grammar of sampler 'grammar' does: the context is "
              "full; target.context makes it longer\n");
    const Outcome whole =
        complete_under("--grammar", write_scratch("short.gbnf", "root ::= \"a\" | \"aa\"\n"), {"--json"});
    EXPECT_FALSE(json::parse(whole.out).contains("unfinished")) << whole.out;
    EXPECT_EQ(whole.error, "");
    const Outcome talk = chat("/set chat.max_tokens=3\n/grammar regex [a-z]{400}\nx =\n/grammar off\nx =\n");
    EXPECT_THAT(talk.error, HasSubstr("it has the 3 tokens that it may have; /set chat.max_tokens allows more"));
    EXPECT_EQ(talk.error.find("ends before"), talk.error.rfind("ends before")) << "once: " << talk.error;
}

// After it nothing may come, so the text ends there, also where end tokens are tokens like any other.
TEST(GrammarProgram, TheEndOfAGrammarEndsTheTextWhateverEndTokensAre) {
    const std::string file = write_scratch("end.gbnf", "root ::= \"yes\" | \"no\"\n");
    for (const char* speculation : {"off", "4"}) {
        const Outcome outcome =
            complete_under("--grammar", file, {"--ignore-eos", "--json", "--speculation", speculation});
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_EQ(json::parse(outcome.out).at("finish_reason"), "stop") << outcome.out;
    }
}

// A path is relative to the file that states it, also where another one extends that, whatever lies there by that name.
TEST(GrammarProgram, AConfigurationNamesAFile) {
    for (const char* folder : {"base", "own"}) std::filesystem::create_directories(scratch() / folder);
    write_scratch("base/form.gbnf", "root ::= \"base\"\n");
    write_scratch("own/form.gbnf", "root ::= \"own\"\n");
    const std::string base = write_scratch("base/base.toml",
                                           "[sampling]\nchain = [\"grammar\", \"temperature\"]\n"
                                           "[sampling.grammar]\nlanguage = \"gbnf\"\nfile = \"form.gbnf\"\n");
    const std::string extends = "extends = \"../base/base.toml\"\n";
    const auto complete_with = [](const std::string& config, std::vector<std::string> more = {}) {
        std::vector<std::string> arguments = {"complete", config, "-p", "x"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    };
    EXPECT_EQ(complete_with(base).out, "base");
    EXPECT_EQ(complete_with(write_scratch("own/same.toml", extends)).out, "base");
    EXPECT_EQ(
        complete_with(write_scratch("own/other.toml", extends + "[sampling.grammar]\nfile = \"form.gbnf\"\n")).out,
        "own");
    // A sampler of another name has its options, and its path, in a [[plugin]].
    const std::string named = write_scratch(
        "own/named.toml",
        "[sampling]\nchain = [\"form\", \"temperature\"]\n[[plugin]]\nname = \"form\"\nsampler = \"grammar\"\n"
        "[plugin.options]\nlanguage = \"gbnf\"\nfile = \"form.gbnf\"\n");
    EXPECT_EQ(complete_with(named).out, "own");
    EXPECT_EQ(complete_with(write_scratch("base/far.toml", "extends = \"../own/named.toml\"\n")).out, "own");
    // What an option or a command states takes its place.
    EXPECT_EQ(complete_with(base, {"--grammar", write_scratch("a.gbnf", "root ::= \"a\"\n")}).out, "a");
    EXPECT_THAT(run({"chat", "--lines", base}, "/grammar regex [0]{3}\nx =\n").out, HasSubstr("000"));
    // What is wrong, with its place.
    const std::string missing = write_scratch("own/missing.toml", extends + "[sampling.grammar]\nfile = \"no.gbnf\"\n");
    EXPECT_THAT(complete_with(missing).error, HasSubstr("missing.toml:3:8: 'sampling.grammar.file': no file at " +
                                                        (scratch() / "own/no.gbnf").string()));
    EXPECT_THAT(complete_with(base, {"--set", "sampling.grammar.text='b'"}).error,
                HasSubstr("grammar: 'text' and 'file' both state a grammar"));
    write_scratch("base/form.gbnf", "root ::= \"a");
    EXPECT_THAT(complete_with(base).error, AllOf(HasSubstr("base/form.gbnf: "), HasSubstr("not closed")));
}

TEST(GrammarProgram, WhatIsWrongIsSaid) {
    const auto says = [&](const std::string& option, const std::string& file) {
        return complete_under(option, file, {});
    };
    const Outcome refused = says("--json-schema", write_scratch("not.json", R"({"items": {"not": {}}})"));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, HasSubstr("grammar: the schema cannot be used: \"not\" at #/items is not supported"));
    EXPECT_EQ(refused.out, "");
    const Outcome broken = says("--grammar", write_scratch("broken.gbnf", "root ::= \"a"));
    EXPECT_EQ(broken.status, 1);
    EXPECT_THAT(broken.error, HasSubstr("not closed, in line 1"));
    EXPECT_EQ(says("--json-schema", "no/such/file.json").status, 1);
    const Outcome both = run({"complete", "-p", "x", "--json-schema", write_scratch("a", "{}"), "--grammar",
                              write_scratch("b", "root ::= \"b\"")});
    EXPECT_EQ(both.status, 2) << both.error;
}

TEST(GrammarProgram, InAConversation) {
    const Outcome outcome = chat("/grammar regex [0]{3}\nx =\n/grammar off\n/grammar nothing.txt\n");
    EXPECT_THAT(outcome.out, HasSubstr("000"));
    EXPECT_THAT(outcome.out + outcome.error, HasSubstr("/grammar reads a JSON Schema (FILE.json) or GBNF (FILE.gbnf)"));
}

}  // namespace
}  // namespace foresay::testing
