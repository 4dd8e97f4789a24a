// tests/record/log.h: what ran, read from a log of tests: ctest's LastTest.log, or the output of `test_record script`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foresay::record {

struct Skip {
    std::string test;    // the case, Suite.Name; of a test that is no GoogleTest program, the test itself
    std::string reason;  // what the case said; empty when it said nothing
};

struct TestResult {
    std::string name;  // as ctest knows it
    bool failed = false;
    bool skipped = false;  // as ctest sees it, whatever the cases did
    int passed = 0;        // cases; 1 for a test that passed and is no GoogleTest program
    std::vector<Skip> skips;
};

// A test that the log does not finish counts as failed. A program that does not use GoogleTest says that it is skipped
// by a line "not run: why".
std::vector<TestResult> read_log(std::string_view text);

}  // namespace foresay::record
