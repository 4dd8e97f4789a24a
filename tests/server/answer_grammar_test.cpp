// The grammars of answers, for each family: what they allow is what the parser of that family reads as calls, with
// arguments that are valid; and what they must not allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "server/error.h"
#include "server/output/answer_grammar.h"
#include "server/output/call_parser.h"

namespace foresay::server {
namespace {

using ::testing::HasSubstr;

std::vector<Tool> tools(bool strict) {
    return {{"weather", "",
             parse_json(R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
                        R"("unit":{"type":"string","enum":["C","F"]}},"required":["city","days"],)"
                        R"("additionalProperties":false})"),
             strict, "tools[0].parameters"},
            {"now", "", Json(), strict, "tools[1].parameters"}};
}

// Of single bytes, so that every text is tokens; control tokens stand as their text.
std::shared_ptr<const grammar::Vocabulary> bytes() {
    using grammar::TokenText;
    static const auto vocabulary = std::make_shared<const grammar::Vocabulary>(257, [](std::int32_t id) {
        return id < 256 ? TokenText{TokenText::Kind::text, std::string(1, static_cast<char>(id))}
                        : TokenText{TokenText::Kind::end, ""};
    });
    return vocabulary;
}

struct Wanted {
    OutputFormat format;
    Conversation conversation;
    std::optional<AnswerForm> form;
    core::AnswerMarkup markup;
    bool in_reasoning = false;

