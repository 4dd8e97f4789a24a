// Where the text for a hole stops.
#include "app/edits/hole.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace foresay::app {
namespace {

// The middle for "prefix|suffix", however the text is divided.
std::string middle(const std::string& around, const std::string& text, bool sees_suffix = true) {
    const std::size_t bar = around.find('|');
    const Surroundings surroundings{around.substr(0, bar), around.substr(bar + 1)};
    Hole whole(surroundings, sees_suffix);
    std::string shown = whole.push(text);
    shown += whole.finish();
    EXPECT_EQ(shown, whole.text());
    std::mt19937 random(static_cast<unsigned>(text.size()));
    for (int round = 0; round < 8; ++round) {
        Hole parts(surroundings, sees_suffix);
        std::string pieces;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = round == 0 ? 1 : 1 + random() % 9;
            pieces += parts.push(text.substr(at, length));
            at += length;
        }
        pieces += parts.finish();
        EXPECT_EQ(pieces, shown) << "of " << text;
        EXPECT_EQ(parts.text(), shown);
    }
    return shown;
}

TEST(Hole, TextThatEndsByItselfStaysWhole) {
    EXPECT_EQ(middle("x = |\n", "1"), "1");
    EXPECT_EQ(middle("def f(x):\n|\n    return y\n", "    y = x\n\n"), "    y = x\n\n");
    EXPECT_EQ(middle("|", "anything\n\nat all\n"), "anything\n\nat all\n");
    EXPECT_EQ(middle("a|b", ""), "");
}

TEST(Hole, TakesTheBlankThatTheModelWasNotGiven) {
    for (const bool left_out : {false, true}) {
        const Surroundings around{"return ", "\n", left_out};
        const auto filled = [&](const std::vector<std::string>& pieces) {
            Hole hole(around, true);
            std::string shown;
            for (const std::string& piece : pieces) shown += hole.push(piece);
            shown += hole.finish();
            EXPECT_EQ(shown, hole.text());
            return std::pair(shown, hole.taken());
        };
        // One blank, and only at the beginning.
        EXPECT_EQ(filled({" x", " + y"}), std::pair(std::string(left_out ? "x + y" : " x + y"), std::size_t{6}));
        EXPECT_EQ(filled({"", " ", " x"}), std::pair(std::string(left_out ? " x" : "  x"), std::size_t{3}));
        EXPECT_EQ(filled({"(x", " )"}), std::pair(std::string("(x )"), std::size_t{4}));
    }
}

TEST(Hole, StopsBeforeTheNextLineOfTheSuffix) {
    EXPECT_EQ(middle("def f(x):\n|\n    return y\n", "    y = x\n    return y\nprint(1)\n"), "    y = x");
    EXPECT_EQ(middle("def f(x):\n|\n\n    return y\n", "    y = x\n\n    return y\n"), "    y = x");
    EXPECT_EQ(middle("def f(x):\n|\n\n    return y\n", "    y = x\n    return y\n"), "    y = x");
    EXPECT_EQ(middle("def f(x):|\n    return y\n", "\n    y = x\n    return y"), "\n    y = x");
    EXPECT_EQ(middle("def f(x):\n    |\n    return y\n", "y = x\n    return y\n"), "y = x");
    EXPECT_EQ(middle("def f(x):\n    |\n    return y\n", "return y\n"), "");
    // Neither a longer line nor another indentation is that line.
    EXPECT_EQ(middle("def f(x):\n|\n    return y\n", "    if x:\n        return y\n    return y + 1\n"),
              "    if x:\n        return y\n    return y + 1\n");
    EXPECT_EQ(middle("f() {\n  |\n  }\n", "if (x) {\n    y();\n  }\n  }\n}\n"), "if (x) {\n    y();\n  }");
    EXPECT_EQ(middle("f() {\n|\n}\n", "  if (x) {\n    y();\n  }\n}\nmore"), "  if (x) {\n    y();\n  }");
}

TEST(Hole, StopsWhereTheRestOfTheLineComesAgain) {
    EXPECT_EQ(middle("for x in |:\n    pass\n", "range(10):\n    pass\n"), "range(10)");
    EXPECT_EQ(middle("print(|)\n", "a, b)\nprint(c)\n"), "a, b");
    EXPECT_EQ(middle("print(|)\n", "f(a), (b)"), "f(a), (b)");
    EXPECT_EQ(middle("print(|) # x\n", "\")\", 1) # y\n"), "\")\", 1");
    EXPECT_EQ(middle("x = [|]\n", "\n    1,\n    2,\n]\n"), "\n    1,\n    2,\n");
    EXPECT_EQ(middle("d = {1: |,\n", "[2,\n    3],\n"), "[2,\n    3]");
    EXPECT_EQ(middle("|x = 1\n", "import os\nx = 1\n"), "import os\n");
    EXPECT_EQ(middle("|def f(x):\n", "import os\n\ndef f"), "import os\n\n");
    EXPECT_EQ(middle("if a:\n    |def f(x):\n", "y = 2\n    de"), "y = 2\n    ");
    EXPECT_EQ(middle("if a:\n    |x = 1\n", "y = 2\n    x = 1\nz"), "y = 2\n    ");
}

