// engine/engine_state.h: what an Engine is made of; shared by the files that implement it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plugins.h"
#include "kernels/layer_share.h"

namespace foresay::core {
struct DeviceRoom;
}
namespace foresay::kernels {
class DividedOps;
class SplitOps;
}  // namespace foresay::kernels
namespace foresay::speculative {
struct BatchParts;
}

namespace foresay::engine {

// A model that was opened and checked; its weights are not loaded yet.
struct OpenedModel {
    std::shared_ptr<core::ModelSource> source;  // null: none, or the current model stays
    std::shared_ptr<const core::Tokenizer> tokenizer;
};

// All that a configuration names, opened and checked, before any weight is loaded.
struct OpenedParts {
    core::Config config;
    LoadedPlugins plugins;
    std::unique_ptr<kernels::Ops> ops;     // null: the current backend stays
    kernels::SplitOps* list = nullptr;     // what ops is made of, if that is a list of devices
    kernels::DividedOps* ranks = nullptr;  // likewise, if they divide each layer
    std::string why_no_device;             // with ops
    OpenedModel target, draft;
    std::filesystem::path draft_path;          // of the configuration, or found; empty: none
    std::vector<std::int32_t> never_proposed;  // with draft: ids that it must not propose
    bool keep_target = false, keep_draft = false;
    core::OpenedTemplate chat;
    std::unique_ptr<samplers::Vocabulary> vocabulary;
    std::int32_t context_length = 0;
    std::vector<PlacedLayers> placement;  // of the target, on a list of devices
    std::int32_t placed_contexts = 1;     // for so many there is room beside the layers
    std::int64_t draft_bytes = 0;         // of the draft, on a list
    kernels::LinkFacts link_facts;        // of the target, on devices that divide each layer
    ReloadResult result;
};

struct Engine::State {
    core::Config config;
    EngineOptions options;
    std::unique_ptr<kernels::Ops> ops;
    kernels::SplitOps* list = nullptr;  // this and the next one as in OpenedParts
    kernels::DividedOps* ranks = nullptr;
    std::vector<PlacedLayers> placement;  // this and the next three as in OpenedParts
    std::int32_t placed_contexts = 1;
    std::int64_t draft_bytes = 0;
    kernels::LinkFacts link_facts;
    std::string why_no_device;
    std::shared_ptr<const core::Tokenizer> tokenizer;  // null: the target has none
    core::OpenedTemplate chat;
    std::unique_ptr<samplers::Vocabulary> vocabulary;
    LoadedPlugins plugins;
    std::shared_ptr<const core::Model> target, draft;
    std::vector<std::int32_t> never_proposed;           // ids that the draft must not propose
    std::filesystem::path loaded_target, loaded_draft;  // where they come from; empty: none, or random weights
    std::filesystem::path searched_for, found_draft;    // a target for which a draft was looked for, and what was found
    bool loaded_head_as_stored = false;                 // of the draft
    std::string runtime;                                // what ops was made from
    std::int32_t context_length = 0;
    double load_ms = 0.0;
    // page_fingerprint() and draft_page_fingerprint(); empty: not asked for since the models were loaded
    mutable std::string fingerprint, draft_fingerprint;
    bool open = false;  // Engine::open() has done its work

    // ---- open_parts.cpp
    // The plugins that `next` names, by the host that is there already. Passes on what the host has to say.
    LoadedPlugins open_plugins(const core::Config& next) const;
    // Opens and checks all that `next` names. What the engine has already open stays in the engine.
    OpenedParts open_parts(const core::Config& next, LoadedPlugins with_plugins) const;
    std::int32_t context_of(const core::Config& next, const core::ModelSource& model) const;
    // The draft of `next`; empty: none is wanted, or it has yet to be found. `backend`: the one of `next`; null: not
    // known yet.
    std::filesystem::path draft_of(const core::Config& next, const kernels::Ops* backend) const;
    // Whether `next` wants a draft that has yet to be found.
    bool must_search(const core::Config& next, const kernels::Ops* backend) const;
    // A draft that is not asked for by name is no reason to fail.
    bool draft_may_be_left_out(const core::Config& next) const { return next.draft_auto || options.draft_if_cheap; }
    using Progress = std::function<void(std::int64_t done, std::int64_t all)>;
    // Calls work(progress), and reports it to the observer as `what`. progress() throws when the observer cancels.
    void observe(const std::string& what, const std::function<void(const Progress&)>& work) const;

