// Answers that go into files, through the program: /write, /patch, /fim --apply, /undo, /watch and complete --fim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/app/program.h"
#include "tests/edits/scripted_model.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The working folder is the test's own, and so is that of the programs that it starts.
class Files : public ::testing::Test {
protected:
    void SetUp() override {
        before_ = fs::current_path();
        folder_ = scratch() / "work" / ::testing::UnitTest::GetInstance()->current_test_info()->name();
        fs::create_directories(folder_);
        fs::current_path(folder_);
    }
    void TearDown() override { fs::current_path(before_); }

    static void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

    // The options of a model that always gives this answer.
    static std::vector<std::string> scripted(const std::string& answer, bool converses = true) {
        static int models = 0;
        const fs::path path = scratch() / ("scripted" + std::to_string(++models) + ".gguf");
        write_scripted_model(path, {.answer = tokens_of(answer), .converses = converses});
        return {"--model", path.string(), "--temperature", "0", "--set", "plugin=[]", "--set", "sampling.chain=[]"};
    }
    static Outcome call(std::vector<std::string> arguments, const std::vector<std::string>& more,
                        const std::string& input = "") {
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments, input);
    }
    // chat has no --temperature.
    static Outcome chat(const std::vector<std::string>& model, const std::string& input) {
        std::vector<std::string> arguments = {"chat",    "--lines",
                                              "-n",      "300",
                                              "--model", model[1],
                                              "--set",   "plugin=[]",
                                              "--set",   "sampling.chain=[\"temperature\"]",
                                              "--set",   "sampling.temperature.value=0"};
        return run(arguments, input);
    }

    fs::path before_, folder_;
};

const std::string kTwoBlocks = "Here it is:\n```py\nx = 1\n```\nand then\n```py\ny = 22\nz = 333\n```\nGood luck!\n";

TEST_F(Files, WritesTheBlockThatWasMeant) {
    put("old.py", "a = 0\r\nz = 333\r\nb = 4");
    const Outcome outcome = chat(scripted(kTwoBlocks),
                                 "hello\n/write new.py --yes\n/write one.py 1 --yes\n/write all.txt all --yes\n"
                                 "/write old.py --yes\n/write new.py --yes\n/write no.py 3 --yes\n/write no.py\n"
                                 "/write no.py document --yes\n/write ../no.py --yes\n/write\n");
    EXPECT_EQ(outcome.out, kTwoBlocks + "\n");
    EXPECT_EQ(outcome.status, 1) << "some lines failed";
    EXPECT_EQ(bytes_of("new.py"), "y = 22\nz = 333\n");
    EXPECT_EQ(bytes_of("one.py"), "x = 1\n");
    EXPECT_EQ(bytes_of("all.txt"), kTwoBlocks);
    EXPECT_EQ(bytes_of("old.py"), "y = 22\r\nz = 333");
    EXPECT_FALSE(fs::exists("no.py"));
    EXPECT_FALSE(fs::exists("../no.py"));
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("Created new.py: 2 lines. /undo takes it back."),
                                     HasSubstr("Wrote old.py: 1 line added, 2 removed. The text from before is in "),
                                     HasSubstr("new.py has this text already; nothing was written."),
                                     HasSubstr("the number of the code block must be a number from 1 to 2, not '3'"),
                                     HasSubstr("/write asks before it writes, which needs a terminal; add --yes"),
                                     HasSubstr("this conversation is no document"),
                                     HasSubstr("no.py is outside the working folder; add --outside"),
                                     HasSubstr("write /write FILE or /write FILE BLOCK")));
    const fs::path backups = scratch() / "foresay" / "backups";
    ASSERT_TRUE(fs::exists(backups));
    EXPECT_EQ(bytes_of(*fs::directory_iterator(backups)), "a = 0\r\nz = 333\r\nb = 4");
    EXPECT_THAT(chat(scripted("x, y"), "/write a --yes\n").error, HasSubstr("there is no answer to write yet"));
}