TEST(Hole, StopsWhereTheBlockEnds) {
    EXPECT_EQ(middle("def f(x):|\n", "\n    return x\n\n\ndef g():\n    pass\n"), "\n    return x");
    EXPECT_EQ(middle("def f(x):\n|\n\nclass A:\n", "    return x\n\n\nprint(f(1))\n"), "    return x");
    EXPECT_EQ(middle("def f(x):\n    y = |\n    return y\n", "x + 1\n    y += 2\nprint(1)\n"), "x + 1\n    y += 2");
    EXPECT_EQ(middle("if a:|\n", "\n    b()\nelse:\n    c()\nd()\n"), "\n    b()\nelse:\n    c()");
    EXPECT_EQ(middle("int f() {|\n", "\n  return 1;\n}\n\nint g() {\n"), "\n  return 1;\n}");
    EXPECT_EQ(middle("int f() {\n  |\n", "a();\n#ifdef X\n  b();\n#endif\n  c();\n}\n"),
              "a();\n#ifdef X\n  b();\n#endif\n  c();\n}\n");
    EXPECT_EQ(middle("def f():\n    |\n", "\"\"\"Text\n\nflush left.\n\"\"\"\n    return 1\nx\n"),
              "\"\"\"Text\n\nflush left.\n\"\"\"\n    return 1");
    // At the top level everything belongs to the hole.
    EXPECT_EQ(middle("import os\n|\n", "def f():\n    pass\n\n\ndef g():\n    pass\n"),
              "def f():\n    pass\n\n\ndef g():\n    pass\n");
    // A text that begins outside the block is not for the hole at all.
    EXPECT_EQ(middle("def f():\n|\n", "x = 1\ny = 2\n"), "");
    EXPECT_EQ(middle("def f():\n    x()\n|    y()\n", "def g():\n    pass\n"), "");
    EXPECT_EQ(middle("class A:\n    |def g(self):\n", "def f(self):\n        pass\n\nprint\n"),
              "def f(self):\n        pass\n    ");
}

TEST(Hole, WithoutTheSuffixAHoleInALineEndsWithTheLine) {
    EXPECT_EQ(middle("x = | + 1\n", "2 * y\nz = 3\n", false), "2 * y");
    EXPECT_EQ(middle("x = | + 1\n", "f(a,\n      b)\nz = 3\n", false), "f(a,\n      b)");
    EXPECT_EQ(middle("x = |\n", "1\ny = 2\n", false), "1\ny = 2\n");
}

TEST(Hole, NothingIsShownThatIsCutLater) {
    const Surroundings around{"def f(x):\n", "\n    return y\n"};
    Hole hole(around, true);
    EXPECT_EQ(hole.push("    y = x\n"), "    y = x");
    EXPECT_EQ(hole.push("    ret"), "");
    EXPECT_EQ(hole.push("ry()"), "\n    retry()");
    EXPECT_EQ(hole.push("\n    return y"), "");
    EXPECT_FALSE(hole.stopped());
    EXPECT_EQ(hole.push("\n"), "");
    EXPECT_TRUE(hole.stopped());
    EXPECT_EQ(hole.finish(), "");
    EXPECT_EQ(hole.text(), "    y = x\n    retry()");
}

// Whatever the surroundings and the text are, the parts shown are the text shown, which is the beginning of the
// generated text, but for the indentation that the rest of the line needs.
TEST(Hole, RandomTextsAreCutAlikeHoweverTheyAreDivided) {
    std::mt19937 random(5);
    const std::string letters = "ab  \n\n\t():[]{}\"'#x,";
    const auto text = [&](std::size_t most) {
        std::string out(random() % most, ' ');
        for (char& c : out) c = letters[random() % letters.size()];
        return out;
    };
    for (int round = 0; round < 3000; ++round) {
        middle(text(30) + "|" + text(30), text(60), round % 2 == 0);
        ASSERT_FALSE(HasFailure()) << round;
    }
}

}  // namespace
}  // namespace foresay::app
