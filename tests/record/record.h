// tests/record/record.h: tests/record.json, where and when tests passed that many machines cannot run.
//
// Layout:   {"runs": [{"date": "2026-11-23", "commit": "a96e22f", "device": "NVIDIA H200",
//           "tests": {"kernels_test_cuda": 310}}]}, newest first; the number is that of the cases that passed. A test
//           is listed once for each device.
// Errors:   Error for text of another form.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace foresay::record {

struct Run {
    std::string date;    // YYYY-MM-DD
    std::string commit;  // short hash; with a + when the tree had changes
    std::string device;
    std::map<std::string, int> tests;
};

using Record = std::vector<Run>;

Record read_record(const std::string& text);
std::string write_record(const Record& record);

// Adds a run in front. What it holds is taken out of older runs on the same device; runs that are empty then are
// dropped.
void add(Record& record, Run run);

// The newest run in which more than `passed` cases of the test passed; null when there is none.
const Run* last_passed(const Record& record, const std::string& test, int passed);

}  // namespace foresay::record
