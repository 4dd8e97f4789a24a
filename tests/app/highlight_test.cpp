// The colours of code: samples with goldens, and that it does not matter in which pieces a text comes.
//
// A golden is the sample with its looks in marks: ‹k:def› is a keyword, s a string, n a number or constant, c a
// comment, d the name of a definition. FORESAY_RENEW_HIGHLIGHT=1 writes the goldens of this build: read the difference
// before you commit it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>

#include "app/highlight/highlighter.h"
#include "app/output.h"

namespace foresay::app {
namespace {

std::string path_of(const std::string& name) { return FORESAY_SOURCE_DIR "/tests/golden/highlight/" + name; }

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

// Every language, and Markdown with blocks of several.
std::vector<std::string> samples() {
    std::vector<std::string> names = {"markdown"};
    for (const Language* language : all_languages()) names.emplace_back(language->name);
    return names;
}

Highlighter highlighter(const std::string& name) {
    const Language* language = find_language(name);
    return language ? Highlighter::code(*language) : Highlighter::markdown();
}

std::string marked(const Runs& runs) {
    std::string out;
    for (const Run& run : runs) {
        const char mark = " ksncd"[static_cast<int>(run.look)];
        out += mark == ' ' ? run.text : std::string("\u2039") + mark + ":" + run.text + "\u203a";
    }
    return out;
}

std::string text_of(const Runs& runs) {
    std::string out;
    for (const Run& run : runs) out += run.text;
    return out;
}

// Colours the pieces one after another, and checks what is promised after each.
Runs coloured(Highlighter highlighter, const std::vector<std::string>& pieces) {
    Runs runs;
    std::string text;
    for (const std::string& piece : pieces) {
        const std::string before(highlighter.undecided());
        Runs more;
        highlighter.add(piece, more);
        const std::string undecided(highlighter.undecided());
        EXPECT_EQ(text_of(more) + undecided, before + piece);
        EXPECT_LE(undecided.size(), CodeHighlighter::kMostHeld);
        EXPECT_EQ(undecided.find('\n'), std::string::npos) << undecided;
        for (const Run& run : more) append(runs, run.text, run.look);
        text += piece;
    }
    Runs rest;
    highlighter.finish(rest);
    for (const Run& run : rest) append(runs, run.text, run.look);
    EXPECT_EQ(text_of(runs), text);
    return runs;
}

std::vector<std::string> cut(const std::string& text, std::mt19937& random, std::size_t longest) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = std::min(1 + random() % longest, text.size() - at);
        pieces.push_back(text.substr(at, size));
        at += size;
    }
    return pieces;
}

class Samples : public ::testing::TestWithParam<std::string> {};

TEST_P(Samples, AreColouredAsTheirGoldens) {
    const std::string sample = read(path_of(GetParam() + ".txt"));
    const std::string looks = marked(coloured(highlighter(GetParam()), {sample}));
    const std::string golden = path_of(GetParam() + ".looks");
    if (std::getenv("FORESAY_RENEW_HIGHLIGHT")) std::ofstream(golden, std::ios::binary) << looks;
    EXPECT_EQ(looks, read(golden));
}

TEST_P(Samples, AreColouredTheSameInAnyPieces) {
    const std::string sample = read(path_of(GetParam() + ".txt"));
    const std::string whole = marked(coloured(highlighter(GetParam()), {sample}));
    std::mt19937 random(1);
    for (const std::size_t longest : {1, 2, 3, 5, 9, 30, 200}) {
        for (int round = 0; round < (longest == 1 ? 1 : 20); ++round) {
            ASSERT_EQ(marked(coloured(highlighter(GetParam()), cut(sample, random, longest))), whole) << longest;
        }
    }
}

// An answer can stop anywhere, and what it looks like then is that of the text so far.
TEST_P(Samples, StopAnywhere) {
    const std::string sample = read(path_of(GetParam() + ".txt"));
    std::mt19937 random(2);
    for (std::size_t end = 0; end <= sample.size(); ++end) {
        const std::string start = sample.substr(0, end);
        ASSERT_EQ(marked(coloured(highlighter(GetParam()), cut(start, random, 4))),
                  marked(coloured(highlighter(GetParam()), {start})))
            << start;
    }
}

