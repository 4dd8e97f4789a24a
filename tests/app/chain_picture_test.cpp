// /chain: the table, the JSON and the picture of a row computed by hand, and that the program samples a token again as
// it did before.
#include "app/chain_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/statistics.h"
#include "app/terminal.h"
#include "samplers/chain_trace.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

constexpr float kDropped = -std::numeric_limits<float>::infinity();

std::vector<float> logarithms(std::vector<float> values) {
    for (float& value : values) value = value > 0 ? std::log(value) : kDropped;
    return values;
}

// Probabilities 8, 4, 2, 1, 1 of 16; a cut to two: 8, 4 of 12; a temperature of one half: 64, 16 of 80. The noise lets
// the second one win.
samplers::ChainTrace trace_by_hand() {
    samplers::ChainTrace trace;
    trace.columns.push_back({"", logarithms({8, 4, 2, 1, 1}), "", false});
    trace.columns.push_back({"idle", logarithms({8, 4, 2, 1, 1}), "", false});
    trace.columns.push_back({"top_k", logarithms({8, 4, 0, 0, 0}), "", false});
    trace.columns.push_back({"temperature", logarithms({64, 16, 0, 0, 0}), "", false});
    trace.noise = {-0.25f, 2.0f, 0.5f, 9.0f, 0.0f};
    trace.token = 1;
    trace.margin = 0.86f;
    return trace;
}

std::string name_of(std::int32_t id) {
    static const char* const kNames[] = {"\"\xe4\xb8\xad\xe6\x96\x87\"", "\"<b> & 'c'\"", "\"return\"", "\"\\n\"",
                                         "\"a very long token indeed\""};
    return kNames[id];
}

ChainPicture picture_of(const samplers::ChainTrace& trace, std::int32_t token) {
    ChainPicture picture = chain_picture(trace, token, name_of);
    picture.subject = "Token 0 of the answer, " + name_of(token) + ": position 7, seed 1, branch 0.";
    picture.replay = "Sampled again from the same row, it wins again.";
    return picture;
}

TEST(ChainPicture, HasTheProbabilitiesMovesAndScores) {
    const ChainPicture picture = picture_of(trace_by_hand(), 1);
    ASSERT_EQ(picture.columns.size(), 4u);
    EXPECT_EQ(picture.columns[0].name, "model");
    EXPECT_EQ(picture.columns[0].left, 5);
    EXPECT_FALSE(picture.columns[1].changes);
    EXPECT_EQ(picture.columns[2].left, 2);
    ASSERT_EQ(picture.candidates.size(), 5u);  // the likeliest first
    const ChainPicture::Candidate &first = picture.candidates[0], &second = picture.candidates[1];
    EXPECT_NEAR(first.log_probability[0], std::log(8.0 / 16), 1e-6);
    EXPECT_NEAR(first.move(2), std::log(16.0 / 12), 1e-6);
    EXPECT_NEAR(first.move(3), std::log(0.8 * 12 / 8), 1e-6);
    EXPECT_NEAR(first.score, std::log(0.8) - 0.25, 1e-6);
    EXPECT_NEAR(second.score, std::log(0.2) + 2.0, 1e-6);
    EXPECT_FALSE(second.dropped());
    EXPECT_TRUE(picture.candidates[2].dropped());
    EXPECT_EQ(picture.winner, 1);
    EXPECT_EQ(picture.others, 0);
}

TEST(ChainPicture, IsATable) {
    ASSERT_TRUE(std::setlocale(LC_CTYPE, "C.UTF-8"));  // columns_of() counts by it
    EXPECT_EQ(chain_table(picture_of(trace_by_hand(), 1), 90, false),
              R"(Token 0 of the answer, "<b> & 'c'": position 7, seed 1, branch 0.
Sampled again from the same row, it wins again.

                    model           top_k           temperature      noise   score
"中文"              ███▌    50.0 %  ████▋    +0.29  █████▋   +0.18   -0.25   -0.47
"<b> & 'c'"         █▊      25.0 %  ██▍      +0.29  █▍       -0.51   +2.00   +0.39  wins
"return"            ▉       12.5 %  dropped
"\n"                ▍        6.2 %  dropped
"a very long toke…  ▍        6.2 %  dropped
left                5               2               2

Without effect on this row: idle. Bars are probabilities, numbers beside them moves of
their logarithm in nats. The last logarithm and the noise make the score, and the best
score wins.
)");
}

