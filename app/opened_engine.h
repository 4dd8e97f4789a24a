// app/opened_engine.h: the program's engine: opened from a command line, with log lines, progress on a terminal, and
// Ctrl-C.
//
// Life:     what make_generator() and make_context() return must be gone before the engine is.
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
    bool speculating = false;             // the configured mode will not change: with mode off the draft stays on disk
    bool tokenizer = true;                // the model must have one
    std::int32_t decode_rows = 33;        // most rows of one decode
    std::int32_t branches = 0;            // of a conversation, that one cache holds besides the present one
    std::int32_t default_context = 8192;  // when neither configuration nor model asks for less
    bool meter = false;                   // wrap the backend in a meter (bench kernels)
    bool weights = true;                  // load them; otherwise only check that all fits together
};

class MeteredOps;

class OpenedEngine : public engine::Engine {
public:
    OpenedEngine(const Options& options, const EngineNeeds& needs);

    // The configuration with its layers. config() is what they amount to.
    const Configuration& configuration() const { return configuration_; }
    // The backend's meter; null when none was asked for.
    MeteredOps* meter() const;

    // ---- another configuration, as in engine::Engine
    // Sets one key ("key.path=value") that needs no reload; `place` names it in messages.
    void set(const std::string& assignment, const std::string& place);
    void reconfigure(const Configuration& next);
    // Returns sentences about what was left out.
    std::vector<std::string> reload(const Configuration& next, const std::function<void()>& release);

    // Warns about stages of `chain` that are slow or have failed, each once.
    void report_stages(samplers::Chain& chain);

private:
    OpenedEngine(Configuration configuration, const Options& options, const EngineNeeds& needs);

    Configuration configuration_;
    std::set<std::string> reported_;
};

}  // namespace foresay::app
