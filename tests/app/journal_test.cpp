// Sessions on disk: what is read is what was written, a torn end is recognised, damage is refused with a message.
#include "app/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "app/journal/identity.h"
#include "app/journal/store.h"
#include "base/error.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string bytes_of(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TurnTree::Change turn(int parent, int index, std::vector<std::int32_t> answer) {
    TurnTree::Change change;
    Turn turn;
    turn.said = "said \"this\"\n\xff and that";  // not UTF-8
    turn.input = {0, 17, 4711};
    turn.given = {5, 6};
    turn.given_sampled = {1, 0};
    turn.answer = std::move(answer);
    turn.seed = ~std::uint64_t{0};
    turn.branch = 3;
    if (parent == -1) turn.kept = 7;
    turn.ended = true;
    turn.finish = Turn::Finish::cancelled;
    change.added.push_back({turn, parent});
    change.state.heads = {index};
    return change;
}

std::vector<SessionRecord> some_records() {
    TurnTree::Change undo;
    undo.undo = true;
    undo.state.heads = {0};
    return {SessionHeader{kSessionVersion, "2026-01-01T00:00:00Z"},
            EngineRecord{"/models/a.gguf", "0123456789abcdef", 16384, "cpu (avx512)"},
            SettingsRecord{"sampling.seed = 1\n"},
            turn(-1, 0, {1, 2, 3}),
            SettingsRecord{"sampling.seed = 2\n"},
            turn(0, 1, {}),
            undo};
}

fs::path path_of(const std::string& name) { return foresay::testing::scratch() / name; }

