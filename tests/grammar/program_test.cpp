// The program under a grammar: answers are valid, the same with speculation and without, and what is wrong is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using nlohmann::json;
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
