#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/error.h"
#include "core/models/layer_split.h"
#include "core/weights/checksums.h"
#include "core/weights/mapped_file.h"
#include "engine/backend.h"
#include "engine/engine_state.h"
#include "kernels/divided_ops.h"
#include "kernels/kv_names.h"
#include "kernels/split_ops.h"
#include "speculative/drafters/drafters.h"

namespace foresay::engine {
namespace {

// What the files of a model hold.
std::string contents_of(const std::filesystem::path& model) {
    std::string text;
    for (const std::filesystem::path& file : core::model_files(model)) {
        text += " " + core::xxh128(core::MappedFile(file).bytes());
    }
    return text;
}

}  // namespace

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Engine Engine::open(core::Config config, EngineOptions options) {
    const auto start = std::chrono::steady_clock::now();
    auto state = std::make_unique<State>();
    state->options = std::move(options);
    LoadedPlugins plugins =
        state->options.run_plugins ? state->open_plugins(config) : look_at_plugins(config, state->options.plugins);
    const EngineOptions& wanted = state->options;
    if (wanted.draft && !wanted.inflate_draft.shape.empty() && state->draft_of(config, nullptr).empty()) {
        throw Error("there is no draft model to inflate; set draft.model");
    }
    OpenedParts parts = state->open_parts(config, std::move(plugins));
    state->adopt(parts);
    state->open = true;
    state->load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return Engine(std::move(state));
}

const core::Config& Engine::config() const { return state_->config; }
const core::Model& Engine::target() const { return *state_->target; }
const core::Model* Engine::draft() const { return state_->draft.get(); }
const std::shared_ptr<const core::Model>& Engine::shared_target() const { return state_->target; }
const std::shared_ptr<const core::Model>& Engine::shared_draft() const { return state_->draft; }
bool Engine::has_tokenizer() const { return state_->tokenizer != nullptr; }
kernels::Ops& Engine::ops() const { return *state_->ops; }
std::int32_t Engine::context_length() const { return state_->context_length; }
double Engine::load_ms() const { return state_->load_ms; }
std::optional<kernels::QuantType> Engine::draft_head() const { return draft_head_of(config()); }
const std::string& Engine::why_no_device() const { return state_->why_no_device; }

namespace {

// Which layers are where, each device as `text` says it.
template <class Text>
std::string placed_text(const std::vector<PlacedLayers>& placement, const kernels::SplitOps& list, const Text& text) {
    core::LayerSplit split;
    std::vector<std::string> names;
    for (std::size_t d = 0; d < placement.size(); ++d) {
        split.push_back(placement[d].count);
        names.push_back(text(list.device(d).describe()));
    }
    return core::split_text(split, names);
}

std::string without_threads(kernels::BackendInfo info) {
    info.detail.resize(std::min(info.detail.size(), info.detail.find(',')));
    return backend_text(info);
}

}  // namespace

std::string Engine::backend() const {
    if (const kernels::DividedOps* const ranks = state_->ranks) {
        std::string text;
        for (std::size_t r = 0; r < ranks->size(); ++r) {
            text += (r > 0 ? ", " : "") + backend_text(ranks->rank(r).describe());
        }
        text = "each layer divided over " + text;
        if (const std::string why = ranks->why_copies(state_->link_facts, config().kv_format); !why.empty()) {
            return text + ", by copies (" + why + ")";
        }
        const char* const ways[] = {"", ", linked", ", linked through host memory"};
        return text + ways[static_cast<std::size_t>(ranks->link_way())];
    }
    if (state_->list == nullptr) return backend_text(ops());
    return placed_text(state_->placement, *state_->list, [](const auto& info) { return backend_text(info); });
}

const std::vector<PlacedLayers>& Engine::placement() const { return state_->placement; }

const core::Tokenizer& Engine::tokenizer() const {
    if (!has_tokenizer()) throw Error(target().source().path() + " has no tokenizer");
    return *state_->tokenizer;
}

const core::OpenedTemplate& Engine::chat_template() const { return state_->chat; }

bool Engine::State::has_source(std::string_view name) const {
    return std::ranges::find(config.sources, name) != config.sources.end();
}

bool Engine::has_source(std::string_view name) const { return state_->has_source(name); }

samplers::ChainSpec Engine::chain_spec() const { return engine::chain_spec(config(), state_->plugins.factories); }

std::optional<samplers::StageSpec> Engine::stage_spec(const std::string& name) const {
    const PluginFactories& loaded = state_->plugins.factories;
    if (!loaded.contains(name) && samplers::find_builtin(name) == nullptr) return std::nullopt;
    return engine::stage_spec(config(), loaded, name);
}

std::unique_ptr<samplers::Chain> Engine::make_chain() const { return make_chain(chain_spec()); }

std::unique_ptr<samplers::Chain> Engine::make_chain(const samplers::ChainSpec& spec) const {
    return std::make_unique<samplers::Chain>(spec, *state_->vocabulary);
}

speculative::SpeculationOptions Engine::speculation() const {
    return {config().speculation_mode, config().max_draft, config().draft_length};
}

std::unique_ptr<core::Context> Engine::make_context() const {
    core::ContextOptions context = state_->context_options(context_length());
    context.decode_rows = state_->options.decode_rows;
    context.branches = state_->options.branches;
    return std::make_unique<core::Context>(state_->target, context);
}

std::unique_ptr<core::Context> Engine::make_context(std::int32_t sequences, std::int32_t length,
                                                    std::int32_t decode_rows) const {
    core::ContextOptions context = state_->context_options(length);
    context.sequences = sequences;
    context.decode_rows = decode_rows;
    return std::make_unique<core::Context>(state_->target, context);
}

std::vector<std::unique_ptr<speculative::Drafter>> Engine::State::drafters() const {
    speculative::DrafterParts parts{
        .context_length = context_length, .draft = draft, .draft_context = {}, .never_proposed = never_proposed};
    if (draft) parts.draft_context = context_options(draft_context());
    std::vector<std::unique_ptr<speculative::Drafter>> made;
    for (const speculative::DrafterKind& kind : speculative::drafter_kinds()) {
        if (!has_source(kind.name)) continue;
        if (auto drafter = kind.make(parts)) made.push_back(std::move(drafter));
    }
    return made;
}

speculative::Generator Engine::make_generator() const { return make_generator(state_->drafters()); }

speculative::Generator Engine::make_generator(std::vector<std::unique_ptr<speculative::Drafter>> drafters) const {
    speculative::GeneratorParts parts;
    parts.target = make_context();
    parts.chain = make_chain();
    parts.drafters = std::move(drafters);
    parts.make_lookup = state_->lookup();
    if (draft() != nullptr && has_source("draft")) {
        // One context's pages for all answers, which share those of the prompt.
        core::ContextOptions own = state_->context_options(state_->draft_context());
        own.branches = state_->options.branches;
        own.decode_rows = state_->options.decode_rows;
        parts.make_draft = [model = state_->draft, own](std::int32_t sequences) mutable {
            own.branches = std::max(own.branches, sequences - own.sequences);
            own.decode_rows = std::max(own.decode_rows, 2 * sequences);
            return std::make_unique<core::Context>(model, own);
        };
        parts.never_proposed = state_->never_proposed;
    }
    parts.tokenizer = state_->tokenizer.get();
    parts.speculation = speculation();
    return speculative::Generator(std::move(parts));
}

bool Engine::needs_reload(const core::Config& next) const {
    const State& s = *state_;
    return runtime_of(next) != s.runtime || next.target_model != s.loaded_target ||
           s.draft_of(next, s.ops.get()) != s.loaded_draft || s.must_search(next, s.ops.get()) ||
           (s.draft && next.draft_head_as_stored != s.loaded_head_as_stored) ||
           next.chat_template != s.config.chat_template || next.sources != s.config.sources ||
           s.context_of(next, s.target->source()) != s.context_length;
}

void Engine::reconfigure(const core::Config& next) {
    LoadedPlugins plugins = state_->open_plugins(next);
    core::Config config = with_absolute_files(next, plugins.factories);
    engine::make_chain(config, plugins.factories, *state_->vocabulary);
    state_->config = std::move(config);
    state_->plugins = std::move(plugins);
}

ReloadResult Engine::reload(const core::Config& next, const std::function<void()>& release) {
    State& s = *state_;
    const auto open = [&](const core::Config& config) { return s.open_parts(config, s.open_plugins(config)); };
    const core::Config before = s.config;
    OpenedParts parts = open(next);
    ReloadResult result = std::move(parts.result);
    release();
    try {
        s.adopt(parts);
    } catch (...) {
        OpenedParts old = open(before);
        s.adopt(old);
        throw;
    }
    return result;
}

std::string Engine::instruction_set() const {
    // Ranks that divide a layer make the bits of one of them.
    if (state_->ranks != nullptr) return without_threads(state_->ranks->rank(0).describe());
    if (state_->list == nullptr) return without_threads(ops().describe());
    // Hosts with devices of one kind compute what one of them does.
    if (state_->options.hosts) {
        std::set<std::string> kinds;
        for (std::size_t d = 0; d < state_->placement.size(); ++d) {
            if (state_->placement[d].count > 0) kinds.insert(without_threads(state_->list->device(d).describe()));
        }
        if (kinds.size() == 1) return *kinds.begin();
    }
    // A device that has all layers computes what it does alone.
    const auto has_some = [](const PlacedLayers& part) { return part.count > 0; };
    const bool one = std::ranges::count_if(state_->placement, has_some) == 1;
    for (std::size_t d = 0; d < state_->placement.size(); ++d) {
        if (one && has_some(state_->placement[d])) return without_threads(state_->list->device(d).describe());
    }
    return placed_text(state_->placement, *state_->list, without_threads);
}

const std::string& Engine::page_fingerprint() const {
    std::string& text = state_->fingerprint;
    if (!text.empty()) return text;
    text = instruction_set() + ", kv " + kernels::name(config().kv_format) + ", context " +
           std::to_string(context_length());
    // A page is then the parts of the ranks.
    if (state_->ranks != nullptr) {
        text += ", shares";
        for (const std::int32_t share : state_->ranks->shares()) text += " " + std::to_string(share);
    }
    if (state_->options.hosts) {
        text += ", layers";
        for (const PlacedLayers& part : state_->placement) text += " " + std::to_string(part.count);
    }
    const SyntheticModel& random = state_->options.random_target;
    if (state_->loaded_target.empty()) return text += ", random " + random.shape + " " + random.quant_type;
    return text += ", " + state_->options.inflate_target.shape + contents_of(state_->loaded_target);
}

const std::string& Engine::draft_page_fingerprint() const {
    std::string& text = state_->draft_fingerprint;
    if (!text.empty()) return text;
    check(draft() != nullptr, "a draft model was loaded");
    // Its LM head, which may be quantised further, has no part in keys and values.
    return text = instruction_set() + ", kv " + kernels::name(config().kv_format) + ", context " +
                  std::to_string(state_->draft_context()) + ", draft " + state_->options.inflate_draft.shape +
                  contents_of(state_->loaded_draft);
}

std::string Engine::inflated() const {
    std::string text;
    const auto add = [&](const char* what, const SyntheticModel& model) {
        if (model.shape.empty()) return;
        text += (text.empty() ? "" : ", ") + std::string(what) + " " + model.shape + " in " + model.quant_type;
    };
    add("target", state_->options.inflate_target);
    if (draft() != nullptr) add("draft", state_->options.inflate_draft);
    return text;
}

}  // namespace foresay::engine