    // ---- placement.cpp
    // On a list of devices: chooses which layers are where, with a draft on one device, and that they have room.
    void place_layers(OpenedParts& parts) const;

    // Puts runtime.host_layers into `rooms`. Whether that leaves nothing to choose.
    bool end_layers_of_hosts(const OpenedParts& parts, std::vector<core::DeviceRoom>& rooms) const;
    // The context that models are placed for.
    core::ContextOptions placed_context(const OpenedParts& parts, const kernels::Ops& list) const;
    // Puts the new draft, if there is one, on device `d` of the list.
    static void place_draft(OpenedParts& parts, std::size_t d);
    // What that needs there, with keys and values of so many contexts; 0: there is none.
    static std::int64_t bytes_of_draft(const OpenedParts& parts, core::ContextOptions context, std::int32_t contexts,
                                       kernels::Ops& device);

    // ---- row_placement.cpp
    // The same for devices that divide each layer.
    void place_rows(OpenedParts& parts) const;

    // ---- load_parts.cpp
    // Takes over `parts` and loads the weights.
    void adopt(OpenedParts& parts);
    core::ContextOptions context_options(std::int32_t length) const;
    // Positions of the draft's cache.
    std::int32_t draft_context() const { return std::min(context_length, draft->config().context_length); }
    // ---- batch.cpp
    // Contexts of many texts for which there is room: in half of the memory that is free.
    std::int64_t contexts_with_room(const core::ContextOptions& context, bool with_draft) const;
    void add_page_stores(speculative::BatchParts& parts, const Engine& engine) const;
    // Makes the lookup of one of many texts, as the configuration names it; none: it names none.
    std::function<std::unique_ptr<speculative::Drafter>(std::int32_t capacity)> lookup() const;
    bool has_source(std::string_view name) const;  // as Engine::has_source()
    // Drafters of one text, as the configuration names them.
    std::vector<std::unique_ptr<speculative::Drafter>> drafters() const;

    void notice(Notice kind, const std::string& sentence) const {
        if (options.observer) options.observer->notice(kind, sentence);
    }

private:
    void open_backend(OpenedParts& parts) const;
    // The list of this host's devices and those of the others.
    std::unique_ptr<kernels::Ops> open_hosts(const core::Config& next, const BackendChoice& choice) const;
    OpenedModel open_model(const core::Config& next, const std::string& key, const std::filesystem::path& path) const;
    void check_files(const core::Config& next, const std::string& key, const std::filesystem::path& path,
                     const std::string& what) const;
    void open_chat(OpenedParts& parts) const;
    void search_draft(OpenedParts& parts) const;
    void open_draft(OpenedParts& parts, const core::ModelSource& target_source) const;
    void open_cheap_draft(OpenedParts& parts, const core::ModelSource& target_source) const;
    void drop_draft(OpenedParts& parts, const std::string& why) const;
    void check_memory(OpenedParts& parts) const;
    void load_draft(OpenedParts& parts);
    std::shared_ptr<const core::Model> load(std::shared_ptr<core::ModelSource> source, const std::string& what,
                                            core::LoadOptions load_options = {}) const;
    // The same of the target, whose layers may be on other hosts, too.
    std::shared_ptr<const core::Model> load_target(std::shared_ptr<core::ModelSource> source) const;
};

// The target that `config` names, or random weights; `by_backend`: which the backend makes.
std::unique_ptr<core::ModelSource> open_target(const core::Config& config, const EngineOptions& options,
                                               bool by_backend);
// Bytes of runtime.device_mib for device `d` of the list; none: all that is free.
std::optional<std::int64_t> allowed_bytes(const core::Config& next, std::size_t d);

// Left free on a device with memory of its own: graphs, and what attention needs for long contexts.
inline constexpr std::int64_t kDeviceReserve = std::int64_t{512} << 20;

// `problem` after the place in the configuration that sets `setting`.
Error at(const core::Setting& setting, const Error& problem);
// How many devices at the beginning of a list are this host's.
std::size_t own_devices(const kernels::SplitOps& list);
// Number of the device that a draft is on: where draft.device says, else the first of `owns` (memory), else the first.
std::size_t draft_device(const core::Config& next, const std::vector<bool>& owns);

// The settings that a backend is made from, as one text: equal texts can share a backend.
std::string runtime_of(const core::Config& config);
// The LM head of the draft model as `config` wants it; nullopt: as stored.
std::optional<kernels::QuantType> draft_head_of(const core::Config& config);

}  // namespace foresay::engine
