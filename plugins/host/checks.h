// plugins/host/checks.h: the checks of one sampler, as plugin_check.h runs
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "plugins/host/check_subject.h"

namespace foresay::plugins {

// What a check works with, in a process that has just loaded the plugin.
struct CheckInput {
  std::shared_ptr<const samplers::StageFactory> factory;
  samplers::Parameters parameters;
  std::uint64_t seed = 1;

  Subject subject(std::int32_t vocabulary = 3000) const {
    return {factory, parameters, vocabulary};
  }
};

struct Check {
  const char *name;
  const char *doc; // what holds where it passes
  // Empty: it passed. A text: why not. Throws NotApplicable, or Error, which is
  // a failure.
  std::string (*run)(const CheckInput &input);
  // Not null: what processes of two kinds must agree on, instead of run(). In
  // the second one, libraries and memory lie elsewhere, a second has passed,
  // and another thread asks.
  std::string (*transcript)(const CheckInput &input);
};
struct NotApplicable {
  std::string why;
};

std::span<const Check> checks();

} // namespace foresay::plugins
