// Loads the weights of what open_parts.cpp has opened.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine_state.h"
#include "engine/hosts/hosts.h"
#include "kernels/split_ops.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {

void Engine::State::adopt(OpenedParts& parts) {
    if (!parts.keep_draft) {
        draft.reset();
        loaded_draft.clear();
    }
    if (!parts.keep_target) {
        target.reset();
        loaded_target.clear();
    }
    fingerprint.clear();
    draft_fingerprint.clear();
    if (parts.ops) {
        ops = std::move(parts.ops);
        list = parts.list;
        ranks = parts.ranks;
        why_no_device = std::move(parts.why_no_device);
        runtime = runtime_of(parts.config);
    }
    placement = std::move(parts.placement);
    placed_contexts = parts.placed_contexts;
    draft_bytes = parts.draft_bytes;
    link_facts = std::move(parts.link_facts);
    config = std::move(parts.config);
    plugins = std::move(parts.plugins);
    tokenizer = std::move(parts.target.tokenizer);
    chat = std::move(parts.chat);
    vocabulary = std::move(parts.vocabulary);
    context_length = parts.context_length;
    never_proposed = std::move(parts.never_proposed);
    if (!options.weights) return;
    check_memory(parts);
    if (parts.target.source) {
        target = load_target(std::move(parts.target.source));
        loaded_target = config.target_model;
    }
    load_draft(parts);
    if (config.draft_auto) {
        searched_for = config.target_model;
        found_draft = loaded_draft;
    }
    if (!draft) return;
    const samplers::Chain chain = engine::make_chain(config, plugins.factories, *vocabulary);
    for (const std::string& stage : chain.hidden_from_draft()) {
        notice(Notice::hidden_stage, "the draft does without the sampler " + stage + ", whose state cannot be copied");
    }
}

std::shared_ptr<const core::Model> Engine::State::load_target(std::shared_ptr<core::ModelSource> source) const {
    core::LoadOptions load_options;
    load_options.context = context_length;
    if (!options.hosts) return load(std::move(source), "loading the target", load_options);
    const std::size_t own = own_devices(*list);
    std::vector<kernels::RemoteOps*> remotes;
    for (std::size_t d = own; d < list->size(); ++d) {
        remotes.push_back(&dynamic_cast<kernels::RemoteOps&>(list->device(d)));
    }
    load_options.devices = (1u << own) - 1u;
    options.hosts->begin_load({.devices = source->config().devices,
                               .own = static_cast<std::int32_t>(own),
                               .context = context_length,
                               .by_backend = ops->makes_random_weights(),
                               .fingerprint = quick_fingerprint(config, options)},
                              remotes);
    std::shared_ptr<const core::Model> model = load(std::move(source), "loading the target", load_options);
    observe("loading the target on the other hosts",
            [&](const Progress& progress) { options.hosts->finish_load(remotes, progress); });
    return model;
}

core::ContextOptions Engine::State::context_options(std::int32_t length) const {
    core::ContextOptions context;
    context.length = length;
    context.kv_format = config.kv_format;
    context.prefill_rows = std::min(ops->prefill_rows(), length);
    return context;
}

void Engine::State::load_draft(OpenedParts& parts) {
    if (!parts.draft.source) return;
    core::LoadOptions load_options;
    load_options.head = draft_head_of(config);
    load_options.context = std::min(context_length, parts.draft.source->config().context_length);
    try {
        draft = load(std::move(parts.draft.source), "loading the draft", load_options);
    } catch (const Error& problem) {
        if (!draft_may_be_left_out(config) || (!open && options.observer && options.observer->cancelled())) throw;
        drop_draft(parts, problem.what());
        never_proposed.clear();
        return;
    }
    loaded_draft = parts.draft_path;
    loaded_head_as_stored = config.draft_head_as_stored;
}

void Engine::State::check_memory(OpenedParts& parts) const {
    core::ModelSource* const target_source = parts.target.source.get();
    core::ModelSource* const draft_source = parts.draft.source.get();
    if (!target_source && !draft_source) return;
    core::ContextOptions context = context_options(context_length);
    context.decode_rows = options.decode_rows;
    speculative::MemoryEstimate estimate;
    for (core::ModelSource* source : {target_source, draft_source}) {
        if (source) estimate += speculative::estimate_memory(*source, context, *ops);
    }
    notice(Notice::memory, "memory: weights " + speculative::format_bytes(estimate.weights) + ", cache " +
                               speculative::format_bytes(estimate.cache) + ", working memory " +
                               speculative::format_bytes(estimate.activations));
    const std::string path = (target_source ? target_source : draft_source)->path();
    if (list != nullptr || ranks != nullptr)
        return;  // place_layers() or place_rows() has looked at the memory of each device
    const std::int64_t own = ops->free_memory();
    try {
        if (own >= 0) {
            speculative::require_memory(estimate, own, path, "device memory");
        } else {
            speculative::require_memory(estimate, speculative::available_memory(), path);
        }
    } catch (const Error& problem) {
        if (!draft_may_be_left_out(config) || !draft_source) throw;
        drop_draft(parts, problem.what());
        check_memory(parts);
    }
}

std::shared_ptr<const core::Model> Engine::State::load(std::shared_ptr<core::ModelSource> source,
                                                       const std::string& what, core::LoadOptions load_options) const {
    if (options.observer) {
        notice(Notice::loading, what + " " + source->path());
        for (const std::string& note : source->config().notes) {
            notice(Notice::unused_part, source->path() + ": " + note);
        }
    }
    std::shared_ptr<const core::Model> model;
    observe(what, [&](const Progress& progress) {
        load_options.progress = progress;
        model = core::Model::load(std::move(source), *ops, load_options);
    });
    return model;
}

void Engine::State::observe(const std::string& what, const std::function<void(const Progress&)>& work) const {
    Observer* const observer = options.observer.get();
    if (observer == nullptr) return work({});
    struct Report {
        Observer* observer;
        ~Report() { observer->end_load(); }
    };
    observer->begin_load(what);
    const Report report{observer};
    work([&](std::int64_t done, std::int64_t all) {
        // reload() must end with a complete engine, so it cannot be cancelled.
        if (!open && observer->cancelled()) throw Error("cancelled while " + what);
        observer->progress(done, all);
    });
}

}  // namespace foresay::engine