TEST_F(Files, UndoTakesBackWhatCameLast) {
    put("old.py", "old\n");
    const Outcome outcome = chat(scripted(kTwoBlocks),
                                 "hello\n/write new.py --yes\n/write old.py --yes\n/undo\n/undo\n/undo\n"
                                 "hello\n/write old.py --yes\n/retry\n/undo\n/undo\n/undo old.py\n/undo old.py\n");
    EXPECT_FALSE(fs::exists("new.py"));
    EXPECT_EQ(bytes_of("old.py"), "old\n");
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("old.py is as it was before the write."), HasSubstr("new.py is deleted, because"),
                      HasSubstr("Back to the start."), HasSubstr("no write of old.py can be undone")));
    // After /retry came the answers: /undo took them back, and the write was still there.
    const std::string tail = outcome.error.substr(outcome.error.rfind("Wrote old.py"));
    EXPECT_LT(tail.find("Back to the state after 1 answer"), tail.find("Back to the start"));
    EXPECT_LT(tail.find("Back to the start"), tail.find("old.py is as it was"));
}

TEST_F(Files, WritesKeepEveryFormOfFile) {
    const std::string block = "alpha = 1\ncaf\xc3\xa9 = 2\n\tgamma()\n# delta\n";
    const std::vector<std::string> texts = {"alpha = 1", "caf\xc3\xa9 = 2", "\tgamma()", "# delta"};
    const std::vector<std::string> latin = {"alpha = 1", "caf\xe9 = 2", "\tgamma()", "# delta"};
    std::mt19937 random(11);
    std::string input = "hello\n";
    std::vector<std::string> expected;
    for (int i = 0; i < 48; ++i) {
        const bool latin1 = i % 3 == 0, mark = i % 3 == 1, open = random() % 2 == 0;
        const std::string end = random() % 2 == 0 ? "\n" : "\r\n";
        std::string old = mark ? "\xEF\xBB\xBF" : "", wanted = old;
        for (std::size_t line = 0; line < texts.size(); ++line) {
            if (random() % 2 == 0) old += (latin1 ? latin : texts)[line] + end;
            if (random() % 3 == 0) old += (latin1 ? "other \xfc" : "other") + std::to_string(line) + end;
            wanted += (latin1 ? latin : texts)[line] + end;
        }
        old += (latin1 ? "last \xe9" : "last") + (open ? "" : end);
        if (open) wanted.resize(wanted.size() - end.size());
        const std::string name = "f" + std::to_string(i);
        put(name, old);
        expected.push_back(wanted);
        input += "/write " + name + " --yes\n";
    }
    const Outcome outcome = chat(scripted("```\n" + block + "```\n"), input);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bytes_of("f" + std::to_string(i)), expected[i]) << i;
    EXPECT_EQ(std::distance(fs::directory_iterator("."), {}), 48);
}

const std::string kSource = "def area(w, h):\n    return w * h\n\n\ndef main():\n    print(area(2, 3))\n";

TEST_F(Files, PatchesByADiff) {
    const std::string answer =
        "Sure:\n\n```diff\n--- a/shape.py\n+++ b/shape.py\n@@ -1,2 +1,3 @@\n def area(w, h):\n"
        "-    return w * h\n+    # in mm\n+    return h * w\n```\nDone.\n";
    put("shape.py", kSource);
    put("crlf.py", "def area(w, h):\r\n    return w * h\r\n# \xe9");
    put("other.py", "def area(w):\n    return w\n");
    const Outcome outcome = chat(scripted(answer),
                                 "/patch shape.py --yes swap the factors\n/patch crlf.py --yes swap\n"
                                 "/patch other.py --yes swap\n/patch none.py --yes swap\n/patch shape.py\n"
                                 "/patch shape.py swap\n");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(bytes_of("shape.py"),
              "def area(w, h):\n    # in mm\n    return h * w\n\n\ndef main():\n    print(area(2, 3))\n")
        << outcome.error;
    EXPECT_EQ(bytes_of("crlf.py"), "def area(w, h):\r\n    # in mm\r\n    return h * w\r\n# \xe9");
    EXPECT_EQ(bytes_of("other.py"), "def area(w):\n    return w\n");
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("Wrote shape.py: 2 lines added, 1 removed."),
                      HasSubstr("hunk 1 of the diff does not fit the file: it has no line 'def area(w, h):'"),
                      HasSubstr("there is no file none.py"), HasSubstr("write /patch FILE and what to change in it"),
                      HasSubstr("/patch asks before it writes")));
}

