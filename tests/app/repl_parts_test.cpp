// The parts of the conversation loop that need no terminal: entries, labels, words, latencies, keys typed ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <stdexcept>
#include <thread>

#include "app/interrupt.h"
#include "app/pager.h"
#include "app/repl/blocks.h"
#include "app/repl/command.h"
#include "app/repl/completion.h"
#include "app/repl/entry_search.h"
#include "app/repl/keyboard.h"
#include "app/repl/latencies.h"
#include "app/repl/line_reader.h"
#include "app/repl/read_ahead.h"
#include "base/error.h"

namespace foresay::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A signal may come between the last look at the flag and the read, which then has nothing to end it.
TEST(Reading, DoesNotWaitWhenTheSignalCameBefore) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    std::array<char, 8> bytes{};
    interrupted() = true;
    ::alarm(20);  // ends a test that waits all the same
    EXPECT_EQ(read_unless_interrupted(ends[0], bytes.data(), bytes.size()), -1);
    EXPECT_EQ(errno, EINTR);
    ::alarm(0);
    interrupted() = false;
    ASSERT_EQ(::write(ends[1], "abc", 3), 3);
    EXPECT_EQ(read_unless_interrupted(ends[0], bytes.data(), bytes.size()), 3);
    ::close(ends[1]);
    EXPECT_EQ(read_unless_interrupted(ends[0], bytes.data(), bytes.size()), 0);
    ::close(ends[0]);
}

class Script : public LineReader {
public:
    explicit Script(std::deque<Line> lines) : lines_(std::move(lines)) {}
    Line read(const std::string&, const std::string&, bool) override {
        if (lines_.empty()) return {LineEnd::end, {}};
        Line line = lines_.front();
        lines_.pop_front();
        return line;
    }
    void remember(const std::string& entry) override { remembered.push_back(entry); }
    std::vector<std::string> remembered;

private:
    std::deque<Line> lines_;
};

Script script(const std::vector<std::string>& lines) {
    std::deque<Line> all;
    for (const std::string& line : lines) all.push_back({LineEnd::line, line});
    return Script(std::move(all));
}

std::string entry_of(const std::vector<std::string>& lines) {
    Script reader = script(lines);
    return read_entry(reader, "> ", ". ").text;
}

TEST(EntrySearch, GoesFromNewToOldAndBack) {
    const std::vector<std::string> newest_first = {"beta\nlast", "alpha caf\xc3\xa9", "beta\nlast", "first alpha"};
    EntrySearch search([&](const std::string& part, std::size_t index) -> std::optional<EntrySearch::Found> {
        for (; index < newest_first.size(); ++index) {
            if (newest_first[index].find(part) != std::string::npos) return {{newest_first[index], index}};
        }
        return std::nullopt;
    });
    const auto keys = [&](std::u32string_view text) {
        for (const char32_t key : text) EXPECT_EQ(search.key(key), EntrySearch::After::searching);
        return search.line();
    };
    search.begin("typed");
    EXPECT_EQ(search.prompt(), "search '': ");
    EXPECT_EQ(keys(U"\x12"), "typed") << "nothing to look for yet";
    EXPECT_EQ(keys(U"a"), "beta\nlast");
    EXPECT_EQ(keys(U"l"), "alpha caf\xc3\xa9");
    EXPECT_EQ(keys(U"\x12"), "first alpha");
    EXPECT_EQ(keys(U"p"), "first alpha") << "what goes on matching stays";
    EXPECT_EQ(search.prompt(), "search 'alp': ");
    EXPECT_EQ(keys(U"\x7f\x12"), "first alpha");
    EXPECT_EQ(keys(U"\x12"), "first alpha");
    EXPECT_EQ(search.prompt(), "no older entry with 'al': ");
    EXPECT_EQ(keys(U"\x7f\x7f"), "typed");
    EXPECT_EQ(keys(U"last"), "beta\nlast") << "also after the first line";
    EXPECT_EQ(keys(U"\x12"), "beta\nlast") << "the same entry twice is one";
    EXPECT_EQ(search.prompt(), "no older entry with 'last': ");
    EXPECT_EQ(keys(U"\x7f\x7f\x7f\x7f\u00e9"), "alpha caf\xc3\xa9");
    EXPECT_EQ(search.prompt(), "search '\xc3\xa9': ");
    EXPECT_EQ(keys(U"\x7f"), "typed");
    keys(U"beta");
    EXPECT_EQ(search.key(U'\r'), EntrySearch::After::left);
    EXPECT_FALSE(search.active());
    EXPECT_EQ(search.line(), "beta\nlast");
    search.begin("other");
    keys(U"alpha");
    EXPECT_EQ(search.key(7), EntrySearch::After::abandoned);
    EXPECT_EQ(search.line(), "other");
}

