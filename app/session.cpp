#include "app/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "app/bench/metered_ops.h"
#include "app/model_text.h"
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

}  // namespace

struct Session::Opened {
    std::shared_ptr<core::ModelSource> source;
    std::optional<core::Tokenizer> tokenizer;
};

Session::~Session() = default;

void Session::open_backend() {
    const core::Config& config = configuration_.config();
    const bool automatic = config.device == "auto";
    int device = config.device.starts_with("cuda:") ? std::stoi(config.device.substr(5)) : 0;
    bool cuda = config.device.starts_with("cuda");
    if (automatic) {
        const std::vector<kernels::CudaDevice> devices = kernels::cuda_devices(&why_no_device_);
        cuda = !devices.empty();
        if (cuda) device = devices.front().index;
    }
    const char* key = cuda ? "runtime.device" : "runtime.isa";
    try {
        if (cuda) {
            ops_ = kernels::make_cuda_ops({device});
        } else {
            ops_ = config.device == "reference" ? kernels::make_reference_ops()
                                                : kernels::make_cpu_ops({config.threads, config.isa});
        }
    } catch (const Error& problem) {
        throw at(config.setting(key), problem);
    }
    if (automatic && !cuda) spdlog::info("running on the processor: {}", why_no_device_);
    if (needs_.meter) {
        auto metered = std::make_unique<MeteredOps>(std::move(ops_));
        meter_ = metered.get();
        ops_ = std::move(metered);
    }
}

Session::Opened Session::open_model(const std::string& key, const fs::path& path) const {
    try {
        Opened opened;
        opened.source = core::ModelSource::open(path);
        opened.tokenizer = find_tokenizer(*opened.source, path);
        return opened;
    } catch (const Error& problem) {
        throw at(config().setting(key), problem);
    }
}

Session::Session(const Options& options, const SessionNeeds& needs) : configuration_(options), needs_(needs) {
    const auto start = std::chrono::steady_clock::now();
    const core::Config& config = configuration_.config();
    plugins_ = load_plugins(config);
    if (plugins_.host && !plugins_.host->culprit().empty()) spdlog::warn("{}", plugins_.host->culprit());
    open_backend();
    Opened target, draft;
    if (options.shape.empty()) {
        target = open_model("target.model", config.target_model);
    } else {
        target.source = core::ModelSource::random(options.shape, core::encoding_by_name(options.encoding),
                                                  ops_->makes_random_weights());
    }
    const core::ModelConfig& model = target.source->config();
    tokenizer_ = std::move(target.tokenizer);
    if (needs.tokenizer && !tokenizer_) {
        throw Error(target.source->path() +
                    " has no tokenizer, so there is no text to work with; use a model that has one");
    }
    vocabulary_ =
        tokenizer_ ? speculative::make_vocabulary(*tokenizer_) : speculative::make_bare_vocabulary(model.shape.vocab);

    const std::int32_t most = options.shape.empty() ? needs.default_context : kShapeContext;
    context_length_ = config.target_context > 0 ? config.target_context : std::min(model.context_length, most);
    if (context_length_ > model.context_length) {
        const Error problem("the context of " + std::to_string(context_length_) + " positions is longer than the " +
                            std::to_string(model.context_length) + " that " + target.source->path() + " was made for");
        throw at(config.setting("target.context"), problem);
    }

    if (needs.draft && has_source("draft") && !config.draft_model.empty()) {
        draft = open_model("draft.model", config.draft_model);
        const core::Tokenizer* tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
        const core::Tokenizer* draft_tokenizer = draft.tokenizer ? &*draft.tokenizer : nullptr;
        try {
            speculative::check_pairing({model, tokenizer, target.source->path()},
                                       {draft.source->config(), draft_tokenizer, draft.source->path()});
        } catch (const Error& problem) {
            throw at(config.setting("draft.model"), problem);
        }
    }
    make_chain();  // complains about the chain before any weight is loaded
    if (!needs.weights) return;
    const bool idle = needs.speculating && config.speculation_mode == core::SpeculationMode::off;
    if (draft.source && idle) draft.source.reset();
    check_memory(*target.source, draft.source.get());
    target_ = load(std::move(target.source), "loading the target");
    if (draft.source) {
        core::LoadOptions options;
        if (!config.draft_head_as_stored) options.head = kernels::Encoding::q4_0;
        draft_ = load(std::move(draft.source), "loading the draft", options);
    }
    if (draft_) {
        for (const std::string& stage : make_chain()->hidden_from_draft()) {
            spdlog::info("the draft does not see the stage {}, which cannot be cloned", stage);
        }
    }
    load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Session::check_memory(core::ModelSource& target, core::ModelSource* draft) const {
    core::ContextOptions options;
    options.length = context_length_;
    options.decode_rows = needs_.decode_rows;
    options.input_rows = std::min(ops_->input_rows(), options.length);
    speculative::MemoryEstimate estimate = speculative::estimate_memory(target, options, *ops_);
    if (draft) estimate += speculative::estimate_memory(*draft, options, *ops_);
    spdlog::info("memory: weights {}, cache {}, activations {}", speculative::format_bytes(estimate.weights),
                 speculative::format_bytes(estimate.cache), speculative::format_bytes(estimate.activations));
    const std::int64_t own = ops_->free_memory();
    if (own >= 0) {
        speculative::require_memory(estimate, own, target.path(), "device memory");
    } else {
        speculative::require_memory(estimate, speculative::available_memory(), target.path());
    }
}

std::shared_ptr<const core::Model> Session::load(std::shared_ptr<core::ModelSource> source, const std::string& what,
                                                 core::LoadOptions options) const {
    Progress progress(what);
    options.progress = [&](std::int64_t done, std::int64_t all) { progress.update(done, all); };
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
    options.input_rows = std::min(ops_->input_rows(), options.length);
    return std::make_unique<core::Context>(target_, options);
}

speculative::Generator Session::make_generator() const {
    std::vector<std::unique_ptr<speculative::Drafter>> drafters;
    if (draft_) {
        core::ContextOptions options;
        options.length = std::min(context_length_, draft_->config().context_length);
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

std::string Session::backend() const {
    const kernels::BackendInfo info = ops_->describe();
    return info.name + (info.detail.empty() ? "" : " (" + info.detail + ")");
}

}  // namespace foresay::app
