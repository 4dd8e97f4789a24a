// samplers/plugin_stage.h: makes stages of a sampler written against sdk/sampler.h, loaded or linked in.
//
// Errors:   make_plugin_factory() throws Error when the description breaks the contract; create() when the sampler
//           refuses its parameters. What process() returns is checked by the chain.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "samplers/sdk/sampler.h"
#include "samplers/stage.h"

namespace foresay::samplers {

// `sampler` must stay valid as long as `keep_alive` is held, or for ever when that is null. `origin` names its source
// in messages. `running`, if not null, counts the calls into the plugin that are in progress; `keep_alive` must hold it
// too.
std::shared_ptr<const StageFactory> make_plugin_factory(const foresay_sampler* sampler,
                                                        std::shared_ptr<const void> keep_alive,
                                                        const std::string& origin,
                                                        std::atomic<std::uint32_t>* running = nullptr);

// Held by calls of [main] functions: one thread at a time per library, and in all, which is simpler and costs nothing.
std::mutex& main_calls();

// For checks of a sampler. Whether the stage's sampler has process(), which the stage need not use; a stage of another
// kind has it where it uses it.
bool has_process(const Stage& stage);
// What the step of a step stage leaves of `candidates`, which are best first. Valid until the next call on this thread.
kernels::Candidates apply_step(const Stage& stage, const StageState* state, const StageContext& context,
                               const kernels::Candidates& candidates, std::int32_t vocabulary);
// Runs the sampler's own test: empty, or why it fails; nothing: it has none.
std::optional<std::string> run_self_test(const Stage& stage);
// Whether the sampler offers an extension of that name.
bool offers_extension(const Stage& stage, std::string_view name);

}  // namespace foresay::samplers