    bool allows(const std::string& text) const {
        const AnswerGrammar grammar{format, markup, in_reasoning, [](const Tool& tool) {
                                        return tool.parameters.is_object() ? tool.parameters
                                                                           : parse_json(R"({"type":"object"})");
                                    }};
        const std::string source = grammar.text(conversation, form ? &*form : nullptr);
        auto state = grammar::Grammar::begin(grammar::Grammar::compile(
            bytes(), {grammar::Language::structural_tag, source}, {.whitespace = grammar::Whitespace::compact}));
        return (text.empty() || state.accept(text)) && state.may_end();
    }
};

Wanted wanted(OutputFamily family, bool required, bool strict = true) {
    Wanted out;
    out.format.family = family;
    out.conversation.tools = tools(strict);
    out.conversation.must_call = required;
    return out;
}

struct Case {
    const char* name;
    OutputFormat format;
    std::string call;   // of weather({"city":"Oslo","days":2})
    std::string two;    // the same, and now({}); empty: the family writes one
    std::string wrong;  // days is no number
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
    using F = OutputFamily;
    const std::string arguments = R"({"city":"Oslo","days":2})", bad = R"({"city":"Oslo","days":"two"})";
    std::vector<Case> all;
    const auto add = [&](const char* name, OutputFormat format, const auto& call, const std::string& between) {
        const auto one = call("weather", arguments);
        all.push_back({name, format, one, between == "none" ? "" : one + between + call("now", std::string("{}")),
                       call("weather", bad)});
    };
    add(
        "hermes", {.family = F::hermes, .controls = {}},
        [](const std::string& n, const std::string& a) {
            return "<tool_call>\n{\"name\": \"" + n + "\", \"arguments\": " + a + "}\n</tool_call>";
        },
        "\n");
    add(
        "generic", {.family = F::generic, .controls = {}},
        [](const std::string& n, const std::string& a) {
            return "<tool_call>{\"name\": \"" + n + "\", \"arguments\": " + a + "}</tool_call>";
        },
        "\n");
    add(
        "llama3", {.family = F::llama3, .controls = {}},
        [](const std::string& n, const std::string& a) {
            return "{\"name\": \"" + n + "\", \"parameters\": " + a + "}";
        },
        "\n");
    add(
        "mistral", {.family = F::mistral, .controls = {}, .named_arguments = true},
        [](const std::string& n, const std::string& a) { return "[TOOL_CALLS]" + n + "[ARGS]" + a; }, "");
    add(
        "harmony", {.family = F::harmony, .controls = {}},
        [](const std::string& n, const std::string& a) {
            return "<|channel|>commentary to=functions." + n + " <|constrain|>json<|message|>" + a;
        },
        "none");
    const std::string list = R"([TOOL_CALLS][{"name": "weather", "arguments": )";
    all.push_back({"mistral list",
                   {.family = F::mistral, .controls = {}},
                   list + arguments + "}]",
                   list + arguments + R"(}, {"name": "now", "arguments": {}}])",
                   list + bad + "}]"});
    const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
    const auto deepseek = [](const std::string& n, const std::string& a) {
        return "<｜tool▁call▁begin｜>" + n + "<｜tool▁sep｜>" + a + "<｜tool▁call▁end｜>";
    };
    all.push_back({"deepseek",
                   {.family = F::deepseek, .controls = {}},
                   begin + deepseek("weather", arguments) + end,
                   begin + deepseek("weather", arguments) + deepseek("now", "{}") + end,
                   begin + deepseek("weather", bad) + end});
    const auto fenced = [](const std::string& n, const std::string& a) {
        return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + n + "\n```json\n" + a + "\n```<｜tool▁call▁end｜>";
    };
    all.push_back({"deepseek fenced",
                   {.family = F::deepseek, .controls = {}, .fenced_arguments = true},
                   begin + fenced("weather", arguments) + end,
                   begin + fenced("weather", arguments) + fenced("now", "{}") + end,
                   begin + fenced("weather", bad) + end});
    const auto parameters = [](const std::string& days) {
        return "\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
               "string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">" +
               days + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
    };
    const std::string calls = "<｜DSML｜function_calls>", calls_end = "</｜DSML｜function_calls>";
    all.push_back({"deepseek dsml",
                   {.family = F::deepseek, .controls = {}, .dsml = true},
                   calls + parameters("2") + calls_end,
                   calls + parameters("2") + "\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n" + calls_end,
                   calls + parameters("two") + calls_end});
    const auto coder = [](const std::string& days) {
        return "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n" + days +
               "\n</parameter>\n</function>\n</tool_call>";
    };
    all.push_back({"qwen coder",
                   {.family = F::qwen_coder, .controls = {}},
                   coder("2"),
                   coder("2") + "\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
                   coder("two")});
    return all;
}

class Families : public testing::TestWithParam<Case> {};

std::string read(const Case& c, const std::string& text) {
    CallParser parser(c.format.family, tools(true));
    std::vector<OutputEvent> events;
    parser.push(text, events);
    parser.finish(events);
    std::string told;
    for (const OutputEvent& event : events) {
        if (event.kind == OutputEvent::Kind::content) told += event.text;
        if (event.kind == OutputEvent::Kind::call) told += event.call.name + event.call.arguments + ";";
    }
    return told;
}

TEST_P(Families, WhatIsAllowedIsReadAsTheCallThatItIs) {
    const Case& c = GetParam();
    Wanted required = wanted(c.format.family, true);
    required.format = c.format;
    EXPECT_TRUE(required.allows(c.call)) << c.call;
    EXPECT_EQ(read(c, c.call), R"(weather{"city":"Oslo","days":2};)");
    EXPECT_FALSE(required.allows(c.wrong)) << c.wrong;
    EXPECT_FALSE(required.allows("")) << "nothing";
    EXPECT_FALSE(required.allows("Hello.")) << "content";
    if (!c.two.empty()) {
        EXPECT_TRUE(required.allows(c.two)) << c.two;
        EXPECT_EQ(read(c, c.two), R"(weather{"city":"Oslo","days":2};now{};)");
        required.conversation.one_call = true;
        EXPECT_FALSE(required.allows(c.two)) << "one call";
        EXPECT_TRUE(required.allows(c.call));
    }
    required.conversation.call_name = "now";
    EXPECT_FALSE(required.allows(c.call)) << "another tool";
}

TEST_P(Families, ChosenCallsMayBeLeftOutAndAreStrict) {
    const Case& c = GetParam();
    Wanted chosen = wanted(c.format.family, false);
    chosen.format = c.format;
    const std::string before = c.format.family == OutputFamily::harmony ? "<|channel|>final<|message|>" : "";
    for (const std::string text : {"Hello. {\"a\": 1}", "x < y", " if (a) { b }"})
        EXPECT_TRUE(chosen.allows(before + text)) << text;
    EXPECT_TRUE(chosen.allows(c.call));
    EXPECT_FALSE(chosen.allows(c.wrong)) << c.wrong;
    if (c.format.family != OutputFamily::llama3 && before.empty()) {
        EXPECT_TRUE(chosen.allows("Let me look.\n" + c.call));
        EXPECT_FALSE(chosen.allows("Let me look.\n" + c.wrong));
    }
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(cases()));

TEST(AnswerGrammars, ReasoningComesFirst) {
    Wanted w = wanted(OutputFamily::hermes, false);
    w.conversation.tools.clear();
    w.form = AnswerForm{.is_schema = true, .schema = parse_json(R"({"type":"integer"})"), .gbnf = {}, .param = "x"};
    w.markup = {core::AnswerMarkup::Kind::tags, "<think>", "</think>"};
    EXPECT_TRUE(w.allows("5"));
    EXPECT_TRUE(w.allows("<think>hm { </think>\n\n5"));
    EXPECT_FALSE(w.allows("<think>hm</think>five"));
    EXPECT_FALSE(w.allows("<think>5"));
    w.in_reasoning = true;  // the prompt ends in <think>
    EXPECT_TRUE(w.allows("hm</think>\n\n5"));
    EXPECT_FALSE(w.allows("5"));
    w.in_reasoning = false;
    w.format.family = OutputFamily::harmony;
    w.markup = {core::AnswerMarkup::Kind::harmony, "", ""};
    EXPECT_TRUE(w.allows("<|channel|>final<|message|>5"));
    EXPECT_TRUE(w.allows("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>5"));
    EXPECT_FALSE(w.allows("5"));
}

// Content of a form, or calls instead of it.
TEST(AnswerGrammars, AFormLeavesRoomForCalls) {
    Wanted w = wanted(OutputFamily::hermes, false, false);
    w.form = AnswerForm{.is_schema = false, .schema = {}, .gbnf = "root ::= \"yes\" | \"no\"", .param = "grammar"};
    EXPECT_TRUE(w.allows("yes"));
    EXPECT_TRUE(w.allows("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
    EXPECT_FALSE(w.allows("maybe"));
}

TEST(AnswerGrammars, WhatAFamilyCannotKeepIsRefused) {
    const auto says = [](const Wanted& w) -> std::string {
        try {
            w.allows("");
        } catch (const ApiError& error) {
            return std::string(error.what()) + "|" + error.param;
        }
        return "";
    };
    Wanted w = wanted(OutputFamily::gemma, true);
    w.conversation.call_param = "tool_choice";
    EXPECT_THAT(says(w), HasSubstr("|tool_choice"));
    w = wanted(OutputFamily::qwen_coder, true);
    w.conversation.tools[0].parameters = parse_json(R"({"properties":{"a":{"type":"string","pattern":"x"}}})");
    EXPECT_THAT(says(w), HasSubstr("'pattern' cannot be kept"));
    w.conversation.tools[0].strict = false;
    EXPECT_EQ(says(w), "");
}

}  // namespace
}  // namespace foresay::server
