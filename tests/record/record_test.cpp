// Logs of tests, the record of where they passed, and the summary of what did not run.
#include "tests/record/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "tests/record/log.h"
#include "tests/record/summary.h"

namespace foresay::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLine = "----------------------------------------------------------\n";

std::string entry(const std::string& name, const std::string& output, const std::string& end) {
    return "3/57 Testing: " + name + "\n3/57 Test: " + name + "\nCommand: \"/bin/" + name + "\"\nOutput:\n" + kLine +
           output + "<end of output>\nTest time =   0.05 sec\n" + kLine + end + "\n\"" + name + "\" end time: now\n\n";
}

const std::string kGtest =
    "[==========] Running 3 tests from 1 test suite.\n"
    "[ RUN      ] A.b\n[       OK ] A.b (0 ms)\n"
    "[ RUN      ] A.c\n../a.cpp:3: Skipped\ntmux is not installed\n\n[  SKIPPED ] A.c (0 ms)\n"
    "[ RUN      ] A/D.e/0\nTest: inner\n[       OK ] A/D.e/0 (12 ms)\n"
    "[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.c\n";
const std::string kSkipped =
    "Test Pass Reason:\nSkip regular expression found in output. Regex=[not run on CUDA: [^\n]*]";

TEST(Log, TellsWhatPassedFromWhatWasSkipped) {
    const auto results = read_log("Start testing: now\n" + kLine + entry("a_test", kGtest, "Test Passed.") +
                                  entry("script", "Test: not a test of ctest\nall well", "Test Passed."));
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].name, "a_test");
    EXPECT_FALSE(results[0].failed);
    EXPECT_EQ(results[0].passed, 2);
    ASSERT_EQ(results[0].skips.size(), 1u);
    EXPECT_EQ(results[0].skips[0].test, "A.c");
    EXPECT_EQ(results[0].skips[0].reason, "tmux is not installed");
    EXPECT_EQ(results[1].passed, 1) << "a program without cases is one";
}

TEST(Log, TellsASkippedTestFromOneThatPassed) {
    const auto results = read_log(entry("a_cuda", "not run on CUDA: no device was found\n", kSkipped));
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].passed, 0);
    EXPECT_FALSE(results[0].failed);
    ASSERT_EQ(results[0].skips.size(), 1u);
    EXPECT_EQ(results[0].skips[0].reason, "not run on CUDA: no device was found");
}

TEST(Log, BelievesAScriptThatSaysItDidNotRun) {
    const auto results = read_log(entry("plots", "not run: python3 is not installed\n", "Test Passed."));
    EXPECT_EQ(results[0].passed, 0) << "ctest writes \"Test Passed.\" of a SKIP_RETURN_CODE";
    ASSERT_EQ(results[0].skips.size(), 1u);
    EXPECT_EQ(results[0].skips[0].reason, "not run: python3 is not installed");
}

TEST(Log, TakesNothingUnfinishedForAPass) {
    const std::string failing = "[==========] Running\n[ RUN      ] A.b\n[  FAILED  ] A.b (1 ms)\n";
    EXPECT_TRUE(read_log(entry("a", failing, "Test Failed."))[0].failed);
    EXPECT_TRUE(read_log(entry("a", failing, kSkipped))[0].failed) << "ctest calls it skipped";
    EXPECT_TRUE(read_log("Test: a\nOutput:\n[ RUN      ] A.b\n")[0].failed) << "cut off";
    EXPECT_TRUE(read_log(entry("a", "", "Test Failed. Status 139"))[0].failed) << "crashed";
    // What ctest writes of a program that was not built.
    EXPECT_TRUE(read_log("1/1 Test: a\nCommand: \"\"\nOutput:\n<end of output>\nTest Passed.\n")[0].failed);
}

TEST(Record, IsReadAsItWasWritten) {
    const Record record = {{"2026-11-23", "a96e22f", "NVIDIA H200", {{"a_cuda", 3}, {"b_cuda", 40}}},
                           {"2026-11-20", "0123456789+", "2 x NVIDIA H200", {{"a_cuda", 5}}}};
    const std::string text = write_record(record);
    EXPECT_EQ(write_record(read_record(text)), text);
    EXPECT_EQ(read_record(text)[1].tests.at("a_cuda"), 5);
}

TEST(Record, RefusesWhatIsNotOne) {
    const auto with = [](const std::string& run) { return "{\"runs\": [" + run + "]}"; };
    const std::string good = R"({"date": "2026-11-23", "commit": "a96e22f", "device": "d", "tests": {"a": 1}})";
    EXPECT_EQ(read_record(with(good)).size(), 1u);
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"2026-11-23", "yesterday"},
                                                                                   {"a96e22f", "main"},
                                                                                   {"\"d\"", "\"\""},
                                                                                   {": 1", ": 0"},
                                                                                   {": 1", ": 1.5"},
                                                                                   {"\"a\": 1", ""},
                                                                                   {"device", "machine"}}) {
        std::string bad = good;
        bad.replace(bad.find(from), from.size(), to);
        EXPECT_THROW(read_record(with(bad)), Error) << bad;
    }
    EXPECT_THROW(read_record(with(good + "," + good)), Error) << "the same test twice on one device";
    EXPECT_THROW(read_record("{}"), Error);
    EXPECT_THROW(read_record(""), Error);
}

