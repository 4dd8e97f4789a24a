#include "app/opened_engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "app/bench/metered_ops.h"
#include "app/hosts.h"
#include "app/hub_models.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "app/plugin_trust.h"
#include "app/progress.h"
#include "base/error.h"
#include "engine/backend.h"

namespace foresay::app {

namespace {

// Log lines, a progress line, and Ctrl-C.
class Reporter final : public engine::Observer {
public:
    void notice(engine::Notice kind, const std::string& sentence) override {
        switch (kind) {
            case engine::Notice::plugin_blamed:
            case engine::Notice::unused_part:
            case engine::Notice::pages:
            case engine::Notice::link:
                spdlog::warn("{}", sentence);
                break;
            case engine::Notice::no_device:
                // Warn only a user at a terminal who has a GPU and would wonder why it is idle.
                if (stderr_is_terminal() && engine::has_nvidia_gpu()) {
                    spdlog::warn("the GPU is not used: {}; use --device cpu to silence this warning", sentence);
                } else {
                    spdlog::info("running on the CPU: {}", sentence);
                }
                break;
            case engine::Notice::draft_choice:
                // For people at a terminal, as a note and not as a warning; a program that reads errors asked for none.
                if (stderr_is_terminal()) {
                    complain("foresay: " + sentence);
                } else {
                    spdlog::info("{}", sentence);
                }
                break;
            case engine::Notice::draft_skipped:
                spdlog::debug("{}", sentence);
                break;
            default:
                spdlog::info("{}", sentence);
        }
    }
    void begin_load(const std::string& what) override { shown_.emplace(what); }
    void progress(std::int64_t done_bytes, std::int64_t all_bytes) override { shown_->update(done_bytes, all_bytes); }
    void end_load() override { shown_.reset(); }
    bool cancelled() override { return interrupted(); }

private:
    std::optional<Progress> shown_;
};

engine::EngineOptions engine_options(const Options& options, const EngineNeeds& needs) {
    engine::EngineOptions out;
    out.weights = needs.weights;
    out.run_plugins = needs.plugins;
    out.every_plugin = needs.every_plugin;
    out.tokenizer = needs.tokenizer;
    out.draft = needs.draft;
    out.draft_if_cheap = needs.draft_if_cheap;
    out.fixed_mode = needs.speculating;
    out.decode_rows = needs.decode_rows;
    out.branches = needs.branches;
    out.sequences = needs.sequences;
    out.default_context = needs.default_context;
    out.random_target = {options.shape, options.quant_type};
    out.inflate_target = {options.inflate, options.quant_type};
    out.inflate_draft = {options.inflate_draft, options.draft_quant_type};
    try {
        out.draft_hub = hub_settings().cache;
    } catch (const Error& problem) {
        spdlog::debug("no drafts are looked for in the cache of the hub: {}", problem.what());
    }
    out.hosts = other_hosts();
    out.plugins = plugin_options();
    out.observer = std::make_shared<Reporter>();
    if (needs.meter) {
        out.wrap_backend = [](std::unique_ptr<kernels::Ops> ops) -> std::unique_ptr<kernels::Ops> {
            return std::make_unique<MeteredOps>(std::move(ops));
        };
    }
    return out;
}

engine::Engine open_engine(const Configuration& configuration, const Options& options, const EngineNeeds& needs) {
    const core::Config& config = configuration.config();
    if (!needs.every_plugin) {
        for (const std::string& sentence : unused_stages(configuration)) spdlog::warn("{}", sentence);
    }
    if (needs.plugins) check_plugin_trust(config);
    const bool drafts = std::find(config.sources.begin(), config.sources.end(), "draft") != config.sources.end();
    if (needs.draft && !options.inflate_draft.empty() && (!drafts || config.draft_model.empty())) {
        throw Error("--inflate-draft: there is no draft model to inflate; name one with --draft PATH");
    }
    return engine::Engine::open(config, engine_options(options, needs));
}

}  // namespace

OpenedEngine::OpenedEngine(const Options& options, const EngineNeeds& needs)
    : OpenedEngine(Configuration(options), options, needs) {}

OpenedEngine::OpenedEngine(Configuration configuration, const Options& options, const EngineNeeds& needs)
    : Engine(open_engine(configuration, options, needs)), configuration_(std::move(configuration)) {}

MeteredOps* OpenedEngine::meter() const { return dynamic_cast<MeteredOps*>(&ops()); }

void OpenedEngine::set(const std::string& assignment, const std::string& place) {
    Configuration next = configuration_;
    next.set(assignment, place);
    reconfigure(next);
}

void OpenedEngine::reconfigure(const Configuration& next) {
    check_plugin_trust(next.config());
    Engine::reconfigure(next.config());
    configuration_ = next;
}

std::vector<std::string> OpenedEngine::reload(const Configuration& next, const std::function<void()>& release) {
    check_plugin_trust(next.config());
    Configuration taken = next;
    engine::ReloadResult result = Engine::reload(next.config(), release);
    if (result.draft_left_out) taken.set("draft.model=\"\"", "the new target");
    configuration_ = std::move(taken);
    return std::move(result.notes);
}

void OpenedEngine::report_stages(samplers::Chain& chain) {
    for (const samplers::StageReport& report : chain.reports()) {
        if (!report.slow.empty() && reported_.insert("slow " + report.stage).second) spdlog::warn("{}", report.slow);
        if (report.failures > 0 && reported_.insert("failed " + report.stage).second) {
            spdlog::warn("stage {} failed on {} tokens: {}", report.stage, report.failures, report.last_failure);
        }
        spdlog::debug("stage {}: {} calls, {:.3f} ms, at worst {:.3f} ms", report.stage, report.calls, report.total_ms,
                      report.worst_ms);
    }
}

}  // namespace foresay::app
