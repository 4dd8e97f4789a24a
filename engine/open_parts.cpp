// Opens and checks all that a configuration names, before any weight is loaded.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/models/shapes.h"
#include "core/weights/checksums.h"
#include "engine/backend.h"
#include "engine/draft_search.h"
#include "engine/engine_state.h"
#include "engine/hosts/host_parts.h"
#include "engine/hosts/hosts.h"
#include "kernels/divided_ops.h"
#include "kernels/kv_names.h"
#include "kernels/split_ops.h"
#include "speculative/drafters/drafters.h"
#include "speculative/pairing.h"
#include "speculative/vocabulary.h"

namespace foresay::engine {

namespace fs = std::filesystem;

namespace {

// Positions of a context for random weights when the configuration names none: benchmarks need no more.
constexpr std::int32_t kSyntheticContext = 2048;

// Cost of one more row of a forward, as a share of a plain step, where memory decides: as measured on the machines of
// docs/performance.md. The controller measures those of this machine while it generates.
constexpr double kRowShareHost = 0.06, kRowShareDevice = 0.02;

}  // namespace

Error at(const core::Setting& setting, const Error& problem) {
    return Error(setting.origin.is_default() ? problem.what() : setting.origin.text() + ": " + problem.what());
}

std::string runtime_of(const core::Config& config) {
    std::string devices;
    for (const std::string& name : config.devices) devices += name + ",";
    for (const std::int32_t count : config.device_layers) devices += std::to_string(count) + ",";
    if (!devices.empty()) {
        for (const char* key : {"runtime.device_mib", "draft.device", "runtime.split_mode", "runtime.device_shares",
                                "runtime.row_handover"}) {
            devices += " " + core::to_toml(config.setting(key).value);
        }
    }
    const std::string hosts = core::to_toml(config.setting("runtime.host_layers").value);
    return hosts + (devices.empty() ? config.device : devices) + " " + config.isa + " " +
           std::to_string(config.threads) +
           (config.kv_format == kernels::KvFormat::f16 ? "" : ' ' + kernels::name(config.kv_format));
}

std::optional<kernels::QuantType> draft_head_of(const core::Config& config) {
    if (config.draft_head_as_stored) return std::nullopt;
    return kernels::QuantType::q4_0;
}

Error rows_on_one_host(const core::Config& config) {
    return at(config.setting("runtime.split_mode"),
              Error("'runtime.split_mode' row is for the devices of one host; start one process, or use layer"));
}

std::size_t own_devices(const kernels::SplitOps& list) {
    std::size_t own = 0;
    while (own < list.size() && dynamic_cast<const kernels::RemoteOps*>(&list.device(own)) == nullptr) ++own;
    return own;
}

std::unique_ptr<kernels::Ops> Engine::State::open_hosts(const core::Config& next, const BackendChoice& choice) const {
    if (choice.rows) throw rows_on_one_host(next);
    std::vector<std::shared_ptr<kernels::Ops>> devices;
    std::vector<std::string> names;
    for (const core::Config& one : each_device(next)) {
        devices.push_back(engine::open_backend(one, choose_backend(one)));
        names.push_back(one.device == "auto" ? devices.back()->describe().name : one.device);
    }
    for (const std::shared_ptr<kernels::RemoteOps>& device : options.hosts->open_devices()) {
        names.push_back(device->device().info.name + " of " + options.hosts->group().name(device->device().rank));
        devices.push_back(device);
    }
    if (devices.size() > kernels::kMostDevices) {
        throw Error("the hosts have " + std::to_string(devices.size()) + " devices together, and a model can be on " +
                    std::to_string(kernels::kMostDevices) + "; name fewer with --device");
    }
    return std::make_unique<kernels::SplitOps>(std::move(devices), std::move(names));
}

void Engine::State::open_backend(OpenedParts& parts) const {
    const core::Config& next = parts.config;
    const BackendChoice choice = choose_backend(next);
    std::unique_ptr<kernels::Ops> opened;
    try {
        const auto tell = [observer = options.observer](const std::string& sentence) {
            if (observer) observer->notice(Notice::link, sentence);
        };
        opened = options.hosts ? open_hosts(next, choice) : engine::open_backend(next, choice, tell);
    } catch (const Error& problem) {
        throw at(next.setting(choice.key()), problem);
    }
    parts.why_no_device = choice.why_processor;
    if (!parts.why_no_device.empty()) notice(Notice::no_device, parts.why_no_device);
    if (choice.rows) {
        parts.ranks = static_cast<kernels::DividedOps*>(opened.get());
    } else if (choice.list || options.hosts) {
        parts.list = static_cast<kernels::SplitOps*>(opened.get());
    }
    if (!options.wrap_backend) {
        parts.ops = std::move(opened);
        return;
    }
    parts.ops = options.wrap_backend(std::move(opened));
    // A list in place of the list.
    if (auto* const other = dynamic_cast<kernels::SplitOps*>(parts.ops.get())) parts.list = other;
    if (auto* const other = dynamic_cast<kernels::DividedOps*>(parts.ops.get())) parts.ranks = other;
}

std::unique_ptr<core::ModelSource> open_target(const core::Config& config, const EngineOptions& options,
                                               bool by_backend) {
    const SyntheticModel &random = options.random_target, &inflate = options.inflate_target;
    if (config.target_model.empty()) {
        if (random.shape.empty()) throw Error("the configuration names no target model; set target.model");
        return core::ModelSource::random(random.shape, core::quant_type_by_name(random.quant_type), by_backend);
    }
    std::unique_ptr<core::ModelSource> source = core::ModelSource::open(config.target_model);
    if (inflate.shape.empty()) return source;
    return core::ModelSource::inflate(std::move(source), inflate.shape, core::quant_type_by_name(inflate.quant_type));
}

OpenedModel Engine::State::open_model(const core::Config& next, const std::string& key, const fs::path& path) const {
    const bool is_draft = key == "draft.model";
    const SyntheticModel& inflate = is_draft ? options.inflate_draft : options.inflate_target;
    std::unique_ptr<core::ModelSource> source;
    OpenedModel opened;
    try {
        source = core::ModelSource::open(path);
        if (auto tokens = core::Tokenizer::of_optional(*source)) {
            opened.tokenizer = std::make_shared<const core::Tokenizer>(*std::move(tokens));
        }
    } catch (const Error& problem) {
        throw at(next.setting(key), problem);
    }
    if (!inflate.shape.empty()) {
        source =
            core::ModelSource::inflate(std::move(source), inflate.shape, core::quant_type_by_name(inflate.quant_type),
                                       is_draft ? draft_head_of(next) : std::nullopt);
    }
    opened.source = std::move(source);
    return opened;
}

std::int32_t Engine::State::context_of(const core::Config& next, const core::ModelSource& model) const {
    const std::int32_t longest = model.config().context_length;
    const std::int32_t most = next.target_model.empty() ? kSyntheticContext : options.default_context;
    const std::int32_t length = next.target_context > 0 ? next.target_context : std::min(longest, most);
    if (length > longest) {
        const Error problem("the context of " + std::to_string(length) + " positions is longer than the " +
                            std::to_string(longest) + " that " + model.path() + " supports; set a smaller context");
        throw at(next.setting("target.context"), problem);
    }
    return length;
}

namespace {

bool wants_draft(const EngineOptions& options, const core::Config& next, const kernels::Ops* backend) {
    if (options.draft_if_cheap && backend != nullptr && !backend->asynchronous()) return false;
    return options.draft && std::ranges::any_of(next.sources, [](const std::string& name) {
               const speculative::DrafterKind* kind = speculative::find_drafter_kind(name);
               return kind != nullptr && kind->needs_draft_model;
           });
}

// Whether a draft is to be found. Inflated models are pairs that the caller names.
bool wants_search(const EngineOptions& options, const core::Config& next, const kernels::Ops* backend) {
    const bool never = options.fixed_mode && next.speculation_mode == core::SpeculationMode::off;
    return next.draft_auto && !never && wants_draft(options, next, backend) && !next.target_model.empty() &&
           options.inflate_target.shape.empty();
}

}  // namespace

fs::path Engine::State::draft_of(const core::Config& next, const kernels::Ops* backend) const {
    if (!wants_draft(options, next, backend)) return {};
    if (!next.draft_auto) return next.draft_model;
    return wants_search(options, next, backend) && searched_for == next.target_model ? found_draft : fs::path();
}

bool Engine::State::must_search(const core::Config& next, const kernels::Ops* backend) const {
    return wants_search(options, next, backend) && searched_for != next.target_model;
}

void Engine::State::search_draft(OpenedParts& parts) const {
    const core::Config& next = parts.config;
    const kernels::Ops& backend = parts.ops ? *parts.ops : *ops;
    const DraftSearch search{
        .folders = next.draft_folders,
        .hub = options.draft_hub,
        .row_share = backend.free_memory() >= 0 ? kRowShareDevice : kRowShareHost,
        .skipped = [&](const std::string& sentence) { notice(Notice::draft_skipped, sentence); },
    };
    // The source of a loaded model gives no sizes any more.
    const std::shared_ptr<core::ModelSource> source =
        parts.keep_target ? open_model(next, "target.model", next.target_model).source : parts.target.source;
    FoundDraft found = find_draft(*source, parts.target.tokenizer.get(), next.target_model, search);
    parts.draft_path = std::move(found.path);
    if (!found.sentence.empty() && (must_search(next, &backend) || parts.draft_path != found_draft)) {
        notice(Notice::draft_choice, found.sentence);
    }
}

void Engine::State::drop_draft(OpenedParts& parts, const std::string& why) const {
    notice(Notice::draft_skipped, "as a draft, " + parts.draft_path.string() + " is left out: " + why);
    parts.draft = {};
    parts.draft_path.clear();
    parts.keep_draft = false;
    parts.never_proposed.clear();
}

LoadedPlugins Engine::State::open_plugins(const core::Config& next) const {
    LoadedPlugins loaded = load_plugins(next, options.plugins, plugins.host, options.every_plugin);
    for (const std::string& sentence : loaded.notices) notice(Notice::plugin_blamed, sentence);
    return loaded;
}

OpenedParts Engine::State::open_parts(const core::Config& next, LoadedPlugins with_plugins) const {
    core::Config config = with_absolute_files(next, with_plugins.factories);
    OpenedParts parts{.config = std::move(config), .plugins = std::move(with_plugins)};
    const bool same_backend = ops && runtime_of(next) == runtime;
    if (same_backend) {
        parts.list = list;
        parts.ranks = ranks;
    } else {
        open_backend(parts);
    }
    parts.keep_target = same_backend && target && next.target_model == loaded_target;
    if (parts.keep_target) {
        parts.target.tokenizer = tokenizer;
    } else if (!next.target_model.empty()) {
        parts.target = open_model(next, "target.model", next.target_model);
    } else {
        const kernels::Ops& backend = parts.ops ? *parts.ops : *ops;
        parts.target.source = open_target(next, options, backend.makes_random_weights());
    }
    const core::ModelSource& model = parts.keep_target ? target->source() : *parts.target.source;
    open_chat(parts);
    const core::Tokenizer* tokens = parts.target.tokenizer.get();
    if (options.tokenizer && tokens == nullptr) {
        throw Error(model.path() + " has no tokenizer, so there is no text to work with; use a model that has one");
    }
    parts.vocabulary = tokens != nullptr ? speculative::make_vocabulary(*tokens, model.config().name)
                                         : speculative::make_bare_vocabulary(model.config().shape.vocab);
    parts.context_length = context_of(next, model);
    // Some models have factors for short and for long contexts, and are loaded for one of them.
    if (parts.keep_target && !target->serves(parts.context_length)) {
        parts.keep_target = false;
        parts.target.source = open_model(next, "target.model", next.target_model).source;
    }
    const kernels::Ops* const backend = parts.ops ? parts.ops.get() : ops.get();
    parts.draft_path = draft_of(next, backend);
    if (wants_search(options, next, backend)) search_draft(parts);
    if (!parts.draft_path.empty() && options.draft_if_cheap) {
        open_cheap_draft(parts, model);
    } else if (!parts.draft_path.empty()) {
        open_draft(parts, model);
    }
    place_layers(parts);
    place_rows(parts);
    // Throws on a bad chain before any weight is loaded. Plugins that are not loaded cannot be part of it.
    core::Config checked = parts.config;
    if (!options.run_plugins) {
        std::erase_if(checked.chain, [&](const std::string& name) {
            return std::ranges::find(next.plugins, name, &core::PluginSpec::name) != next.plugins.end();
        });
    }
    engine::make_chain(checked, parts.plugins.factories, *parts.vocabulary);
    if (options.fixed_mode && next.speculation_mode == core::SpeculationMode::off) parts.draft.source.reset();
    if (!options.weights || !next.check_files) return parts;
    if (parts.target.source) check_files(next, "target.model", next.target_model, "checking the target");
    try {
        if (parts.draft.source) check_files(next, "draft.model", parts.draft_path, "checking the draft");
    } catch (const Error& problem) {
        if (!draft_may_be_left_out(next) || (options.observer && options.observer->cancelled())) throw;
        drop_draft(parts, problem.what());
    }
    return parts;
}

// Compares a model with the checksums beside it.
void Engine::State::check_files(const core::Config& next, const std::string& key, const fs::path& path,
                                const std::string& what) const {
    if (path.empty()) return;  // random weights
    try {
        observe(what, [&](const Progress& progress) {
            core::check_listed_files(path, ", or go on with --set runtime.check_files=false", progress);
        });
    } catch (const core::DamagedFile& problem) {
        throw at(next.setting(key), problem);
    }
}

// An answer ends where the chat template says, whatever else the model's files name as ends.
void Engine::State::open_chat(OpenedParts& parts) const {
    const core::Config& next = parts.config;
    if (!parts.target.tokenizer) return;
    try {
        parts.chat = core::open_chat_template(*parts.target.tokenizer, next.chat_template);
    } catch (const Error& problem) {
        throw at(next.setting("chat.template"), problem);
    }
    if (!parts.chat.chat) return;
    parts.target.tokenizer =
        std::make_shared<const core::Tokenizer>(parts.target.tokenizer->with_ends(parts.chat.chat->ends()));
}

void Engine::State::open_draft(OpenedParts& parts, const core::ModelSource& target_source) const {
    const core::Config& next = parts.config;
    const bool present = draft && parts.draft_path == loaded_draft;
    parts.keep_draft = !parts.ops && present && next.draft_head_as_stored == loaded_head_as_stored &&
                       draft->serves(std::min(parts.context_length, draft->config().context_length));
    if (parts.keep_draft && parts.keep_target) {
        parts.never_proposed = never_proposed;
        return;
    }
    parts.draft = open_model(next, "draft.model", parts.draft_path);
    try {
        speculative::Pairing pairing = speculative::check_pairing(
            {target_source.config(), parts.target.tokenizer.get(), target_source.path()},
            {parts.draft.source->config(), parts.draft.tokenizer.get(), parts.draft.source->path()});
        parts.never_proposed = std::move(pairing.never_proposed);
    } catch (const Error& problem) {
        // A new draft that does not fit is an error. The current one is not used when the new target does not fit it.
        if (!present) throw at(next.setting("draft.model"), problem);
        parts.result.notes.push_back(std::string("the draft model is not used: ") + problem.what());
        parts.result.draft_left_out = true;
        parts.keep_draft = false;
        parts.draft.source.reset();
        parts.config.draft_model.clear();
        parts.draft_path.clear();
        return;
    }
    if (parts.keep_draft) parts.draft.source.reset();
}

void Engine::State::open_cheap_draft(OpenedParts& parts, const core::ModelSource& target_source) const {
    constexpr double kMostShare = 0.2;
    try {
        open_draft(parts, target_source);
    } catch (const Error& problem) {
        drop_draft(parts, problem.what());
        return;
    }
    if (!parts.draft.source) return;
    const double share = static_cast<double>(core::active_parameter_count(parts.draft.source->config())) /
                         static_cast<double>(core::active_parameter_count(target_source.config()));
    if (share <= kMostShare) return;
    drop_draft(parts, "it has more than a fifth of the target's parameters, so it seldom pays for texts side by side");
}

}  // namespace foresay::engine