TEST(Entries, AreLinesOrTheLinesBetweenQuotes) {
    const std::string three = "\"\"\"", four = "\"\"\"\"";
    EXPECT_EQ(entry_of({"one", "two"}), "one");
    EXPECT_EQ(entry_of({"one\\", "two"}), "one\\") << "a backslash is text";
    EXPECT_EQ(entry_of({three + "one" + three, "two"}), three + "one" + three) << "a docstring is text";
    EXPECT_EQ(entry_of({three, "  one\\", "", "/two", three + " ", "three"}), "  one\\\n\n/two");
    EXPECT_EQ(entry_of({three, "  " + three, "x" + three, four, three, "y"}),
              "  " + three + "\nx" + three + "\n" + four);
    EXPECT_EQ(entry_of({four, three, "Doc.", three, four}), three + "\nDoc.\n" + three);
    EXPECT_EQ(entry_of({three, three}), "");
    EXPECT_EQ(entry_of({three, "", three}), "");
    EXPECT_EQ(entry_of({three, "one", "", three}), "one\n");
    EXPECT_EQ(entry_of({"/system " + three, "You are", "terse.", three}), "/system You are\nterse.");
    EXPECT_EQ(entry_of({"/system " + three + "You", "are"}), "/system " + three + "You");
    EXPECT_EQ(entry_of({"x = " + three, "two"}), "x = " + three);
    EXPECT_EQ(entry_of({"//x " + three, "two"}), "//x " + three);
    EXPECT_EQ(entry_of({three, "open", "to the end"}), "open\nto the end");
    // Typed with Ctrl-J, as one line of the editor: a docstring keeps its quotes, a command takes them.
    EXPECT_EQ(entry_of({three + "\nDoc.\n" + three}), three + "\nDoc.\n" + three);
    EXPECT_EQ(entry_of({"/fim " + three + "\na<FILL>\nb\n" + three}), "/fim a<FILL>\nb");
}

TEST(Entries, OfSeveralLinesAreTextWhateverTheyBeginWith) {
    Script quoted = script({"\"\"\"", "/retry", "\"\"\""});
    const Line entry = read_entry(quoted, "> ", ". ");
    EXPECT_TRUE(entry.literal);
    EXPECT_EQ(entry.text, "/retry");
    // What is remembered comes back as the same entry.
    ASSERT_EQ(quoted.remembered.size(), 1u);
    EXPECT_EQ(entry_of({quoted.remembered[0]}), "/retry");
    Script pasted(std::deque<Line>{{LineEnd::line, "\"\"\"doc\"\"\"\nx\\", true}, {LineEnd::line, "no", false}});
    EXPECT_EQ(read_entry(pasted, "> ", ". ").text, "\"\"\"doc\"\"\"\nx\\");
    EXPECT_EQ(entry_of({pasted.remembered[0]}), "\"\"\"doc\"\"\"\nx\\");
    for (const std::string text : {"/a\n\"\"\"\"\nb", "\"\"\"\"\nx\n\"\"\"\"", "\"\"\"\nx\n\"\"\"", "\"\"\""}) {
        Script reader(std::deque<Line>{{LineEnd::line, text, true}});
        EXPECT_EQ(read_entry(reader, "> ", ". ").text, text);
        EXPECT_EQ(entry_of({reader.remembered[0]}), text);
    }
}

