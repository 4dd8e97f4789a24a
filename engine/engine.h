// engine/engine.h: models, backend, tokenizer, plugins and drafters, opened from a configuration. Where a program that
// embeds foresay starts:
//
//     const engine::Engine engine = engine::Engine::open(engine::load_config("pair.toml"));
//     speculative::Generator generator = engine.make_generator();
//     generator.generate({.input = engine.tokenizer().encode("Once")}, print);
//
// The engine is a library: it reads no command line, prints nothing and has no globals. What a program may want to show
// goes to its Observer.
//
// Life:     generators, contexts and chains must be destroyed before their engine.
// Threads:  one caller at a time. Generators of one engine share its backend, so only one may run at a time.
// Cost:     open() reads and packs the weights.
// Errors:   Error, before any weight is loaded: a model that cannot be read, a pair that does not fit, a plugin that
//           does not load, a context longer than the model's, too little memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/chat_template.h"
#include "core/config/config.h"
#include "core/models/context.h"
#include "core/models/model.h"
#include "core/text/tokenizer.h"
#include "engine/configuration.h"
#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "speculative/generator.h"

namespace foresay::core {
class PageStore;
}
namespace foresay::speculative {
class BatchGenerator;
}

namespace foresay::engine {

struct BatchOptions;  // engine/batch.h
class Hosts;          // engine/hosts/hosts.h

enum class Notice : std::uint8_t {
    plugin_blamed,  // a plugin was running when the program last ended, or crashes cannot be remembered
    no_device,      // `auto` chose the CPU, and why
    memory,         // what the models will take
    loading,        // a model's weights, and the file they come from
    hidden_stage,   // a stage of the chain that the draft does not see
    unused_part,    // a part of a model's file that is not used: images, multi-token prediction
    draft_choice,   // which draft draft.model = "auto" has found, or what could be fetched
    draft_skipped,  // a model that it left out, and why
    pages,          // a page that was kept outside the cache is not used, or none is kept any more
    link,           // what has become of the ways between devices that divide each layer
};

// What a program learns while an engine opens or reloads. Calls come from the thread that asked for it, those of
// Notice::pages and Notice::link from any.
class Observer {
public:
    virtual ~Observer() = default;
    // `sentence` begins in lower case and has no full stop.
    virtual void notice(Notice kind, const std::string& sentence) {
        (void)kind;
        (void)sentence;
    }
    // A model's files are read: `what` is "checking the target" or "loading the target". end_load() follows, however it
    // ends.
    virtual void begin_load(const std::string& what) { (void)what; }
    virtual void progress(std::int64_t done_bytes, std::int64_t all_bytes) {
        (void)done_bytes;
        (void)all_bytes;
    }
    virtual void end_load() {}
    // True: open() gives up with an Error. reload() does not ask, because it must end with a complete engine.
    virtual bool cancelled() { return false; }
};

// Random or inflated weights of a published shape, by its name (core/models/shapes.h). No shape: no such weights.
struct SyntheticModel {
    std::string shape;
    std::string quant_type = "q4_0";
};

struct EngineOptions {
    bool weights = true;    // false: check that everything fits together, and load nothing
    bool tokenizer = true;  // the target must have one
    bool draft = true;      // check and load the draft model, if one is configured
    // The draft model is for texts side by side, and may be left out: it is loaded only where it is likely to pay for
    // them. That is on a device, whose further rows cost little, where it has at most a fifth of the target's
    // parameters and there is memory for both. A draft that does not fit the target is left out, too.
    bool draft_if_cheap = false;
    // false: plugins are looked at as files, and none of their code runs. open() then checks neither what they declare
    // nor their options, and the engine makes no chain with them.
    bool run_plugins = true;
    // Loads the plugins that sampling.chain does not name as well, for chains of requests (stage_spec()).
    bool every_plugin = false;
    bool fixed_mode = false;        // speculation.mode will not change: with mode off the draft model stays on disk
    std::int32_t decode_rows = 33;  // most rows of one decode
    std::int32_t branches = 0;      // of a conversation that one cache holds besides the current one
    // Most sequences that make_batch() will be asked to run at once: layers on several devices leave room for them.
    std::int32_t sequences = 1;
    std::int32_t default_context = 8192;  // longest context when the configuration names none

    SyntheticModel random_target;                  // random weights, when the configuration names no target
    SyntheticModel inflate_target, inflate_draft;  // the model of the configuration, embedded in a larger shape

    // Where draft.model = "auto" looks besides draft.folders: a cache of the Hugging Face hub; empty: none.
    std::filesystem::path draft_hub;