TEST(ChainPicture, FitsEveryTerminal) {
    ASSERT_TRUE(std::setlocale(LC_CTYPE, "C.UTF-8"));
    samplers::ChainTrace noiseless = trace_by_hand();
    noiseless.noise.clear();
    noiseless.token = 0;
    for (const samplers::ChainTrace& trace : {trace_by_hand(), noiseless}) {
        const ChainPicture picture = picture_of(trace, trace.token);
        for (std::size_t width = 28; width <= 140; ++width) {
            const std::string table = chain_table(picture, width, false);
            std::istringstream lines(table);
            int wins = 0;
            for (std::string line; std::getline(lines, line);) {
                EXPECT_LE(columns_of(line), width) << line;
                wins += line.ends_with("  wins") ? 1 : 0;
                if (width < 60 || line.find("  noise") == std::string::npos) continue;
                EXPECT_THAT(line, HasSubstr("temperature")) << "the score stands beside a column";
            }
            EXPECT_EQ(wins, 1) << table;
            for (const char* part : {"model", "top_k", "temperature", "50.0 %", "dropped", "+0.18"}) {
                EXPECT_THAT(table, HasSubstr(part)) << width;
            }
        }
    }
    // What is dropped is struck out where a terminal can.
    EXPECT_THAT(chain_table(picture_of(trace_by_hand(), 1), 90, true), HasSubstr("\x1b[2;9m\"return\""));
}

TEST(ChainPicture, IsJson) {
    const json out = json::parse(chain_json(picture_of(trace_by_hand(), 1)));
    EXPECT_EQ(out["token"], 1);
    EXPECT_EQ(out["winner"], 1);
    EXPECT_EQ(out["same"], true);
    EXPECT_EQ(out["greedy"], false);
    EXPECT_EQ(out["others"], 0);
    EXPECT_EQ(out["stages"][2], json({{"stage", "top_k"}, {"candidates", 2}, {"changes", true}}));
    EXPECT_EQ(out["stages"].size(), 4u);
    EXPECT_EQ(out["candidates"].size(), 5u);
    const json& dropped = out["candidates"][2];
    EXPECT_EQ(dropped["id"], 2);
    EXPECT_EQ(dropped["text"], "\"return\"");
    EXPECT_NEAR(dropped["log_probabilities"][1].get<double>(), std::log(2.0 / 16), 1e-6);
    EXPECT_TRUE(dropped["log_probabilities"][2].is_null());
    EXPECT_TRUE(dropped["score"].is_null());
    EXPECT_NEAR(out["candidates"][1]["noise"].get<double>(), 2.0, 1e-6);
    samplers::ChainTrace failed = trace_by_hand();
    failed.columns.resize(2);
    failed.columns.push_back({"indent", {}, "sampler 'indent' failed: it is \"ill\"", false});
    failed.noise.clear();
    failed.token = -1;
    const ChainPicture picture = picture_of(failed, 1);
    const json ended = json::parse(chain_json(picture));
    EXPECT_EQ(ended["winner"], -1);
    EXPECT_EQ(ended["same"], false);
    EXPECT_EQ(ended["stages"][2]["failure"], "sampler 'indent' failed: it is \"ill\"");
    EXPECT_TRUE(ended["candidates"][0]["noise"].is_null());
    EXPECT_THAT(chain_table(picture, 200, false), AllOf(HasSubstr("it is \"ill\""), Not(HasSubstr("wins\n"))));
}

// Reads the tags of a document as an XML reader must: each is closed in its order, and texts and values hold no "<" and
// no "&" but that of an entity. Returns the texts.
std::vector<std::string> texts_of_xml(const std::string& document) {
    std::vector<std::string> open, texts;
    const auto clean = [](const std::string& text) {
        for (std::size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
            const std::string name = text.substr(at, text.find(';', at) - at + 1);
            EXPECT_THAT(name, ::testing::AnyOf("&amp;", "&lt;", "&gt;", "&quot;"));
        }
        EXPECT_EQ(text.find('<'), std::string::npos);
    };
    for (std::size_t at = 0; at < document.size();) {
        if (document[at] != '<') {
            const std::size_t end = std::min(document.find('<', at), document.size());
            const std::string text = document.substr(at, end - at);
            clean(text);
            EXPECT_TRUE(!open.empty() || text == "\n") << text;
            if (text.find_first_not_of('\n') != std::string::npos) texts.push_back(text);
            at = end;
            continue;
        }
        const std::size_t end = document.find('>', at);
        if (end == std::string::npos) {
            ADD_FAILURE() << "a tag is open at the end";
            break;
        }
        const std::string tag = document.substr(at + 1, end - at - 1);
        at = end + 1;
        if (tag.starts_with("!--")) continue;
        const std::string name =
            tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
        EXPECT_EQ(std::ranges::count(tag, '"') % 2, 0) << tag;
        clean(tag);
        if (tag[0] == '/') {
            if (open.empty() || open.back() != name) {
                ADD_FAILURE() << tag << " closes another element";
                break;
            }
            open.pop_back();
        } else if (tag.back() != '/') {
            open.push_back(name);
        }
    }
    EXPECT_THAT(open, ElementsAre());
    return texts;
}

