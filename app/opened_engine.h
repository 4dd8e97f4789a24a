// app/opened_engine.h: the engine of a command: opened from the command line, with log messages, a progress line on a
// terminal, and cancellation by Ctrl-C.
//
// Life:     the results of make_generator() and make_context() must be destroyed before the engine.
// Errors:   as engine/engine.h.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "app/configuration.h"
#include "app/options.h"
#include "engine/engine.h"

namespace foresay::app {

// What a command needs of its engine.
struct EngineNeeds {
    bool draft = true;                    // check and load the draft model, if one is configured
    bool draft_if_cheap = false;          // but only where it is likely to pay for texts side by side
    bool speculating = false;             // the speculation mode will not change: do not load the draft if it is off
    bool tokenizer = true;                // the model must have one
    std::int32_t decode_rows = 33;        // rows of one decode, at most
    std::int32_t branches = 0;            // branches that a KV cache holds besides the current one
    std::int32_t default_context = 8192;  // context length unless the configuration sets it or the model's is shorter
    std::int32_t sequences = 1;           // that make_batch() will be asked for
    bool meter = false;                   // wrap the backend in MeteredOps (bench kernels, chat)
    bool weights = true;                  // false: read only headers and check that everything fits together
    bool plugins = true;        // false: look at plugins without loading them, so that none of their code runs
    bool every_plugin = false;  // load those that sampling.chain does not name, too: requests may
};

class MeteredOps;

class OpenedEngine : public engine::Engine {
public:
    OpenedEngine(const Options& options, const EngineNeeds& needs);
    // The same with a configuration that was made from `options` and then changed.
    OpenedEngine(Configuration configuration, const Options& options, const EngineNeeds& needs);

    // The configuration with its layers. config() is their merged result.
    const Configuration& configuration() const { return configuration_; }
    // The meter around the backend; null without EngineNeeds::meter.
    MeteredOps* meter() const;

    // ---- another configuration, as in engine::Engine
    // Sets one key ("key.path=value") that needs no reload; messages call it `place`.
    void set(const std::string& assignment, const std::string& place);
    void reconfigure(const Configuration& next);
    // Returns notes for the user about what was left out, one sentence each.
    std::vector<std::string> reload(const Configuration& next, const std::function<void()>& release);

    // Warns about sampler stages of `chain` that are slow or have failed, once per stage.
    void report_stages(samplers::Chain& chain);

private:
    Configuration configuration_;
    std::set<std::string> reported_;
};

}  // namespace foresay::app