    std::shared_ptr<Hosts> hosts;    // other hosts that have layers of the target; null: this one alone
    plugins::PluginOptions plugins;  // where to look for plugins without a path
    std::shared_ptr<Observer> observer;
    // Wraps each backend that the engine opens, for measurements; or, in tests, replaces a list of devices by another.
    std::function<std::unique_ptr<kernels::Ops>(std::unique_ptr<kernels::Ops>)> wrap_backend;
};

// What reload() did besides what was asked.
struct ReloadResult {
    bool draft_left_out = false;     // the current draft model does not fit the new target
    std::vector<std::string> notes;  // sentences for people
};

// Consecutive layers of the target on one device of runtime.devices; or all of them, with a share of each.
struct PlacedLayers {
    std::string device;  // as the configuration names it: "cuda:0"
    std::int32_t first = 0, count = 0;
    std::int64_t bytes = 0;   // of weights, cache and working memory, as estimated before loading
    std::int64_t memory = 0;  // that was free for them, or that runtime.device_mib allows
    std::int64_t read = 0;    // bytes that a token reads of the layers
    std::string share;        // what it has of each layer, where all devices have all layers (split_mode row)
    double seconds = 0.0;     // that takes, as predicted from the device's read bandwidth; 0: not measured
    bool by_kernels = false;  // predicted from its kernels instead
};

class Engine {
public:
    // Opens all that `config` names.
    static Engine open(core::Config config, EngineOptions options = {});
    ~Engine();
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) noexcept;

    // ---- what is open
    const core::Config& config() const;
    const core::Model& target() const;
    const core::Model* draft() const;  // null: none is loaded
    // For contexts that the caller makes.
    const std::shared_ptr<const core::Model>& shared_target() const;
    const std::shared_ptr<const core::Model>& shared_draft() const;
    // Throws when the target has no tokenizer.
    const core::Tokenizer& tokenizer() const;
    bool has_tokenizer() const;
    // The chat template of the configuration or of the target; none if that has none. The tokens that end an answer in
    // it are among the tokenizer's ends.
    const core::OpenedTemplate& chat_template() const;
    kernels::Ops& ops() const;
    std::int32_t context_length() const;
    double load_ms() const;  // what open() took
    // Whether speculation.sources names it.
    bool has_source(std::string_view name) const;
    // What the draft's LM head is quantised to when that makes it smaller; none: it stays as stored.
    std::optional<kernels::QuantType> draft_head() const;

    // ---- to work with
    // One sequence: a context of the target, a chain and the drafters of the configuration.
    speculative::Generator make_generator() const;
    // The same with the caller's drafters.
    speculative::Generator make_generator(std::vector<std::unique_ptr<speculative::Drafter>> drafters) const;
    // Many sequences: engine/batch.h.
    speculative::BatchGenerator make_batch(const BatchOptions& options) const;
    std::unique_ptr<core::Context> make_context() const;
    // Pages for so many sequences of `length` positions, and logits for `decode_rows` rows of a forward.
    std::unique_ptr<core::Context> make_context(std::int32_t sequences, std::int32_t length,
                                                std::int32_t decode_rows) const;
    // The chain of the configuration, and a variant of it: see set_parameter() in samplers/chain.h.
    std::unique_ptr<samplers::Chain> make_chain() const;
    samplers::ChainSpec chain_spec() const;
    // A stage as the configuration describes it, in its chain or not. None: neither built in nor loaded.
    std::optional<samplers::StageSpec> stage_spec(const std::string& name) const;
    std::unique_ptr<samplers::Chain> make_chain(const samplers::ChainSpec& spec) const;
    speculative::SpeculationOptions speculation() const;

    // ---- another configuration
    // Whether `next` needs another model, draft, backend or context, and so reload() instead of reconfigure().
    bool needs_reload(const core::Config& next) const;
    // Takes over `next`, which needs no reload. On error nothing changes.
    void reconfigure(const core::Config& next);
    // Takes over `next`. Checks all that it can, then calls `release`, which must destroy the generators and contexts,
    // drops the models that `next` does not name and loads the new ones. On error the engine is as before, though its
    // models may have been loaded again.
    ReloadResult reload(const core::Config& next, const std::function<void()>& release);

    // ---- for reports
    // "cpu (avx512, 2 threads)"; with a list of devices "layers 0-19 on cuda (NVIDIA H200), 20-31 on cpu (...)",
    // or "each layer divided over cuda (...), cuda (...), linked": how the last steps of few rows have crossed, and
    // before there was one, how they will by what the model and its cache are.
    std::string backend() const;
    // By device; empty: there is one device.
    const std::vector<PlacedLayers>& placement() const;
    // Bytes per second at which the target's weights can be read at best: the bandwidth of the device, or of several,
    // one after the other, each for its own layers. Takes about a quarter of a second for each, the first time.
    double read_bandwidth() const;
    // "cpu (avx512)": what the bits of a text depend on besides its model, and so which layers are on which backend.
    std::string instruction_set() const;
    // What the bytes of a page of the target's cache depend on besides its text: the weights, by the contents of their
    // files, the backend and the format. Reads the files, once: about 0.1 s per GB that is in memory.
    const std::string& page_fingerprint() const;
    // The same of the draft's cache.
    const std::string& draft_page_fingerprint() const;
    // Why `auto` did not choose a device; empty when it was not asked or did.
    const std::string& why_no_device() const;
    // "target llama-3.1-8b in q4_0, draft llama-3.2-1b in q4_0": which models are small ones inflated to which shape.
    // Every report of a measurement with them has to say so. Empty: none.
    std::string inflated() const;

private:
    struct State;
    explicit Engine(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace foresay::engine
