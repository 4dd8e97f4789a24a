// plugins/host/plugin_check.h: finds out whether the samplers of a plugin keep
// the contract of samplers/sdk/sampler.h.
//
// Each check of each sampler runs in a child process that loads the plugin
// anew, so a crash, a hang or a changed locale harms that check alone. The
// checks are in checks.cpp; each is a function and a line of its table.
//
// Threads:  one caller at a time, in a process without other threads, because
// it forks. Cost:     seconds: a check creates vocabularies of up to 128,256
// tokens and waits for a clock to move on. Errors:   Error when the file is no
// plugin at all, or has no sampler of the name that is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "samplers/stage.h"

namespace foresay::plugins {

struct CheckResult {
  enum class Outcome : std::uint8_t {
    passed,
    failed,
    skipped,  // it does not apply to this sampler
    measured, // a line of the timing table
  };
  std::string sampler; // empty: of the library
  std::string check;
  Outcome outcome = Outcome::passed;
  std::string text; // why it failed or was skipped, or what was measured
};
std::string_view
name(CheckResult::Outcome outcome); // "ok", "FAILED", "skipped", "timing"

struct CheckOptions {
  std::string sampler;             // only this one; empty: all
  samplers::Parameters parameters; // of every sampler that is checked; the
                                   // others have their defaults
  std::uint64_t seed = 1;          // of everything that is made up
  // Called with each result as it is known.
  std::function<void(const CheckResult &)> report = {};
};

std::vector<CheckResult> check_plugin(const std::filesystem::path &file,
                                      const CheckOptions &options);

} // namespace foresay::plugins
