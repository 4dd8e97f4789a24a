#include "tests/record/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"

namespace foresay::record {

namespace {

using nlohmann::ordered_json;

Run read_run(const ordered_json& json) {
    static const std::regex date("\\d{4}-\\d\\d-\\d\\d"), commit("[0-9a-f]{7,40}\\+?");
    Run run{json.at("date"), json.at("commit"), json.at("device"), {}};
    if (!std::regex_match(run.date, date)) throw Error("not a date: " + run.date);
    if (!std::regex_match(run.commit, commit)) throw Error("not a commit: " + run.commit);
    if (run.device.empty()) throw Error("a run names no device");
    for (const auto& [name, passed] : json.at("tests").items()) {
        if (!passed.is_number_integer() || passed < 1) throw Error(name + ": not a number of cases that passed");
        run.tests[name] = passed;
    }
    if (run.tests.empty()) throw Error("a run of " + run.date + " holds no test");
    return run;
}

}  // namespace

Record read_record(const std::string& text) {
    try {
        Record record;
        const ordered_json whole = ordered_json::parse(text);
        for (const ordered_json& run : whole.at("runs")) record.push_back(read_run(run));
        std::map<std::string, int> seen;
        for (const Run& run : record) {
            for (const auto& [name, passed] : run.tests) {
                if (++seen[run.device + ": " + name] > 1) throw Error(name + " is listed twice on " + run.device);
            }
        }
        return record;
    } catch (const nlohmann::json::exception& problem) {
        throw Error(problem.what());
    }
}

std::string write_record(const Record& record) {
    ordered_json runs = ordered_json::array();
    for (const Run& run : record) {
        ordered_json tests = ordered_json::object();
        for (const auto& [name, passed] : run.tests) tests[name] = passed;
        runs.push_back({{"date", run.date}, {"commit", run.commit}, {"device", run.device}, {"tests", tests}});
    }
    return ordered_json{{"runs", runs}}.dump(2) + "\n";
}

void add(Record& record, Run run) {
    for (Run& older : record) {
        if (older.device != run.device) continue;
        for (const auto& [name, passed] : run.tests) older.tests.erase(name);
    }
    std::erase_if(record, [](const Run& older) { return older.tests.empty(); });
    if (!run.tests.empty()) record.insert(record.begin(), std::move(run));
}

const Run* last_passed(const Record& record, const std::string& test, int passed) {
    const Run* newest = nullptr;
    for (const Run& run : record) {
        const auto found = run.tests.find(test);
        if (found == run.tests.end() || found->second <= passed) continue;
        if (newest == nullptr || run.date > newest->date) newest = &run;
    }
    return newest;
}

}  // namespace foresay::record
