#include "app/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "app/backend.h"
#include "app/bench/metered_ops.h"
#include "app/interrupt.h"
#include "app/model_text.h"
#include "app/output.h"
#include "app/progress.h"
#include "base/error.h"
#include "core/models/shapes.h"
#include "speculative/drafters/model_drafter.h"
#include "speculative/drafters/suffix_drafter.h"
#include "speculative/memory_estimate.h"
#include "speculative/pairing.h"
#include "speculative/vocabulary.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::int32_t kShapeContext = 2048;

// The error `problem` about what `setting` names, with the place that names it.
Error at(const core::Setting& setting, const Error& problem) {
    return Error(setting.origin.is_default() ? problem.what() : setting.origin.text() + ": " + problem.what());
}

// What a backend is made from.
std::string runtime_of(const core::Config& config) {
    return config.device + " " + config.isa + " " + std::to_string(config.threads) +
           (config.kv_format == kernels::KvFormat::q8 ? " q8" : "");
}

}  // namespace

struct Session::Opened {
    std::shared_ptr<core::ModelSource> source;
    std::optional<core::Tokenizer> tokenizer;
};

// A session that is about to be.
struct Session::Parts {
    Configuration configuration;
    LoadedPlugins plugins;
    std::unique_ptr<kernels::Ops> ops;  // null: the present ones
    MeteredOps* meter = nullptr;
    std::string why_no_device;  // with ops
    Opened target, draft;       // without a source: none, or the present one stays
    bool keep_target = false;
    bool keep_draft = false;
    std::unique_ptr<samplers::Vocabulary> vocabulary;
    std::int32_t context_length = 0;
    std::vector<std::string> notes;

    const core::Config& config() const { return configuration.config(); }
};

Session::~Session() = default;

std::unique_ptr<kernels::Ops> Session::open_backend(const core::Config& config, MeteredOps*& meter,
                                                    std::string& why_no_device) const {
    const BackendChoice choice = choose_backend(config);
    std::unique_ptr<kernels::Ops> ops;
    try {
        ops = app::open_backend(config, choice);
    } catch (const Error& problem) {
        throw at(config.setting(choice.key()), problem);
    }
    why_no_device = choice.why_processor;
    if (!why_no_device.empty()) {
        // A person with a GPU wonders why it is idle; others, and scripts, have not asked.
        if (stderr_is_terminal() && has_nvidia_gpu()) {
            spdlog::warn("the GPU is not used: {}; --device cpu leaves this line out", why_no_device);
        } else {
            spdlog::info("running on the processor: {}", why_no_device);
        }
    }
    if (!needs_.meter) return ops;
    auto metered = std::make_unique<MeteredOps>(std::move(ops));
    meter = metered.get();
    return metered;
}

std::optional<kernels::Encoding> Session::draft_head_of(const core::Config& config) {
    if (config.draft_head_as_stored) return std::nullopt;
    return kernels::Encoding::q4_0;
}

Session::Opened Session::open_model(const core::Config& config, const std::string& key, const fs::path& path) const {
    const bool draft = key == "draft.model";
    const Inflated& inflated = draft ? inflated_draft_ : inflated_target_;
    std::unique_ptr<core::ModelSource> source;
    Opened opened;
    try {
        source = core::ModelSource::open(path);
        opened.tokenizer = find_tokenizer(*source, path);
    } catch (const Error& problem) {
        throw at(config.setting(key), problem);
    }
    if (!inflated.shape.empty()) {
        source =
            core::ModelSource::inflate(std::move(source), inflated.shape, core::encoding_by_name(inflated.encoding),
                                       draft ? draft_head_of(config) : std::nullopt);
    }
    opened.source = std::move(source);
    return opened;
}

