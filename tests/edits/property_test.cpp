// A thousand random files, changed as /write, /patch and /fim --apply change them: every byte is as expected, and files
// that must not be changed are not. What is expected is put together here from the parts that the file was made of.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "app/edits/answer_edit.h"
#include "app/edits/file_text.h"
#include "app/edits/target_file.h"
#include "base/error.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

namespace fs = std::filesystem;

constexpr int kFiles = 1000;

enum class Coding { ascii, utf8, latin1, damaged };
enum class Kind { plain, link_inside, read_only, link_outside, hard_link, changed_meanwhile, missing };

struct MadeLine {
    std::string text;    // as UTF-8
    std::string bytes;   // in the file
    std::string ending;  // in the file
};

class Maker {
public:
    explicit Maker(unsigned seed) : random_(seed) {
        coding = static_cast<Coding>(below(4));
        endings_ = below(3);
        mark = (coding == Coding::utf8 || coding == Coding::ascii) && below(4) == 0;
        const std::size_t count = below(30);
        for (std::size_t i = 0; i < count; ++i) lines.push_back(line());
        // A damaged file has both characters of UTF-8 and bytes that are none.
        if (coding == Coding::damaged) {
            lines.push_back({"é ok", "\xc3\xa9 ok", ending()});
            lines.push_back({"bad \xc3\xbf", "bad \xff", ending()});
        }
        if (coding == Coding::latin1) lines.push_back({"caf\xc3\xa9", "caf\xe9", ending()});
        std::shuffle(lines.begin(), lines.end(), random_);
        if (!lines.empty() && below(3) == 0) {
            lines.back().ending.clear();
            if (lines.back().bytes.empty()) lines.back() = {"end", "end", ""};
        }
    }

    std::size_t below(std::size_t n) { return random_() % n; }

    std::string bytes() const {
        std::string out = mark ? "\xEF\xBB\xBF" : "";
        for (const MadeLine& line : lines) out += line.bytes + line.ending;
        return out;
    }

    // The text of a line that no other line has, and its bytes in the encoding of new lines.
    MadeLine line() {
        const std::string stem = "line " + std::to_string(next_++) + std::string(below(3), ' ');
        switch (below(coding == Coding::ascii ? 2 : 3)) {
            case 0:
                return {"\t" + stem, "\t" + stem, ending()};
            case 1:
                return {stem + "(x); // -- @@ ++", stem + "(x); // -- @@ ++", ending()};
            default:
                break;
        }
        if (coding == Coding::latin1) return {stem + "ä\xc2\x80", stem + "\xe4\x80", ending()};
        return {stem + "ä€😀", stem + "ä€😀", ending()};
    }

    std::string usual() const {
        const auto crlf = std::count_if(lines.begin(), lines.end(), [](const auto& l) { return l.ending == "\r\n"; });
        const auto lf = std::count_if(lines.begin(), lines.end(), [](const auto& l) { return l.ending == "\n"; });
        return crlf > lf ? "\r\n" : "\n";
    }
    std::string ending_before(std::size_t place) const {
        if (place > 0 && !lines[place - 1].ending.empty()) return lines[place - 1].ending;
        if (place < lines.size() && !lines[place].ending.empty()) return lines[place].ending;
        return usual();
    }

    Coding coding = Coding::ascii;
    bool mark = false;
    std::vector<MadeLine> lines;
    std::mt19937& random() { return random_; }

private:
    std::string ending() {
        if (endings_ == 0) return "\n";
        if (endings_ == 1) return "\r\n";
        return below(2) == 0 ? "\n" : "\r\n";
    }

    std::mt19937 random_;
    std::size_t endings_ = 0;
    int next_ = 0;
};

// Old lines [begin, end) are replaced by `added`.
struct Change {
    std::size_t begin = 0, end = 0;
    std::vector<MadeLine> added;
};

// Changes with at least one unchanged line between two of them, so that there is one way to see them.
std::vector<Change> changes_of(Maker& made) {
    std::vector<Change> changes;
    for (std::size_t at = 0; at <= made.lines.size(); ++at) {
        if (made.below(6) != 0) continue;
        Change change{at, at + std::min(made.below(3), made.lines.size() - at), {}};
        const std::size_t added = made.below(4) + (change.begin == change.end ? 1 : 0);
        for (std::size_t i = 0; i < added; ++i) change.added.push_back(made.line());
        at = change.end;
        changes.push_back(std::move(change));
    }
    return changes;
}