TEST(Record, KeepsTheNewestOfEachDevice) {
    Record record;
    add(record, {"2026-11-20", "aaaaaaa", "one", {{"a", 3}, {"b", 4}}});
    add(record, {"2026-11-21", "bbbbbbb", "two", {{"a", 5}}});
    add(record, {"2026-11-22", "ccccccc", "one", {{"a", 2}}});
    ASSERT_EQ(record.size(), 3u);
    EXPECT_EQ(last_passed(record, "a", 0)->commit, "ccccccc");
    EXPECT_EQ(last_passed(record, "a", 2)->commit, "bbbbbbb") << "more cases passed there";
    EXPECT_EQ(last_passed(record, "a", 5), nullptr);
    EXPECT_EQ(last_passed(record, "b", 0)->commit, "aaaaaaa");
    add(record, {"2026-11-23", "ddddddd", "one", {{"b", 4}}});
    EXPECT_EQ(record.size(), 3u) << "the first run holds nothing any more";
}

TEST(Summary, SaysWhatDidNotRunAndWhereItLastPassed) {
    SummaryRequest request;
    request.results = read_log(entry("repl_test", kGtest, "Test Passed.") +
                               entry("a_cuda", "not run on CUDA: no device was found\n", kSkipped) +
                               entry("fine", "", "Test Passed."));
    request.listed = {{"fine", {"unit"}, {}, {}, ""}, {"matrix_full", {"laws", "slow"}, {}, {}, ""}};
    request.other_presets = {"asan"};
    request.record = {{"2026-11-23", "a96e22f", "NVIDIA H200", {{"a_cuda", 310}, {"repl_test", 2}}}};
    request.age = [](const std::string& commit) { return commit == "a96e22f" ? "12 commits ago" : ""; };
    EXPECT_EQ(summary(request),
              "Did not run here, and where it last passed (tests/record.json):\n"
              "  label slow, not chosen\n"
              "    matrix_full              no run is recorded\n"
              "  not run on CUDA: no device was found\n"
              "    a_cuda                   2026-11-23  a96e22f (12 commits ago)  NVIDIA H200, 310 cases\n"
              "  other builds: ./run test PRESET\n"
              "    asan                     no run is recorded\n"
              "  tmux is not installed\n"
              "    repl_test, 1 of 3 cases  no run is recorded\n");
}

TEST(Summary, ShowsAFailureThatCtestCallsSkipped) {
    SummaryRequest request;
    const std::string failing = "[==========] Running\n[ RUN      ] A.b\n[  FAILED  ] A.b (1 ms)\n";
    request.results = read_log(entry("a_cuda", failing, kSkipped));
    EXPECT_THAT(summary(request), HasSubstr("a_cuda: ctest calls it skipped, but a case of it failed\n"));
}

TEST(Summary, IsEmptyWhenAllRan) {
    SummaryRequest request;
    request.results = read_log(entry("fine", "", "Test Passed."));
    request.listed = {{"fine", {"unit"}, {}, {}, ""}};
    EXPECT_EQ(summary(request), "");
}

TEST(Lists, AreCtestsAndThePresets) {
    const auto listed = read_list(R"({"tests": [{"name": "a", "command": ["/p/a", "x"], "properties": [
        {"name": "LABELS", "value": ["unit", "cuda"]}, {"name": "ENVIRONMENT", "value": ["A=b"]},
        {"name": "TIMEOUT", "value": 5.0}, {"name": "WORKING_DIRECTORY", "value": "/p/b"}]}, {"name": "b"}]})");
    ASSERT_EQ(listed.size(), 2u);
    EXPECT_THAT(listed[0].labels, ElementsAre("unit", "cuda"));
    EXPECT_THAT(listed[0].environment, ElementsAre("A=b"));
    EXPECT_EQ(listed[0].folder, "/p/b");
    std::ifstream file(FORESAY_SOURCE_DIR "/CMakePresets.json");
    EXPECT_THAT(sanitizer_presets({std::istreambuf_iterator<char>(file), {}}), ElementsAre("asan", "ubsan", "tsan"));
}

TEST(DeviceScript, RunsTestsAndWritesALog) {
    namespace fs = std::filesystem;
    const fs::path root = fs::path(::testing::TempDir()) / "record_test_root";
    fs::create_directories(root / "there");
    const std::string at = "/made/elsewhere";
    const std::string script =
        device_script({{"passes",
                        {"cuda"},
                        {"sh", "-c", "echo \"[==========]\"; echo \"[       OK ] A.$B (1 ms)\"; test -d there"},
                        {"B=it's"},
                        at},
                       {"fails", {"cuda"}, {"sh", "-c", "exit 3"}, {}, at + "/there"},
                       {"other", {"unit"}, {"false"}, {}, at}},
                      at);
    EXPECT_THAT(script, Not(HasSubstr(at)));
    std::ofstream(root / "script.sh") << script;
    const std::string log = (root / "log").string();
    EXPECT_NE(
        std::system(("bash '" + (root / "script.sh").string() + "' '" + root.string() + "' > '" + log + "'").c_str()),
        0);
    std::ifstream file(log);
    const auto results = read_log(std::string{std::istreambuf_iterator<char>(file), {}});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].name, "passes");
    EXPECT_FALSE(results[0].failed);
    EXPECT_EQ(results[0].passed, 1);
    EXPECT_TRUE(results[1].failed);
}

TEST(RecordFile, IsWellFormed) {
    std::ifstream file(FORESAY_SOURCE_DIR "/tests/record.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(EXPECT_EQ(write_record(read_record(text)), text));
}

}  // namespace
}  // namespace foresay::record
