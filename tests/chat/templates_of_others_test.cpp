// Every template of a folder against Jinja2: with and without a system prompt, tools and reasoning, the rendered bytes
// are the same, or both refuse. FORESAY_CHAT_TEMPLATES names the folder, for example models/templates of a copy of
// llama.cpp; the templates are others' and not part of this repository. Needs python3 with jinja2.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/jinja/from_json.h"
#include "core/jinja/template.h"

namespace foresay::jinja {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

// Conversations in all the shapes that templates tell apart.
Json cases() {
    const auto user = [](const char* text) { return Json{{"role", "user"}, {"content", text}}; };
    const auto assistant = [](const char* text) { return Json{{"role", "assistant"}, {"content", text}}; };
    const Json system = {{"role", "system"}, {"content", "Be brief. \"Quote\" <b>&amp;</b>\n\nSecond paragraph."}};
    Json thinking = assistant("It is 4.");
    thinking["reasoning_content"] = "2 + 2\nis 4";
    thinking["reasoning"] = "2 + 2\nis 4";
    thinking["thinking"] = "2 + 2\nis 4";
    Json call = {{"role", "assistant"},
                 {"content", ""},
                 {"tool_calls",
                  {{{"id", "call12345"},
                    {"type", "function"},
                    {"function", {{"name", "weather"}, {"arguments", {{"city", "Zürich"}, {"days", 2}}}}}}}}};
    Json call_text = call;
    call_text["tool_calls"][0]["function"]["arguments"] = R"({"city": "Zürich", "days": 2})";
    Json call_null = call;
    call_null["content"] = nullptr;
    const Json result = {
        {"role", "tool"}, {"name", "weather"}, {"tool_call_id", "call12345"}, {"content", R"({"sky": "grey"})"}};
    const Json tools = {{{"type", "function"},
                         {"function",
                          {{"name", "weather"},
                           {"description", "The weather of a city, for some days"},
                           {"parameters",
                            {{"type", "object"},
                             {"properties",
                              {{"city", {{"type", "string"}, {"description", "its name, as \"Zürich\""}}},
                               {"days", {{"type", "integer"}, {"description", "how many"}, {"default", 1}}},
                               {"unit", {{"type", "string"}, {"enum", {"C", "F"}}}},
                               {"tags", {{"type", "array"}, {"items", {{"type", "string"}}}}}}},
                             {"required", {"city"}}}}}}},
                        {{"type", "function"},
                         {"function",
                          {{"name", "now"},
                           {"description", "The time"},
                           {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}};

    const std::pair<const char*, Json> conversations[] = {
        {"user", {user("Hello, wörld! <|im_end|>")}},
        {"system", {system, user("  What is 2+2? \n")}},
        {"turns", {user("a"), assistant("b"), user("c"), assistant(" d \n"), user("e")}},
        {"system and turns", {system, user("a"), assistant("b"), user("c")}},
        {"ends with an answer", {user("a"), assistant("b")}},
        {"reasoning", {system, user("2+2?"), thinking, user("and 3+3?")}},
        {"ends with reasoning", {user("2+2?"), thinking}},
        {"inline reasoning", {user("2+2?"), assistant("<think>\nhm\n</think>\n\nIt is 4."), user("ok")}},
        {"call", {system, user("Weather?"), call, result, assistant("Grey."), user("Thanks")}},
        {"call, waiting", {user("Weather?"), call, result}},
        {"call with text arguments", {user("Weather?"), call_text, result}},
        {"call without content", {system, user("Weather?"), call_null, result, assistant("Grey.")}},
        {"two users", {user("a"), user("b")}},
        {"assistant first", {assistant("a"), user("b")}},
        {"empty", Json::array()},
    };
    Json out = Json::object();
    for (const auto& [name, messages] : conversations) {
        for (const bool prompt : {true, false}) {
            for (const bool with_tools : {false, true}) {
                for (const char* thinks : {"", "true", "false"}) {
                    Json variables = {{"messages", messages}, {"tools", with_tools ? tools : Json()},
                                      {"documents", nullptr}, {"add_generation_prompt", prompt},
                                      {"bos_token", "<s>"},   {"eos_token", "</s>"}};
                    std::string label = std::string(name) + (prompt ? ", prompt" : "") + (with_tools ? ", tools" : "");
                    if (*thinks != '\0') {
                        const bool on = std::string(thinks) == "true";
                        variables["enable_thinking"] = variables["thinking"] = on;
                        variables["reasoning_effort"] = on ? "high" : "low";
                        variables["builtin_tools"] = {"browser", "python"};
                        label += on ? ", thinks" : ", does not think";
                    }
                    out[label] = std::move(variables);
                }
            }
        }
    }
    return out;
}

TEST(TemplatesOfOthers, RenderAsWithJinja2) {
    const char* const folder = std::getenv("FORESAY_CHAT_TEMPLATES");
    if (folder == nullptr) GTEST_SKIP() << "FORESAY_CHAT_TEMPLATES names no folder with templates";
    if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3 with jinja2";
    Json asked = {{"templates", Json::object()}, {"cases", cases()}};
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".jinja") asked["templates"][entry.path().filename()] = read(entry.path());
    }
    ASSERT_FALSE(asked["templates"].empty()) << folder << " has no file *.jinja";
    const fs::path question = testing::TempDir() + "/foresay-templates-" + std::to_string(::getpid()) + ".json";
    const fs::path answer = question.string() + ".answer";
    std::ofstream(question) << asked.dump();
    const std::string command =
        "python3 " FORESAY_SOURCE_DIR "/tests/chat/render_with_jinja2.py " + question.string() + " " + answer.string();
    ASSERT_EQ(std::system(command.c_str()), 0);
    const Json expected = Json::parse(read(answer));
    fs::remove(question);
    fs::remove(answer);

    std::tm date{};
    date.tm_year = 124;
    date.tm_mon = 6;
    date.tm_mday = 26;
    date.tm_wday = 5;
    date.tm_yday = 207;
    int same = 0, refused_by_both = 0, refused = 0;
    std::map<std::string, Value> conversations;
    for (const auto& [label, variables] : asked["cases"].items()) conversations[label] = from_json(variables.dump());
    for (const auto& [name, source] : asked["templates"].items()) {
        const Template compiled(source.get<std::string>());  // all of them compile
        const int refused_before = refused, same_before = same;
        for (const auto& [label, values] : conversations) {
            const Json& theirs = expected[name][label];
            try {
                const std::string text = compiled.render(values.dict(), date).bytes();
                EXPECT_TRUE(theirs.contains("text")) << name << " (" << label << "): Jinja2 refuses it: " << theirs;
                if (!theirs.contains("text")) continue;
                EXPECT_EQ(text, theirs["text"].get<std::string>()) << name << " (" << label << ")";
                ++same;
            } catch (const TemplateError& problem) {
                EXPECT_GT(problem.line(), 0) << name << " (" << label << "): " << problem.what();
                if (theirs.contains("refused")) {
                    ++refused_by_both;
                } else {
                    ++refused;
                    std::cout << name << " (" << label << "): " << problem.what() << "\n";
                }
            }
        }
        EXPECT_GE(same - same_before, refused - refused_before) << name << " is refused more often than it is rendered";
    }
    EXPECT_LE(refused, same / 20) << "refused here alone";
    std::cout << asked["templates"].size() << " templates, " << same << " renderings equal, " << refused_by_both
              << " refused as Jinja2 refuses them, " << refused << " refused here alone\n";
}

}  // namespace
}  // namespace foresay::jinja
