// plugins/host/plugin_check.h: finds out whether the samplers of a plugin keep the contract of samplers/sdk/sampler.h.
//
// Each check of each sampler runs in a child process that loads the plugin, so a crash, a hang or a changed locale
// harms that check alone. The checks themselves are in checks.h.
//
// Threads:  one caller at a time, in a process without other threads, because it forks.
// Cost:     two seconds a sampler: a check makes vocabularies of up to 128,256 tokens, and one waits for the clock.
// Errors:   Error when the file is no plugin at all, or has no sampler of the name that is asked for; UsageError for
//           parameters that a sampler which is to be checked does not take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "samplers/stage.h"

namespace foresay::plugins {

struct CheckResult {
    enum class Outcome : std::uint8_t {
        passed,
        failed,
        skipped,   // it does not apply to this sampler, or would fail for a reason that was given already
        measured,  // a line of the timing table
    };
    std::string sampler;  // empty: of the library
    std::string check;
    Outcome outcome = Outcome::passed;
    std::string text;  // why it failed or was skipped, or what was measured
};
std::string_view name(CheckResult::Outcome outcome);  // "ok", "FAILED", "skipped", "timing"

struct CheckOptions {
    std::string sampler;              // only this one; empty: all
    std::vector<std::string> checks;  // only these; empty: all
    samplers::Parameters parameters;  // of every sampler that is checked; the others have their defaults
    std::uint64_t seed = 1;           // of everything that is made up
    unsigned seconds = 20;            // of processor time that a check may take, and three times as long in all
    // Called with each result as it is known.
    std::function<void(const CheckResult&)> report = {};
};

// The names of all checks, in order, with what holds where they pass.
std::vector<std::pair<std::string, std::string>> check_names();

std::vector<CheckResult> check_plugin(const std::filesystem::path& file, const CheckOptions& options);
// The same checks of a sampler that is not in a file of its own.
std::vector<CheckResult> check_sampler(const std::shared_ptr<const samplers::StageFactory>& factory,
                                       const CheckOptions& options);

}  // namespace foresay::plugins
