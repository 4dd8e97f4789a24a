// test_record: what ./run prints at the end of the tests, and what it records. Its commands are ./run's.
//
//   test_record summary ROOT BUILD PRESET [chosen]     after a run of ctest; chosen: its arguments chose the tests
//   test_record add ROOT LOG DEVICE COMMIT DATE [GROUP]  adds what passed to tests/record.json; GROUP: as one number
//   test_record script ROOT BUILD                      a script for a machine without ctest
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "tests/record/summary.h"

namespace {

using namespace foresay;
using namespace foresay::record;
namespace fs = std::filesystem;

std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path.string() + " cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_line(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>/dev/null").c_str(), "r"), ::pclose);
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
    const std::string text = line.data();
    return text.substr(0, text.find('\n'));
}

int print_summary(const fs::path& root, const fs::path& build, const std::string& preset, bool chosen) {
    SummaryRequest request;
    request.results = read_log(read(build / "Testing/Temporary/LastTest.log"));
    request.record = read_record(read(root / "tests/record.json"));
    if (!chosen) {
        request.listed = read_list(read(build / "tests.json"));
        request.other_presets = sanitizer_presets(read(root / "CMakePresets.json"));
        std::erase(request.other_presets, preset);
    }
    request.age = [&](const std::string& commit) -> std::string {
        const std::string count = first_line("git -C '" + root.string() + "' rev-list --count " +
                                             commit.substr(0, commit.find('+')) + "..HEAD");
        return count.empty() || count == "0" ? "" : count + (count == "1" ? " commit ago" : " commits ago");
    };
    std::fputs(summary(request).c_str(), stdout);
    return std::any_of(request.results.begin(), request.results.end(), [](const TestResult& t) { return t.failed; });
}

int add_log(const fs::path& root, const std::string& log, Run run, const std::string& group) {
    int failed = 0;
    for (const TestResult& test : read_log(read(log))) {
        failed += test.failed ? 1 : 0;
        if (test.failed) std::fprintf(stderr, "not recorded, it failed: %s\n", test.name.c_str());
        if (!test.failed && test.passed > 0) run.tests[group.empty() ? test.name : group] += test.passed;
    }
    if (failed > 0 && !group.empty()) throw Error("nothing is recorded: " + group + " has failures");
    if (run.tests.empty())
        throw Error(log +
                    ": no test that passed; it should be ctest's LastTest.log or the output of "
                    "the script for devices");
    const std::size_t count = run.tests.size();
    const fs::path file = root / "tests/record.json";
    Record record = read_record(read(file));
    add(record, std::move(run));
    const std::string text = write_record(record);
    read_record(text);
    std::ofstream(file, std::ios::binary) << text;
    std::printf("recorded %zu tests in tests/record.json\n", count);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    try {
        if (words.size() >= 4 && words[0] == "summary")
            return print_summary(words[1], words[2], words[3], words.size() > 4);
        if (words.size() >= 6 && words[0] == "add")
            return add_log(words[1], words[2], {words[5], words[4], words[3], {}}, words.size() > 6 ? words[6] : "");
        if (words.size() == 3 && words[0] == "script") {
            std::fputs(device_script(read_list(read(words[2] + "/tests.json")), words[1]).c_str(), stdout);
            return 0;
        }
        std::fprintf(stderr, "usage: test_record summary|add|script ...; ./run test and ./run record call it\n");
    } catch (const Error& problem) {
        std::fprintf(stderr, "test_record: %s\n", problem.what());
    }
    return 2;
}
