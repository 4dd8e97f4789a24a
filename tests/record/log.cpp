#include "tests/record/log.h"

#include <sstream>

namespace foresay::record {

namespace {

// "[  SKIPPED ] Suite.Name (3 ms)" with `mark` "SKIPPED": the name. The list at the end of a program has no time.
std::string case_of(const std::string& line, const std::string& mark) {
    const std::size_t end = line.find(mark + " ] ");
    if (line.empty() || line[0] != '[' || end == line.npos || !line.ends_with(" ms)")) return "";
    const std::size_t begin = end + mark.size() + 3;
    std::string name = line.substr(begin, line.rfind(" (") - begin);
    return name.substr(0, name.find(", where "));
}

// "12/57 Test: NAME", and "Test: NAME" of the script.
std::string name_of(const std::string& line) {
    const std::size_t mark = line.find("Test: ");
    if (mark == line.npos || line.substr(0, mark).find_first_not_of("0123456789/ ") != line.npos) return "";
    return line.substr(mark + 6);
}

}  // namespace

std::vector<TestResult> read_log(std::string_view text) {
    std::vector<TestResult> results;
    std::istringstream stream{std::string(text)};
    std::string reason;
    bool says_reason = false, output = false, finished = true, is_gtest = false, started = true, says_not_run = false;
    const auto close = [&] {
        if (!results.empty() && !finished) results.back().failed = true;
        finished = true;
    };
    for (std::string line; std::getline(stream, line);) {
        if (const std::string name = name_of(line); !output && !name.empty()) {
            close();
            results.push_back({name, false, false, 0, {}});
            finished = false, is_gtest = false, says_reason = false, started = true, says_not_run = false;
            reason.clear();
            continue;
        }
        if (results.empty()) continue;
        TestResult& test = results.back();
        const bool ends = line.ends_with("<end of output>");
        if (output) {
            if (says_reason) reason = line;
            says_reason = line.ends_with(": Skipped");
            if (line.starts_with("not run") && line.find(": ") != line.npos) {
                reason = line;
                says_not_run = true;
            }
            if (line.starts_with("[==========]")) is_gtest = true;
            if (!case_of(line, "OK").empty()) ++test.passed;
            if (!case_of(line, "FAILED ").empty()) test.failed = true;
            if (const std::string name = case_of(line, "SKIPPED"); !name.empty()) test.skips.push_back({name, reason});
            output = !ends;
        } else if (line == "Output:") {
            output = true;
        } else if (line == "Command: \"\"") {  // the program is not there; ctest's log says "Test Passed."
            started = false;
        } else if (line.starts_with("Test Passed") || line.starts_with("Skip regular expression")) {
            if (finished) continue;
            finished = true;
            test.failed = test.failed || !started;
            // Of a program that ends with its SKIP_RETURN_CODE the log says "Test Passed.".
            test.skipped = line.starts_with("Skip") || (says_not_run && !is_gtest);
            if (test.skipped && test.skips.empty()) test.skips.push_back({test.name, reason});
            if (!test.skipped && !is_gtest && started) test.passed = 1;
        }
    }
    close();
    return results;
}

}  // namespace foresay::record
