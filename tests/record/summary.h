// tests/record/summary.h: which tests did not run on a machine, why, and where they last passed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/record/log.h"
#include "tests/record/record.h"

namespace foresay::record {

struct ListedTest {
    std::string name;
    std::vector<std::string> labels;
    std::vector<std::string> command;
    std::vector<std::string> environment;  // NAME=VALUE
    std::string folder;                    // its working directory
};

// What `ctest --show-only=json-v1` prints.
std::vector<ListedTest> read_list(const std::string& json);

// The presets of CMakePresets.json that build with a sanitizer.
std::vector<std::string> sanitizer_presets(const std::string& json);

struct SummaryRequest {
    std::vector<TestResult> results;
    std::vector<ListedTest> listed;          // those of them that are not in `results` were left out by the choice
    std::vector<std::string> other_presets;  // builds that were left out
    Record record;
    std::function<std::string(const std::string& commit)> age;  // "3 commits ago", or empty
};

// Lines for a person, one paragraph for each reason; empty when everything ran. A test that ctest calls skipped
// although a case of it failed is shown first.
std::string summary(const SummaryRequest& request);

// A shell script that runs the listed tests with the label `cuda` where there is no ctest; its output is a log for
// read_log(). Paths below `root` are written relative to it: the script runs in a copy of that folder.
std::string device_script(const std::vector<ListedTest>& listed, const std::string& root);

}  // namespace foresay::record