TEST_F(Files, PatchesByAWholeFileAndRefusesWhatIsNone) {
    put("a.py", "one\r\ntwo");
    const Outcome whole = chat(scripted("```\none\n2\nthree\n```"), "/patch a.py --yes add a line\n");
    EXPECT_EQ(whole.status, 0) << whole.error;
    EXPECT_EQ(bytes_of("a.py"), "one\r\n2\r\nthree");
    const Outcome none = chat(scripted("I would rather not."), "/patch a.py --yes add a line\n");
    EXPECT_THAT(none.error, HasSubstr("the answer has no code block and no diff, so nothing was changed"));
    const Outcome cut =
        run({"chat", "--lines", "-n", "2", "--model", scripted(std::string(900, 'x') + " and much more")[1], "--set",
             "plugin=[]", "--set", "sampling.chain=[\"temperature\"]", "--set", "sampling.temperature.value=0",
             "--context", "1024"},
            "/patch a.py --yes add a line\n");
    EXPECT_EQ(bytes_of("a.py"), "one\r\n2\r\nthree") << cut.error;
    const Outcome completer = run({"chat", "--lines"}, "/patch a.py --yes add a line\n");
    EXPECT_THAT(completer.error, HasSubstr("/patch needs a model that follows instructions"));
}

TEST_F(Files, WatchedFilesAreReadWhenTheyHaveChanged) {
    put("notes.txt", "first version\n");
    const std::vector<std::string> model = scripted("```\nsecond version\n```\n");
    const Outcome outcome =
        run({"chat", "--lines", "--session", "watched", "--model", model[1], "--set", "plugin=[]", "--set",
             "sampling.chain=[\"temperature\"]", "--set", "sampling.temperature.value=0"},
            "/watch notes.txt\nhello\nstill\n/write notes.txt --yes\nwhat now\nand now\n/clear\nagain\n"
            "/watch --off notes.txt\n/watch --off notes.txt\n/watch none.txt\n");
    std::size_t reads = 0;
    for (std::size_t at = 0; (at = outcome.error.find("notes.txt is read: ", at)) != std::string::npos; ++at) ++reads;
    EXPECT_EQ(reads, 2u) << "at first, and after /clear: " << outcome.error;
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("notes.txt\nEach is read before your next message"),
                      HasSubstr("notes.txt has changed and is read again: "), HasSubstr("No file is watched"),
                      HasSubstr("notes.txt is not watched"), HasSubstr("there is no file none.txt")));
    // The text is part of the saved session, and what was generated from it can be generated again.
    const std::string session = bytes_of(scratch() / "foresay" / "sessions" / "watched.session");
    EXPECT_THAT(session, AllOf(HasSubstr("notes.txt\\n```\\nfirst version\\n"),
                               HasSubstr("```\\nsecond version\\n```\\n\\nwhat now")));
    const Outcome replayed = run({"session", "replay", "watched", "--set", "plugin=[]"});
    EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.error;
    EXPECT_THAT(replayed.out, HasSubstr(" 0 different, 0 skipped"));
}

// ------------------------------------------------------------------------------------------------ fill in the middle

const std::vector<std::string> kGreedy = {"--temperature", "0", "-n", "40"};

TEST_F(Files, FimPrintsTheTextToInsertAndNothingElse) {
    const std::string file =
        "import os\n\n\ndef names(folder):\n    found = []\n    for name in os.listdir(folder):\n"
        "        \n    return sorted(found)\n";
    put("hole.py", file);
    const Outcome text = call({"complete", "--fim", "hole.py:7"}, kGreedy);
    EXPECT_EQ(text.status, 0) << text.error;
    EXPECT_EQ(text.error, "");
    EXPECT_THAT(text.out, AllOf(Not(IsEmpty()), Not(HasSubstr("return sorted(found)"))));
    EXPECT_EQ(bytes_of("hole.py"), file);
    const Outcome none = call({"complete", "--fim", "hole.py:7", "--stop", text.out.substr(0, 1)}, kGreedy);
    EXPECT_EQ(none.status, 0);
    EXPECT_EQ(none.out, "");
    EXPECT_EQ(none.error, "foresay: the model has nothing to insert there; another --seed may have\n");
    // With or without speculation, from standard input, and with CRLF the text is the same.
    EXPECT_EQ(call({"complete", "--fim", "hole.py:7", "--speculation", "off"}, kGreedy).out, text.out);
    EXPECT_EQ(call({"complete", "--fim", "-:7:9"}, kGreedy, file).out, text.out);
    const auto with_crlf = [](const std::string& lines) {
        std::string out;
        for (const char c : lines) out += c == '\n' ? std::string("\r\n") : std::string(1, c);
        return out;
    };
    put("crlf.py", with_crlf(file));
    const Outcome written = call({"complete", "--fim", "crlf.py:7", "--write", "--json"}, kGreedy);
    ASSERT_EQ(written.status, 0) << written.error;
    EXPECT_EQ(json::parse(written.out).at("text"), text.out);
    const std::size_t at = file.find("        \n") + 8;
    EXPECT_EQ(bytes_of("crlf.py"), with_crlf(file.substr(0, at) + text.out + file.substr(at)));
}