TEST(ChainPicture, IsSvg) {
    const std::string svg = chain_svg(picture_of(trace_by_hand(), 1));
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""));
    EXPECT_THAT(svg, HasSubstr(kChainSvgMark));
    const std::vector<std::string> texts = texts_of_xml(svg);
    for (const char* text : {"model", "top_k", "temperature", "noise", "score", "&quot;&lt;b&gt; &amp; 'c'&quot;",
                             "50.0 %", "+0.29", "+0.18", "-0.51", "left"}) {
        EXPECT_THAT(texts, ::testing::Contains(text));
    }
    EXPECT_THAT(svg, HasSubstr("text-decoration=\"line-through\""));
}

TEST(StageMeter, SaysWhatAStageCosts) {
    samplers::StageReport report;
    report.stage = "indent";
    EXPECT_EQ(stage_text(report), "0 calls, 0.000 ms per token, no failures");
    EXPECT_EQ(stage_cost(report, 10.0), "");
    report.calls = 240;
    report.tokens = 200;
    report.total_ms = 60.0;
    report.failures = 1;
    EXPECT_EQ(stage_text(report), "240 calls, 0.300 ms per token, 1 failure");
    EXPECT_EQ(stage_cost(report, 6.1), "") << "0.3 ms are less than 5 % of it";
    EXPECT_EQ(stage_cost(report, 5.0), "Sampler 'indent' takes 0.30 of the 5.00 ms of a token (6 %).");
    EXPECT_EQ(stage_cost(report, 0.0), "") << "no token has been timed";
    report.draft_calls = 400;
    report.draft_ms = 140.0;
    report.failures = 2;
    EXPECT_EQ(stage_text(report), "240 calls, 0.300 ms per token, 400 for drafts, 0.700 ms per token, 2 failures");
    EXPECT_EQ(stage_cost(report, 10.0),
              "Sampler 'indent' takes 1.00 of the 10.00 ms of a token (10 %), 0.70 of them for drafts.");
    report.hidden = true;
    EXPECT_THAT(stage_text(report), ::testing::EndsWith(", hidden from drafts"));
}

// ---- the program

std::string wordlist_config(const std::string& temperature) {
    return testing::write_scratch("wordlist_" + temperature + ".toml",
                                  "extends = \"" + testing::source("configs/python-coder.toml") +
                                      "\"\n[sampling]\nchain = [\"wordlist\", \"top_k\", \"top_p\", \"temperature\"]\n"
                                      "[sampling.temperature]\nvalue = " +
                                      temperature +
                                      "\n[[plugin]]\nname = \"wordlist\"\n[plugin.options]\n"
                                      "forbid = [\"return\", \"self\"]\n");
}

std::vector<json> json_lines(const std::string& text) {
    std::vector<json> out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("{\"token\":")) out.push_back(json::parse(line));
    }
    return out;
}

// With a plugin that drops tokens, drafts or not, at any temperature: the token of the text wins again.
TEST(ChainCommand, TheTokenOfTheTextWinsAgain) {
    for (const std::string temperature : {"0.0", "0.8"}) {
        const std::string config = wordlist_config(temperature);
        const std::string prompt = "def fib(n):";
        // A line of a conversation ends with a newline.
        std::istringstream ids(
            testing::run({"complete", config, "-p", prompt + "\n", "-n", "10", "--seed", "4", "--token-ids"}).out);
        const std::vector<std::int32_t> tokens{std::istream_iterator<std::int32_t>(ids), {}};
        ASSERT_EQ(tokens.size(), 10u);
        for (const char* mode : {"off", "auto"}) {
            const Outcome outcome =
                testing::chat(prompt + "\n/chain 0 --json\n/chain 4 --json\n/chain --json\n",
                              {config, "--seed", "4", "--set", std::string("speculation.mode=") + mode});
            EXPECT_EQ(outcome.status, 0) << outcome.error;
            const std::vector<json> shown = json_lines(outcome.out);
            ASSERT_EQ(shown.size(), 3u) << outcome.out << outcome.error;
            const std::size_t places[] = {0, 4, 9};
            for (std::size_t i = 0; i < 3; ++i) {
                EXPECT_EQ(shown[i]["token"], tokens[places[i]]) << mode << temperature;
                EXPECT_EQ(shown[i]["winner"], tokens[places[i]]) << mode << temperature;
                EXPECT_EQ(shown[i]["greedy"], temperature == "0.0");
                EXPECT_EQ(shown[i]["stages"][1]["stage"], "wordlist");
            }
        }
    }
}

