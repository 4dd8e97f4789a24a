#include "tests/record/summary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace foresay::record {

namespace {

using nlohmann::json;

bool contains(const std::vector<std::string>& list, const std::string& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

struct Missing {
    std::string test;
    int cases = 0;  // that were skipped; 0: the test did not run at all
    int passed = 0;
};

// "repl_test, 3 of 40 cases"
std::string shown(const Missing& missing) {
    if (missing.passed == 0) return missing.test;
    return missing.test + ", " + std::to_string(missing.cases) + " of " +
           std::to_string(missing.cases + missing.passed) + " cases";
}

std::string last_run(const Missing& missing, const SummaryRequest& request) {
    const Run* run = last_passed(request.record, missing.test, missing.passed);
    if (run == nullptr) return "no run is recorded";
    const int passed = run->tests.at(missing.test);
    const std::string age = request.age ? request.age(run->commit) : "";
    return run->date + "  " + run->commit + (age.empty() ? "" : " (" + age + ")") + "  " + run->device + ", " +
           std::to_string(passed) + (passed == 1 ? " case" : " cases");
}

std::string quoted(const std::string& word) {
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

}  // namespace

std::vector<ListedTest> read_list(const std::string& text) {
    std::vector<ListedTest> listed;
    const json whole = json::parse(text);
    for (const json& test : whole.at("tests")) {
        ListedTest entry;
        entry.name = test.at("name");
        if (test.contains("command")) entry.command = test["command"];
        const json properties = test.value("properties", json::array());
        for (const json& property : properties) {
            if (property.at("name") == "LABELS") entry.labels = property.at("value");
            if (property.at("name") == "ENVIRONMENT") entry.environment = property.at("value");
            if (property.at("name") == "WORKING_DIRECTORY") entry.folder = property.at("value");
        }
        listed.push_back(std::move(entry));
    }
    return listed;
}

std::vector<std::string> sanitizer_presets(const std::string& text) {
    std::vector<std::string> names;
    const json whole = json::parse(text);
    for (const json& preset : whole.at("configurePresets")) {
        if (preset.value("cacheVariables", json::object()).contains("FORESAY_SANITIZER"))
            names.push_back(preset["name"]);
    }
    return names;
}

std::string summary(const SummaryRequest& request) {
    std::map<std::string, std::vector<Missing>> reasons;
    std::set<std::string> ran;
    std::string text;
    for (const TestResult& test : request.results) {
        ran.insert(test.name);
        if (test.failed && test.skipped) text += test.name + ": ctest calls it skipped, but a case of it failed\n";
        std::map<std::string, int> skipped;
        for (const Skip& skip : test.skips) ++skipped[skip.reason.empty() ? "skipped without a reason" : skip.reason];
        for (const auto& [reason, cases] : skipped) reasons[reason].push_back({test.name, cases, test.passed});
    }
    for (const ListedTest& test : request.listed) {
        if (ran.contains(test.name)) continue;
        std::string labels;
        for (const char* label : {"slow", "fuzz"}) {
            if (contains(test.labels, label)) labels += (labels.empty() ? "label " : ", ") + std::string(label);
        }
        reasons[labels.empty() ? "not chosen" : labels + ", not chosen"].push_back({test.name, 0, 0});
    }
    for (const std::string& preset : request.other_presets)
        reasons["other builds: ./run test PRESET"].push_back({preset, 0, 0});
    if (reasons.empty()) return text;
    text += "Did not run here, and where it last passed (tests/record.json):\n";
    std::size_t width = 0;
    for (const auto& [reason, list] : reasons) {
        for (const Missing& missing : list) width = std::max(width, shown(missing).size());
    }
    for (const auto& [reason, list] : reasons) {
        text += "  " + reason + '\n';
        for (const Missing& missing : list) {
            const std::string name = shown(missing);
            text += "    " + name + std::string(width - name.size() + 2, ' ') + last_run(missing, request) + '\n';
        }
    }
    return text;
}

std::string device_script(const std::vector<ListedTest>& listed, const std::string& root) {
    const auto relative = [&](std::string text) {
        for (std::size_t at = text.find(root); at != text.npos; at = text.find(root, at + 1))
            text.replace(at, root.size(), "$root");
        return text;
    };
    // In double quotes, so that $root is read.
    const auto word = [&](const std::string& text) {
        std::string out = "\"";
        for (const char c : relative(text)) {
            if (c == '"' || c == '\\' || c == '`') out += '\\';
            out += c;
        }
        return out + '"';
    };
    std::string script =
        "#!/bin/bash\n"
        "# Runs the device's tests in a copy of the project: bash THIS [ROOT]. The output is a log for ./run record.\n"
        "root=$(readlink -f -- \"${1:-.}\") status=0\n"
        "try() {  # try NAME FOLDER COMMAND...\n"
        "    printf 'Test: %s\\nOutput:\\n' \"$1\"\n"
        "    if (cd -- \"$2\" && shift 2 && env \"$@\") 2>&1; then rc=0; else rc=$?; status=1; fi\n"
        "    printf '\\n<end of output>\\n'\n"
        "    if ((rc == 0)); then echo 'Test Passed.'; else echo \"Test Failed. Status $rc\"; fi\n"
        "}\n";
    for (const ListedTest& test : listed) {
        if (!contains(test.labels, "cuda") || test.command.empty()) continue;
        script += "try " + quoted(test.name) + ' ' + word(test.folder.empty() ? root : test.folder);
        for (const std::string& variable : test.environment) script += ' ' + word(variable);
        for (const std::string& argument : test.command) script += ' ' + word(argument);
        script += '\n';
    }
    return script + "exit $status\n";
}

}  // namespace foresay::record
