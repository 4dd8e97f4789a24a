// Calls of tools in the answers of each family: whole ones are found, broken ones are content, and no cut of the text
// changes anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "server/json.h"
#include "server/output/call_parser.h"

namespace foresay::server {
namespace {

using Kind = OutputEvent::Kind;

std::vector<Tool> tools() {
    return {
        {"weather", "",
         parse_json(R"({"properties":{"city":{"type":"string"},"days":{"type":"integer"},"zip":{"type":"string"}}})")},
        {"edit", "", parse_json(R"({"properties":{"text":{"type":"string"},"lines":{"type":"array"}}})")}};
}

// Events as one text: content as it is, calls as "«name(arguments)#id»"; blanks around calls are left out.
std::string told(const std::vector<OutputEvent>& events) {
    std::string text;
    for (const OutputEvent& event : events) {
        if (event.kind == Kind::content) text += event.text;
        if (event.kind == Kind::call)
            text += "«" + event.call.name + "(" + event.call.arguments + ")" +
                    (event.call.id.empty() ? "" : "#" + event.call.id) + "»";
    }
    return text;
}

std::string raw(const std::vector<OutputEvent>& events) {
    std::string text;
    for (const OutputEvent& event : events) text += event.text;
    return text;
}

std::vector<OutputEvent> parse(OutputFamily family, const std::vector<std::string_view>& pieces) {
    CallParser parser(family, tools());
    std::vector<OutputEvent> events;
    for (const std::string_view piece : pieces) parser.push(piece, events);
    parser.finish(events);
    return events;
}

struct Case {
    OutputFamily family;
    std::string text;
    std::string expected;
};

const std::vector<Case>& cases() {
    using F = OutputFamily;
    static const std::vector<Case> table = {
        // ---- hermes
        {F::hermes, "Plain text.", "Plain text."},
        {F::hermes, "", ""},
        {F::hermes, "  \n", "  \n"},
        {F::hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
         "«weather({\"city\":\"Oslo\"})»"},
        {F::hermes, "Let me look.\n<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>",
         "Let me look.\n«weather({})»"},
        {F::hermes,
         "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"A\"}}</tool_call>\n<tool_call>{\"name\":\"edit\","
         "\"arguments\":{\"text\":\"</tool_call>\"}}</tool_call>\n",
         "«weather({\"city\":\"A\"})»«edit({\"text\":\"</tool_call>\"})»"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\": 1}\"}</tool_call>",
         "«weather({\"city\": 1})»"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"A\"}}", "«weather({\"city\":\"A\"})»"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":{}} and more", "«weather({})» and more"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":{\"ci",
         "<tool_call>{\"name\":\"weather\",\"arguments\":{\"ci"},
        {F::hermes, "<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>"},
        {F::hermes, "<tool_call>{\"arguments\":{}}</tool_call>", "<tool_call>{\"arguments\":{}}</tool_call>"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":[1]}</tool_call>x",
         "<tool_call>{\"name\":\"weather\",\"arguments\":[1]}</tool_call>x"},
        {F::hermes, "a <tool_cal b <tool_", "a <tool_cal b <tool_"},
        {F::hermes, "<tool_call><tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>",
         "<tool_call>«weather({})»"},
        {F::hermes, "{\"name\":\"weather\",\"arguments\":{}}", "{\"name\":\"weather\",\"arguments\":{}}"},
        {F::hermes, "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call> Done.", "«weather({})» Done."},
        // ---- qwen coder
        {F::qwen_coder,
         "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
         "</function>\n</tool_call>",
         "«weather({\"city\":\"Oslo\",\"days\":3})»"},
        {F::qwen_coder, "<function=weather>\n<parameter=zip>\n0150\n</parameter>\n</function>",
         "«weather({\"zip\":\"0150\"})»"},
        {F::qwen_coder,
         "<tool_call><function=edit><parameter=text>\na </parameter> b </function> "
         "c\n</parameter></function></tool_call>",
         "«edit({\"text\":\"a </parameter> b </function> c\"})»"},
        {F::qwen_coder, "<function=weather></function>", "«weather({})»"},
        {F::qwen_coder, "<function=edit><parameter=lines>[1, 2]</parameter><parameter=lines>[3]</parameter></function>",
         "«edit({\"lines\":[3]})»"},
        {F::qwen_coder, "<function=weather><parameter=city>Oslo<parameter=days>2</parameter></function>",
         "«weather({\"city\":\"Oslo\",\"days\":2})»"},
        {F::qwen_coder, "<function=weather><parameter=city>Os", "<function=weather><parameter=city>Os"},
        {F::qwen_coder, "if (a <function b) {}", "if (a <function b) {}"},
        // ---- llama 3
        {F::llama3, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}", "«weather({\"city\":\"Oslo\"})»"},
        {F::llama3, "<|python_tag|>{\"type\":\"function\",\"name\":\"weather\",\"parameters\":{}}", "«weather({})»"},
        {F::llama3, "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
        {F::llama3, "{\"name\": \"other\", \"parameters\": {}}", "{\"name\": \"other\", \"parameters\": {}}"},
        {F::llama3, "{\"a\": 1}", "{\"a\": 1}"},
        {F::llama3, "See {\"name\": \"weather\", \"parameters\": {}}",
         "See {\"name\": \"weather\", \"parameters\": {}}"},
        {F::llama3, "\n\n{\"name\":\"weather\",\"parameters\":{}}\n{\"name\":\"edit\",\"parameters\":{}}",
         "«weather({})»«edit({})»"},
        {F::llama3, "{\"name\": \"wea", "{\"name\": \"wea"},
        // ---- mistral
        {F::mistral,
         "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}, \"id\": \"abcdefghi\"}]",
         "«weather({\"city\":\"Oslo\"})#abcdefghi»"},
        {F::mistral, "[TOOL_CALLS] [{\"name\":\"weather\",\"arguments\":{}},{\"name\":\"edit\",\"arguments\":{}}]",
         "«weather({})»«edit({})»"},
        {F::mistral, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]edit[ARGS]{}",
         "«weather({\"city\": \"Oslo\"})»«edit({})»"},
        {F::mistral, "[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{}", "«weather({})#123456789»"},
        {F::mistral, "[TOOL_CALLS]weather{\"city\": 1}", "«weather({\"city\": 1})»"},
        {F::mistral, "[TOOL_CALLS]weather[ARGS]{\"city", "[TOOL_CALLS]weather[ARGS]{\"city"},
        {F::mistral, "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
        {F::mistral, "Arrays: [1] [TOOL", "Arrays: [1] [TOOL"},
        // ---- harmony
        {F::harmony, "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\"Oslo\"}",
         "«weather({\"city\":\"Oslo\"})»"},
        {F::harmony, " to=functions.weather<|channel|>commentary json<|message|>{}", "«weather({})»"},
        {F::harmony, "Text <|channel|>commentary to=functions.weather <|message|>not json",
         "Text <|channel|>commentary to=functions.weather <|message|>not json"},
        {F::harmony, "<|channel|>final<|message|>hello", "<|channel|>final<|message|>hello"},
        // ---- deepseek
        {F::deepseek,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\":\"Oslo\"}\n```<"
         "｜tool▁call▁"
         "end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n{}\n```<｜tool▁call▁end｜><"
         "｜tool▁calls▁end｜>",
         "«weather({\"city\":\"Oslo\"})»«edit({})»"},
        {F::deepseek,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\":\"Oslo\"}<｜tool▁call▁end｜><"
         "｜tool▁calls▁end｜>",
         "«weather({\"city\":\"Oslo\"})»"},
        {F::deepseek,
         "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
         "string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
         "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "«weather({\"city\":\"Oslo\",\"days\":2})»"},
        {F::deepseek, "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"ci",
         "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"ci"},
        // ---- gemma
        {F::gemma, "<|tool_call>call:weather{city:<|\"|>Oslo, \"N\"<|\"|>,days:3,flags:[true,null]}<tool_call|>",
         "«weather({\"city\":\"Oslo, \\\"N\\\"\",\"days\":3,\"flags\":[true,null]})»"},
        {F::gemma, "<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call>",
         "«weather({\"city\":\"Oslo\"})»"},
        {F::gemma, "<|tool_call>call:weather{}<tool_call|><|tool_call>call:edit{a:{b:1}}<tool_call|>",
         "«weather({})»«edit({\"a\":{\"b\":1}})»"},
        {F::gemma, "<|tool_call>call:weather{city:}<tool_call|>", "<|tool_call>call:weather{city:}<tool_call|>"},
        {F::gemma, "<|tool_call>cool", "<|tool_call>cool"},
        // ---- generic
        {F::generic, "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>", "«weather({})»"},
        {F::generic, "{\"name\":\"weather\",\"arguments\":{\"city\":\"Oslo\"}}", "«weather({\"city\":\"Oslo\"})»"},
        {F::generic, "{\"name\":\"Ann\",\"arguments\":{}}", "{\"name\":\"Ann\",\"arguments\":{}}"},
    };
    return table;
}

TEST(Calls, AreFoundInEveryFamilyAndInEveryCut) {
    for (const Case& one : cases()) {
        const std::string_view text = one.text;
        const std::vector<OutputEvent> whole = parse(one.family, {text});
        EXPECT_EQ(told(whole), one.expected) << name_of(one.family) << ": " << text;
        EXPECT_EQ(raw(whole), text) << "no byte is lost";
        std::vector<std::string_view> bytes;
        for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
        EXPECT_EQ(told(parse(one.family, bytes)), one.expected) << "byte by byte: " << text;
        for (std::size_t cut = 1; cut < text.size(); ++cut) {
            const auto events = parse(one.family, {text.substr(0, cut), text.substr(cut)});
            ASSERT_EQ(told(events), one.expected) << name_of(one.family) << " cut at " << cut << ": " << text;
            ASSERT_EQ(raw(events), text);
        }
    }
}

// outputs.json: for each family sixty answers and more, half of them broken or no calls at all, each with the calls
// and the content that it must become. They are cut at every place, byte by byte, and at random.
TEST(Calls, OutputsOfEachFamilyBecomeWhatTheyMust) {
    std::ifstream file(FORESAY_SOURCE_DIR "/tests/server/outputs.json");
    std::stringstream text;
    text << file.rdbuf();
    const Json whole = parse_json(text.str());
    std::vector<Tool> tools;
    for (const Json& tool : whole["tools"].items())
        tools.push_back({.name = tool.text("name"), .parameters = tool["parameters"]});
    const auto events_of = [&](OutputFamily family, const std::vector<std::string_view>& pieces) {
        CallParser parser(family, tools);
        std::vector<OutputEvent> events;
        for (const std::string_view piece : pieces) parser.push(piece, events);
        parser.finish(events);
        return events;
    };
    std::mt19937 random(11);
    for (int number = 0; number <= static_cast<int>(OutputFamily::generic); ++number) {
        const auto family = static_cast<OutputFamily>(number);
        const std::string name(name_of(family));
        const Json& cases = whole["families"][name];
        ASSERT_TRUE(cases.is_list()) << name;
        std::size_t broken = 0;
        EXPECT_GE(cases.items().size(), 50u) << name;
        for (const Json& one : cases.items()) {
            const std::string& answer = one.items()[0].string();
            const Json::List& calls = one.items()[1].items();
            broken += calls.empty() ? 1 : 0;
            const auto expect = [&](const std::vector<std::string_view>& pieces, const char* how) {
                const std::vector<OutputEvent> events = events_of(family, pieces);
                std::string content, bytes;
                std::vector<const ToolCall*> found;
                for (const OutputEvent& event : events) {
                    bytes += event.text;
                    if (event.kind == Kind::content) content += event.text;
                    if (event.kind == Kind::call) found.push_back(&event.call);
                }
                EXPECT_EQ(content, one.items()[2].string()) << name << ", " << how << ": " << answer;
                EXPECT_EQ(bytes, answer) << name << ", " << how;
                ASSERT_EQ(found.size(), calls.size()) << name << ", " << how << ": " << answer;
                for (std::size_t i = 0; i < calls.size(); ++i) {
                    EXPECT_EQ(found[i]->name, calls[i].items()[0].string()) << name << ": " << answer;
                    EXPECT_EQ(parse_json(found[i]->arguments), calls[i].items()[1]) << name << ": " << answer;
                }
            };
            const std::string_view view = answer;
            expect({view}, "whole");
            std::vector<std::string_view> bytes;
            for (std::size_t i = 0; i < view.size(); ++i) bytes.push_back(view.substr(i, 1));
            expect(bytes, "byte by byte");
            for (std::size_t cut = 1; cut < view.size(); ++cut)
                expect({view.substr(0, cut), view.substr(cut)}, "cut in two");
            for (int i = 0; i < 5; ++i) {
                std::vector<std::string_view> pieces;
                for (std::size_t at = 0; at < view.size();) {
                    pieces.push_back(view.substr(at, 1 + random() % 7));
                    at += pieces.back().size();
                }
                expect(pieces, "cut at random");
            }
            if (HasFailure()) return;
        }
        EXPECT_GE(broken, 20u) << name;
    }
}

// Broken texts: pieces of the cases in random order, and random bytes changed.
TEST(Calls, BrokenTextsLoseNothingAndDoNotDependOnTheCut) {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        const Case& first = cases()[random() % cases().size()];
        const Case& second = cases()[random() % cases().size()];
        std::string text = first.text.substr(0, random() % (first.text.size() + 1));
        if (random() % 2 == 0) text += second.text.substr(random() % (second.text.size() + 1));
        for (unsigned i = random() % 3; i > 0 && !text.empty(); --i)
            text[random() % text.size()] = "{}[]<>\" \n"[random() % 9];
        const OutputFamily family = first.family;
        const std::vector<OutputEvent> whole = parse(family, {text});
        ASSERT_EQ(raw(whole), text);
        const std::string_view view = text;
        for (int i = 0; i < 4; ++i) {
            std::vector<std::string_view> pieces;
            for (std::size_t at = 0; at < view.size();) {
                const std::size_t size = std::min<std::size_t>(view.size() - at, 1 + random() % 9);
                pieces.push_back(view.substr(at, size));
                at += size;
            }
            ASSERT_EQ(told(parse(family, pieces)), told(whole)) << name_of(family) << ": " << text;
        }
    }
}

TEST(Calls, HaveAName) {
    const std::string text = "<｜DSML｜invoke name=\"\"></｜DSML｜invoke>";
    EXPECT_EQ(told(parse(OutputFamily::deepseek, {text})), text);
}

// A name may be so long and no longer, wherever the text is cut.
TEST(Calls, LongNamesDoNotDependOnTheCut) {
    const std::string args = "{\"a\":1}";
    for (std::size_t size = 225; size < 275; ++size) {
        const std::string name(size, 'n');
        const std::pair<OutputFamily, std::string> texts[] = {
            {OutputFamily::harmony, "<|channel|>commentary to=" + name + "<|message|>" + args},
            {OutputFamily::qwen_coder, "<tool_call>\n<function=" + name + ">\n</function>\n</tool_call>"},
            {OutputFamily::deepseek, "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + args + "<｜tool▁call▁end｜>"}};
        for (const auto& [family, text] : texts) {
            std::vector<std::string_view> pieces;
            for (const char& c : text) pieces.emplace_back(&c, 1);
            EXPECT_EQ(told(parse(family, pieces)), told(parse(family, {text}))) << name_of(family) << " " << size;
        }
    }
}

// Names are bytes of a model, too: the likeliest tokens of a place, and the keys of a call.
TEST(Calls, WhatIsWrittenIsUtf8) {
    const Json json = Json::object({{"\xE2\x82", Json("\xFF")}});
    EXPECT_EQ(json.dump(), "{\"\xEF\xBF\xBD\":\"\xEF\xBF\xBD\"}");
    const auto events = parse(OutputFamily::gemma, {"<|tool_call>call:f{a\xFE:1}<tool_call|>"});
    ASSERT_EQ(events.size(), 1u);
    EXPECT_NO_THROW(parse_json(events[0].call.arguments));
}

TEST(Calls, PlainTextIsNotHeldBack) {
    CallParser parser(OutputFamily::hermes, tools());
    std::vector<OutputEvent> events;
    parser.push("Hello, <b>you</b> ", events);
    EXPECT_EQ(told(events), "Hello, <b>you</b> ");
    parser.push("and <tool", events);
    EXPECT_EQ(told(events), "Hello, <b>you</b> and ");
    parser.push("box>", events);
    EXPECT_EQ(told(events), "Hello, <b>you</b> and <toolbox>");
}

}  // namespace
}  // namespace foresay::server