Session::Session(const Options& options, const SessionNeeds& needs)
    : configuration_(options),
      needs_(needs),
      shape_(options.shape),
      encoding_(options.encoding),
      inflated_target_{options.inflate, options.encoding},
      inflated_draft_{options.inflate_draft, options.draft_encoding} {
    const auto start = std::chrono::steady_clock::now();
    LoadedPlugins plugins = load_plugins(config());
    if (plugins.host && !plugins.host->culprit().empty()) spdlog::warn("{}", plugins.host->culprit());
    for (const std::string& sentence : unused_stages(configuration_)) spdlog::warn("{}", sentence);
    if (needs_.draft && !inflated_draft_.shape.empty() && draft_of(config()).empty()) {
        throw Error("--inflate-draft: there is no draft model to inflate; name one with --draft PATH");
    }
    Parts parts = prepare(configuration_, std::move(plugins));
    adopt(parts);
    begun_ = true;
    load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::int32_t Session::context_of(const core::Config& config, const core::ModelSource& target) const {
    const std::int32_t longest = target.config().context_length;
    const std::int32_t most = config.target_model.empty() ? kShapeContext : needs_.default_context;
    const std::int32_t length = config.target_context > 0 ? config.target_context : std::min(longest, most);
    if (length > longest) {
        const Error problem("the context of " + std::to_string(length) + " positions is longer than the " +
                            std::to_string(longest) + " that " + target.path() + " was made for");
        throw at(config.setting("target.context"), problem);
    }
    return length;
}

fs::path Session::draft_of(const core::Config& config) const {
    const auto& sources = config.sources;
    const bool wanted = needs_.draft && std::find(sources.begin(), sources.end(), "draft") != sources.end();
    return wanted ? config.draft_model : fs::path();
}

Session::Parts Session::prepare(const Configuration& next, LoadedPlugins plugins) const {
    Parts parts{.configuration = next, .plugins = std::move(plugins)};
    const core::Config& config = next.config();
    const bool same_backend = ops_ && runtime_of(config) == runtime_;
    if (!same_backend) parts.ops = open_backend(config, parts.meter, parts.why_no_device);
    parts.keep_target = same_backend && target_ && config.target_model == loaded_target_;
    if (parts.keep_target) {
        parts.target.tokenizer = tokenizer_;
    } else if (!config.target_model.empty()) {
        parts.target = open_model(config, "target.model", config.target_model);
    } else {
        const kernels::Ops& ops = parts.ops ? *parts.ops : *ops_;
        parts.target.source =
            core::ModelSource::random(shape_, core::encoding_by_name(encoding_), ops.makes_random_weights());
    }
    const core::ModelSource& target = parts.keep_target ? target_->source() : *parts.target.source;
    const std::optional<core::Tokenizer>& tokenizer = parts.target.tokenizer;
    if (needs_.tokenizer && !tokenizer) {
        throw Error(target.path() + " has no tokenizer, so there is no text to work with; use a model that has one");
    }
    parts.vocabulary = tokenizer ? speculative::make_vocabulary(*tokenizer)
                                 : speculative::make_bare_vocabulary(target.config().shape.vocab);
    parts.context_length = context_of(config, target);
    if (!draft_of(config).empty()) open_draft(parts, target);
    // Complains about the chain before any weight is loaded.
    samplers::Chain(chain_spec(config, parts.plugins.factories), *parts.vocabulary);
    const bool idle = needs_.speculating && config.speculation_mode == core::SpeculationMode::off;
    if (idle) parts.draft.source.reset();
    return parts;
}

void Session::open_draft(Parts& parts, const core::ModelSource& target) const {
    const core::Config& config = parts.config();
    parts.keep_draft = !parts.ops && draft_ && config.draft_model == loaded_draft_ &&
                       config.draft_head_as_stored == loaded_head_as_stored_;
    if (parts.keep_draft && parts.keep_target) return;
    parts.draft = open_model(config, "draft.model", config.draft_model);
    const auto pointer = [](const std::optional<core::Tokenizer>& tokenizer) {
        return tokenizer ? &*tokenizer : nullptr;
    };
    try {
        speculative::check_pairing(
            {target.config(), pointer(parts.target.tokenizer), target.path()},
            {parts.draft.source->config(), pointer(parts.draft.tokenizer), parts.draft.source->path()});
    } catch (const Error& problem) {
        // A draft that was there before another target came is left out; one that was asked for is an error.
        if (!draft_ || config.draft_model != loaded_draft_) throw at(config.setting("draft.model"), problem);
        parts.notes.push_back(std::string("the draft model is left out: ") + problem.what());
        parts.keep_draft = false;
        parts.draft.source.reset();
        parts.configuration.set("draft.model=\"\"", "the new target");
        return;
    }
    if (parts.keep_draft) parts.draft.source.reset();
}

void Session::adopt(Parts& parts) {
    if (!parts.keep_draft) {
        draft_.reset();
        loaded_draft_.clear();
    }
    if (!parts.keep_target) {
        target_.reset();
        loaded_target_.clear();
    }
    if (parts.ops) {
        ops_ = std::move(parts.ops);
        meter_ = parts.meter;
        why_no_device_ = std::move(parts.why_no_device);
        runtime_ = runtime_of(parts.config());
    }
    configuration_ = std::move(parts.configuration);
    plugins_ = std::move(parts.plugins);
    tokenizer_ = std::move(parts.target.tokenizer);
    vocabulary_ = std::move(parts.vocabulary);
    context_length_ = parts.context_length;
    if (!needs_.weights) return;
    check_memory(parts.target.source.get(), parts.draft.source.get());
    if (parts.target.source) {
        target_ = load(std::move(parts.target.source), "loading the target");
        loaded_target_ = config().target_model;
    }
    if (!parts.draft.source) return;
    core::LoadOptions options;
    options.head = draft_head();
    draft_ = load(std::move(parts.draft.source), "loading the draft", options);
    loaded_draft_ = config().draft_model;
    loaded_head_as_stored_ = config().draft_head_as_stored;
    for (const std::string& stage : make_chain()->hidden_from_draft()) {
        spdlog::info("the draft does not see the stage {}, which cannot be cloned", stage);
    }
}

bool Session::needs_reload(const core::Config& next) const {
    return runtime_of(next) != runtime_ || next.target_model != loaded_target_ || draft_of(next) != loaded_draft_ ||
           (draft_ && next.draft_head_as_stored != loaded_head_as_stored_) || next.sources != config().sources ||
           context_of(next, target_->source()) != context_length_;
}

void Session::reconfigure(const Configuration& next) {
    LoadedPlugins plugins = load_plugins(next.config(), plugins_.host);
    samplers::Chain(chain_spec(next.config(), plugins.factories), *vocabulary_);
    configuration_ = next;
    plugins_ = std::move(plugins);
}

std::vector<std::string> Session::reload(const Configuration& next, const std::function<void()>& release) {
    const Configuration before = configuration_;
    Parts parts = prepare(next, load_plugins(next.config(), plugins_.host));
    std::vector<std::string> notes = std::move(parts.notes);
    release();
    try {
        adopt(parts);
    } catch (...) {
        Parts old = prepare(before, load_plugins(before.config(), plugins_.host));
        adopt(old);
        throw;
    }
    return notes;
}

void Session::check_memory(core::ModelSource* target, core::ModelSource* draft) const {
    if (!target && !draft) return;
    core::ContextOptions options;
    options.length = context_length_;
    options.decode_rows = needs_.decode_rows;
    options.input_rows = std::min(ops_->input_rows(), options.length);
    options.kv_format = config().kv_format;
    speculative::MemoryEstimate estimate;
    if (target) estimate += speculative::estimate_memory(*target, options, *ops_);
    if (draft) estimate += speculative::estimate_memory(*draft, options, *ops_);
    spdlog::info("memory: weights {}, cache {}, activations {}", speculative::format_bytes(estimate.weights),
                 speculative::format_bytes(estimate.cache), speculative::format_bytes(estimate.activations));
    const std::string& path = (target ? target : draft)->path();
    const std::int64_t own = ops_->free_memory();
    if (own >= 0) {
        speculative::require_memory(estimate, own, path, "device memory");
    } else {
        speculative::require_memory(estimate, speculative::available_memory(), path);
    }
}

std::shared_ptr<const core::Model> Session::load(std::shared_ptr<core::ModelSource> source, const std::string& what,
                                                 core::LoadOptions options) const {
    Progress progress(what);
    options.progress = [&](std::int64_t done, std::int64_t all) {
        // Later there is a session to go back to, whose models must not be left half loaded.
        if (!begun_ && interrupted()) throw Error("cancelled while " + what);
        progress.update(done, all);
    };
    spdlog::info("{} {}", what, source->path());
    return core::Model::load(std::move(source), *ops_, options);
}

const core::Tokenizer& Session::tokenizer() const {
    if (!tokenizer_) throw Error(target_->source().path() + " has no tokenizer");
    return *tokenizer_;
}

std::unique_ptr<samplers::Chain> Session::make_chain() const {
    return std::make_unique<samplers::Chain>(chain_spec(config(), plugins_.factories), *vocabulary_);
}

speculative::SpeculationOptions Session::speculation() const {
    return {config().speculation_mode, config().max_draft, config().draft_length};
}

bool Session::has_source(std::string_view name) const {
    const std::vector<std::string>& sources = config().sources;
    return std::find(sources.begin(), sources.end(), name) != sources.end();
}

std::unique_ptr<core::Context> Session::make_context() const {
    core::ContextOptions options;
    options.length = context_length_;
    options.decode_rows = needs_.decode_rows;
    options.branches = needs_.branches;
    options.kv_format = config().kv_format;
    options.input_rows = std::min(ops_->input_rows(), options.length);
    return std::make_unique<core::Context>(target_, options);
}

speculative::Generator Session::make_generator() const {
    std::vector<std::unique_ptr<speculative::Drafter>> drafters;
    if (draft_) {
        core::ContextOptions options;
        options.length = std::min(context_length_, draft_->config().context_length);
        options.kv_format = config().kv_format;
        options.input_rows = std::min(ops_->input_rows(), options.length);
        drafters.push_back(speculative::make_model_drafter(std::make_unique<core::Context>(draft_, options)));
    }
    if (has_source("suffix")) drafters.push_back(speculative::make_suffix_drafter(context_length_));
    return make_generator(std::move(drafters));
}

speculative::Generator Session::make_generator(std::vector<std::unique_ptr<speculative::Drafter>> drafters) const {
    speculative::GeneratorParts parts;
    parts.target = make_context();
    parts.chain = make_chain();
    parts.drafters = std::move(drafters);
    if (tokenizer_) {
        parts.tokenizer = &*tokenizer_;
        const auto ends = tokenizer_->end_of_text_ids();
        parts.end_tokens.assign(ends.begin(), ends.end());
    }
    parts.speculation = speculation();
    return speculative::Generator(std::move(parts));
}

void Session::report_stages(samplers::Chain& chain) {
    for (const samplers::StageReport& report : chain.reports()) {
        if (!report.slow.empty() && reported_.insert("slow " + report.stage).second) spdlog::warn("{}", report.slow);
        if (report.failures > 0 && reported_.insert("failed " + report.stage).second) {
            spdlog::warn("stage {} failed on {} tokens: {}", report.stage, report.failures, report.last_failure);
        }
        spdlog::debug("stage {}: {} calls, {:.3f} ms, at worst {:.3f} ms", report.stage, report.calls, report.total_ms,
                      report.worst_ms);
    }
}

std::string Session::inflated() const {
    std::string text;
    const auto add = [&](const char* what, const Inflated& inflated) {
        if (inflated.shape.empty()) return;
        text += (text.empty() ? "" : ", ") + std::string(what) + " " + inflated.shape + " in " + inflated.encoding;
    };
    add("target", inflated_target_);
    if (draft_) add("draft", inflated_draft_);
    return text;
}

std::string Session::instruction_set() const {
    kernels::BackendInfo info = ops_->describe();
    info.detail.resize(std::min(info.detail.size(), info.detail.find(',')));
    return backend_text(info);
}

std::string Session::backend() const { return backend_text(*ops_); }

}  // namespace foresay::app