// Mirostat's state depends on every token before, how it was sampled and where the answer begins.
TEST(ChainCommand, BringsStatesToThePlaceOfTheToken) {
    const std::vector<std::string> options = {"--set",  "sampling.chain=[\"wordlist\", \"top_k\", \"mirostat\"]",
                                              "--set",  "sampling.mirostat.tau=2",
                                              "--seed", "2"};
    const Outcome outcome = testing::chat(
        "def f(x):\n/chain 9 --json\n/n 3\n/chain 9 --json\n/branch 1\n/chain 6 --json\n/edit \"    re\"\n/more\n"
        "/chain --json\n/chain 4 --json\n/set sampling.mirostat.tau 0.1\n/chain --json\n",
        options);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::vector<json> shown = json_lines(outcome.out);
    ASSERT_EQ(shown.size(), 6u) << outcome.out << outcome.error;
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(shown[i]["same"], true) << i << shown[i];
    EXPECT_EQ(shown[0]["stages"].back()["stage"], "mirostat");
    // Other states, and a table all the same.
    EXPECT_NE(shown[5]["candidates"], shown[3]["candidates"]);
}

TEST(ChainCommand, ChangesNothingThatComesAfterIt) {
    const std::string svg = (testing::scratch() / "chain.svg").string();
    const std::vector<std::string> options = {"--seed", "4", "--set", "sampling.temperature.value=0.8"};
    const Outcome without = testing::chat("import os\nx = 1\n/retry 9\n", options);
    const Outcome with = testing::chat(
        "import os\n/chain 3\n/chain 5 --svg " + svg + "\nx = 1\n/chain 0\n/retry 9\n/chain 9\n", options);
    EXPECT_EQ(with.out, without.out);
    EXPECT_THAT(with.error, AllOf(HasSubstr("Token 3 of the answer, "), HasSubstr("seed 4, branch 0."),
                                  HasSubstr("seed 9, branch 0."), HasSubstr("it wins again"), HasSubstr("  wins\n")));
    EXPECT_THAT(with.error, Not(HasSubstr("is not the one")));
    std::ifstream file(svg);
    const std::string picture{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(texts_of_xml(picture), ::testing::Contains(HasSubstr("Token 5 of the answer")));
}

TEST(ChainCommand, SaysThatTheChainIsAnother) {
    std::string input = "def f(x):\n/set sampling.temperature.value 0\n";
    for (int i = 0; i < 10; ++i) input += "/chain " + std::to_string(i) + "\n";
    const Outcome outcome = testing::chat(
        input, {"--set", "sampling.temperature.value=2", "--set", "sampling.top_k.k=0", "--set", "sampling.top_p.p=1"});
    EXPECT_THAT(outcome.error, HasSubstr(" wins: the chain is not the one that this answer was sampled with."));
}

TEST(ChainCommand, AnswersMistakes) {
    EXPECT_THAT(testing::chat("/chain\n").error, HasSubstr("there is no answer to show"));
    const std::string mine = testing::write_scratch("mine.svg", "<svg>mine</svg>\n");
    const Outcome outcome = testing::chat(
        "import os\n/chain 10\n/chain -1\n/chain x\n/chain 1 2\n/chain --jsn\n/chain "
        "--svg\n/chain 2 --svg " +
        mine + "\n/chain 2 --svg /no/such/folder/x.svg\n/edit \"abc\"\n/chain 0\n");
    for (const char* sentence :
         {"the number of the token must be a number from 0 to 9, not '10'", "from 0 to 9, not '-1'",
          "from 0 to 9, not 'x'", "write /chain [N] [--json] [--svg FILE]", "write /chain N --svg FILE",
          "mine.svg exists and is no picture of a chain; choose another name", "/no/such/folder",
          "token 0 was not sampled: /edit wrote it"}) {
        EXPECT_THAT(outcome.error, HasSubstr(sentence));
    }
    std::ifstream file(mine);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "<svg>mine</svg>\n");
}

// The meter, where a stage runs.
TEST(ChainCommand, StatsAndPluginSayWhatAStageCosts) {
    const Outcome outcome = testing::chat("def fib(n):\n/stats\n/plugin\n", {wordlist_config("0.8")});
    EXPECT_THAT(outcome.error, ::testing::ContainsRegex("sampler +wordlist: [1-9][0-9]* calls, [0-9.]+ ms per token"));
    EXPECT_THAT(outcome.error, ::testing::ContainsRegex("\n  [1-9][0-9]* calls, [0-9.]+ ms per token.*, no failures"));
}

}  // namespace
}  // namespace foresay::app