struct Expected {
    std::string text;   // what a model would write: LF, a newline at the end
    std::string bytes;  // of the file
};

Expected expected_of(const Maker& made, const std::vector<Change>& changes) {
    std::vector<MadeLine> out;
    std::size_t at = 0;
    const auto keep = [&](std::size_t end) {
        for (; at < end; ++at) {
            out.push_back(made.lines[at]);
            if (out.back().ending.empty()) out.back().ending = made.ending_before(at);
        }
    };
    for (const Change& change : changes) {
        keep(change.begin);
        for (std::size_t i = 0; i < change.added.size(); ++i) {
            MadeLine line = change.added[i];
            const std::size_t count = change.end - change.begin;
            const std::size_t replaced = change.begin + std::min(i, count == 0 ? 0 : count - 1);
            const bool follows = count > 0 && !made.lines[replaced].ending.empty();
            line.ending = follows ? made.lines[replaced].ending : made.ending_before(change.begin);
            out.push_back(line);
        }
        at = change.end;
    }
    keep(made.lines.size());
    Expected expected;
    if (made.mark) expected.bytes = "\xEF\xBB\xBF";
    const bool open = !made.lines.empty() && made.lines.back().ending.empty();
    for (std::size_t i = 0; i < out.size(); ++i) {
        expected.text += out[i].text + "\n";
        expected.bytes += out[i].bytes + (open && i + 1 == out.size() ? "" : out[i].ending);
    }
    return expected;
}