TEST(Entries, AreDroppedByAnInterrupt) {
    Script reader(std::deque<Line>{{LineEnd::line, "\"\"\""}, {LineEnd::interrupt, ""}, {LineEnd::line, "two"}});
    EXPECT_EQ(read_entry(reader, "> ", ". ").how, LineEnd::interrupt);
    EXPECT_EQ(read_entry(reader, "> ", ". ").text, "two");
    EXPECT_THAT(reader.remembered, ElementsAre("two"));
}

TEST(Labels, StandForTextAndArePutBack) {
    Blocks blocks;
    std::string text;
    for (int i = 0; i < 20; ++i) text += "def f" + std::to_string(i) + "(x): pass\n";
    EXPECT_TRUE(Blocks::is_long(text));
    EXPECT_FALSE(Blocks::is_long("def f(x):\n    pass\n"));
    const std::string label = blocks.label(text);
    EXPECT_EQ(label, "[def f0(x): pass ... 20 lines]");
    EXPECT_EQ(blocks.label(text), label);
    const std::string other = text + "def f0(x): pass";
    EXPECT_EQ(blocks.label(other), "[def f0(x): pass ... 21 lines]");
    std::string changed = text;
    changed[4] = 'g';
    changed[4] = 'f';
    changed.back() = ' ';
    changed += '\n';
    EXPECT_EQ(blocks.label(changed), "[def f0(x): pass ... 20 lines #2]");
    EXPECT_EQ(blocks.expanded("a" + label + "[b]" + blocks.label(changed)), "a" + text + "[b]" + changed);
    EXPECT_EQ(blocks.expanded("[no label"), "[no label");
    EXPECT_THAT(blocks.label(std::string(900, 'x')), HasSubstr("... 1 line]"));
}

TEST(Labels, HoldNothingThatATerminalObeys) {
    Blocks blocks;
    const std::string label = blocks.label("\n\n \x1b[2J\x07" + std::string(2000, '\t') + "\nmore");
    EXPECT_EQ(label.find('\x1b'), std::string::npos);
    EXPECT_EQ(label.find('\t'), std::string::npos);
    EXPECT_EQ(label.find('\n'), std::string::npos);
}

TEST(Pager, CountsTheRowsThatATextTakes) {
    EXPECT_EQ(rows_of("", 80), 0u);
    EXPECT_EQ(rows_of("one\n\nthree", 80), 3u);
    EXPECT_EQ(rows_of("one\n", 80), 1u);
    EXPECT_EQ(rows_of(std::string(80, 'x') + "\n" + std::string(81, 'x'), 80), 3u);
}

TEST(Words, AreSplitAtBlanksThatNothingProtects) {
    EXPECT_THAT(split_words("a  b\\ c \"d e\" f\"g h\"i"), ElementsAre("a", "b c", "d e", "fg hi"));
    EXPECT_THAT(split_words(" \t\n"), IsEmpty());
    EXPECT_THAT(split_words("\"\" x"), ElementsAre("", "x"));
}

TEST(Completion, CommonBeginningsEndBetweenCharacters) {
    EXPECT_EQ(common_beginning({"stats", "start"}), "sta");
    EXPECT_EQ(common_beginning({"a\u00e9", "a\u00e8"}), "a");
    EXPECT_EQ(common_beginning({}), "");
}

TEST(Completion, CandidatesStandInColumns) {
    EXPECT_EQ(in_columns({"a", "bb", "c"}, 8), "a   c\nbb\n");
    EXPECT_EQ(in_columns({"dir/file.py", "dir/sub/"}, 80), "file.py  sub/\n");
    EXPECT_EQ(in_columns({"a\x1b[31m"}, 80), "a?[31m\n");
}