std::string error_of(const std::string& bytes) {
    const fs::path path = path_of("damaged.session");
    write(path, bytes);
    try {
        read_session(path);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "";
}

TEST(Journal, ReadsWhatItWrote) {
    const fs::path path = path_of("whole.session");
    { Journal::create(path, some_records()); }
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    const SavedSession session = read_session(path);
    EXPECT_FALSE(session.cut_off);
    EXPECT_EQ(session.whole_bytes, static_cast<std::int64_t>(fs::file_size(path)));
    EXPECT_EQ(session.settings, "sampling.seed = 2\n");
    EXPECT_THAT(session.settings_of, ::testing::ElementsAre(0, 1));
    EXPECT_THAT(session.engine_of, ::testing::ElementsAre(0, 0));
    ASSERT_EQ(session.tree.nodes().size(), 2u);
    EXPECT_EQ(session.tree.head(), 0);
    const Turn& read = session.tree.turn(0);
    const Turn written = turn(-1, 0, {1, 2, 3}).added.front().turn;
    EXPECT_EQ(read.input, written.input);
    EXPECT_EQ(read.kept, written.kept);
    EXPECT_EQ(session.tree.turn(1).kept, std::nullopt);
    EXPECT_EQ(read.given, written.given);
    EXPECT_EQ(read.given_sampled, written.given_sampled);
    EXPECT_EQ(read.answer, written.answer);
    EXPECT_EQ(read.seed, written.seed);
    EXPECT_EQ(read.branch, written.branch);
    EXPECT_EQ(read.ended, written.ended);
    EXPECT_EQ(read.finish, written.finish);
    EXPECT_EQ(read.said, "said \"this\"\n\xEF\xBF\xBD and that");
}

// Wherever a crash cuts the file, the whole lines before are read, and writing continues after them.
TEST(Journal, ATornEndLosesTheLastLineOnly) {
    const std::vector<SessionRecord> records = some_records();
    std::string text;
    std::vector<std::size_t> ends;
    for (const SessionRecord& record : records) ends.push_back((text += record_line(record)).size());
    for (std::size_t cut = ends[1]; cut < text.size(); ++cut) {
        const fs::path path = path_of("torn.session");
        write(path, text.substr(0, cut));
        SavedSession session;
        ASSERT_NO_THROW(session = read_session(path)) << cut;
        const auto whole = std::upper_bound(ends.begin(), ends.end(), cut) - 1;
        EXPECT_EQ(session.whole_bytes, static_cast<std::int64_t>(*whole));
        EXPECT_EQ(session.cut_off, *whole != cut);
        if (cut % 7 != 0) continue;
        const auto next = static_cast<std::size_t>(whole - ends.begin()) + 1;
        {
            Journal journal = Journal::open(path, session);
            journal.append({records.begin() + static_cast<std::ptrdiff_t>(next), records.end()});
        }
        EXPECT_EQ(bytes_of(path), text);
    }
}

TEST(Journal, DamageInTheMiddleIsRefusedWithItsLine) {
    std::string text;
    std::vector<std::size_t> begins;
    for (const SessionRecord& record : some_records()) {
        begins.push_back(text.size());
        text += record_line(record);
    }
    for (std::size_t line = 1; line + 1 < begins.size(); ++line) {
        std::string damaged = text;
        damaged[begins[line] + 12] ^= 1;
        EXPECT_THAT(error_of(damaged),
                    HasSubstr("damaged.session:" + std::to_string(line + 1) + ": the line is damaged"));
    }
    EXPECT_THAT(error_of(""), HasSubstr("not a saved session of foresay"));
    EXPECT_THAT(error_of("hello\nworld\n"), HasSubstr("not a saved session of foresay"));
    EXPECT_THAT(error_of(text.substr(0, begins[1])), HasSubstr("not a saved session of foresay"));
}

// Whole lines with false contents. The reader must answer with an error message, never with anything else.
TEST(Journal, LinesThatLieAreRefused) {
    const std::string begin = record_line(some_records()[0]) + record_line(some_records()[1]);
    const std::string end = record_line(SettingsRecord{""});
    const auto turn_with = [](const std::string& members) {
        return "{\"branches\":[0],\"current\":0,\"turns\":[{\"after\":-1,\"answer\":[1],\"branch\":0,\"finish\":"
               "\"stop\","
               "\"input\":[1],\"said\":\"\",\"seed\":0" +
               members + "}]}";
    };
    EXPECT_EQ(error_of(begin + checked_line(turn_with("")) + end), "");
    const std::vector<std::pair<std::string, std::string>> lies = {
        {"[]", "not a JSON object"},
        {"{\"foresay_session\":1,\"created\":\"\"}", "second header"},
        {"{\"engine\":3}", "'engine' must be an object"},
        {"{\"engine\":{\"model\":\"\",\"identity\":\"\",\"backend\":\"\",\"vocabulary\":-1}}", "'vocabulary' must be"},
        {"{\"settings\":1}", "'settings' must be a string"},
        {"{\"turns\":1}", "'turns' must be a list"},
        {"{\"turns\":[1],\"branches\":[0],\"current\":0}", "'turns' must be a list of objects"},
        {"{\"turns\":[],\"branches\":[7],\"current\":0}", "does not exist"},
        {"{\"turns\":[],\"branches\":[],\"current\":0}", "branches"},
        {"{\"turns\":[],\"branches\":[-1],\"current\":1}", "does not exist"},
        {"{\"turns\":[],\"branches\":[-1],\"current\":18446744073709551615}", "'current' must be"},
        {"{\"turns\":[],\"branches\":[-1],\"current\":0,\"undo\":true}", "an undo does not match the change before it"},
        {"{\"turns\":[],\"branches\":[4294967296],\"current\":0}", "'branches' must be"},
        {turn_with(",\"given\":[1],\"given_drawn\":\"11\""), "'given_drawn' must be as long"},
        {turn_with(",\"given\":[1],\"given_drawn\":\"2\""), "'given_drawn' must be a string of 0 and 1"},
        {turn_with(",\"kept\":-1"), "'kept' must be"},
        {turn_with(",\"ended\":1"), "'ended' must be true or false"},
        {turn_with(",\"answer\":[-1]"), "'answer' must be"},  // the last of two members counts
        {turn_with(",\"answer\":[1.5]"), "'answer' must be"},
        {turn_with(",\"seed\":-1"), "'seed' must be"},
        {turn_with(",\"finish\":\"never\""), "'finish' must be"},
        {turn_with(",\"after\":0"), "follows one that does not exist"},
        {"{\"tokens\":[1],\"of\":0}", "an answer that was not begun"},
        {"{\"tokens\":[1],\"of\":-1}", "'of' must be"},
        {"{\"tokens\":[-1],\"of\":0}", "'tokens' must be"},
        {turn_with("").insert(1, "\"unfinished\":3,"), "'unfinished' must be true or false"},
    };
    for (const auto& [json, complaint] : lies) {
        EXPECT_THAT(error_of(begin + checked_line(json) + end), HasSubstr("damaged.session:3: ")) << json;
        EXPECT_THAT(error_of(begin + checked_line(json) + end), HasSubstr(complaint)) << json;
    }
    EXPECT_THAT(error_of(checked_line("{\"foresay_session\":2,\"created\":\"\"}") + end), HasSubstr("version 2"));
    EXPECT_THAT(error_of(begin + checked_line(std::string(5000, '[')) + end), HasSubstr("damaged.session:3: "));
}

// Random damage, with checksums made right again: an error or a session, nothing else.
TEST(Journal, RandomLinesDoNoHarm) {
    std::vector<std::string> bodies;
    for (const SessionRecord& record : some_records()) {
        const std::string line = record_line(record);
        bodies.push_back(line.substr(9, line.size() - 10));
    }
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        for (std::string body : bodies) {
            for (unsigned i = random() % 4; i > 0 && !body.empty(); --i) {
                const std::size_t at = random() % body.size();
                if (random() % 2 == 0) {
                    body[at] = "0123456789-{}[],:\"tfn"[random() % 21];
                } else {
                    body.erase(at, 1 + random() % 6);
                }
            }
            if (body.find('\n') == std::string::npos) text += checked_line(body);
        }
        error_of(text);
    }
}

