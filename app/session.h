// app/session.h: the engine, put together: configuration, models, pairing, plugins, chain, generator. The only place
// that knows how.
//
// Life:     what make_generator() and make_context() return must be gone before the session is.
// Cost:     the constructor loads and packs the weights; progress is shown on a terminal when it takes a while.
// Errors:   Error, before any weight is loaded: a model that cannot be read, a pair that does not fit, a plugin that
//           does not load, a context longer than the model's, too little memory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/configuration.h"
#include "app/options.h"
#include "core/models/context.h"
#include "core/models/model.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/generator.h"

namespace foresay::app {

struct SessionNeeds {
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

class Session {
public:
    Session(const Options& options, const SessionNeeds& needs);
    ~Session();

    Configuration& configuration() { return configuration_; }
    const core::Config& config() const { return configuration_.config(); }
    const core::Model& target() const { return *target_; }
    const core::Model* draft() const { return draft_.get(); }
    // For contexts of the caller's, which must be gone before the session is.
    const std::shared_ptr<const core::Model>& shared_target() const { return target_; }
    const std::shared_ptr<const core::Model>& shared_draft() const { return draft_; }
    // What the draft's head is encoded in when that makes it smaller; none: it stays as it is.
    std::optional<kernels::Encoding> draft_head() const { return draft_head_of(config()); }
    // Whether speculation.sources names it.
    bool has_source(std::string_view name) const;
    // Throws when the model has no tokenizer.
    const core::Tokenizer& tokenizer() const;
    bool has_tokenizer() const { return tokenizer_.has_value(); }
    kernels::Ops& ops() const { return *ops_; }
    MeteredOps* meter() const { return meter_; }
    std::int32_t context_length() const { return context_length_; }
    double load_ms() const { return load_ms_; }

    // ---- another configuration
    // Whether `next` needs another model, draft, backend or context than there is. Then what make_generator() and
    // make_context() returned has to be gone before reload().
    bool needs_reload(const core::Config& next) const;
    // Goes over to `next`, which needs no reload. On error nothing changes.
    void reconfigure(const Configuration& next);
    // Goes over to `next`. All that can be checked is checked before `release` is called, which lets go of what uses the
    // models; then models that `next` does not name are dropped, and the others loaded. On error the session is as before,
    // though its models may have been loaded again. Returns sentences about what was left out.
    std::vector<std::string> reload(const Configuration& next, const std::function<void()>& release);

    // A chain for the present configuration.
    std::unique_ptr<samplers::Chain> make_chain() const;
    // Speculation as the present configuration has it.
    speculative::SpeculationOptions speculation() const;
    speculative::Generator make_generator() const;
    // The same with drafters of the caller's.
    speculative::Generator make_generator(std::vector<std::unique_ptr<speculative::Drafter>> drafters) const;
    std::unique_ptr<core::Context> make_context() const;

    // Warns about stages of `chain` that are slow or have failed, each once.
    void report_stages(samplers::Chain& chain);

    // "cpu (avx512, 2 threads)"
    std::string backend() const;
    // "target llama-3.1-8b in q4_0, draft llama-3.2-1b in q4_0": which models are small ones inflated to which shape. Every
    // number that comes of them has to say so. Empty: none.
    std::string inflated() const;
    // Why `auto` did not choose a device; empty when it was not asked or did.
    const std::string& why_no_device() const { return why_no_device_; }
    // "cpu (avx512)": what the bits of a text depend on besides its model.
    std::string instruction_set() const;

private:
    struct Opened;
    struct Parts;
    std::unique_ptr<kernels::Ops> open_backend(const core::Config& config, MeteredOps*& meter,
                                               std::string& why_no_device) const;
    // A shape that a model is inflated to, and what its weights are encoded in; no shape: the model as it is.
    struct Inflated {
        std::string shape, encoding;
    };
    static std::optional<kernels::Encoding> draft_head_of(const core::Config& config);
    Opened open_model(const core::Config& config, const std::string& key, const std::filesystem::path& path) const;
    std::int32_t context_of(const core::Config& config, const core::ModelSource& target) const;
    std::filesystem::path draft_of(const core::Config& config) const;  // empty: none is wanted
    // Opens and checks all that `next` names, before any weight is loaded. What the session has already stays there.
    Parts prepare(const Configuration& next, LoadedPlugins plugins) const;
    void open_draft(Parts& parts, const core::ModelSource& target) const;
    // Takes the parts over and loads the weights.
    void adopt(Parts& parts);
    void check_memory(core::ModelSource* target, core::ModelSource* draft) const;
    std::shared_ptr<const core::Model> load(std::shared_ptr<core::ModelSource> source, const std::string& what,
                                            core::LoadOptions options = {}) const;

    Configuration configuration_;
    SessionNeeds needs_;
    std::string shape_, encoding_;  // random weights, when no model is named
    Inflated inflated_target_, inflated_draft_;
    std::unique_ptr<kernels::Ops> ops_;
    std::string why_no_device_;
    MeteredOps* meter_ = nullptr;
    std::optional<core::Tokenizer> tokenizer_;
    std::unique_ptr<samplers::Vocabulary> vocabulary_;
    LoadedPlugins plugins_;
    std::shared_ptr<const core::Model> target_;
    std::shared_ptr<const core::Model> draft_;
    std::filesystem::path loaded_target_, loaded_draft_;  // where they come from; empty: none, or random weights
    bool loaded_head_as_stored_ = false;                  // of the draft
    std::string runtime_;                                 // what ops_ was made from
    std::int32_t context_length_ = 0;
    double load_ms_ = 0.0;
    bool begun_ = false;  // the constructor has done its work
    std::set<std::string> reported_;
};

}  // namespace foresay::app