// Any jumble of what means something in some language.
TEST_P(Samples, AJumbleIsColouredTheSameInAnyPieces) {
    const std::vector<std::string> parts = {
        "\"",   "'",      "`",    "\"\"\"", "'''",  "```",
        "~~~",  "#",      "//",   "/*",     "*/",   "--",
        "<<",   "EOF",    "<<-E", "\n",     "\n",   "  ",
        "\t",   "\\",     "${",   "}",      "$",    "@",
        "key:", "key = ", "[",    "]",      ":",    "=",
        "-",    "- ",     "0x",   "1",      ".",    "e",
        "+5",   "r#",     "R\"(", ")\"",    "def",  "class",
        "for",  "x",      "é",    "漢",     ",",    "(",
        ")",    "|",      "r",    "b",      "\x01", "this_is_a_word_that_is_longer_than_any_keyword"};
    std::mt19937 random(3);
    for (int round = 0; round < 1500; ++round) {
        std::string text;
        for (std::size_t n = 1 + random() % 60; n > 0; --n) text += parts[random() % parts.size()];
        const std::string whole = marked(coloured(highlighter(GetParam()), {text}));
        ASSERT_EQ(marked(coloured(highlighter(GetParam()), cut(text, random, 1 + random() % 6))), whole) << text;
    }
}

// Bytes that are no text at all: no look depends on the cut, and none is read out of bounds.
TEST_P(Samples, AnyBytesAreColouredTheSameInAnyPieces) {
    std::mt19937 random(4);
    for (int round = 0; round < 500; ++round) {
        std::string text;
        for (std::size_t n = random() % 200; n > 0; --n) text += static_cast<char>(random() % 256);
        const std::string whole = marked(coloured(highlighter(GetParam()), {text}));
        ASSERT_EQ(marked(coloured(highlighter(GetParam()), cut(text, random, 5))), whole);
    }
}

INSTANTIATE_TEST_SUITE_P(Languages, Samples, ::testing::ValuesIn(samples()),
                         [](const auto& parameter) { return parameter.param; });

TEST(Languages, AreFoundByTheNamesOfMarkdownBlocks) {
    EXPECT_EQ(find_language("Python")->name, "python");
    EXPECT_EQ(find_language("ts")->name, "javascript");
    EXPECT_EQ(find_language("c++")->name, "cpp");
    EXPECT_EQ(find_language("yml")->name, "yaml");
    EXPECT_EQ(find_language("brainfuck"), nullptr);
    EXPECT_EQ(find_language(""), nullptr);
}

TEST(Languages, AreTablesThatTheLexerCanFollow) {
    std::set<std::string_view> names;
    for (const Language* language : all_languages()) {
        SCOPED_TRACE(language->name);
        EXPECT_TRUE(names.insert(language->name).second);
        for (const std::string_view alias : language->aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
        for (const Words words : {language->keywords, language->constants}) {
            std::set<std::string_view> all;
            for (const std::string_view word : words) {
                EXPECT_LE(word.size(), kLongestWord) << word;
                EXPECT_TRUE(all.insert(word).second) << word << " is there twice";
            }
        }
        for (const std::string_view word : language->definers) {
            EXPECT_NE(std::find(language->keywords.begin(), language->keywords.end(), word), language->keywords.end())
                << word;
        }
        for (const StringRule& rule : language->strings) EXPECT_FALSE(rule.open.empty() || rule.close.empty());
    }
}

// A completion continues what was typed: the state goes on, and a word that is cut in two is no keyword.
TEST(Continuation, BeginsWhereTheTextBeforeEnds) {
    const auto after = [](const std::string& before, const std::string& answer) {
        Highlighter code = Highlighter::code(*find_language("python"));
        Runs ignored, runs;
        code.add(before, ignored);
        code.finish(ignored);
        code.add(answer, runs);
        code.finish(runs);
        return marked(runs);
    };
    EXPECT_EQ(after("def f():\n    \"\"\"Do", "cs.\"\"\"\n    return"),
              "\u2039s:cs.\"\"\"\u203a\n    \u2039k:return\u203a");
    EXPECT_EQ(after("pr", "in"), "in");
    EXPECT_EQ(after("pr ", "in"), "\u2039k:in\u203a");
    EXPECT_EQ(after("x = 1", "23"), "\u2039n:23\u203a");
    EXPECT_EQ(after("# no", "te if\nif"), "\u2039c:te if\u203a\n\u2039k:if\u203a");
}

// Answers are made printable before they are coloured, so that no byte of theirs is an escape sequence.
TEST(HostileText, GetsNoEscapeSequencesThrough) {
    const std::string hostile =
        "def \x1b[31mf\x1b]0;title\x07(): \"\x1b[2J\" # \xc2\x9b"
        "5m\r\n```\x1b[0m\n";
    for (const std::string& name : samples()) {
        const std::string text = text_of(coloured(highlighter(name), {printable(hostile)}));
        EXPECT_EQ(text.find_first_of("\x1b\x07\r"), std::string::npos) << name;
        EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos) << name;
    }
}

TEST(Looks, AreOfTheSixteenColours) {
    for (const Look look : {Look::keyword, Look::string, Look::number, Look::comment, Look::name}) {
        EXPECT_THAT(std::string(escape_of(look)), ::testing::MatchesRegex("\x1b\\[([12]|3[0-7])m"));
    }
    EXPECT_EQ(escape_of(Look::plain), "");
}

}  // namespace
}  // namespace foresay::app