TEST(Journal, ASecondWriterIsRefused) {
    const fs::path path = path_of("locked.session");
    const Journal journal = Journal::create(path, some_records());
    try {
        Journal::open(path, read_session(path));
        FAIL() << "two writers";
    } catch (const Error& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("open in another foresay"));
    }
    EXPECT_THROW(Journal::create(path, some_records()), Error);  // it exists
}

// No room on the disk: the message says so, the file stays whole, and later saves work.
TEST(Journal, AFullDiskSpoilsNothing) {
    const fs::path path = path_of("full.session");
    const std::vector<SessionRecord> records = some_records();
    Journal journal = Journal::create(path, {records.begin(), records.begin() + 3});
    const std::string before = bytes_of(path);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{before.size() + 20, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(journal.append({records[3]}), Error);
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_EQ(bytes_of(path), before);
    journal.append({records[3]});
    EXPECT_EQ(bytes_of(path), before + record_line(records[3]));
}

// What write_session() says, empty when it wrote.
std::string refusal(const fs::path& path, const std::string& text, Replace replace) {
    try {
        write_session(path, text, replace);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "";
}

TEST(Journal, ACopyIsWholeAndReplacesOnlyWhatItMay) {
    const fs::path folder = path_of("copies");
    fs::create_directory(folder);
    const fs::path path = folder / "b.session";
    const std::vector<SessionRecord> records = some_records();
    const std::string text = text_of(records);
    const std::string earlier = text_of({records.begin(), records.begin() + 4});
    EXPECT_EQ(refusal(path, earlier, Replace::earlier_copy), "");
    EXPECT_EQ(refusal(path, text, Replace::earlier_copy), "") << "an earlier copy is brought up to date";
    EXPECT_EQ(bytes_of(path), text);
    // Another conversation stays, unless that is asked for.
    const std::string other = text_of({records[0], records[1], records[3]});
    EXPECT_THAT(refusal(path, other, Replace::earlier_copy), HasSubstr("b.session holds another conversation"));
    EXPECT_THAT(refusal(path, earlier, Replace::earlier_copy), HasSubstr("holds another conversation"))
        << "a later copy would be lost";
    EXPECT_EQ(bytes_of(path), text);
    {
        const Journal open = Journal::open(path, read_session(path));
        for (const Replace replace : {Replace::earlier_copy, Replace::any_session}) {
            EXPECT_THAT(refusal(path, other, replace), HasSubstr("is open in another foresay process"));
        }
        EXPECT_EQ(bytes_of(path), text);
    }
    EXPECT_EQ(refusal(path, other, Replace::any_session), "");
    EXPECT_EQ(bytes_of(path), other);
    // What is no session is never replaced; a link stays a link.
    write(folder / "notes.txt", "dear diary\n");
    EXPECT_THAT(refusal(folder / "notes.txt", text, Replace::any_session), HasSubstr("is not a saved session"));
    EXPECT_THAT(refusal("/dev/null", text, Replace::any_session), HasSubstr("is not a file"));
    EXPECT_THAT(refusal(folder, text, Replace::any_session), HasSubstr("is not a file"));
    fs::create_symlink(path, folder / "link.session");
    EXPECT_EQ(refusal(folder / "link.session", text, Replace::any_session), "");
    EXPECT_TRUE(fs::is_symlink(folder / "link.session"));
    EXPECT_EQ(bytes_of(path), text);
    EXPECT_THAT(refusal(path_of("no-such-folder") / "c.session", text, Replace::any_session),
                HasSubstr("cannot write"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 3) << "nothing else is left";
}

// A file that another program puts in the place of an open session does not get its turns, and they are not lost.
TEST(Journal, AFileThatIsDeletedOrReplacedIsNoticed) {
    const fs::path path = path_of("replaced.session");
    const std::vector<SessionRecord> records = some_records();
    Journal journal = Journal::create(path, {records.begin(), records.begin() + 4});
    const std::string mine = bytes_of(path);
    fs::remove(path);
    write(path, "something else");
    EXPECT_THROW(journal.append({records[4]}), CannotSave);
    EXPECT_EQ(bytes_of(path), "something else");
    EXPECT_EQ(journal.text(), mine);
    fs::remove(path);
    // A session that was only moved goes on in its new place.
    Journal moved = Journal::create(path, {records.begin(), records.begin() + 4});
    fs::rename(path, path_of("elsewhere.session"));
    moved.append({records[4]});
    EXPECT_EQ(bytes_of(path_of("elsewhere.session")), mine + record_line(records[4]));
}

// An answer that is being generated is in the file, token by token, until its change supersedes it.
TEST(Journal, AnUnfinishedAnswerIsKept) {
    const fs::path path = path_of("unfinished.session");
    const std::vector<SessionRecord> records = some_records();
    TurnTree::Change begun = turn(0, 1, {});
    begun.added.push_back({begun.added.front().turn, 0});
    begun.state.heads = {1, 2};
    TurnTree::Change whole = begun;
    whole.added[0].turn.answer = {7, 8, 9, 10};
    whole.added[1].turn.answer = {17};
    {
        Journal journal = Journal::create(path, {records.begin(), records.begin() + 4});
        journal.append({UnfinishedRecord{begun}}, Until::process_ends);
        journal.append({TokensRecord{0, {7, 8}}, TokensRecord{1, {17}}}, Until::process_ends);
        journal.append({TokensRecord{0, {9}}}, Until::process_ends);
    }
    const SavedSession cut = read_session(path);
    ASSERT_TRUE(cut.unfinished.has_value());
    EXPECT_FALSE(cut.cut_off);
    EXPECT_THAT(cut_off_note(cut), HasSubstr("the program ended during the last answer"));
    ASSERT_EQ(cut.tree.nodes().size(), 3u);
    EXPECT_THAT(cut.tree.turn(1).answer, ::testing::ElementsAre(7, 8, 9));
    EXPECT_THAT(cut.tree.turn(2).answer, ::testing::ElementsAre(17));
    EXPECT_FALSE(cut.tree.turn(1).ended);
    EXPECT_EQ(cut.tree.turn(1).finish, Turn::Finish::cancelled);
    EXPECT_EQ(cut.engine_of.size(), 3u);
    EXPECT_EQ(cut.settings_of.size(), 3u);
    // Its change follows: what was saved before counts no longer.
    Journal journal = Journal::open(path, cut);
    const std::int64_t before = journal.bytes();
    journal.append({whole});
    const SavedSession done = read_session(path);
    EXPECT_FALSE(done.unfinished.has_value());
    EXPECT_EQ(cut_off_note(done), "");
    ASSERT_EQ(done.tree.nodes().size(), 3u);
    EXPECT_EQ(done.tree.turn(1).answer.size(), 4u);
    journal.cut_back(before);
    EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(path)), before);
    EXPECT_TRUE(read_session(path).unfinished.has_value());
}

TEST(Store, NamesAreChecked) {
    ::setenv("XDG_STATE_HOME", foresay::testing::scratch().c_str(), 1);
    for (const char* name : {"", ".hidden", "-dash", "a b", "caf\xc3\xa9", "a\nb"}) {
        EXPECT_THROW(session_path(name), Error) << name;
    }
    EXPECT_EQ(session_path("work-2.a"), foresay::testing::scratch() / "foresay" / "sessions" / "work-2.a.session");
    EXPECT_EQ(session_path("./x"), "./x");
    struct stat status {};
    ASSERT_EQ(::stat(sessions_folder().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    write(session_path("monday"), "");
    try {
        existing_session("mondy");
        FAIL();
    } catch (const Error& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("did you mean monday?"));
    }
}

// The store in a folder of its own, emptied.
fs::path empty_store(const std::string& name) {
    const fs::path state = path_of(name);
    fs::remove_all(state);
    fs::create_directories(state);
    ::setenv("XDG_STATE_HOME", state.c_str(), 1);
    return sessions_folder();
}

TEST(Store, DeletesByNameWhatIsNotOpen) {
    const fs::path folder = empty_store("deleting");
    const fs::path path = session_path("monday");
    Journal::create(path, some_records());
    {
        const Journal open = Journal::open(path, read_session(path));
        EXPECT_THROW(delete_session("monday"), Error);
        EXPECT_TRUE(fs::exists(path));
    }
    EXPECT_THROW(delete_session("tuesday"), Error);
    EXPECT_THROW(delete_session(path.string()), Error) << "a path is no name";
    delete_session("monday");
    EXPECT_FALSE(fs::exists(path));
}

TEST(Store, PrunesTheOldestThatHaveNoNameAndAreNotOpen) {
    const fs::path folder = empty_store("pruning");
    const std::vector<std::string> oldest_first = {
        "20250101-000000",  "20250101-000001-2", "20250101-000001", "monday",         "20250101-00000",
        "20250101-000001-", "20250101-000001-x", "20250102-000000", "20250103-000000"};
    for (std::size_t i = 0; i < oldest_first.size(); ++i) {
        const fs::path path = session_path(oldest_first[i]);
        Journal::create(path, some_records());
        fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(100 - i));
    }
    const Journal open = Journal::open(session_path("20250101-000000"), read_session(session_path("20250101-000000")));
    EXPECT_EQ(prune_sessions(0), 0u) << "0 keeps all";
    EXPECT_EQ(prune_sessions(5), 0u);
    EXPECT_EQ(prune_sessions(2), 2u);
    std::vector<std::string> left;
    for (const SessionFile& file : list_sessions()) left.insert(left.begin(), file.name);
    EXPECT_THAT(left, ::testing::ElementsAre("20250101-000000", "monday", "20250101-00000", "20250101-000001-",
                                             "20250101-000001-x", "20250102-000000", "20250103-000000"));
}

TEST(Identity, NoticesAnotherModel) {
    const fs::path path = path_of("model.gguf");
    std::string bytes(1 << 20, 'x');
    write(path, bytes);
    const std::string identity = model_identity(path);
    EXPECT_EQ(identity.size(), 16u);
    const fs::path moved = path_of("moved.gguf");
    write(moved, bytes);
    EXPECT_EQ(model_identity(moved), identity) << "the place does not matter";
    for (const std::size_t place : {std::size_t{0}, bytes.size() / 2 - 1, bytes.size() - 1}) {
        std::string other = bytes;
        other[place] = 'y';
        write(moved, other);
        EXPECT_NE(model_identity(moved), identity) << place;
    }
    write(moved, bytes + "x");
    EXPECT_NE(model_identity(moved), identity);
    EXPECT_THROW(model_identity(path_of("nothing.gguf")), Error);
}

}  // namespace
}  // namespace foresay::app