TEST_F(Files, FimMistakesAreAnswered) {
    put("hole.py", "x = \n");
    put("read-only.py", "x = \n");
    ::chmod("read-only.py", 0444);
    const std::vector<std::pair<std::vector<std::string>, std::string>> usage = {
        {{"complete", "--fim", "hole.py"}, "--fim: 'hole.py' is not a place; write FILE:LINE"},
        {{"complete", "--write", "-p", "x"}, "--write needs --fim"},
        {{"complete", "--fim", "-:1", "--write"}, "standard input cannot be written"},
        {{"complete", "--fim", "hole.py:1", "-p", "x"}, "cannot be used together"},
    };
    for (const auto& [arguments, sentence] : usage) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 2) << outcome.error;
        EXPECT_THAT(outcome.error, HasSubstr(sentence));
    }
    const std::vector<std::pair<std::vector<std::string>, std::string>> world = {
        {{"complete", "--fim", "hole.py:9"}, "hole.py has no line 9"},
        {{"complete", "--fim", "none.py:1"}, "none.py"},
        {{"complete", "--fim", "read-only.py:1", "--write"}, "read-only.py is read-only"},
    };
    for (const auto& [arguments, sentence] : world) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 1) << outcome.error;
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, HasSubstr(sentence));
    }
}

// Models that continue a document and never end it by themselves where the hole ends.
TEST_F(Files, FimStopsAtTheHoleWithoutTokensForIt) {
    struct Case {
        std::string before, after, generated, middle;
    };
    const std::vector<Case> cases = {
        {"for x in ", ":\n    pass\n", "range(10):\n    pass\nprint(x)\n", "range(10)"},
        {"def f(x):\n", "\n    return y\n", "    y = x + 1\n    return y\nprint(f(2))\n", "    y = x + 1"},
        {"def f(x):", "\n\nclass A:\n", "\n    return x\n\n\ndef g(y):\n    pass\n", "\n    return x"},
        {"print(", ")\n", "'a', (1, 2))\nprint('b')\n", "'a', (1, 2)"},
        {"x = ", " + 1\n", "y * 2\nz = 3\n", "y * 2"},
    };
    for (const Case& one : cases) {
        const std::vector<std::string> model = scripted(one.generated, false);
        put("hole.py", one.before + one.after);
        const auto line = 1 + std::count(one.before.begin(), one.before.end(), '\n');
        const auto column = one.before.size() - (one.before.rfind('\n') + 1) + 1;
        const std::string place = "hole.py:" + std::to_string(line) + ":" + std::to_string(column);
        const Outcome outcome = call({"complete", "--fim", place, "--write"}, model);
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_EQ(outcome.out, one.middle);
        EXPECT_EQ(bytes_of("hole.py"), one.before + one.middle + one.after);
    }
}

TEST_F(Files, FimAppliesIsUndoneAndRetried) {
    const std::vector<std::string> model = scripted("    y = x + 1\n    return y\nprint(f(2))\n", false);
    const std::string file = "def f(x):\n\n    return y\n";
    const std::string filled = "def f(x):\n    y = x + 1\n    return y\n";
    std::string input =
        "/fim one.py:2 --apply --yes\n/retry 3\n/n 2\n/fim two.py:2 --apply --yes\n/undo\n"
        "/fim three.py:2 --apply\n/fim three.py:2 --yes\n";
    for (const char* name : {"one.py", "two.py", "three.py"}) put(name, file);
    const Outcome outcome = chat(model, input);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(bytes_of("one.py"), filled) << outcome.error;
    EXPECT_EQ(bytes_of("two.py"), file);
    EXPECT_EQ(bytes_of("three.py"), file);
    // The answer, its retry, two branches, and the second answer: all stop at the hole.
    std::string expected;
    for (int i = 0; i < 5; ++i) expected += "    y = x + 1\n";
    EXPECT_EQ(outcome.out, expected);
    EXPECT_THAT(
        outcome.error,
        AllOf(HasSubstr("Wrote one.py: 1 line added, 1 removed."), HasSubstr("two.py is as it was before the write."),
              HasSubstr("/fim --apply asks before it writes"), HasSubstr("write /fim FILE:LINE[:COLUMN] --apply")));
}

}  // namespace
}  // namespace foresay::testing