TEST(CommandTable, NamesAreUniqueAndDescribed) {
    std::vector<std::string> names;
    for (const CommandTopic& topic : command_topics()) {
        EXPECT_FALSE(topic.title.empty());
        for (const ReplCommand& command : topic.commands) {
            EXPECT_TRUE(command.run) << command.name;
            EXPECT_FALSE(command.help.empty()) << command.name;
            EXPECT_FALSE(command.help.ends_with('.')) << command.name << ": a line of help is no sentence";
            names.emplace_back(command.name);
            if (!command.alias.empty()) names.emplace_back(command.alias);
        }
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
    for (const std::string& name : names) EXPECT_NO_THROW(find_command(name)) << name;
    EXPECT_THROW(find_command(""), Error);
}

TEST(CommandTable, HelpFitsTheTerminal) {
    for (const std::size_t columns : {60, 80, 120}) {
        std::size_t start = 0;
        const std::string help = commands_help(columns);
        for (std::size_t end = help.find('\n'); end != std::string::npos; end = help.find('\n', start)) {
            EXPECT_LE(end - start, columns) << help.substr(start, end - start);
            start = end + 1;
        }
    }
}

TEST(LatencyTable, QuantilesAreOfTheNewest) {
    Recent recent;
    EXPECT_EQ(recent.quantile(0.5), 0.0);
    for (int i = 1; i <= 100; ++i) recent.add(i);
    EXPECT_EQ(recent.quantile(0.5), 50.0);
    EXPECT_EQ(recent.quantile(0.99), 99.0);
    EXPECT_EQ(recent.quantile(1.0), 100.0);
    EXPECT_EQ(recent.last(), 100.0);
    for (std::size_t i = 0; i < Recent::kKept; ++i) recent.add(7);
    EXPECT_EQ(recent.quantile(1.0), 7.0);
}

TEST(LatencyTable, TheFirstTokenOfAnAnswerIsNoGap) {
    Latencies latencies;
    latencies.begin();
    latencies.token();
    latencies.token();
    latencies.token();
    latencies.begin();
    latencies.token();
    EXPECT_EQ(latencies.first_ms().count(), 2u);
    EXPECT_EQ(latencies.gap_ms().count(), 2u);
}

TEST(LatencyTable, TheTimeInAnEditorIsNotWaitedForTheModel) {
    using std::chrono::milliseconds;
    static std::chrono::steady_clock::time_point now;
    Latencies latencies([] { return now; });
    latencies.begin();
    now += milliseconds(4000);  // the editor is open
    latencies.begin();
    now += milliseconds(7);
    latencies.token();
    now += milliseconds(2);
    latencies.token();
    EXPECT_EQ(latencies.first_ms().last(), 7.0);
    EXPECT_EQ(latencies.gap_ms().last(), 2.0);
}

TEST(KeysAhead, EntriesBecomeTextWhenHeld) {
    Keyboard keyboard;
    keyboard.type_ahead("x");
    char byte = 0;
    ASSERT_EQ(keyboard.next(byte), Keyboard::Event::byte);
    EXPECT_EQ(byte, 'x');
    keyboard.type_ahead("one\rtwo\x1b\r\x1b[200~a\rb\x1b[201~\r\r");
    keyboard.hold_ahead();
    EXPECT_EQ(keyboard.ahead(), "one\x1b\rtwo\x1b\r\x1b[200~a\rb\x1b[201~");
}

TEST(ReadAhead, WhatFailedIsToldOnce) {
    std::atomic<int> worked = 0;
    ReadAhead reading([&](const std::string& text, const std::atomic<bool>&) {
        ++worked;
        if (text == "bad") throw Error("the device failed");
        if (text == "worse") throw std::runtime_error("no memory");
    });
    const auto read = [&](const char* text) {
        const int before = worked;
        reading.text(text);
        while (worked == before) std::this_thread::yield();
        reading.stop();
    };
    EXPECT_EQ(reading.failure(), "");
    read("bad");
    read("good");
    read("worse");
    EXPECT_EQ(reading.failure(), "the device failed") << "the first of two, whatever was read in between";
    EXPECT_EQ(reading.failure(), "");
    read("good");
    EXPECT_EQ(reading.failure(), "");
}

}  // namespace
}  // namespace foresay::app