// A diff as models write them: sometimes with wrong numbers, with little or much context, with prose around it.
std::string diff_text(Maker& made, const std::vector<Change>& changes) {
    const std::size_t context = 1 + made.below(4);
    const bool wrong = made.below(3) == 0;
    const std::string end = made.below(5) == 0 ? "\r\n" : "\n";
    std::string out = "Sure.\n\n```diff" + end + "--- a/f.txt" + end + "+++ b/f.txt" + end;
    std::ptrdiff_t shift = 0;
    for (std::size_t i = 0; i < changes.size();) {
        std::size_t last = i;
        while (last + 1 < changes.size() && changes[last + 1].begin - changes[last].end <= 2 * context) ++last;
        std::size_t begin = changes[i].begin - std::min(context, changes[i].begin);
        const std::size_t stop = std::min(changes[last].end + context, made.lines.size());
        std::string body;
        std::size_t olds = 0, news = 0, at = begin;
        const auto add = [&](char tag, const std::string& text) {
            body += std::string(1, tag) + text + end;
            olds += tag != '+' ? 1 : 0;
            news += tag != '-' ? 1 : 0;
        };
        for (; i <= last; ++i) {
            for (; at < changes[i].begin; ++at) add(' ', made.lines[at].text);
            for (; at < changes[i].end; ++at) add('-', made.lines[at].text);
            for (const MadeLine& line : changes[i].added) add('+', line.text);
        }
        for (; at < stop; ++at) add(' ', made.lines[at].text);
        const std::size_t error = wrong && olds > 0 ? made.below(9) : 0;
        out += "@@ -" + std::to_string(begin + (olds > 0 ? 1 : 0) + error) + "," + std::to_string(olds + error) + " +" +
               std::to_string(static_cast<std::ptrdiff_t>(begin) + shift + (news > 0 ? 1 : 0)) + "," +
               std::to_string(news) + " @@" + end + body;
        shift += static_cast<std::ptrdiff_t>(news) - static_cast<std::ptrdiff_t>(olds);
    }
    return out + "```\nThat is all.\n";
}

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(EditsProperty, AThousandFilesWithoutAWrongByte) {
    const fs::path before = fs::current_path();
    const fs::path root = testing::scratch() / "property";
    fs::create_directories(root / "inside" / "real");
    fs::create_directories(root / "outside");
    fs::current_path(root / "inside");
    std::map<std::string, int> count;
    for (int i = 0; i < kFiles; ++i) {
        SCOPED_TRACE(i);
        Maker made(static_cast<unsigned>(i));
        const std::string old_bytes = made.bytes();
        const Kind kind = made.below(2) == 0 ? Kind::plain : static_cast<Kind>(made.below(7));
        const std::size_t operation = made.below(3);

        // What the file becomes.
        std::string expected, got;
        const FileText file(old_bytes);
        std::string old_text;
        for (const MadeLine& line : made.lines) old_text += line.text + (line.ending.empty() ? "" : "\n");
        ASSERT_EQ(file.text(), old_text);
        if (operation == 2) {
            // A place: a line, and a number of its characters.
            std::size_t text_at = 0, byte_at = made.mark ? 3 : 0, line = 0;
            const std::size_t wanted = made.below(made.lines.size() + 1);
            for (; line < wanted && !made.lines[line].ending.empty(); ++line) {
                text_at += made.lines[line].text.size() + 1;
                byte_at += made.lines[line].bytes.size() + made.lines[line].ending.size();
            }
            std::string ending = made.ending_before(line);
            if (line < made.lines.size()) {
                const std::size_t columns = made.below(5);  // the first characters of a line are ASCII or all of it
                const std::size_t ascii = static_cast<std::size_t>(
                    std::find_if(made.lines[line].text.begin(), made.lines[line].text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) >= 0x80; }) -
                    made.lines[line].text.begin());
                const bool to_end = columns > ascii;
                text_at += to_end ? made.lines[line].text.size() : columns;
                byte_at += to_end ? made.lines[line].bytes.size() : columns;
                if (!made.lines[line].ending.empty()) ending = made.lines[line].ending;
            }
            const MadeLine first = made.line(), second = made.line();
            got = file.with_insertion(text_at, first.text + "\n" + second.text);
            expected = old_bytes.substr(0, byte_at) + first.bytes + ending + second.bytes + old_bytes.substr(byte_at);
        } else {
            const std::vector<Change> changes = changes_of(made);
            const Expected all = expected_of(made, changes);
            expected = all.bytes;
            if (operation == 0 || changes.empty()) {
                got = file.with_text(all.text);
            } else {
                got = edited_by_answer(file, "f.txt", diff_text(made, changes), AskedFor::diff);
            }
        }
        ASSERT_EQ(got, expected);

        // And how it gets onto the disk.
        const fs::path real = kind == Kind::link_inside    ? "real/f.txt"
                              : kind == Kind::link_outside ? root / "outside" / "f.txt"
                                                           : fs::path("f.txt");
        for (const char* name : {"f.txt", "other", "real/f.txt"}) fs::remove(name);
        fs::remove(root / "outside" / "f.txt");
        if (kind != Kind::missing) put(real, old_bytes);
        const mode_t mode = kind == Kind::read_only ? 0444 : 0600 | static_cast<mode_t>(made.below(64));
        ::chmod(real.c_str(), mode);
        if (kind == Kind::link_inside || kind == Kind::link_outside) fs::create_symlink(real, "f.txt");
        if (kind == Kind::hard_link) fs::create_hard_link("f.txt", "other");
        const bool refused = kind == Kind::read_only || kind == Kind::link_outside || kind == Kind::hard_link ||
                             kind == Kind::changed_meanwhile;
        bool threw = false;
        try {
            const TargetFile target = read_target("f.txt", {});
            ASSERT_EQ(target.exists, kind != Kind::missing);
            replace_target(target, got, [&] {
                if (kind == Kind::changed_meanwhile) put("f.txt", old_bytes + "theirs");
            });
        } catch (const Error&) {
            threw = true;
        }
        ASSERT_EQ(threw, refused);
        struct stat status {};
        ASSERT_EQ(::stat(real.c_str(), &status), 0);
        if (kind != Kind::missing) {
            ASSERT_EQ(status.st_mode & 07777u, mode);
        }
        ASSERT_EQ(bytes_of(real), !refused ? got : kind == Kind::changed_meanwhile ? old_bytes + "theirs" : old_bytes);
        for (const auto& entry : fs::recursive_directory_iterator(root)) {
            const std::string name = entry.path().filename().string();
            ASSERT_THAT(name, ::testing::AnyOf("f.txt", "other", "real", "inside", "outside"));
        }
        ++count[operation == 0 ? "written" : operation == 1 ? "patched" : "filled"];
        ++count[refused ? "refused" : "changed"];
        ++count["coding " + std::to_string(static_cast<int>(made.coding))];
    }
    fs::current_path(before);
    std::string table;
    for (const auto& [what, files] : count) table += " " + what + ": " + std::to_string(files) + ";";
    std::printf("%d files:%s\n", kFiles, table.c_str());
    EXPECT_EQ(count["written"] + count["patched"] + count["filled"], kFiles);
    for (const auto& [what, files] : count) EXPECT_GE(files, 200) << what;
}

}  // namespace
}  // namespace foresay::app
